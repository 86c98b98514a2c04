"""The GitHub Action: its steps run as a runner runs them, but for the expressions of its inputs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import DATASET, MODEL, NOISY, ROOT
from service import Service

import assay

ACTION = ROOT / "clients/github-action"
EXPRESSION = re.compile(r"\$\{\{ *inputs\.([a-z-]+) *\}\}")


def action() -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text())
    return described


def shell(script: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the runner calls `shell: bash`."""
    file = folder / "step.sh"
    file.write_text(script)
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)]
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True)


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a runner on which the action's first step has run."""
    folder = tmp_path_factory.mktemp("runner")
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "CI": "true"}
    env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    env |= {"GITHUB_ACTION_PATH": str(ACTION), "RUNNER_TEMP": str(folder), "GITHUB_ACTIONS": "true"}
    install = action()["runs"]["steps"][0]
    done = shell(install["run"], folder, env)
    assert done.returncode == 0, done.stderr
    return env


class Run:
    """A run of the second step with these inputs."""

    def __init__(self, folder: Path, runner: dict[str, str], inputs: dict[str, str]) -> None:
        described = action()
        known = described["inputs"]
        assert inputs.keys() <= known.keys()
        values = {name: inputs.get(name, known[name].get("default", "")) for name in known}
        step = described["runs"]["steps"][1]
        # The values themselves are not looked at for expressions.
        env = {
            name: EXPRESSION.sub(lambda found: values[found[1]], value)
            for name, value in step["env"].items()
        }
        files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        env = runner | {name: str(file) for name, file in files.items()} | env
        self.done = shell(step["run"], folder, env)
        self.code = self.done.returncode
        self.summary = files["GITHUB_STEP_SUMMARY"].read_text()
        output = files["GITHUB_OUTPUT"].read_text().splitlines()
        self.outputs = dict(line.split("=", 1) for line in output)
        junit = folder / "assay-gate.xml"
        self.cases = list(ET.parse(junit).iter("testcase")) if junit.exists() else []


@pytest.fixture
def inputs(service: Service, scored: dict[str, str]) -> dict[str, str]:
    return {
        "server": service.url,
        "model": NOISY,
        "datasets": DATASET,
        "method": '{"window": 64}',
        "baseline": scored[MODEL],
        "max-increase": "0",
    }


def test_action_and_workflow_are_as_github_has_them(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ACTION / "README.md").read_text(), re.DOTALL)
    workflow = tmp_path / "workflow.yml"
    workflow.write_text(blocks[0])
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    for schema, file in [("actions", ACTION / "action.yml"), ("workflows", workflow)]:
        subprocess.run([*check, f"vendor.github-{schema}", file], check=True)
    used = yaml.safe_load(blocks[0])["jobs"]["gate"]["steps"][0]["with"]
    known = action()["inputs"]
    assert {name for name in known if known[name].get("required")} <= used.keys() <= known.keys()


def test_no_input_is_a_part_of_a_script() -> None:
    described = action()
    assert all("${{" not in step["run"] for step in described["runs"]["steps"])
    given = "".join(described["runs"]["steps"][1]["env"].values())
    assert set(EXPRESSION.findall(given)) == set(described["inputs"])
    step = described["runs"]["steps"][1]["id"]
    for name, output in described["outputs"].items():
        assert output["value"] == f"${{{{ steps.{step}.outputs.{name} }}}}"


@pytest.mark.parametrize(("limit", "verdict", "code"), [("100", "pass", 0), ("0", "fail", 1)])
def test_the_exit_code_is_the_verdict(
    tmp_path: Path,
    runner: dict[str, str],
    inputs: dict[str, str],
    client: assay.Client,
    limit: str,
    verdict: str,
    code: int,
) -> None:
    run = Run(tmp_path, runner, inputs | {"max-increase": limit, "tags": "branch=a\nsha=b"})
    assert run.code == code, run.done
    assert run.outputs["verdict"] == verdict
    assert client.job(run.outputs["job-id"])["tags"] == {"branch": "a", "sha": "b"}
    found = client.gate(run.outputs["job-id"])
    assert found.comparison and found.verdict == verdict
    row = found.comparison["datasets"][0]
    assert f"<td>{row['difference']}</td>" in run.summary and verdict.upper() in run.summary
    (case,) = run.cases
    assert case.get("name") == f"{DATASET} (rolling 64)"
    written = {at.get("name"): at.get("value") for at in case.iter("property")}
    assert written["difference"] == str(row["difference"])
    assert [at.tag for at in case if at.tag != "properties"] == ["failure"] * code


def test_too_little_to_tell_is_an_error(
    tmp_path: Path, runner: dict[str, str], inputs: dict[str, str]
) -> None:
    few = '{"documents": ["one", "two"], "name": "%s"}' % DATASET  # noqa: UP031
    run = Run(tmp_path, runner, inputs | {"datasets": few})
    assert (run.code, run.outputs["verdict"]) == (2, "inconclusive"), run.done
    assert [at.tag for at in run.cases[0]] == ["properties", "error"]


def test_what_is_refused_is_said(
    tmp_path: Path, runner: dict[str, str], inputs: dict[str, str]
) -> None:
    trap = tmp_path / "trap"
    hostile = f'"; touch {trap}; $(touch {trap}) `touch {trap}`'
    for wrong, code, said in [
        ({"model": hostile}, 3, "model"),
        ({"max-increase": "much"}, 2, "max-increase"),
        ({"tags": "\n::set-output name=verdict::pass\nno tag"}, 2, "tags"),
        ({"datasets": "{"}, 2, "{"),
        ({"baseline": "00000000-0000-0000-0000-000000000000"}, 3, "baseline"),
        ({"junit": "a\nverdict=pass"}, 2, "junit"),
    ]:
        run = Run(tmp_path, runner, inputs | wrong)
        assert run.code == code, run.done
        line = run.done.stdout
        assert line.startswith("::error::") and line.count("\n") == 1 and said in line
        assert (run.outputs, run.cases) == ({}, [])
    assert not trap.exists()
