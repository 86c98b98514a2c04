"""Runs what the chart starts, as processes: a setting that a program does not know fails here.

run.py HELM CHART PROGRAMS, with DATABASE_URL of an empty database. The commands and variables are those
of the rendered chart. Changed is only what a node would make of it: paths of volumes, the address, and
the database's URL. Migrates and stores keys as the job does, twice; starts server and worker; scores an
uploaded text; reads the metrics that alerts and autoscaling name; and ends all in order.
"""

import json
import os
import re
import secrets
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
# Seconds that anything may take.
LIMIT = 120


def new_key():
    return "assay_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(43))


class Release:
    """The rendered chart, and folders in place of its volumes."""

    def __init__(self, helm, chart, programs, folder, keys):
        self.programs, self.folder = programs, folder
        sets = {
            **{f"keys.{name}": key for name, key in keys.items()},
            "metrics.serviceMonitor.enabled": "true",
            "metrics.prometheusRule.enabled": "true",
            "workerPools.cpu.autoscaling.enabled": "true",
        }
        arguments = ["--values", chart / "ci/cpu-pool-values.yaml"]
        for name, value in sets.items():
            arguments += ["--set", f"{name}={value}"]
        rendered = subprocess.run(
            [helm, "template", "demo", chart, *arguments], check=True, stdout=subprocess.PIPE, text=True
        )
        self.objects = [document for document in yaml.safe_load_all(rendered.stdout) if document]

    def the(self, kind, suffix=""):
        found = [o for o in self.objects if o["kind"] == kind and o["metadata"]["name"].endswith(suffix)]
        if len(found) != 1:
            raise SystemExit(f"{len(found)} objects {kind} ..{suffix}")
        return found[0]

    def pod(self, kind, suffix=""):
        return self.the(kind, suffix)["spec"]["template"]["spec"]

    def command(self, pod, container):
        """Words and environment of a container as its node would start it."""
        name = container["image"].split(":")[0].split("/")[-1]
        dockerfile = (ROOT / f"docker/{name.removeprefix('assay-')}.Dockerfile").read_text()
        entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)[-1])
        words = [str(self.programs / Path(entry[0]).name), *entry[1:], *container["args"]]
        for mount in self.mounts(pod, container):
            words = [word.replace(*mount) for word in words]
        words = [word.replace("0.0.0.0:8080", "127.0.0.1:0") for word in words]
        environment = {"PATH": os.environ["PATH"]}
        for variable in container.get("env", []):
            environment[variable["name"]] = variable.get("value") or self.secret(variable)
        if not environment["DATABASE_URL"].startswith("postgres://"):
            raise SystemExit(f"{container['name']}: DATABASE_URL is no URL")
        environment["DATABASE_URL"] = os.environ["DATABASE_URL"]
        return words, environment

    def secret(self, variable):
        where = variable["valueFrom"]["secretKeyRef"]
        return self.the("Secret", where["name"])["stringData"][where["key"]]

    def mounts(self, pod, container):
        """Paths of a container, and the folders in their place."""
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in pod.get("volumes", [])
            if "persistentVolumeClaim" in volume
        }
        # The outer one of two that are nested comes first.
        for mount in sorted(container.get("volumeMounts", []), key=lambda mount: mount["mountPath"]):
            path, name = Path(mount["mountPath"]), mount["name"]
            if not path.is_relative_to("/srv"):
                continue
            # What is no claim is the pod's own.
            volume = self.folder / claims.get(name, f"{container['name']}-{name}")
            volume = volume / mount.get("subPath", "")
            volume.mkdir(parents=True, exist_ok=True)
            seen = self.folder / "seen-by" / container["name"] / path.relative_to("/")
            seen.parent.mkdir(parents=True, exist_ok=True)
            seen.symlink_to(volume)
            yield str(path), str(seen)

    def volume(self, which):
        return self.folder / f"demo-assay-{which}"

    def run(self, pod):
        """Runs the containers of a job, one after the other."""
        for container in pod.get("initContainers", []) + pod["containers"]:
            words, environment = self.command(pod, container)
            print(f"{container['name']}: {' '.join(container['args'])}", file=sys.stderr)
            subprocess.run(words, env=environment, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)

    def start(self, pod, log):
        """Starts the only container of a pod; standard error goes to a file."""
        [container] = pod["containers"]
        words, environment = self.command(pod, container)
        print(f"{container['name']}: {' '.join(container['args'])}", file=sys.stderr)
        return subprocess.Popen(words, env=environment, stderr=log.open("w"))


