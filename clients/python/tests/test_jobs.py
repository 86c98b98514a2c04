"""Jobs from the request to the numbers."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import uuid
from pathlib import Path
from typing import Any

import pytest
from conftest import BROKEN, DATASET, MODEL, ROOT, jsonl, paragraphs
from service import Service

import assay

SOURCES = ROOT / "clients/python/src"


def test_the_numbers_are_those_of_the_service(service: Service, client: assay.Client) -> None:
    seen: list[assay.Event] = []
    result = client.evaluate(MODEL, DATASET, {"window": 64}, progress=seen.append, reuse=False)
    answered = service.call(f"/jobs/{result.job_id}/results")
    exact = int(answered["datasets"][0].pop("nll_exact"))
    raw: dict[str, Any] = {**result.raw, "datasets": [dict(row) for row in result.datasets]}
    assert type(raw["datasets"][0]["nll_exact"]) is int
    assert raw["datasets"][0].pop("nll_exact") == exact
    assert raw == answered

    states = [event.data["state"] for event in seen if event.kind == "state"]
    assert states == ["queued", "planning", "running", "succeeded"]
    ended = [event.data for event in seen if event.kind == "dataset"]
    assert [row["nll_exact"] for row in ended] == [exact]


def test_the_module_knows_the_server_of_the_environment(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_SERVER", service.url + "/")
    result = assay.evaluate(MODEL, DATASET, {"window": 64})
    assert service.call(f"/jobs/{result.job_id}")["state"] == "succeeded"


def test_rows_by_dataset_and_method(client: assay.Client) -> None:
    methods: list[assay.types.MethodRequest] = [
        {"window": 64},
        {"convention": "blocks", "window": 64},
    ]
    one, other = paragraphs(2, 90)
    short: assay.types.DatasetOptions = {"documents": [one, {"text": other}], "name": "short"}
    result = client.evaluate(MODEL, [{"path": DATASET, "name": "<b>"}, short], methods)
    with pytest.raises(KeyError, match="each method"):
        result["short"]
    with pytest.raises(KeyError, match="none of"):
        result["missing"]

    frame = result.to_pandas()
    assert list(frame["name"]) == ["<b>", "<b>", "short", "short"]
    assert list(frame["method.convention"]) == ["rolling", "blocks"] * 2
    assert list(frame["nll_exact"]) == [row["nll_exact"] for row in result.datasets]
    assert all(type(number) is int for number in frame["nll_exact"])
    shown = result._repr_html_()
    assert "&lt;b&gt; (blocks)" in shown and "<b>" not in shown
    assert f"{result.datasets[0]['perplexity']:,.4f}" in shown


def test_a_number_that_is_missing_makes_no_floats(patient: assay.Client) -> None:
    result = patient.results(patient.submit(MODEL, DATASET))
    assert not result.raw["complete"]
    assert list(result.to_pandas()["nll_exact"]) == [None]
    assert "<td>–</td>" in result._repr_html_()  # noqa: RUF001
    # Beside one that is there.
    row: Any = {"nll_exact": 2**63 + 1}
    some = assay.Result({**result.raw, "datasets": [*result.datasets, row]})
    assert list(some.to_pandas()["nll_exact"]) == [None, 2**63 + 1]


def test_documents_add_up(client: assay.Client, scored: dict[str, str]) -> None:
    row = client.results(scored[MODEL])[DATASET]
    paged = client.documents(scored[MODEL], DATASET, page_size=3)
    documents = list(paged)
    assert [document["index"] for document in documents] == list(range(20))
    assert sum(document["nll_exact"] for document in documents) == row["nll_exact"]
    assert documents == list(client.documents(scored[MODEL], DATASET))
    frame = paged.to_pandas()
    assert frame["nll_exact"].sum() == row["nll_exact"]
    assert list(frame["tokens"]) == [document["tokens"] for document in documents]

    worst = list(client.documents(scored[MODEL], DATASET, worst=4))
    by_mean = sorted(documents, key=lambda row: row["nll_exact"] / row["scored_tokens"])
    assert worst == by_mean[:-5:-1]


def test_jobs_by_pages_and_by_tag(patient: assay.Client) -> None:
    tag = str(uuid.uuid4())
    posted = [
        patient.submit(MODEL, DATASET, "blocks", tags={"run": tag, "nll_exact": "no number"})
        for _ in range(3)
    ]
    found = list(patient.jobs(tag=f"run:{tag}", page_size=1))
    assert [job["id"] for job in found] == [job["id"] for job in reversed(posted)]
    assert found[0]["tags"] == {"run": tag, "nll_exact": "no number"}
    assert found == list(patient.jobs(tag=f"run:{tag}", state="queued"))
    assert list(patient.jobs(tag=f"run:{tag}", state="running")) == []


def test_a_key_makes_one_job(patient: assay.Client) -> None:
    key = str(uuid.uuid4())
    first, again = (patient.submit(MODEL, DATASET, idempotency_key=key) for _ in range(2))
    assert again["id"] == first["id"] != patient.submit(MODEL, DATASET)["id"]
    with pytest.raises(assay.AssayError) as refused:
        patient.submit(MODEL, "other.jsonl", idempotency_key=key)
    assert refused.value.status == 409


def test_what_is_wrong_is_named(client: assay.Client) -> None:
    with pytest.raises(assay.AssayError) as refused:
        client.submit(MODEL, [DATASET, "missing.jsonl"], {"window": 0}, priority=1000)
    error = refused.value
    assert (error.status, error.code) == (422, "E0003")
    named = {field["field"] for field in error.fields}
    assert named == {"datasets[1].path", "method.window", "priority"}
    for field in error.fields:
        assert f"{field['field']}: {field['detail']}" in str(error)
    with pytest.raises(assay.AssayError) as unknown:
        client.wait(uuid.UUID(int=0))
    assert (unknown.value.status, unknown.value.code) == (404, "E0002")


def test_a_job_that_fails_says_why(client: assay.Client) -> None:
    with pytest.raises(assay.JobFailed) as failed:
        client.evaluate(BROKEN, DATASET)
    assert failed.value.code == "E2003"
    assert failed.value.job["state"] == "failed"
    assert failed.value.job["id"] in str(failed.value)


def test_a_job_that_is_cancelled_ends(patient: assay.Client) -> None:
    job = patient.submit(MODEL, DATASET)
    assert patient.cancel(job)["state"] == "cancelled"
    assert patient.cancel(job["id"])["state"] == "cancelled"
    with pytest.raises(assay.JobCancelled, match=job["id"]):
        patient.wait(job)


def test_ctrl_c_leaves_the_job(patient: assay.Client, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(event: assay.Event) -> None:
        assert event.data["state"] == "queued"
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        patient.evaluate(MODEL, DATASET, progress=interrupt)
    newest = next(iter(patient.jobs()))
    assert newest["state"] == "queued"
    assert capsys.readouterr().err == f"interrupted; job {newest['id']} goes on\n"


def test_a_bar_if_asked_for(client: assay.Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.evaluate(MODEL, DATASET, {"window": 64}, reuse=False, progress=True)
    assert "succeeded" in capsys.readouterr().err
    # Nobody watches.
    client.evaluate(MODEL, DATASET, {"window": 64})
    assert capsys.readouterr().err == ""


def test_a_bar_in_a_terminal(service: Service) -> None:
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    code = f"import assay; print(assay.evaluate({MODEL!r}, {DATASET!r}).job_id)"
    env = os.environ | {"ASSAY_SERVER": service.url, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=end, text=True)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    os.close(end)
    assert service.call(f"/jobs/{done.stdout.strip()}")["state"] == "succeeded", shown
    assert "succeeded" in shown and "tokens" in shown


def test_an_upload_is_a_dataset(client: assay.Client, tmp_path: Path) -> None:
    file = tmp_path / "held-out.jsonl"
    file.write_text(jsonl(paragraphs(20, 150)))
    upload = client.upload(file)
    assert (upload["name"], upload["bytes"]) == (file.name, file.stat().st_size)
    own = client.evaluate(MODEL, {"upload": upload["name"]}, {"window": 64})
    there = client.evaluate(MODEL, DATASET, {"window": 64})
    assert own[file.name]["nll_exact"] == there[DATASET]["nll_exact"]
    with pytest.raises(assay.AssayError) as refused:
        client.upload(file, "a/b c.jsonl")
    assert (refused.value.status, refused.value.fields[0]["field"]) == (422, "name")
    assert str(refused.value).count("a/b c.jsonl") == 1
