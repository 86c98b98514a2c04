"""How one job scales from one device to two: see bench-scaling.sh, which sets this up.

Starts the service, and for each measurement fresh workers, which load the model in a job that is
thrown away. One device, two devices of one process and two processes take turns, so that what
changes on the machine meanwhile meets all three. Needs nothing but Python.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "moby-dick.txt"
# Devices of each worker process.
LAYOUTS = {"one device": ["cpu:0"], "two devices": ["cpu:0,cpu:1"], "two processes": ["cpu:0", "cpu:1"]}
WANTED = 0.95
LEAST = 0.90
MOST_COMMUNICATION = 0.01
# Cores that something else may use; a machine that does other things has no scaling to show.
MOST_OTHERS = 0.2
# Bytes of the text in the job that is thrown away: some windows for each device.
WARM_BYTES = 40_000
# Seconds that a job or a start may take.
LIMIT = 1800


class Service:
    """`assay up` without workers, on a database of its own."""

    def __init__(self, programs, models, data, work):
        self.text = (data / TEXT).read_bytes()
        self.programs, self.log = programs, (work / "assay.log").open("a")
        self.roots = ["--model-root", models, "--data-root", data, "--state-dir", work / "state"]
        command = [programs / "assay", "up", "--listen", "127.0.0.1:0", "--workers", "0", *self.roots]
        self.up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.up.stdout.readline()
        if not line.startswith("listening on "):
            raise SystemExit(f"the service did not start; its log is {self.log.name}")
        self.url = line.removeprefix("listening on ").strip()
        # Workers of the benchmark's own use the database that `assay up` started.
        environment = Path(f"/proc/{self.child('assay-server')}/environ").read_bytes().split(b"\0")
        variables = dict(entry.split(b"=", 1) for entry in environment if b"=" in entry)
        self.database = variables[b"DATABASE_URL"].decode()

    def child(self, name):
        pids = Path(f"/proc/{self.up.pid}/task").glob("*/children")
        for pid in " ".join(path.read_text() for path in pids).split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return int(pid)
        raise SystemExit(f"{name} does not run; the log of the service is {self.log.name}")

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def run(self, length):
        """Runs a job of the first bytes of the text (all: None) and answers its results."""
        dataset = {"documents": [self.text[:length].decode(errors="ignore")], "name": TEXT}
        body = {"model": MODEL, "datasets": [dataset], "reuse": False, "baseline": "skip"}
        job = self.call("/jobs", body)["id"]
        end = time.monotonic() + LIMIT
        while (state := self.call(f"/jobs/{job}")["state"]) in ("queued", "planning", "running"):
            if time.monotonic() > end:
                raise SystemExit(f"job {job} has not ended after {LIMIT} s")
            time.sleep(0.25)
        if state != "succeeded":
            raise SystemExit(f"job {job}: {self.call(f'/jobs/{job}')['error']}")
        return self.call(f"/jobs/{job}/results")

    def worker(self, devices):
        command = [self.programs / "assay-worker", "run", "--devices", devices, *self.roots]
        environment = {**os.environ, "DATABASE_URL": self.database}
        return subprocess.Popen(command, stderr=self.log, env=environment)

    def stop(self):
        self.up.send_signal(signal.SIGTERM)
        self.up.wait(LIMIT)


def ticks():
    """Busy and stolen ticks of all cores so far."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return user + nice + system + irq + softirq, steal


def ticks_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def measure(service, layout, length):
    """One job on fresh workers that have loaded the model."""
    workers = [service.worker(devices) for devices in LAYOUTS[layout]]
    devices = sum(len(names.split(",")) for names in LAYOUTS[layout])
    try:
        while len(service.run(WARM_BYTES)["performance"]["devices"]) < devices:
            pass
        before, own = ticks(), sum(ticks_of(worker.pid) for worker in workers)
        started = time.monotonic()
        result = service.run(length)
        elapsed = (time.monotonic() - started) * os.sysconf("SC_CLK_TCK")
        after, own = ticks(), sum(ticks_of(worker.pid) for worker in workers) - own
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        codes = [worker.wait(LIMIT) for worker in workers]
    if any(codes):
        raise SystemExit(f"workers ended with {codes}; the log is {service.log.name}")
    performance = result["performance"]
    if len(performance["devices"]) != devices:
        raise SystemExit(f"{layout}: not all devices took part: {performance['devices']}")
    busy = sum(device["busy_seconds"] for device in performance["devices"])
    return {
        "rate": performance["distributed_tokens_per_second"],
        # What one device does while it computes.
        "device_rate": performance["computed_tokens"] / busy,
        "communication": performance["communication_share"],
        "repeated": performance["computed_tokens"] / performance["counted_tokens"] - 1,
        "spread": performance["worker_seconds"],
        # Cores that others used, and that the hypervisor took away.
        "others": (after[0] - before[0] - own) / elapsed,
        "stolen": (after[1] - before[1]) / elapsed,
        "nll": result["datasets"][0]["nll_exact"],
        "tokens": performance["counted_tokens"],
        "seconds": performance["seconds"],
        "version": result["version"],
        "kinds": result["device_kinds"],
    }


