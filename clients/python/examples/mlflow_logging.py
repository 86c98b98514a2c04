"""Logs to MLflow what a checkpoint came to: after a fine-tune, beside its training run.

Perplexities, their error bars and the gate's numbers become metrics; what they were made from, by
digest, and the exact sums become parameters; the verdict is a tag. All numbers are the server's.

    pip install mlflow './clients/python'
    export ASSAY_SERVER=... MLFLOW_TRACKING_URI=...
    python mlflow_logging.py MODEL DATASET [--run-id RUN] [--baseline JOB --max-increase 0.01]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Any

import mlflow

import assay

METRICS = (
    "perplexity",
    "word_perplexity",
    "bits_per_byte",
    "standard_error",
    "confidence_95",
    "scored_tokens",
)
CHANGES = ("difference", "confidence_95", "perplexity_ratio")


def log_result(result: assay.Result) -> None:
    """The numbers, and what made them."""
    raw = result.raw
    params: dict[str, object] = {
        "assay.job": result.job_id,
        "assay.version": raw["version"],
        "assay.numerics_version": raw["numerics_version"],
        "assay.dtype": raw["dtype"],
        "assay.device_kinds": ", ".join(raw["device_kinds"]),
    }
    if model := raw.get("model"):
        params |= {"assay.model": model["path"], "assay.model.digest": model["digest"]}
    if tokenizer := raw.get("tokenizer"):
        params["assay.tokenizer.digest"] = tokenizer["digest"]
    for row in result.datasets:
        name = key(row)
        # A metric is a float, which does not hold an exact sum.
        params[f"{name}.nll_exact"] = row.get("nll_exact")
        params[f"{name}.digest"] = row.get("digest")
        mlflow.log_metrics(numbers(name, row, METRICS))
    mlflow.log_params(params)


def log_verdict(verdict: assay.Verdict) -> None:
    """The verdict, and the differences that it rests on."""
    mlflow.set_tags({"assay.verdict": verdict.verdict, "assay.reason": verdict.reason})
    if verdict.comparison:
        mlflow.log_param("assay.baseline", verdict.comparison["baseline"])
        for row in verdict.comparison["datasets"]:
            mlflow.log_metrics(numbers(f"gate.{key(row)}", row, CHANGES))


def key(row: Mapping[str, Any]) -> str:
    """A name for MLflow, which does not take every character."""
    return re.sub(r"[^\w. /-]", "_", f"{row['name']}.{row['method']['convention']}")


def numbers(prefix: str, row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    """Those that are known."""
    found = {f"{prefix}.{name}": row.get(name) for name in names}
    return {name: float(number) for name, number in found.items() if number is not None}


def main() -> int:
    """0 if there is no gate, or it passes."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("model")
    arguments.add_argument("dataset", nargs="+")
    arguments.add_argument("--run-id", help="run of the training; default: a new run")
    arguments.add_argument("--baseline", help="job to hold it against")
    arguments.add_argument("--max-increase", type=float, help="of the mean NLL, in nats per token")
    given = arguments.parse_args()
    verdict = None
    with assay.Client() as client, mlflow.start_run(run_id=given.run_id) as run:
        result = client.evaluate(given.model, given.dataset, tags={"mlflow": run.info.run_id})
        log_result(result)
        if given.baseline:
            verdict = client.gate(result, given.baseline, given.max_increase)
            log_verdict(verdict)
    print(run.info.run_id)
    return 0 if verdict is None or verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
