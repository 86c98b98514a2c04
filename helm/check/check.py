"""The chart, rendered by helm and held against what a cluster would say. Called by scripts/check-chart.sh.

check.py HELM CHART: renders the chart with its defaults and with each ci/*.yaml. Each object has to fit
the schemas of the oldest and the newest Kubernetes, or crds.json if it is of somebody else's kind, and
the rules of rules.py; each of refused.yaml has to be refused with the words that are given there.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

import rules

HERE = Path(__file__).parent
# The oldest is kubeVersion of the chart; that the chart says so is looked at too.
VERSIONS = ["1.30", kubernetes_validate.latest_version()]
# The definitions are some MB of JSON, and the package reads them for each object anew.
kubernetes_validate.utils.schema_contents = functools.lru_cache(kubernetes_validate.utils.schema_contents)


def helm(*arguments):
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def render(*arguments):
    """The objects of a release named demo, in a namespace of its own."""
    done = helm("template", "demo", CHART, "--namespace", "evaluation", *arguments)
    if done.returncode:
        raise SystemExit(f"helm template {' '.join(arguments)}: {done.stderr}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def check_schema(document, crds):
    """What Kubernetes, or whose kind it is, says of one object."""
    key = f"{document['apiVersion']}/{document['kind']}"
    if key in crds["kinds"]:
        schema = {**crds, **crds["kinds"][key]}
        for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
            yield f"{error.json_path}: {error.message}"
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{error.json_path}: {error.message} (Kubernetes {version})"
        except kubernetes_validate.SchemaNotFoundError:
            yield f"{key} is neither a kind of Kubernetes {version} nor in helm/check/crds.json"


def check_values(name, arguments, crds):
    """Renders the chart once and yields all that is wrong."""
    documents = render(*arguments)
    seen = set()
    for document in documents:
        place = f"{name}: {document['kind']}/{document['metadata']['name']}"
        if place in seen:
            yield f"{place} is there twice"
        seen.add(place)
        findings = [*check_schema(document, crds), *rules.of_object(document)]
        yield from (f"{place}: {finding}" for finding in findings)
    yield from (f"{name}: {finding}" for finding in rules.of_release(documents))
    # The notes are rendered by an installation alone.
    notes = helm("install", "demo", CHART, "--dry-run=client", *arguments)
    if notes.returncode or "port-forward" not in notes.stdout:
        yield f"{name}: no notes: {notes.stderr}"


def check_refused(case):
    """Values that must be refused, with words that say why and no secret."""
    arguments = [argument for value in case["set"] for argument in ("--set", value)]
    done = helm("template", case.get("release", "demo"), CHART, *arguments)
    name = " ".join(case["set"])
    if not done.returncode:
        yield f"{name}: rendered, but should be refused with {case['says']!r}"
    elif case["says"] not in done.stderr:
        yield f"{name}: refused without {case['says']!r}: {done.stderr}"
    elif "hunter2" in done.stderr:
        yield f"{name}: the message shows the secret: {done.stderr}"


def main():
    crds = json.loads((HERE / "crds.json").read_text())
    files = sorted((CHART / "ci").glob("*.yaml"))
    cases = yaml.safe_load((HERE / "refused.yaml").read_text())
    if not files or not cases:
        raise SystemExit("there is nothing to check: ci/*.yaml and refused.yaml are gone")
    findings = []
    if f">={VERSIONS[0]}." not in (CHART / "Chart.yaml").read_text():
        findings.append(f"Chart.yaml: kubeVersion is not {VERSIONS[0]}, the oldest that is checked")
    findings += check_values("defaults", [], crds)
    for file in files:
        findings += check_values(file.name, ["--values", str(file)], crds)
    for case in cases:
        findings += check_refused(case)
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        raise SystemExit(1)
    print(f"{len(files) + 1} renderings and {len(cases)} refusals are as they should be", file=sys.stderr)


if __name__ == "__main__":
    HELM, CHART = sys.argv[1], Path(sys.argv[2])
    main()
