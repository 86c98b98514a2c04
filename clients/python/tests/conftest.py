"""Real services to talk to: server, PostgreSQL and worker are processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

import assay

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "scripts"))

from service import Service  # noqa: E402

# A shell starts what runs in its background with SIGINT ignored; the tests press Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What the developer uses is not what is tested.
for variable in ("ASSAY_SERVER", "ASSAY_API_KEY"):
    os.environ.pop(variable, None)

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
MODEL = "llama_gqa"
# Its copies, with noise in the weights and with weights that are no numbers.
NOISY, BROKEN = "noisy", "broken"
DATASET = "paragraphs.jsonl"


def paragraphs(count: int, length: int) -> list[str]:
    """The first words of Moby Dick."""
    text = (ROOT / "demo/moby-dick.txt").read_text()
    return [text[at * length : (at + 1) * length] for at in range(count)]


def jsonl(texts: list[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def add_noisy(models: Path, name: str, strength: float) -> None:
    """A copy of the checkpoint with noise in each of its float32 weights, the same each time."""
    shutil.copytree(models / MODEL, models / name)
    file = models / name / "model.safetensors"
    raw = file.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    weights = np.frombuffer(raw[start:], dtype="<f4")
    noise = np.random.default_rng(1).standard_normal(weights.size) * strength
    file.write_bytes(raw[:start] + (weights * (1 + noise)).astype("<f4").tobytes())


def started() -> Iterator[Service]:
    """A service without a worker."""
    # PostgreSQL runs as another user where the tests run as root, and has to come by.
    folder = Path(tempfile.mkdtemp(prefix="assay-client-"))
    folder.chmod(0o755)
    models, data = folder / "models", folder / "data"
    data.mkdir()
    shutil.copytree(ROOT / "tests/fixtures" / MODEL, models / MODEL)
    add_noisy(models, NOISY, 0.05)
    add_noisy(models, BROKEN, float("nan"))
    (data / DATASET).write_text(jsonl(paragraphs(20, 150)))
    (data / "other.jsonl").write_text(jsonl(paragraphs(6, 80)))
    service = Service(PROGRAMS, models, data, folder)
    try:
        yield service
    finally:
        service.stop()
        service.log.close()
        service.up.stdout.close()
        shutil.rmtree(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the log of a service with the test that failed on it."""
    report = yield
    if report.failed and call.when == "call":
        for name, used in item.funcargs.items():
            if isinstance(used, Service):
                report.sections.append((f"log of {name}", Path(used.log.name).read_text()))
    return report


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A service with a worker."""
    for service in started():
        worker = service.worker("cpu:0")
        try:
            # A worker that has scored something can also be told to stop.
            assay.evaluate(MODEL, DATASET, server=service.url)
            yield service
        finally:
            service.retire([worker])


@pytest.fixture(scope="session")
def idle() -> Iterator[Service]:
    """A service without a worker: what is posted waits."""
    yield from started()


@pytest.fixture
def client(service: Service) -> Iterator[assay.Client]:
    with assay.Client(service.url) as client:
        yield client


@pytest.fixture
def patient(idle: Service) -> Iterator[assay.Client]:
    """A client of the service without a worker."""
    with assay.Client(idle.url) as client:
        yield client


@pytest.fixture(scope="session")
def scored(service: Service) -> dict[str, str]:
    """Ids of a job of the checkpoint, and of its noisy copy."""
    with assay.Client(service.url) as client:
        jobs = {name: client.submit(name, DATASET, {"window": 64}) for name in (MODEL, NOISY)}
        return {name: client.wait(job)["id"] for name, job in jobs.items()}
