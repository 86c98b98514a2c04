"""What is sent, and what is sent again: by a server that answers as it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import assay

JOB: Any = {"id": "j", "state": "queued", "unheard_of": [1]}
BUSY = {"code": "E0005", "detail": "come again", "status": 503}


@dataclass
class Answer:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class Scripted(ThreadingHTTPServer):
    """Gives each answer once, in order. No answer closes the connection."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answers: list[Answer | None] = []
        self.seen: list[tuple[str, dict[str, str], bytes]] = []


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        request = (f"{self.command} {self.path}", dict(self.headers), self.rfile.read(length))
        self.server.seen.append(request)
        answer = self.server.answers.pop(0)
        if answer is None:
            return
        body = json.dumps(answer.body).encode() if answer.body is not None else b"<html>"
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: what is asked is in `seen`."""


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with Scripted() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        assert not server.answers


def test_the_key_is_sent(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.answers = [Answer(200, JOB)] * 3
    monkeypatch.setenv("ASSAY_API_KEY", "assay_environment\n")
    for key in (None, "assay_given", ""):
        with assay.Client(scripted.url, key) as client:
            # What a newer server adds is there.
            assert client.job("j") == JOB
    sent = [headers.get("Authorization") for _, headers, _ in scripted.seen]
    assert sent == ["Bearer assay_environment", "Bearer assay_given", None]


def test_a_refused_key_is_an_error(scripted: Scripted) -> None:
    scripted.answers = [Answer(401, {"code": "E0099", "detail": "no such key", "new": 1})]
    with assay.Client(scripted.url) as client, pytest.raises(assay.AssayError) as refused:
        client.job("j")
    assert (refused.value.status, refused.value.code) == (401, "E0099")


def test_a_busy_server_is_asked_again(scripted: Scripted) -> None:
    past = datetime.now(timezone.utc) - timedelta(hours=1)
    scripted.answers = [
        Answer(503, BUSY, {"Retry-After": "0"}),
        Answer(429, BUSY, {"Retry-After": format_datetime(past, usegmt=True)}),
        None,
        Answer(503, BUSY),
        Answer(201, JOB),
    ]
    with assay.Client(scripted.url) as client:
        assert client.submit("m", "d") == JOB
    assert {line for line, _, _ in scripted.seen} == {"POST /jobs"}
    # All of them are one job.
    assert len({headers["Idempotency-Key"] for _, headers, _ in scripted.seen}) == 1
    bodies = {body for _, _, body in scripted.seen}
    assert [json.loads(body) for body in bodies] == [{"model": "m", "datasets": ["d"]}]


def test_an_upload_is_sent_whole_each_time(scripted: Scripted, tmp_path: Path) -> None:
    scripted.answers = [None, Answer(503, BUSY, {"Retry-After": "0"}), Answer(201, {"name": "a"})]
    file = tmp_path / "a.txt"
    file.write_bytes(b"Call me Ishmael.")
    with assay.Client(scripted.url) as client:
        client.upload(file)
    assert [body for _, _, body in scripted.seen] == [file.read_bytes()] * 3


def test_patience_ends(scripted: Scripted) -> None:
    scripted.answers = [Answer(503, BUSY, {"Retry-After": "3600"}), Answer(502)]
    with assay.Client(scripted.url) as client, pytest.raises(assay.AssayError, match="come again"):
        client.job("j")
    with assay.Client(scripted.url, patience=0) as client, pytest.raises(assay.Unreachable):
        client.job("j")


def test_what_does_not_pass_is_not_sent_again(scripted: Scripted) -> None:
    scripted.answers = [Answer(500, BUSY), Answer(404), Answer(200), Answer(200, {"x": 1})]
    with assay.Client(scripted.url) as client:
        for error in (assay.AssayError, assay.Unreachable, assay.Unreachable, assay.Unreachable):
            with pytest.raises(error):
                next(client.events("j")) if len(scripted.answers) == 1 else client.job("j")


def test_nobody_there(scripted: Scripted) -> None:
    port = scripted.server_port
    scripted.socket.close()
    with assay.Client(f"http://127.0.0.1:{port}") as client, pytest.raises(assay.Unreachable):
        client.job("j")


@pytest.mark.parametrize("server", ["localhost:8080", "ftp://a", "http://", "\x00"])
def test_a_server_is_a_url(server: str) -> None:
    with pytest.raises(ValueError, match="no URL"):
        assay.Client(server)


def test_ids_stay_in_their_place(scripted: Scripted) -> None:
    scripted.answers = [Answer(404, {"code": "E0002", "detail": "no job"})]
    with assay.Client(scripted.url) as client, pytest.raises(assay.AssayError):
        client.job("../workers?x=1")
    assert scripted.seen[0][0] == "GET /jobs/..%2Fworkers%3Fx%3D1"