class Api:
    def __init__(self, base):
        self.base = base

    def open(self, path, key=None, body=None, method=None, kind="application/json"):
        headers = {"Content-Type": kind} if body is not None else {}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.base + path, body, headers, method=method)
        return urllib.request.urlopen(request, timeout=LIMIT)

    def read(self, path, key=None, **how):
        with self.open(path, key, **how) as answer:
            return answer.read().decode()

    def ended(self, job, key):
        """The state in which a job ended, as its events tell."""
        with self.open(f"/jobs/{job}/events", key) as events:
            for line in events:
                found = re.search(rb'"state":\s*"(succeeded|failed|cancelled)"', line)
                if found:
                    return found[1].decode()
        raise SystemExit(f"the events of job {job} ended before it did")


def first_line_with(log, process, text):
    """What stands behind a text in a log, once it is there; `tail` waits, and ends with the process."""
    command = ["tail", "--lines", "+1", "--follow", "--pid", str(process.pid), log]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        for line in tail.stdout:
            if text in line:
                tail.kill()
                return line.split(text)[1].split('"')[0]
    raise SystemExit(f"the process ended without {text!r}: {log.read_text()}")


def metric_names(objects):
    """Metrics that alerts and autoscaling read."""
    text = json.dumps([o for o in objects if o["kind"] in {"PrometheusRule", "ScaledObject"}])
    return set(re.findall(r"\bassay_[a-z_]+", text))


def stop(processes, graces):
    """SIGTERM, then the time that Kubernetes gives."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    codes = [process.wait(grace) for process, grace in zip(processes, graces)]
    if any(codes):
        raise SystemExit(f"ended with {codes} after SIGTERM")


def use(release, api, server, keys):
    """What a user, Prometheus and KEDA do."""
    [container] = server["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        api.read(container[probe]["httpGet"]["path"])
    try:
        api.read("/jobs")
        raise SystemExit("jobs are listed without a key")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
    api.read("/datasets/words.txt", keys["admin"], body=b"Call me Ishmael.", method="PUT", kind="text/plain")
    shutil.copytree(ROOT / "tests/fixtures/llama_gqa", release.volume("models") / "llama_gqa")
    (release.volume("data") / "more.txt").write_text("Some years ago.")
    job = {"model": "llama_gqa", "datasets": ["more.txt", {"upload": "words.txt"}]}
    job = json.loads(api.read("/jobs", keys["admin"], body=json.dumps(job).encode()))
    state = api.ended(job["id"], keys["admin"])
    if state != "succeeded":
        raise SystemExit(f"the job {state}: {api.read('/jobs/' + job['id'], keys['admin'])}")
    [endpoint] = release.the("ServiceMonitor")["spec"]["endpoints"]
    metrics = api.read(endpoint["path"], keys["metrics"])
    wanted = {f"# TYPE {name.removesuffix('_count')} " for name in metric_names(release.objects)}
    # KEDA wants the very series.
    triggers = release.the("ScaledObject")["spec"]["triggers"]
    wanted |= {f"\n{trigger['metadata']['valueLocation']} " for trigger in triggers}
    if missing := {text for text in wanted if text not in metrics}:
        raise SystemExit(f"no such metrics: {sorted(missing)}")


def main():
    helm, chart, programs = (Path(argument).resolve() for argument in sys.argv[1:])
    keys = {"admin": new_key(), "metrics": new_key()}
    with tempfile.TemporaryDirectory(prefix="assay-chart-") as folder:
        release = Release(helm, chart, programs, Path(folder), keys)
        job, server = release.pod("Job"), release.pod("Deployment")
        worker = release.pod("StatefulSet", "-worker-cpu")
        # An upgrade is the same once more.
        release.run(job)
        release.run(job)
        logs = [Path(folder) / "server.log", Path(folder) / "worker.log"]
        processes = []
        try:
            for pod, log in zip((server, worker), logs):
                processes.append(release.start(pod, log))
            api = Api(first_line_with(logs[0], processes[0], "listening on "))
            use(release, api, server, keys)
            stop(processes, [pod["terminationGracePeriodSeconds"] for pod in (server, worker)])
        except BaseException:
            for log in logs:
                print(log.name, log.read_text() if log.exists() else "", sep="\n", file=sys.stderr)
            raise
        finally:
            for process in processes:
                process.kill()
    print("what the chart starts runs, and a job has succeeded", file=sys.stderr)


if __name__ == "__main__":
    main()
