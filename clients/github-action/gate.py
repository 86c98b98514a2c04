"""The step of action.yml that scores a checkpoint and judges it. Ends as `assay gate` does."""

from __future__ import annotations

import json
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import assay

CODES = {"pass": 0, "fail": 1, "inconclusive": 2}
USAGE, REFUSED = 2, 3
# What JUnit calls a test that did not pass; many systems let a skipped one pass.
KINDS = {"fail": "failure", "inconclusive": "error"}
NUMBERS = ("baseline_mean_nll", "candidate_mean_nll", "difference", "confidence_95", "max_increase")
# What no XML holds, and what would begin a line of the log: there, `::` is a command to the runner.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class WrongInput(Exception):
    """An input of the action cannot be used."""


def printable(text: str) -> str:
    """One line."""
    return UNPRINTABLE.sub("\ufffd", text)


def lines(name: str) -> list[str]:
    """The lines of an input."""
    return [line.strip() for line in os.environ[name].splitlines() if line.strip()]


def parsed(text: str) -> Any:
    """JSON, or else the text itself."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise WrongInput(f"{text}: {error}") from error


def tags() -> dict[str, str]:
    """Those of the job."""
    pairs = [line.partition("=") for line in lines("TAGS")]
    for key, found, _ in pairs:
        if not found:
            raise WrongInput(f"tags: {key} is no key=value")
    return {key: value for key, _, value in pairs}


def judge() -> tuple[assay.Verdict, assay.types.Job]:
    """Posts the job and waits for the verdict."""
    try:
        limit = float(os.environ["MAX_INCREASE"])
    except ValueError as error:
        raise WrongInput(f"max-increase: {error}") from error
    name = os.environ["BASELINE"].strip()
    baseline: str | assay.types.TaggedJob = {"tag": name} if ":" in name else name
    datasets = [parsed(line) for line in lines("DATASETS")]
    method = parsed(os.environ["METHOD"].strip())
    with assay.Client() as client:
        job = client.submit(
            os.environ["MODEL"],
            datasets,
            method,
            tags=tags(),
            gate={"baseline": baseline, "max_increase": limit},
        )
        print(f"waiting for job {job['id']}", flush=True)
        return client.gate(job), job


def rows(verdict: assay.Verdict) -> list[Mapping[str, Any]]:
    """Those of the comparison; where there is none, one that says why."""
    if verdict.comparison:
        return list(verdict.comparison["datasets"])
    why = "; ".join(
        [verdict.reason, *(f"{d['field']}: {d['detail']}" for d in verdict.differences)]
    )
    return [{"name": "comparison", "verdict": verdict.verdict, "reason": why}]


def title(row: Mapping[str, Any]) -> str:
    """A row's name."""
    method = row.get("method")
    name = f"{row['name']} ({method['convention']} {method['window']})" if method else row["name"]
    return printable(name)


def junit(verdict: assay.Verdict) -> ET.ElementTree:
    """A test case for each row."""
    cases = rows(verdict)
    count = {word: str(sum(row["verdict"] == word for row in cases)) for word in KINDS}
    totals = {"name": "assay gate", "tests": str(len(cases)), "failures": count["fail"]}
    totals |= {"errors": count["inconclusive"], "skipped": "0"}
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", totals)
    for row in cases:
        group = row["method"]["convention"] if "method" in row else "assay"
        case = ET.SubElement(suite, "testcase", name=title(row), classname=group)
        properties = ET.SubElement(case, "properties")
        for name in NUMBERS:
            if (number := row.get(name)) is not None:
                ET.SubElement(properties, "property", name=name, value=str(number))
        if kind := KINDS.get(row["verdict"]):
            message = printable(row.get("reason") or "")
            ET.SubElement(case, kind, message=message, type=row["verdict"])
    return ET.ElementTree(root)


def summary(verdict: assay.Verdict, job: assay.types.Job) -> str:
    """What the page of the run shows. HTML, as names may hold anything that Markdown knows."""
    heads = ("dataset", "verdict", *NUMBERS, "reason")
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in heads)
    table = ""
    for row in rows(verdict):
        cells = [title(row), row["verdict"], *(row.get(name, "") for name in NUMBERS)]
        cells.append(printable(row.get("reason") or ""))
        table += "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"
    return (
        f"<h3>Assay gate: {verdict.verdict.upper()}</h3>\n\n"
        f"<table><tr>{head}</tr>{table}</table>\n\n"
        f"<p>job <code>{job['id']}</code>; nats per token</p>\n"
    )


def append(variable: str, text: str) -> None:
    """To a file of the runner, where there is one."""
    if path := os.environ.get(variable):
        with Path(path).open("a") as file:
            file.write(text)


def complain(error: Exception, code: int) -> int:
    """An annotation of the run."""
    message = printable(str(error)).replace("%", "%25")
    print(f"::error::{message}")
    return code


def main() -> int:
    """The exit code."""
    path = Path(os.environ["JUNIT"])
    try:
        if printable(str(path)) != str(path):
            raise WrongInput("junit: a name of a file is one line")
        path.parent.mkdir(parents=True, exist_ok=True)
        verdict, job = judge()
    except (WrongInput, OSError) as error:
        return complain(error, USAGE)
    except assay.AssayError as error:
        return complain(error, REFUSED)
    junit(verdict).write(path, encoding="utf-8", xml_declaration=True)
    append("GITHUB_STEP_SUMMARY", summary(verdict, job))
    outputs = f"verdict={verdict.verdict}\njob-id={job['id']}\njunit={path}\n"
    append("GITHUB_OUTPUT", outputs)
    print(f"{verdict.verdict.upper()}: {printable(verdict.reason)}")
    return CODES[verdict.verdict]


if __name__ == "__main__":
    sys.exit(main())
