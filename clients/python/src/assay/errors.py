"""What goes wrong, by what a program can do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Verdict
    from .types import FieldError, Job


class AssayError(Exception):
    """The service refused a request, or a job has no result.

    `code` is that of the service's list of errors (`GET /errors`), `detail` says what happened
    and what to do about it, and `fields` which fields of the request are at fault.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        fields: Sequence[FieldError] = (),
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        self.code = code
        self.detail = detail
        self.fields = list(fields)
        self.status = status
        self.request_id = request_id
        super().__init__(detail)

    @classmethod
    def of_problem(cls, problem: Mapping[str, Any], status: int) -> AssayError:
        """From an `application/problem+json`."""
        return cls(
            str(problem.get("detail", "")),
            code=problem.get("code"),
            fields=problem.get("errors", ()),
            status=status,
            request_id=problem.get("request_id"),
        )

    def __str__(self) -> str:
        head = f"{self.code}: {self.detail}" if self.code else self.detail
        lines = [f"{at['field']}: {at['detail']}" for at in self.fields]
        # Of a single field, the detail is often that line.
        return "\n".join([head, *(line for line in lines if line not in head)])


class Unreachable(AssayError):
    """No server answered, or what answered is no server of Assay."""


class JobFailed(AssayError):
    """A job that was waited for has failed; `job` says when and where."""

    def __init__(self, job: Job) -> None:
        self.job = job
        error: Mapping[str, Any] = job.get("error") or {}
        detail = error.get("detail", "the service does not say why")
        super().__init__(f"job {job['id']} failed: {detail}", code=error.get("code"))
        if field := error.get("field"):
            self.fields = [{"field": field, "detail": str(detail)}]


class JobCancelled(AssayError):
    """A job that was waited for was cancelled."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(f"job {job['id']} was cancelled")


class GateFailed(AssayError):
    """A gate did not pass: it failed, or there is too little to tell."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(f"{verdict.verdict}: {verdict.reason}", fields=verdict.differences)
