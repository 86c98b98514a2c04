"""A server that is killed while a job is waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from subprocess import Popen

import pytest
from conftest import DATASET, MODEL, started
from service import Service

import assay


@pytest.fixture
def alone() -> Iterator[Service]:
    """A service that nobody else uses, without a worker."""
    yield from started()


def test_who_waits_misses_nothing(alone: Service) -> None:
    client = assay.Client(alone.url)
    job = client.submit(MODEL, DATASET, {"window": 64})
    seen: list[assay.Event] = []
    servers = [alone.child("assay-server")]
    workers: list[Popen[bytes]] = []

    def disturb(event: assay.Event) -> None:
        seen.append(event)
        if event.kind == "state" and event.data["state"] != "succeeded":
            # It starts again on its port, on the same database.
            os.kill(servers[-1], signal.SIGKILL)
            if not workers:
                workers.append(alone.worker("cpu:0"))
            assert client.job(job)["id"] == job["id"]
            servers.append(alone.child("assay-server"))

    assert client.wait(job, progress=disturb)["state"] == "succeeded"
    alone.retire(workers)
    assert len(set(servers)) == 4

    lasting = [event for event in seen if event.kind != "progress"]
    assert lasting == list(client.events(job))
    assert [event.id for event in lasting] == [str(at + 1) for at in range(len(lasting))]
    assert list(client.events(job, after=lasting[-2].id)) == lasting[-1:]
    assert list(client.events(job, after=lasting[-1].id)) == []
    client.close()
