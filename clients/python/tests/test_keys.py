"""A service with keys."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from conftest import DATASET, MODEL, PROGRAMS, started
from service import Service

import assay


@pytest.fixture
def closed() -> Iterator[Service]:
    """A service that nobody else uses, with a worker."""
    for service in started():
        worker = service.worker("cpu:0")
        yield service
        service.retire([worker])


def made(service: Service, scope: str) -> str:
    command = [
        str(PROGRAMS / "assay-server"),
        "keys",
        "create",
        "--scope",
        scope,
        "--name",
        "client",
    ]
    environment = {**os.environ, "DATABASE_URL": service.database}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return printed.stdout.decode().strip()


def test_a_key_opens_what_its_scope_says(closed: Service) -> None:
    reads, submits = made(closed, "read"), made(closed, "submit")
    with assay.Client(closed.url) as client, pytest.raises(assay.AssayError) as refused:
        client.evaluate(MODEL, DATASET)
    assert refused.value.code == "E0015"
    result = assay.evaluate(MODEL, DATASET, server=closed.url, api_key=submits)
    with assay.Client(closed.url, reads) as client:
        assert client.results(result).raw == result.raw
        with pytest.raises(assay.AssayError) as refused:
            client.submit(MODEL, DATASET)
        assert refused.value.code == "E0016"
