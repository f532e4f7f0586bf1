"""A thousand trials on a real Slurm: benches/load.sh --slurm runs this; it says what is measured."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone

HERE = pathlib.Path(__file__).resolve().parent.parent
TOOLS = HERE / "slurm/dev-cluster"
# Slurm's commands that ask something; sbatch, scancel and scontrol update or release change something.
QUESTIONS = ("squeue", "sacct", "scontrol show")
CONF = """
[experiment]
study = "006-kuzmin-tmi"
title = "Load"
[data]
samples = 200
scale = 0.05
[loader]
batch_size = 8
workers = 0
[train]
mode = "data"
[measure]
warmup = 1
steps = 5
repeats = {trials}
[slurm]
cpus_per_rank = 1
memory_mib = 300
time_min = 30
[variant.ids]
pipeline.processor = "ids"
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def row(name, values, unit="s", digits=3, note=""):
    values = sorted(values)
    shown = (f"{v:.{digits}f}" for v in (values[0], statistics.median(values), values[-1]))
    print(f"| {name} | {len(values)} | {' | '.join(shown)} | {unit} | {note} |", flush=True)


class Bench:
    def __init__(self, args, place, env):
        self.args, self.place = args, place
        self.root = place / "project"
        shims = place / "shims"
        shims.mkdir()
        for tool in ("squeue", "sacct", "sbatch", "scontrol", "scancel", "sinfo"):
            shim = shims / tool
            real = shutil.which(tool, path=env["PATH"])
            if real is None:
                continue
            shim.write_text(f'#!/bin/sh\n[ -z "$LOAD_CALLS" ] || echo "{tool} $1" >> "$LOAD_CALLS"\nexec {real} "$@"\n')
            shim.chmod(0o755)
        self.env = env | {"PATH": f"{shims}:{env['PATH']}", "EXPCTL_WORKER": args.worker}
        (self.root / "conf").mkdir(parents=True)
        (self.root / "experiments").symlink_to(HERE / "experiments")
        self.conf = self.root / "conf/load.toml"
        self.conf.write_text(CONF.format(trials=args.trials))

    def start(self, *args, log):
        """Start expctl; its questions to Slurm go to a list of its own."""
        calls = self.place / f"calls-{log}"
        calls.unlink(missing_ok=True)
        command = [self.args.expctl, "--root", str(self.root), *args]
        out, err = open(self.place / f"{log}.out", "w"), open(self.place / f"{log}.err", "w")
        child = subprocess.Popen(command, env=self.env | {"LOAD_CALLS": str(calls)}, stdout=out, stderr=err)
        child.begun = time.monotonic()
        return child

    def end(self, child, log, codes=(0,)):
        """Wall time, processor time, peak memory in MiB, questions."""
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - child.begun
        child.returncode = code = os.waitstatus_to_exitcode(status)
        if code not in codes:
            sys.exit(f"{log}: exit code {code}: {(self.place / f'{log}.err').read_text()}")
        return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, self.questions(log)

    def run(self, *args, log, codes=(0,)):
        return self.end(self.start(*args, log=log), log, codes)

    def questions(self, log):
        calls = self.place / f"calls-{log}"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return sum(line.startswith(QUESTIONS) for line in lines)

    def text(self, log):
        return (self.place / f"{log}.out").read_text()

    def measure(self):
        self.run("data", "build", "006-kuzmin-tmi", "--samples", "200", "--scale", "0.05", log="build")
        wait = self.start("submit", str(self.conf), "--backend", "slurm", "--wait", log="wait")
        while not self.text("wait").endswith("\n"):
            if not alive(wait):
                sys.exit((self.place / "wait.err").read_text())
            time.sleep(0.005)
        submitted, job = [time.monotonic() - wait.begun], self.text("wait").strip()
        say(f"job {job} after {submitted[0]:.2f} s")
        watch = self.start("watch", job, "--json", log="watch")
        running, loads = {"status JOB": [], "status": []}, []
        while alive(wait):
            for name, args in (("status JOB", ["status", job, "--json"]), ("status", ["status", "--json"])):
                running[name].append(self.run(*args, log=name.replace(" ", "-")))
            loads.append(os.getloadavg()[0])
            if len(loads) % 8 == 1:
                say(f"{time.monotonic() - wait.begun:4.0f} s: {self.states()}; load {loads[-1]:.1f}")
            time.sleep(self.args.every)
        # One that failed is a finding, not the end of the bench.
        wait_wall, wait_cpu, wait_peak, wait_asked = self.end(wait, "wait", codes=(0, 5, 6))
        watch_wall, watch_cpu, watch_peak, watch_asked = self.end(watch, "watch", codes=(0, 5, 6))
        looks = self.text("watch").count("\n")
        ended = {name: [self.run(*args, log="ended", codes=(0, 5)) for _ in range(self.args.runs)] for name, args in (
            ("status JOB", ["status", job, "--json"]), ("status", ["status"]), ("report", ["report", job]),
            ("watch", ["watch", job]))}
        self.run("status", job, "--json", log="status-JOB")

        print(f"commit {commit()}, {datetime.now(timezone.utc):%Y-%m-%d}, {os.cpu_count()} processors, {self.args.nodes} virtual"
              f" nodes of {self.args.cpus}, load average {min(loads):.1f} to {max(loads):.1f}")
        print(f"{self.states()}; {wait_wall:.0f} s from submission to note, {self.args.trials / wait_wall:.2f} trials/s\n")
        print("| | n | min | median | max | | |\n|---|---|---|---|---|---|---|")
        row("submit", submitted, note="until the job's number is printed")
        for name, found in running.items():
            row(f"{name}, while it runs", [wall for wall, *_ in found])
            row("its processor time", [cpu for _, cpu, *_ in found])
            row("its questions to Slurm", [asked for *_, asked in found], "", 0)
        for name, found in ended.items():
            row(f"{name}, after the end", [wall for wall, *_ in found], note=f"{sum(f[3] for f in found)} questions")
            row("its processor time", [cpu for _, cpu, *_ in found])
        row("peak memory, submit --wait", [wait_peak], "MiB", 0, f"{wait_asked} questions in {wait_wall:.0f} s, {wait_cpu:.1f} s of processor")
        row("peak memory, watch", [watch_peak], "MiB", 0, f"{watch_asked} questions in {looks} looks, {watch_cpu:.1f} s of processor")
        row("peak memory, status JOB", [peak for *_, peak, _ in running["status JOB"]], "MiB", 0)
        row("peak memory, report", [peak for *_, peak, _ in ended["report"]], "MiB", 0)
        self.phases(job)
        failed = [trial for trial in json.loads(self.text("status-JOB")) if trial["state"] != "completed"]
        for trial in failed[:20]:
            print(f"{trial['trial']}: {trial['state']}: {trial['reason']}")
        return len(failed)

    def states(self):
        counts = {}
        for trial in json.loads(self.text("status-JOB")):
            counts[trial["state"]] = counts.get(trial["state"], 0) + 1
        return ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))

    def phases(self, job):
        """What a trial costs on its node, without Slurm, one at a time."""
        folder = self.place / "phases" / job
        folder.mkdir(parents=True)
        for file in ("job.json", "arrays.json"):
            source = self.root / "results/runs" / job / file
            if source.exists():
                shutil.copy(source, folder)
        walls = {"stage-attempt": [], "worker, start and libtorch (--version)": [], "worker, 6 steps": [], "conclude": []}

        def timed(name, command, **env):
            begun = time.monotonic()
            done = subprocess.run(command, env=self.env | env, capture_output=True, text=True, check=True)
            walls[name].append(time.monotonic() - begun)
            return done.stdout

        first, worker, steps, last = walls
        for task in range(self.args.phases):
            staged = timed(first, [self.args.expctl, "stage-attempt", str(folder), job, str(task)])
            attempt = staged.split(maxsplit=1)[1].strip()
            timed(worker, [self.args.worker, "--version"])
            timed(steps, [self.args.worker, "--attempt", attempt], RANK="0", WORLD_SIZE="1")
            timed(last, [self.args.expctl, "conclude", attempt, "--exit-code", "0"])
        print(f"\nOne trial, phase by phase, one at a time, load average {os.getloadavg()[0]:.1f}:\n")
        print("| | n | min | median | max | | |\n|---|---|---|---|---|---|---|")
        for name, values in walls.items():
            row(name, [1000 * value for value in values], "ms", 0)


def alive(child):
    """Whether a child runs; it stays to be waited for."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def commit():
    done = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def cluster_env(folder):
    """The environment in which commands speak to the cluster."""
    text = subprocess.run(["bash", "-c", f". {folder}/env && env -0"], capture_output=True, check=True, text=True).stdout
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expctl", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=16)
    parser.add_argument("--every", type=float, default=10, help="seconds between two calls of status")
    parser.add_argument("--runs", type=int, default=5, help="calls of each command after the end")
    parser.add_argument("--phases", type=int, default=20, help="trials that are run phase by phase")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="expctl-load-") as name:
        place = pathlib.Path(name)
        # The daemons of the cluster run as users of their own.
        place.chmod(0o755)
        cluster = str(place / "cluster")
        up = [str(TOOLS / "up.sh"), cluster, "--nodes", str(args.nodes), "--cpus", str(args.cpus), "--mem", "8000",
              "--owner", str(os.getpid())]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            failed = Bench(args, place, cluster_env(cluster)).measure()
        finally:
            subprocess.run([str(TOOLS / "down.sh"), cluster], check=False)
    sys.exit(f"{failed} trials did not complete" if failed else 0)


if __name__ == "__main__":
    main()
