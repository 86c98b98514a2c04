"""A bar while a job is waited for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .client import Event
    from .types import Progress

Show = Callable[["Event"], None]


@contextmanager
def shown(progress: bool | Show | None) -> Iterator[Show]:
    """What each event is shown to: a bar if asked for, or if somebody watches and tqdm is there."""
    if callable(progress):
        yield progress
        return
    wanted = _is_watched() if progress is None else progress
    try:
        from tqdm.auto import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda event: None
        return
    with tqdm(unit=" tokens", unit_scale=True, dynamic_ncols=True) as bar:

        def show(event: Event) -> None:
            if event.kind == "state":
                bar.set_description(str(event.data["state"]))
            elif event.kind == "progress":
                counts = cast("Progress", event.data)
                bar.total = counts.get("planned_tokens")
                bar.update(counts["scored_tokens"] - bar.n)

        yield show


def _is_watched() -> bool:
    # A notebook's stderr is no terminal.
    return sys.stderr.isatty() or "ipykernel" in sys.modules