def compared(pair, layout):
    """Efficiency, and its two causes: devices that slow each other down, and devices that wait."""
    one, two = pair["one device"], pair[layout]
    efficiency = two["rate"] / (2 * one["rate"])
    slower = two["device_rate"] / one["device_rate"]
    return efficiency, slower, efficiency / slower


def machine():
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    virtual = "virtual machine" if any("hypervisor" in line for line in info) else "no hypervisor"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {virtual}; {system}, kernel {platform.release()}"


def report(pairs, commit, command, load):
    one = pairs[0]["one device"]
    lines = [
        "# One job on one device and on two",
        "",
        "Written by `make bench-scaling` (scripts/bench-scaling.sh). The rate is "
        "`distributed_tokens_per_second`: after the model is loaded, until the last commit. "
        "Efficiency is the rate on two devices over twice the rate on one device of the same pair.",
        "",
        f"* Machine: {machine()}",
        f"* Assay {one['version']} (commit {commit}), device kind {', '.join(one['kinds'])}, "
        f"PostgreSQL of `assay up` (durable), Python {platform.python_version()}",
        f"* Date: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC; load average before: {load:.2f}",
        f"* Command: `{command}`",
        f"* Job: {MODEL}, {one['tokens']} tokens of {TEXT} as one document, default method, `reuse: false`, "
        "`baseline: skip`; the integers of all runs are equal",
        "",
    ]
    medians = {}
    for layout in LAYOUTS:
        if layout == "one device":
            continue
        lines += [
            f"## {layout.capitalize()}",
            "",
            "| pair | one device, tokens/s | both, tokens/s | efficiency | of that: computing "
            "side by side | of that: waiting | communication | repeated | cores used by others | "
            "stolen |",
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for number, pair in enumerate(pairs, 1):
            efficiency, slower, waiting = compared(pair, layout)
            two = pair[layout]
            others = [max(run["others"], 0) for run in (pair["one device"], two)]
            stolen = [run["stolen"] for run in (pair["one device"], two)]
            lines.append(
                f"| {number} | {pair['one device']['rate']:.1f} | {two['rate']:.1f} "
                f"| {efficiency:.3f} | {slower:.3f} | {waiting:.3f} "
                f"| {two['communication']:.2%} | {two['repeated']:.1%} "
                f"| {others[0]:.2f} / {others[1]:.2f} | {stolen[0]:.3f} / {stolen[1]:.3f} |"
            )
        medians[layout] = [statistics.median(column) for column in zip(*(compared(p, layout) for p in pairs))]
        efficiency, slower, waiting = medians[layout]
        shares = [pair[layout]["communication"] for pair in pairs]
        medians[layout].append(statistics.median(shares))
        lines += [
            f"| median | {statistics.median(p['one device']['rate'] for p in pairs):.1f} "
            f"| {statistics.median(p[layout]['rate'] for p in pairs):.1f} "
            f"| **{efficiency:.3f}** | {slower:.3f} | {waiting:.3f} "
            f"| **{medians[layout][3]:.2%}** | | | |",
            "",
        ]
    lines += [
        f"Wanted: an efficiency of {WANTED} and at most {MOST_COMMUNICATION:.0%} communication; "
        f"the benchmark fails below {LEAST}.",
        "",
        "*Computing side by side* is what one device computes per second of its own time while the "
        "other one computes too, over what it computes alone: the machine's part (memory, clocks, "
        "the hypervisor). *Waiting* is the rest: claims, the end of the job, repeated work.",
    ]
    return "\n".join(lines) + "\n", medians


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--programs", type=Path, required=True)
    arguments.add_argument("--work", type=Path, required=True)
    arguments.add_argument("--models", type=Path, required=True)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--report", type=Path, required=True)
    arguments.add_argument("--commit", default="unknown")
    arguments.add_argument("--command", required=True)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--bytes", type=int)
    options = arguments.parse_args()
    if os.cpu_count() < 2:
        raise SystemExit("two devices need two cores")
    load = os.getloadavg()[0]

    service = Service(options.programs, options.models, options.data, options.work)
    pairs = []
    try:
        for number in range(options.pairs):
            pair = {}
            # In turns also within a pair.
            order = list(LAYOUTS) if number % 2 == 0 else list(LAYOUTS)[::-1]
            for layout in order:
                pair[layout] = run = measure(service, layout, options.bytes)
                print(
                    f"pair {number + 1}, {layout}: {run['rate']:.1f} tokens/s, "
                    f"communication {run['communication']:.2%}, {run['seconds']:.1f} s, "
                    f"others {run['others']:.2f} cores",
                    file=sys.stderr,
                )
            pairs.append(pair)
    finally:
        service.stop()
    exact = {run["nll"] for pair in pairs for run in pair.values()}
    if len(exact) != 1:
        raise SystemExit(f"the runs differ: {exact}")
    text, medians = report(pairs, options.commit, options.command, load)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(text)
    failed = False
    for layout, (efficiency, _, _, communication) in medians.items():
        print(f"{layout}: efficiency {efficiency:.3f}, communication {communication:.2%}")
        failed |= efficiency < LEAST or communication > MOST_COMMUNICATION
    others = statistics.median(run["others"] for pair in pairs for run in pair.values())
    if others > MOST_OTHERS:
        raise SystemExit(f"something else used {others:.2f} cores: this says nothing of Assay")
    sys.exit(failed)


main()
