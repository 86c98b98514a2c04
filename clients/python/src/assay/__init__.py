"""Client of Assay, evaluation as a service for language models.

    import assay

    result = assay.evaluate("my-checkpoint", "held-out.jsonl")
    result["held-out.jsonl"]["perplexity"]

`Client` has the rest. What the service takes and answers is in `assay.types`.
"""

from __future__ import annotations

from typing_extensions import Unpack

from . import types
from ._progress import Show
from ._version import __version__
from .client import Client, Datasets, Event, Method
from .errors import AssayError, GateFailed, JobCancelled, JobFailed, Unreachable
from .results import Result, Rows, Verdict

__all__ = [
    "AssayError",
    "Client",
    "Event",
    "GateFailed",
    "JobCancelled",
    "JobFailed",
    "Result",
    "Rows",
    "Unreachable",
    "Verdict",
    "__version__",
    "evaluate",
    "types",
]


def evaluate(
    model: types.ModelRef,
    datasets: Datasets,
    method: Method | None = None,
    *,
    server: str | None = None,
    api_key: str | None = None,
    progress: bool | Show | None = None,
    idempotency_key: str | None = None,
    **options: Unpack[types.JobOptions],
) -> Result:
    """Scores datasets with a model: `Client.evaluate` of a client that lives as long as the call.

    Ctrl-C leaves the job running and says its id.
    """
    with Client(server, api_key) as client:
        return client.evaluate(
            model, datasets, method, progress=progress, idempotency_key=idempotency_key, **options
        )
