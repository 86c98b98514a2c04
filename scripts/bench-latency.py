"""How soon a job computes and how soon clients are answered: see bench-latency.sh, which sets this up.

All times are of one machine's clock: the client's, and the ledger's `now()` and
`clock_timestamp()`, which read the same. Needs nothing but Python.
"""

import argparse
import asyncio
import gc
import http.client
import json
import math
import os
import platform
import resource
import sys
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

from service import MODEL, TEXT, Meanwhile, Service, check_others, demo_job, machine

# Milliseconds: the median until a shard runs, and the 99th percentile of an answer.
START = 50
ANSWER = 20
# Points of a start that are bounded: the ledger's, and the strictest.
BOUNDED = ("first shard claimed", "device computes")
CLIENTS = 500
# Connections that ask for nothing, and that send the body of a request a byte a second.
IDLE = 2_000
SLOW = 200
# Open files that a process gets if nobody has raised the limit.
FILES = 1_024
# Bytes of the text in a small job: a window, of about 500 tokens.
SMALL = 2_000
# Copies of the text in the large job, which has to outlast the polling.
COPIES = 4
# Longest pause between two jobs, in seconds: the poll of an idle worker, so that every phase of it
# is met.
PHASE = 1.0
# Percentiles of a table.
SHARES = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)]


