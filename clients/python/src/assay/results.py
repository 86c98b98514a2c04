"""What the service answers, with what notebooks and programs want of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import GateFailed

if TYPE_CHECKING:
    import pandas as pd

    from .types import Comparison, DatasetResult, FieldError, JobResult
    from .types import Verdict as Word

Row = TypeVar("Row", bound=Mapping[str, Any])

# Of a result in a notebook; `to_pandas` has all columns.
SHOWN = ("scored_tokens", "perplexity", "word_perplexity", "bits_per_byte", "standard_error")


@dataclass(frozen=True)
class Result:
    """The numbers of a job, as `GET /jobs/{id}/results` answers them."""

    raw: JobResult

    @property
    def job_id(self) -> str:
        """The job."""
        return self.raw["job_id"]

    @property
    def datasets(self) -> list[DatasetResult]:
        """A row for each dataset and method, in the order of the request."""
        return self.raw["datasets"]

    @property
    def warnings(self) -> list[str]:
        """What a reader of the numbers should know."""
        return self.raw["warnings"]

    def __getitem__(self, name: str) -> DatasetResult:
        """The row of a dataset, of a job with one method; `datasets` has those of all methods."""
        rows = [row for row in self.datasets if row["name"] == name]
        if not rows:
            raise KeyError(f"{name!r} is none of {[row['name'] for row in self.datasets]}")
        if len(rows) > 1:
            raise KeyError(f"{name!r} has a row for each method: choose from `datasets`")
        return rows[0]

    def to_pandas(self) -> pd.DataFrame:
        """A row for each dataset and method, without the numbers of groups. Needs pandas."""
        return _frame([{k: v for k, v in row.items() if k != "groups"} for row in self.datasets])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("dataset", *SHOWN))
        rows = "".join(
            f"<tr><td>{escape(row['name'])} ({escape(row['method']['convention'])})</td>"
            + "".join(f"<td>{_short(row.get(name))}</td>" for name in SHOWN)
            + "</tr>"
            for row in self.datasets
        )
        notes = "".join(f"<p>{escape(text)}</p>" for text in self.warnings)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


class Rows(Generic[Row]):
    """The rows of a list, fetched page by page whenever they are iterated over."""

    def __init__(self, page: Callable[[str | None], Mapping[str, Any]]) -> None:
        self._page = page

    def __iter__(self) -> Iterator[Row]:
        cursor: str | None = None
        while True:
            page = self._page(cursor)
            yield from page["items"]
            cursor = page.get("next")
            if cursor is None:
                return

    def to_pandas(self) -> pd.DataFrame:
        """All of them. Needs pandas."""
        return _frame(list(self))


@dataclass(frozen=True)
class Verdict:
    """Whether a job passes a gate, and why."""

    job_id: str
    verdict: Word
    reason: str
    # What the verdict rests on, if the jobs were compared.
    comparison: Comparison | None
    # What kept them from being compared, where the service says so.
    differences: Sequence[FieldError] = ()

    @property
    def passed(self) -> bool:
        """Whether it passes. Too little to tell is no pass."""
        return self.verdict == "pass"

    def raise_for_failure(self) -> Verdict:
        """Itself if it passes.

        Raises:
            GateFailed: it does not.
        """
        if not self.passed:
            raise GateFailed(self)
        return self


def _short(value: object) -> str:
    if value is None:
        return "–"  # noqa: RUF001
    return f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"


def _frame(rows: list[Any]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.json_normalize(rows)
    for name in {name for row in rows for name in row if name.endswith("_exact")}:
        # Ints of any size: beside a missing one pandas would make floats of them.
        frame[name] = pd.Series([row.get(name) for row in rows], dtype=object)
    return frame
