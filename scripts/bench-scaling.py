"""How one job scales from one device to two: see bench-scaling.sh, which sets this up.

Starts the service, and for each measurement fresh workers, which load the model in a job that is
thrown away. One device, two devices of one process and two processes take turns, so that what
changes on the machine meanwhile meets all three. Needs nothing but Python.
"""

import argparse
import os
import platform
import statistics
import sys
from datetime import datetime, timezone
from pathlib import Path

from service import MODEL, TEXT, Meanwhile, Service, check_others, demo_job, machine

# Devices of each worker process.
LAYOUTS = {"one device": ["cpu:0"], "two devices": ["cpu:0,cpu:1"], "two processes": ["cpu:0", "cpu:1"]}
WANTED = 0.95
LEAST = 0.90
MOST_COMMUNICATION = 0.01
# Bytes of the text in the job that is thrown away: some windows for each device.
WARM_BYTES = 40_000


def score(service, text, length):
    """Scores the first bytes of the text (all: None) and answers the results."""
    return service.run(**demo_job(text[:length]))[1]


def measure(service, layout, text, length):
    """One job on fresh workers that have loaded the model."""
    workers = [service.worker(devices) for devices in LAYOUTS[layout]]
    devices = sum(len(names.split(",")) for names in LAYOUTS[layout])
    try:
        while len(score(service, text, WARM_BYTES)["performance"]["devices"]) < devices:
            pass
        meanwhile = Meanwhile()
        result = score(service, text, length)
        others, stolen = meanwhile.cores()
    finally:
        service.retire(workers)
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
        "others": others,
        "stolen": stolen,
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
    text = (options.data / TEXT).read_bytes()

    service = Service(options.programs, options.models, options.data, options.work)
    pairs = []
    try:
        for number in range(options.pairs):
            pair = {}
            # In turns also within a pair.
            order = list(LAYOUTS) if number % 2 == 0 else list(LAYOUTS)[::-1]
            for layout in order:
                pair[layout] = run = measure(service, layout, text, options.bytes)
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
    check_others(statistics.median(run["others"] for pair in pairs for run in pair.values()))
    sys.exit(failed)


main()
