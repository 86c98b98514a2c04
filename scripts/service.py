"""A service for a benchmark or a test, and what the machine does meanwhile. Needs nothing but Python."""

import json
import os
import platform
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

# The demo checkpoint and text.
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "moby-dick.txt"
# Cores that something else may use; a machine that does other things shows nothing of Assay.
MOST_OTHERS = 0.2
# Seconds that a job or a start may take.
LIMIT = 1800


class Service:
    """`assay up` without workers, on a database of its own."""

    def __init__(self, programs, models, data, work):
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

    def run(self, **body):
        """Posts a job, waits for its end and answers it with its results."""
        return self.ended(self.call("/jobs", body)["id"])

    def ended(self, job_id):
        """Waits for the end of a job and answers it with its results."""
        end = time.monotonic() + LIMIT
        while (job := self.call(f"/jobs/{job_id}"))["state"] in ("queued", "planning", "running"):
            if time.monotonic() > end:
                raise SystemExit(f"job {job_id} has not ended after {LIMIT} s")
            time.sleep(0.25)
        if job["state"] != "succeeded":
            raise SystemExit(f"job {job_id}: {job['error']}")
        return job, self.call(f"/jobs/{job_id}/results")

    def worker(self, devices, *before):
        """A worker of these devices; `before` are words in front of its command."""
        command = [*before, self.programs / "assay-worker", "run", "--devices", devices, *self.roots]
        environment = {**os.environ, "DATABASE_URL": self.database}
        return subprocess.Popen(command, stderr=self.log, env=environment)

    def retire(self, workers):
        """Stops workers in order; all must end well."""
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        codes = [worker.wait(LIMIT) for worker in workers]
        if any(codes):
            raise SystemExit(f"workers ended with {codes}; the log is {self.log.name}")

    def stop(self):
        self.up.send_signal(signal.SIGTERM)
        self.up.wait(LIMIT)


def demo_job(text, copies=1):
    """The body of a job that computes this text, bytes, as often as said, with the demo checkpoint."""
    dataset = {"documents": [text.decode(errors="ignore")] * copies, "name": TEXT}
    return {"model": MODEL, "datasets": [dataset], "reuse": False, "baseline": "skip"}


class Meanwhile:
    """What happens on the machine from now on beside this process and all that it started."""

    def __init__(self):
        self.began, self.then = time.monotonic(), ticks()

    def cores(self):
        """Cores that others used so far, and that the hypervisor took away."""
        elapsed = (time.monotonic() - self.began) * os.sysconf("SC_CLK_TCK")
        busy, stolen, own = (now - then for now, then in zip(ticks(), self.then))
        return (busy - own) / elapsed, stolen / elapsed


def check_others(cores):
    """Fails where others used too much of the machine while something was measured."""
    if cores > MOST_OTHERS:
        raise SystemExit(f"something else used {cores:.2f} cores: this says nothing of Assay")


def ticks():
    """Busy and stolen ticks of all cores so far, and those of this process and all below it."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended meanwhile.
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        # With those of the children that it waited for.
        used[pid] = sum(map(int, fields[11:15]))

    def is_own(pid):
        return pid == os.getpid() or (pid in parents and is_own(parents[pid]))

    return user + nice + system + irq + softirq, steal, sum(used[pid] for pid in used if is_own(pid))


def machine():
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    virtual = "virtual machine" if any("hypervisor" in line for line in info) else "no hypervisor"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {virtual}; {system}, kernel {platform.release()}"
