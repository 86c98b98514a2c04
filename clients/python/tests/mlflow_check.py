"""The example for MLflow, against a tracking server and a service: a part of the long check."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DATASET, MODEL, NOISY, ROOT
from mlflow import MlflowClient
from service import Service

import assay

PACKAGE = ROOT / "clients/python"
# Nothing is sent to anybody but the tracking server.
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
ROW = f"{DATASET}.rolling"


@pytest.fixture(scope="session")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a tracking server on a free port."""
    folder = tmp_path_factory.mktemp("mlflow")
    command: list[str | Path] = [
        Path(sys.executable).with_name("mlflow"),
        "server",
        "--host",
        "127.0.0.1",
    ]
    command += ["--port", "0", "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/db"]
    command += ["--artifacts-destination", folder / "artifacts"]
    log = folder / "log"
    env = os.environ | QUIET
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, text=True)
    # Ends with the line looked for, or with the server.
    follow: list[str | Path] = ["tail", "--lines", "+1", "--follow", f"--pid={server.pid}", log]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout
        url = next((line for line in tail.stdout if "Uvicorn running on " in line), None)
        tail.terminate()
    try:
        assert url, log.read_text()
        yield url.split("Uvicorn running on ")[1].split()[0]
    finally:
        server.terminate()
        server.wait()


def example(service: Service, tracking: str, *arguments: str) -> tuple[int, str]:
    """The exit code of the example, and the run that it logged."""
    env = os.environ | QUIET | {"ASSAY_SERVER": service.url, "MLFLOW_TRACKING_URI": tracking}
    env["PYTHONPATH"] = str(PACKAGE / "src")
    command: list[str | Path] = [sys.executable, PACKAGE / "examples/mlflow_logging.py", *arguments]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout.split()[-1]


@pytest.mark.parametrize(("limit", "verdict", "code"), [("100", "pass", 0), ("0", "fail", 1)])
def test_a_run_has_the_numbers_of_the_service(
    service: Service, tracking: str, client: assay.Client, limit: str, verdict: str, code: int
) -> None:
    baseline = client.evaluate(MODEL, DATASET)
    gate = ["--baseline", baseline.job_id, "--max-increase", limit]
    ended, run_id = example(service, tracking, NOISY, DATASET, *gate)
    assert ended == code

    run = MlflowClient(tracking).get_run(run_id)
    assert run.info.status == "FINISHED"
    params, metrics = run.data.params, run.data.metrics
    answered = service.call(f"/jobs/{params['assay.job']}/results")
    (row,) = answered["datasets"]
    assert params[f"{ROW}.nll_exact"] == row["nll_exact"]
    assert params[f"{ROW}.digest"] == row["digest"]
    assert params["assay.model.digest"] == answered["model"]["digest"]
    assert params["assay.tokenizer.digest"] == answered["tokenizer"]["digest"]
    assert params["assay.numerics_version"] == str(answered["numerics_version"])
    for name in ("perplexity", "word_perplexity", "bits_per_byte", "standard_error",
                 "confidence_95", "scored_tokens"):  # fmt: skip
        assert metrics[f"{ROW}.{name}"] == row[name], name

    assert params["assay.baseline"] == baseline.job_id
    assert run.data.tags["assay.verdict"] == verdict
    body = {"baseline": baseline.job_id, "candidate": params["assay.job"]}
    (change,) = service.call("/comparisons", body | {"max_increase": float(limit)})["datasets"]
    assert change["verdict"] == verdict
    for name in ("difference", "confidence_95", "perplexity_ratio"):
        assert metrics[f"gate.{ROW}.{name}"] == change[name], name
