"""The client of a server."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import quote

from typing_extensions import Self, Unpack

from . import types
from ._http import LONG_ANSWER, Transport, with_ints
from ._progress import Show, shown
from .errors import AssayError, JobCancelled, JobFailed
from .results import Result, Rows, Verdict

DEFAULT_SERVER = "http://127.0.0.1:8080"
# Seconds in which a restarted server is back.
PATIENCE = 60.0
FINAL = frozenset({"succeeded", "failed", "cancelled"})
# A job that has ended cannot be cancelled.
JOB_ENDED = "E0011"
NOT_COMPARABLE = "E0014"

JobLike: TypeAlias = "str | uuid.UUID | types.Job | Result"
Method: TypeAlias = "types.Convention | types.MethodRequest | Sequence[types.MethodRequest]"
Datasets: TypeAlias = "types.DatasetRef | Sequence[types.DatasetRef]"


class Event(NamedTuple):
    """Something that happened to a job."""

    # To be given as `after` to go on behind it.
    id: str
    # `state`, `dataset` or `progress`; a newer server may have others.
    kind: str
    data: Mapping[str, Any]


class Client:
    """A client of one server. Use it in a `with` statement, or close it.

    Args:
        server: URL of the server; default: `ASSAY_SERVER`, or else http://127.0.0.1:8080.
        api_key: Key to be sent; default: `ASSAY_API_KEY`, or else none.
        patience: Seconds for which a server that went away, or asks to wait, is tried again. Only
            what is safe to repeat is sent again; a job is never posted twice.
    """

    def __init__(
        self,
        server: str | None = None,
        api_key: str | None = None,
        *,
        patience: float = PATIENCE,
    ) -> None:
        server = server or os.environ.get("ASSAY_SERVER") or DEFAULT_SERVER
        key = api_key if api_key is not None else os.environ.get("ASSAY_API_KEY", "")
        self._http = Transport(server, key.strip(), patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Jobs go on."""
        self._http.close()

    def evaluate(
        self,
        model: types.ModelRef,
        datasets: Datasets,
        method: Method | None = None,
        *,
        progress: bool | Show | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[types.JobOptions],
    ) -> Result:
        """Posts a job, waits for its end and returns its numbers: `submit`, `wait`, `results`."""
        job = self.submit(model, datasets, method, idempotency_key=idempotency_key, **options)
        return self.results(self.wait(job, progress=progress))

    def submit(
        self,
        model: types.ModelRef,
        datasets: Datasets,
        method: Method | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[types.JobOptions],
    ) -> types.Job:
        """Posts a job.

        Args:
            model: Path of the checkpoint below the server's model root, or an object with it.
            datasets: Path of a dataset below the server's data root, or an object, or several.
            method: A convention such as `rolling`, an object or several; default: the server's.
            idempotency_key: Who posts the same body with the same key again gets the same job;
                default: a new one, for the repetitions of this call.
            options: Further fields of `POST /jobs`.
        """
        several = isinstance(datasets, Sequence) and not isinstance(datasets, str)
        body: dict[str, Any] = {"model": model, "datasets": datasets if several else [datasets]}
        if method is not None:
            body["method"] = {"convention": method} if isinstance(method, str) else method
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return cast(
            "types.Job",
            self._http.call(
                "POST",
                "/jobs",
                json=body | options,
                headers=headers,
                repeatable=True,
                limit=LONG_ANSWER,
            ),
        )

    def job(self, job: JobLike) -> types.Job:
        """How a job stands."""
        return cast("types.Job", self._http.call("GET", _path(job)))

    def jobs(
        self, *, state: types.JobState | None = None, tag: str | None = None, page_size: int = 100
    ) -> Rows[types.Job]:
        """All jobs, the newest first; those in a state, or with a tag (`key:value`)."""
        return self._rows("/jobs", {"state": state, "tag": tag, "limit": page_size}, exact=False)

    def cancel(self, job: JobLike) -> types.Job:
        """Cancels a job and returns it. One that has ended stays as it is."""
        try:
            return cast("types.Job", self._http.call("DELETE", _path(job)))
        except AssayError as error:
            if error.code != JOB_ENDED:
                raise
            return self.job(job)

    def events(self, job: JobLike, *, after: str | None = None) -> Iterator[Event]:
        """What happens to a job, as it happens, until it has ended.

        A server that is restarted meanwhile is asked again, and no event is missed or seen twice.
        `after` is the id of the last event that was seen already.
        """
        with closing(self._http.follow(f"{_path(job)}/events", after)) as stream:
            for event in stream:
                hook = with_ints if event.event == "dataset" else None
                data = json.loads(event.data, object_hook=hook)
                yield Event(event.id, event.event, data)
                if event.event == "state" and data["state"] in FINAL:
                    return

    def wait(self, job: JobLike, *, progress: bool | Show | None = None) -> types.Job:
        """Waits for the end of a job and returns it.

        Args:
            job: The job.
            progress: Whether a bar is shown (default: in a terminal or a notebook, if tqdm is
                installed), or what each event is given to.

        Raises:
            JobFailed: it failed.
            JobCancelled: it was cancelled.
            KeyboardInterrupt: Ctrl-C was pressed; the job goes on.
        """
        try:
            with shown(progress) as show:
                for event in self.events(job):
                    show(event)
            ended = self.job(job)
        except KeyboardInterrupt:
            print(f"interrupted; job {_id(job)} goes on", file=sys.stderr)
            raise
        if ended["state"] == "succeeded":
            return ended
        raise JobCancelled(ended) if ended["state"] == "cancelled" else JobFailed(ended)

    def results(self, job: JobLike) -> Result:
        """The numbers of a job, null where they are not known yet."""
        path = f"{_path(job)}/results"
        return Result(cast("types.JobResult", self._http.call("GET", path, exact=True)))

    def documents(
        self,
        job: JobLike,
        dataset: str,
        *,
        method: int = 0,
        worst: int | None = None,
        page_size: int = 1000,
    ) -> Rows[types.DocumentRow]:
        """Sums of each document of a dataset.

        Args:
            job: The job.
            dataset: Name of the dataset, as the job has it.
            method: Which of the job's methods, from 0.
            worst: Only so many, of the highest mean NLL, the highest first.
            page_size: How many are fetched at once.
        """
        order = None if worst is None else "worst"
        limit = page_size if worst is None else worst
        query = {"dataset": dataset, "method": method, "order": order, "limit": limit}
        return self._rows(f"{_path(job)}/documents", query, exact=True)

    def compare(
        self,
        baseline: JobLike | types.TaggedJob,
        candidate: JobLike,
        *,
        datasets: Sequence[str] = (),
        max_increase: float | None = None,
        documents: int | None = None,
    ) -> types.Comparison:
        """The paired difference of two jobs that have ended, candidate minus baseline.

        Args:
            baseline: A job, or `{"tag": "key:value"}` for the newest older one with this tag.
            candidate: The job that is judged.
            datasets: Names of the datasets to compare; default: all.
            max_increase: Largest increase of the mean NLL that passes, in nats per token.
            documents: How many of the documents that changed most are named.
        """
        body: dict[str, Any] = {"baseline": _selector(baseline), "candidate": _id(candidate)}
        if datasets:
            body["datasets"] = list(datasets)
        if max_increase is not None:
            body["max_increase"] = max_increase
        if documents is not None:
            body["documents"] = documents
        # A comparison changes nothing.
        answer = self._http.call(
            "POST", "/comparisons", json=body, repeatable=True, limit=LONG_ANSWER, exact=True
        )
        return cast("types.Comparison", answer)

    def gate(
        self,
        job: JobLike,
        baseline: JobLike | types.TaggedJob | None = None,
        max_increase: float | None = None,
        *,
        datasets: Sequence[str] = (),
    ) -> Verdict:
        """Whether a job passes, once it and its baseline have ended.

        Without a baseline it is the gate that the job was posted with. The verdict and the
        numbers that it rests on are the service's. A job without numbers is inconclusive.
        """
        if (baseline is None) != (max_increase is None):
            raise ValueError("a gate is a baseline and a max_increase: give both, or neither")
        if baseline is None:
            return self._stored_gate(job)
        # Both are looked for before one is waited for: an id may be mistyped.
        named = [("the job", self.job(job))]
        selector = _selector(baseline)
        if isinstance(selector, str):
            named.append(("the baseline", self.job(selector)))
        for which, either in named:
            ended = self._ended(either)
            if ended["state"] != "succeeded":
                error = ended.get("error")
                why = f": {error['code']}: {error['detail']}" if error else ""
                reason = f"{which} {ended['id']} {ended['state']}{why}"
                return Verdict(_id(job), "inconclusive", reason, None)
        try:
            found = self.compare(baseline, job, datasets=datasets, max_increase=max_increase)
        except AssayError as refused:
            if refused.code != NOT_COMPARABLE:
                raise
            return Verdict(_id(job), "inconclusive", refused.detail, None, refused.fields)
        word = found.get("verdict") or "inconclusive"
        reasons = [
            f"{row['name']} ({row['method']['convention']}): {row.get('reason') or ''}"
            for row in found["datasets"]
            if row.get("verdict") == word
        ]
        return Verdict(_id(job), word, ". ".join(reasons), found)

    def upload(self, path: str | os.PathLike[str], name: str | None = None) -> types.Upload:
        """Uploads a dataset, to be used as `{"upload": NAME}`; default: the name of the file."""
        path = Path(path)
        target = f"/datasets/{quote(name or path.name, safe='')}"
        headers = {"Content-Type": "application/octet-stream"}
        with path.open("rb") as file:
            answer = self._http.call("PUT", target, file=file, headers=headers, limit=LONG_ANSWER)
        return cast("types.Upload", answer)

    def _stored_gate(self, job: JobLike) -> Verdict:
        path = f"{_path(job)}/gate"

        def ask() -> types.GateResult:
            found = self._http.call("GET", path, limit=LONG_ANSWER, exact=True)
            return cast("types.GateResult", found)

        found = ask()
        # The job first: one that has failed needs no baseline to be judged.
        for either in (_id(job), found["gate"]["baseline"]):
            if found.get("verdict") is None:
                self._ended(self.job(either))
                found = ask()
        word = found.get("verdict")
        if word is None:
            raise AssayError(found["reason"])
        return Verdict(found["job_id"], word, found["reason"], found.get("comparison"))

    def _ended(self, job: types.Job) -> types.Job:
        """The job once it has ended, however it did."""
        if job["state"] in FINAL:
            return job
        try:
            return self.wait(job)
        except (JobFailed, JobCancelled) as error:
            return error.job

    def _rows(self, path: str, query: Mapping[str, Any], *, exact: bool) -> Rows[Any]:
        def page(cursor: str | None) -> Mapping[str, Any]:
            given = {**query, "cursor": cursor}
            params = {name: value for name, value in given.items() if value is not None}
            found = self._http.call("GET", path, params=params, exact=exact)
            return cast("Mapping[str, Any]", found)

        return Rows(page)


def _id(job: JobLike) -> str:
    if isinstance(job, Result):
        return job.job_id
    return str(job if isinstance(job, str | uuid.UUID) else job["id"])


def _path(job: JobLike) -> str:
    return f"/jobs/{quote(_id(job), safe='')}"


def _selector(baseline: JobLike | types.TaggedJob) -> str | types.TaggedJob:
    if isinstance(baseline, Mapping) and "tag" in baseline:
        return cast("types.TaggedJob", baseline)
    return _id(baseline)
