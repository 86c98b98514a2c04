"""Assay beside transformers, lm-evaluation-harness and the matrix products alone: see
bench-compare.sh, which sets this up.

In each round every contestant scores the same text once, each in a fresh process that has loaded
its model; who begins changes from round to round. compare_report.py says what came out. Needs
nothing but Python 3.11.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import compare_report
from service import Meanwhile, Service, check_others

# Bytes of the text in the job that has a worker load the model.
WARM_BYTES = 12_000
# The window whose tokens are compared one by one, and that the harness runs at.
REFERENCE_WINDOW = 1024
# The text's tokens are posted as one document of this name.
TEXT = "text"
TOKENS_OF_A_PAGE = 10_000


def cores(devices):
    """How many cores devices such as `cpu:0-3` or `cpu:0,cpu:1` are."""
    count = 0
    for device in devices.split(","):
        match = re.fullmatch(r"cpu:(\d+)(?:-(\d+))?", device)
        if not match:
            raise SystemExit(f"DEVICES: {device} is no core and no range of cores, such as cpu:0-1")
        count += int(match[2] or match[1]) - int(match[1]) + 1
    return count


def peak(pid):
    """Bytes of the largest resident set of a process so far."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


class Compared:
    """The contestants, each a method that measures one dtype and window."""

    def __init__(self, options, service, text):
        self.options, self.service, self.text = options, service, text
        self.file = options.work / "text.txt"
        self.file.write_text(text)
        self.threads = cores(options.devices)
        self.log = (options.work / "contestants.log").open("a")
        # The batch size of each contestant, dtype and window, and what its trial said.
        self.trials = {}

    def job(self, dtype, window, text, **more):
        return self.service.run(
            model=self.options.model.name,
            datasets=[{"documents": [text], "name": TEXT}],
            method={"convention": "rolling", "window": window},
            dtype=dtype,
            reuse=False,
            baseline="skip",
            **more,
        )

    def assay(self, dtype, window):
        """From the request until the job has succeeded: both are told by this host's clock."""
        worker = self.service.worker(self.options.devices)
        try:
            self.job(dtype, window, self.text[:WARM_BYTES])
            meanwhile, posted = Meanwhile(), time.time()
            job, result = self.job(dtype, window, self.text)
            others, _ = meanwhile.cores()
            highest = peak(worker.pid)
        finally:
            self.service.retire([worker])
        seconds = datetime.fromisoformat(job["finished_at"]).timestamp() - posted
        performance, row = result["performance"], result["datasets"][0]
        return {
            "rate": row["scored_tokens"] / seconds,
            "seconds": seconds,
            "tokens": row["scored_tokens"],
            "nll": row["nll"],
            "exact": row["nll_exact"],
            "peak": highest,
            "server_peak": peak(self.service.child("assay-server")),
            "others": others,
            "distributed": performance["distributed_tokens_per_second"],
            "parameters": result["model"]["parameters"],
            "version": result["version"],
            "kinds": result["device_kinds"],
        }

    def transformers(self, dtype, window, nlls=None):
        more = [] if nlls is None else ["--nlls", nlls]
        return self.python("transformers", dtype, window, *more)

    def harness(self, dtype, window):
        return self.python("harness", dtype, window)

    def floor(self, dtype, window):
        """The example prints a line `floor ... RATE tokens/s`."""
        order = [self.options.model, self.file, self.threads, dtype, window]
        output, others = self.process([self.options.programs / "examples/throughput", *order])
        found = re.search(r"^floor .*?(\d+(?:\.\d+)?) tokens/s$", output, re.MULTILINE)
        if not found:
            raise SystemExit(f"the example throughput printed no floor:\n{output}")
        return {"rate": float(found[1]), "others": others}

    def python(self, name, dtype, window, *more):
        """The script of a contestant, with the faster of its batch sizes, which is tried first."""
        script = Path(__file__).parent.parent / f"bench/compare/{name}_nll.py"
        order = [script, self.options.model, self.file, "--dtype", dtype, "--window", window]
        order = [self.options.python, *order, "--threads", self.threads]
        key = (name, dtype, window)
        if key not in self.trials:
            self.trials[key] = json.loads(self.process(order)[0])["trials"]
            tried = ", ".join(f"{trial['batch']}: {trial['rate']:.1f}" for trial in self.trials[key])
            print(f"{dtype}, window {window}, {name}: tokens/s by batch size {tried}", file=sys.stderr)
        best = max(self.trials[key], key=lambda trial: trial["rate"])["batch"]
        output, others = self.process([*order, "--batch", best, *more])
        run = json.loads(output.splitlines()[-1])
        return {**run, "rate": run["tokens"] / run["seconds"], "others": others, "batch": best}

    def process(self, order):
        """What a process prints, and how many cores others used while it ran."""
        meanwhile = Meanwhile()
        # Nothing is fetched while something is measured.
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [str(word) for word in order], stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"{order[1]} ended with {done.returncode}; its log is {self.log.name}")
        return done.stdout, meanwhile.cores()[0]

    def tokens(self, dtype, window):
        """The NLLs of all tokens by Assay and by transformers, in a run of each that is not measured."""
        file = self.options.work / "nlls.json"
        self.transformers(dtype, window, file)
        worker = self.service.worker(self.options.devices)
        try:
            job, _ = self.job(dtype, window, self.text, token_output=True)
        finally:
            self.service.retire([worker])
        nlls, path = [], f"/jobs/{job['id']}/tokens?dataset={TEXT}&document=0&limit={TOKENS_OF_A_PAGE}"
        cursor = ""
        while cursor is not None:
            page = self.service.call(path + (f"&cursor={cursor}" if cursor else ""))
            nlls += [token["nll"] for token in page["items"]]
            cursor = page.get("next")
        return {"assay": nlls, "transformers": json.loads(file.read_text())}


