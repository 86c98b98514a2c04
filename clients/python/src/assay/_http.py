"""Requests, and which of them are sent again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from ._version import __version__
from .errors import AssayError, Unreachable

# The server's own limit for a request is shorter, and an idle stream has a comment every 15 s.
ANSWER = 60.0
# Longer than the server may look at a checkpoint, a dataset or two jobs.
LONG_ANSWER = 660.0
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 4.0
# Statuses of a server, or of a proxy in front of it, that may soon answer otherwise.
PASSING = frozenset({429, 502, 503, 504})
# Those of a server that has done nothing, if it says when to come again.
REFUSING = frozenset({429, 503})


class Transport:
    """A connection to one server. Requests are sent again only where that is safe."""

    def __init__(self, server: str, api_key: str | None, patience: float) -> None:
        try:
            url = httpx.URL(server.rstrip("/"))
        except httpx.InvalidURL as error:
            raise ValueError(f"{server!r} is no URL such as http://127.0.0.1:8080") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"{server!r} is no URL such as http://127.0.0.1:8080")
        headers = {"User-Agent": f"assay-client/{__version__}"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(base_url=url, headers=headers, timeout=ANSWER)
        self._server = str(url)
        self._patience = patience
        # A server that refuses the very first connection is not there; later it may be restarted.
        self._was_there = False

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool = False,
        limit: float = ANSWER,
        exact: bool = False,
        file: BinaryIO | None = None,
        **request: Any,
    ) -> Any:
        """The JSON that is answered. A POST is repeatable only if it is said to be.

        With `exact`, the exact sums in the answer, strings in JSON, are ints.
        """
        timeout = httpx.Timeout(limit, connect=ANSWER)

        def send() -> httpx.Response:
            if file is not None:
                # An earlier try may have read from it.
                file.seek(0)
                request["content"] = file
            return self._http.request(method, path, timeout=timeout, **request)

        response = self._persist(send, repeatable or method != "POST")
        try:
            return json.loads(response.content, object_hook=with_ints if exact else None)
        except ValueError as error:
            raise self._foreign(response) from error

    def follow(self, path: str, after: str | None) -> Generator[ServerSentEvent, None, None]:
        """Server-sent events behind one, until the server says that no more come."""
        while True:
            response = self._persist(partial(self._open, path, after), True)
            if response.status_code == httpx.codes.NO_CONTENT:
                response.close()
                return
            is_new = False
            try:
                for event in EventSource(response).iter_sse():
                    # A comment that keeps the connection open looks like an event without data.
                    if event.data:
                        after, is_new = event.id or after, True
                        yield event
            except SSEError as error:
                raise self._foreign(response) from error
            except httpx.TransportError:
                pass  # The server went away, and is asked again from there on.
            finally:
                response.close()
            if not is_new:
                time.sleep(FIRST_PAUSE)

    def _open(self, path: str, after: str | None) -> httpx.Response:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if after is not None:
            headers["Last-Event-ID"] = after
        request = self._http.build_request("GET", path, headers=headers)
        return self._http.send(request, stream=True)

    def _persist(self, send: Callable[[], httpx.Response], repeatable: bool) -> httpx.Response:
        """Sends until there is an answer, or waiting for one is vain."""
        give_up = time.monotonic() + self._patience
        pause = FIRST_PAUSE
        while True:
            wait = None
            try:
                response = send()
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # Nothing was sent.
                failure: AssayError = self._unreachable(error)
                again = self._was_there
            except httpx.RequestError as error:
                failure = self._unreachable(error)
                again = repeatable and isinstance(error, httpx.TransportError)
            else:
                self._was_there = True
                if response.is_success:
                    return response
                failure = self._refusal(response)
                wait = _retry_after(response)
                status = response.status_code
                again = repeatable and status in PASSING
                again |= wait is not None and status in REFUSING
            wait = pause if wait is None else wait
            if not again or time.monotonic() + wait > give_up:
                raise failure
            time.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _unreachable(self, error: httpx.RequestError) -> Unreachable:
        cause = str(error) or type(error).__name__
        unreachable = Unreachable(f"no answer from {self._server}: {cause}")
        unreachable.__cause__ = error
        return unreachable

    def _refusal(self, response: httpx.Response) -> AssayError:
        try:
            problem = json.loads(response.read())
        except (ValueError, httpx.TransportError):
            return self._foreign(response)
        finally:
            response.close()
        if not isinstance(problem, dict) or "code" not in problem:
            return self._foreign(response)
        return AssayError.of_problem(problem, response.status_code)

    def _foreign(self, response: httpx.Response) -> Unreachable:
        status = response.status_code
        return Unreachable(f"{response.url} answered {status}, not as Assay does", status=status)


def with_ints(values: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON with its exact sums, which travel as strings, as ints."""
    for name, value in values.items():
        if name.endswith("_exact") and isinstance(value, str):
            values[name] = int(value)
    return values


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds until the server wants to be asked again, if it says so."""
    value = response.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    # HTTP's dates are in UTC, whether or not they say so.
    at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - datetime.now(timezone.utc)).total_seconds())