def percentile(values, share):
    """The smallest value that at least this share of them does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


@contextmanager
def worker_of(service, text, *before):
    """A worker on all cores whose devices hold the model."""
    devices = [f"cpu:{core}" for core in range(os.cpu_count())]
    worker = service.worker(",".join(devices), *before)
    try:
        # Enough that each of the devices gets a part.
        body = demo_job(text[: 10_000 * len(devices)])
        while len(service.run(**body)[1]["performance"]["devices"]) < len(devices):
            pass
        yield
    finally:
        service.retire([worker])


def start_of(service, text, connection):
    """Posts a small job. Milliseconds from before the request is sent until points of its start."""
    body = json.dumps(demo_job(text[:SMALL]))
    posted = time.time()
    connection.request("POST", "/jobs", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    job = json.load(answer)
    answered = time.time()
    if answer.status != 201:
        raise SystemExit(f"POST /jobs answered {answer.status}: {job}")
    job, result = service.ended(job["id"])
    planned = datetime.fromisoformat(job["started_at"])
    shards = service.call(f"/jobs/{job['id']}/shards")["items"]
    first = min(shards, key=lambda shard: shard["attempts"][0]["started_at"])
    attempt = first["attempts"][0]
    claimed = datetime.fromisoformat(attempt["started_at"]).timestamp()
    ended = datetime.fromisoformat(attempt["finished_at"]).timestamp()
    claiming = sum(device["claim_seconds"] for device in result["performance"]["devices"])
    points = {
        "the answer to `POST /jobs`": answered,
        "planning claimed": planned.timestamp(),
        "first shard claimed": claimed,
        "claim in the worker's hands": claimed + claiming,
        "device computes": ended - first["seconds"],
    }
    return {name: (point - posted) * 1e3 for name, point in points.items()}


def starts(service, text, jobs):
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    start_of(service, text, connection)  # makes the tokens
    measured, meanwhile = [], Meanwhile()
    for number in range(jobs):
        # Multiples of the golden ratio spread evenly, however many there are.
        time.sleep(PHASE * (number * 0.6180339887 % 1))
        measured.append(start_of(service, text, connection))
    others, _ = meanwhile.cores()
    connection.close()
    return {name: [one[name] for one in measured] for name in measured[0]}, others


class Client(asyncio.Protocol):
    """Asks for a job once a second over one connection."""

    def __init__(self, request, seen):
        self.request, self.seen = request, seen
        self.sent, self.received = None, b""

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, due):
        if self.sent is not None:
            self.seen.errors.append("no answer within a second")
        elif self.transport.is_closing():
            self.seen.errors.append("the connection was closed")
        else:
            self.sent = time.perf_counter()
            self.seen.lags.append((self.sent - due) * 1e3)
            self.transport.write(self.request)

    def data_received(self, data):
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        if len(body) < length:
            return
        self.seen.times.append((time.perf_counter() - self.sent) * 1e3)
        self.sent, self.received = None, b""
        if not head.startswith(b"HTTP/1.1 200 ") or b'"state":"running"' not in body:
            self.seen.errors.append((head.split(b"\r\n")[0] + b" " + body).decode())


class Seen:
    """What all clients see: milliseconds of each answer, how late each request was sent."""

    def __init__(self):
        self.times, self.lags, self.errors = [], [], []


async def linger(address, begin, piece, streams):
    """Holds a connection on which a request begins and never ends, and another when it is closed."""
    while True:
        reader, writer = streams
        writer.write(begin)
        try:
            while not reader.at_eof():
                writer.write(piece)
                try:
                    await asyncio.wait_for(reader.read(1 << 16), 1 if piece else None)
                except asyncio.TimeoutError:
                    pass
        except ConnectionError:
            pass
        writer.close()
        streams = await asyncio.open_connection(address.hostname, address.port)


async def crowd(address):
    """Connections that take place and ask for nothing; all are open when this returns."""
    slow = (
        f"POST /jobs HTTP/1.1\r\nHost: {address.netloc}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    )
    kinds = [(b"", b"")] * IDLE + [(slow.encode(), b" ")] * SLOW
    opening = [asyncio.open_connection(address.hostname, address.port) for _ in kinds]
    opened = await asyncio.gather(*opening)
    return [asyncio.create_task(linger(address, *kind, streams)) for kind, streams in zip(kinds, opened)]


async def poll(url, job, seconds, crowded):
    """Has the clients ask, spread evenly over each second."""
    loop = asyncio.get_running_loop()
    address = urlsplit(url)
    around = await crowd(address) if crowded else []
    request = f"GET /jobs/{job} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()
    seen = Seen()
    clients = []
    for _ in range(CLIENTS):
        _, client = await loop.create_connection(
            lambda: Client(request, seen), address.hostname, address.port
        )
        clients.append(client)
    begin = time.perf_counter() + 0.5
    for number in range(CLIENTS * seconds):
        due = begin + number / CLIENTS
        wait = due - time.perf_counter()
        await asyncio.sleep(max(wait, 0))
        clients[number % CLIENTS].ask(due)
    await asyncio.sleep(1)
    unanswered = sum(client.sent is not None for client in clients)
    seen.errors += ["no answer within a second"] * unanswered
    for client in clients:
        client.transport.close()
    # One that ended could not come again.
    seen.errors += ["a connection of the crowd was refused"] * sum(task.done() for task in around)
    for task in around:
        task.cancel()
    await asyncio.gather(*around, return_exceptions=True)
    return seen


def answers(service, text, seconds, crowded):
    job = service.call("/jobs", demo_job(text, COPIES))["id"]
    while (state := service.call(f"/jobs/{job}"))["state"] != "running":
        time.sleep(0.05)
    gc.disable()
    meanwhile = Meanwhile()
    seen = asyncio.run(poll(service.url, job, seconds, crowded))
    others, _ = meanwhile.cores()
    gc.enable()
    after = service.call(f"/jobs/{job}")
    request = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    request.request("DELETE", f"/jobs/{job}")
    request.getresponse().read()
    request.close()
    return seen, others, (state, after)


def row(name, values, bold=None):
    cells = [f"{percentile(values, share):.1f}" for _, share in SHARES]
    cells = [f"**{cell}**" if label == bold else cell for cell, (label, _) in zip(cells, SHARES)]
    return f"| {name} | " + " | ".join(cells) + " |"


def table(heading, rows):
    labels = [label for label, _ in SHARES]
    return [f"| {heading} | " + " | ".join(labels) + " |", "| --- |" + " ---: |" * len(labels), *rows, ""]


def report(options, version, load, others, started, polled):
    counted = [after["progress"]["scored_tokens"] - before["progress"]["scored_tokens"]
               for _, _, (before, after) in polled.values()]
    lines = [
        "# How soon a job computes, and how soon clients are answered",
        "",
        "Written by `make bench-latency` (scripts/bench-latency.sh). All numbers are milliseconds, "
        "on one clock: client, service, PostgreSQL and worker share a machine.",
        "",
        f"* Machine: {machine()}",
        f"* Assay {version} (commit {options.commit}), PostgreSQL of `assay up` (durable), "
        f"Python {platform.python_version()}",
        f"* Date: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC; load average before: {load:.2f}; "
        f"cores used by others meanwhile: {' / '.join(f'{cores:.2f}' for cores in others)}",
        f"* Command: `{options.command}`",
        f"* Model: {MODEL}; text: {TEXT}",
        "",
        "## From `POST /jobs` until",
        "",
        *table("", [row(name, values, "p50" if name in BOUNDED else None) for name, values in started.items()]),
        f"{len(next(iter(started.values())))} jobs, one after the other, each of the first {SMALL} bytes of "
        "the text, `reuse: false`, `baseline: skip`, at all phases of the second-long poll of an idle "
        f"worker of {os.cpu_count()} devices. The devices hold the model, the tokens are in the cache. "
        "Time begins before the client sends the request, over a connection that is open.",
        "",
        "*Claimed* is when the ledger began the statement that claims (`started_at` of the attempt). *In "
        "the worker's hands* is that and the whole of the claim, all its statements and the way there and "
        "back (`claim_seconds`), so it is an upper bound. *Device computes* is the end of the shard's "
        "attempt in the ledger less the seconds that it computed; its commit is in there too, so it is "
        "an upper bound as well.",
        "",
        f"Wanted: medians below {START} ms, of the claim and of the computing.",
        "",
        "## `GET /jobs/{id}` while the job runs",
        "",
        *table("", [
            line
            for name, (seen, _, _) in polled.items()
            for line in (row(f"{name}: answer", seen.times, "p99"), row("request sent late by", seen.lags))
        ]),
        f"{CLIENTS} clients, a connection each, ask once a second, spread evenly over it, for "
        f"{options.seconds} s: "
        + "; ".join(
            f"{name} {len(seen.times)} answers, **{len(seen.errors)} errors**"
            for name, (seen, _, _) in polled.items()
        )
        + f". Meanwhile a worker computes on all {os.cpu_count()} cores under `nice -n 19` "
        f"({' and '.join(map(str, counted))} tokens counted). From before a request is sent until its body "
        "is read. *Sent late* is how far the client, one process, was behind its own times.",
        "",
        f"*In a crowd*: beside the clients, {IDLE} connections on which nothing is sent and {SLOW} that send "
        "the body of a `POST /jobs` a byte a second; what the server closes is opened again. The service "
        f"starts with a limit of {FILES} open files, as most systems give.",
        "",
        f"Wanted: a 99th percentile below {ANSWER} ms and no error.",
    ]
    return "\n".join(lines) + "\n"


def main():
    arguments = argparse.ArgumentParser()
    for name in ("--programs", "--work", "--models", "--data", "--report"):
        arguments.add_argument(name, type=Path, required=True)
    arguments.add_argument("--commit", default="unknown")
    arguments.add_argument("--command", required=True)
    arguments.add_argument("--jobs", type=int, default=50)
    arguments.add_argument("--seconds", type=int, default=60)
    options = arguments.parse_args()
    load = os.getloadavg()[0]
    text = (options.data / TEXT).read_bytes()

    # What is started inherits the limit of most systems; the clients, all in this process, need more.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    service = Service(options.programs, options.models, options.data, options.work)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        version = service.call("/openapi.json")["info"]["version"]
        with worker_of(service, text):
            started, others = starts(service, text, options.jobs)
        with worker_of(service, text, "nice", "-n", "19"):
            polled = {
                "alone": answers(service, text, options.seconds, False),
                "in a crowd": answers(service, text, options.seconds, True),
            }
    finally:
        service.stop()
    others = [others, *(cores for _, cores, _ in polled.values())]
    seen = [seen for seen, _, _ in polled.values()]
    if all(one.times for one in seen):
        written = report(options, version, load, others, started, polled)
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(written)
        print(written)
    for error in [error for one in seen for error in one.errors[:5]]:
        print(f"error: {error}", file=sys.stderr)
    check_others(max(others))
    slow = any(percentile(started[name], 0.5) >= START for name in BOUNDED)
    slow |= any(not one.times or percentile(one.times, 0.99) >= ANSWER for one in seen)
    sys.exit(slow or any(one.errors for one in seen))


main()