def measure(compared, options):
    """All runs, in the order in which they were made."""
    runs = []
    for number in range(options.rounds):
        for dtype in options.dtypes:
            for window in options.windows:
                names = ["assay", "transformers", "floor"]
                if window in options.harness_windows:
                    names.insert(2, "harness")
                first = number % len(names)
                for name in names[first:] + names[:first]:
                    run = getattr(compared, name)(dtype, window)
                    runs.append({"round": number, "dtype": dtype, "window": window, "name": name, **run})
                    print(
                        f"round {number + 1}, {dtype}, window {window}, {name}: {run['rate']:.1f} tokens/s, "
                        f"others {run['others']:.2f} cores",
                        file=sys.stderr,
                    )
    return runs


def check(runs):
    """Fails where the contestants did not score the same, or Assay's integers differ."""
    for key in {(run["dtype"], run["window"]) for run in runs}:
        same = [run for run in runs if (run["dtype"], run["window"]) == key and "tokens" in run]
        tokens = {run["name"]: run["tokens"] for run in same}
        if len(set(tokens.values())) != 1:
            raise SystemExit(f"{key}: not all counted the same tokens: {tokens}")
        exact = {run["exact"] for run in same if run["name"] == "assay"}
        if len(exact) != 1:
            raise SystemExit(f"{key}: the runs of Assay differ: {exact}")


def words(text):
    return text.replace(",", " ").split()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--programs", type=Path, required=True)
    arguments.add_argument("--python", type=Path, required=True)
    arguments.add_argument("--work", type=Path, required=True)
    arguments.add_argument("--model", type=Path, required=True)
    arguments.add_argument("--text", type=Path, required=True)
    arguments.add_argument("--report", type=Path, required=True)
    arguments.add_argument("--commit", required=True)
    arguments.add_argument("--command", required=True)
    arguments.add_argument("--devices", required=True)
    arguments.add_argument("--rounds", type=int, required=True)
    arguments.add_argument("--bytes", type=int, required=True)
    arguments.add_argument("--windows", type=lambda text: [int(word) for word in words(text)], required=True)
    arguments.add_argument("--harness-windows", type=lambda text: [int(word) for word in words(text)], required=True)
    arguments.add_argument("--dtypes", type=words, required=True)
    options = arguments.parse_args()
    facts = {
        "load": os.getloadavg()[0],
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "source": options.text.name,
    }
    text = options.text.read_bytes()[: options.bytes].decode(errors="ignore")

    service = Service(options.programs, options.model.parent, options.work, options.work)
    try:
        compared = Compared(options, service, text)
        reference = REFERENCE_WINDOW if REFERENCE_WINDOW in options.windows else options.windows[0]
        # Also has the service keep the text's tokens.
        tokens = {dtype: compared.tokens(dtype, reference) for dtype in options.dtypes}
        runs = measure(compared, options)
    finally:
        service.stop()
    check(runs)
    report = compare_report.Report(options, facts, runs, compared.trials, tokens, reference)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(report.text())
    failed = [line for line, kept in report.wanted() if not kept]
    print(*(f"{'kept' if kept else 'MISSED'}: {line}" for line, kept in report.wanted()), sep="\n")
    check_others(report.others())
    sys.exit(bool(failed))


main()
