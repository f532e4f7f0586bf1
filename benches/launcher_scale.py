#!/usr/bin/env python3
"""How long the launcher takes over ledgers of many jobs and over jobs of many trials, how much memory, and how both grow.

    benches/launcher_scale.py             ledgers of 100, 1,000 and 10,000 jobs that have ended, and jobs of as many trials
    benches/launcher_scale.py --slurm N   also submits N trials to a development cluster, counts what Slurm is asked, and cancels them (needs root)
    EXPCTL_BENCH_RECORD=FILE              write the figures there, as scripts/reference.sh does
    LAUNCHER_SCALE_SIZES=100,1000         other sizes
    LAUNCHER_SCALE_RUNS=N                 runs of each command, default 5

One small job runs first, eight times the same trial. The ledgers are made of it: a job has one trial, with the steps of one of the eight in
turn (hard links) and a number and a time of its own; a job of N trials is a sweep of N/4 points with four repeats. Prints a table in markdown.
Seconds are wall time of the whole command, its start included. The exponent of seconds against N is the slope of a line through the logarithms
of all runs, with the 95 % interval of 2,000 bootstrap samples of the runs of each N; below 1 where the start of the program is most of it. The
interval covers the noise of the timings, not that the points lie on no line; so there is the exponent between the last two N, too. What was read
of a job is cached from the second reading on: where a command is measured with a cache, it ran twice before.
"""

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

from bench_record import figure, of_runs, write_record
from exponent import exponent

HERE = pathlib.Path(__file__).resolve().parent.parent
SIZES = [int(n) for n in os.environ.get("LAUNCHER_SCALE_SIZES", "100,1000,10000").split(",")]
RUNS = int(os.environ.get("LAUNCHER_SCALE_RUNS", "5"))
# Trials of the real job, and repeats of a point of the large ones.
REAL, REPEATS = 8, 4
# The sizes of each exponent: a line through all, which bends where the start of the program is most of it, and the last two.
EXPONENTS = {} if len(SIZES) < 2 else {"exponent": SIZES, "exponent of the last two": SIZES[-2:]}

# Emulated steps: long enough for a rate to count, and the same on every machine.
CONFIG = """
[experiment]
study = "arrayloader"
title = "Many jobs"
[data]
samples = 640
scale = 0.02
[array]
format = "h5ad"
[loader]
batch_size = 4
workers = 1
[train]
mode = "emulate"
step_ms = 60
[measure]
warmup = 2
steps = 20
repeats = {repeats}
[launch]
ranks = 1
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


class Project:
    """A folder with studies, configs and a ledger; the data and the cache of the user are those of the bench."""

    def __init__(self, place, name):
        self.root = place / name
        self.runs = self.root / "results/runs"
        self.runs.mkdir(parents=True)
        (self.root / "conf").mkdir()
        (self.root / "experiments").symlink_to(HERE / "experiments")
        self.cache = place / "cache"
        drop = ("EXPCTL_ROOT", "EXPCTL_RUNS", "EXPCTL_ON_END")
        kept = {key: value for key, value in os.environ.items() if key not in drop}
        self.env = kept | {"EXPCTL_DATA": str(place / "data"), "XDG_CACHE_HOME": str(self.cache), "EXPCTL_BACKEND": "local"}

    def conf(self, name, text):
        path = self.root / "conf" / f"{name}.toml"
        path.write_text(text)
        return path

    def run(self, *arguments):
        """Standard output, wall time in seconds, peak memory in bytes."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            begun = time.monotonic()
            child = subprocess.Popen(["expctl", *map(str, arguments)], cwd=self.root, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=err)
            _, status, usage = os.wait4(child.pid, 0)
            wall = time.monotonic() - begun
            child.returncode = code = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            if code:
                sys.exit(f"expctl {' '.join(map(str, arguments))}: exit code {code}\n{err.read().decode()}")
            return out.read().decode(), wall, usage.ru_maxrss * 1024


class RealJob:
    """The job that all others are made of."""

    def __init__(self, place):
        project = Project(place, "real")
        conf = project.conf("nightly", CONFIG.format(repeats=REAL))
        out, _, _ = project.run("submit", conf, "--backend", "local", "--wait")
        self.folder = project.runs / out.split()[0]
        self.record = json.loads((self.folder / "job.json").read_text())
        self.trial = self.record["trials"][0]
        self.attempts = [self.folder / trial["id"] / "attempt-1" for trial in self.record["trials"]]

    def write(self, project, number, submitted, trials):
        """A job of these trials, each with the steps of one of the real ones."""
        folder = project.runs / str(number)
        folder.mkdir()
        for file in self.folder.iterdir():
            if file.is_file() and file.name != "job.json":
                os.link(file, folder / file.name)
        (folder / "job.json").write_text(json.dumps(self.record | {"job": number, "submitted": submitted, "trials": trials}))
        for index, trial in enumerate(trials):
            attempt = folder / trial["id"] / "attempt-1"
            attempt.mkdir(parents=True)
            (attempt / "trial.json").write_text(json.dumps(trial))
            for file in self.attempts[(number + index) % REAL].iterdir():
                if file.is_file() and file.name != "trial.json":
                    os.link(file, attempt / file.name)

    def many_jobs(self, place, n):
        """A ledger of n jobs with a trial each, one a minute until now."""
        project, now = Project(place, f"jobs-{n}"), int(time.time())
        for number in range(1, n + 1):
            self.write(project, number, now - 60 * (n + 1 - number), [self.trial])
        return project

    def many_trials(self, place, n):
        """A ledger of two jobs with n trials each: a sweep over seeds, with repeats."""
        project, now = Project(place, f"trials-{n}"), int(time.time())
        trials = [self.at_point(point, repeat) for point in range(1, n // REPEATS + 1) for repeat in range(1, REPEATS + 1)]
        for number in (1, 2):
            self.write(project, number, now - 3600 + number, trials)
        seeds = ", ".join(str(point) for point in range(1, n // REPEATS + 1))
        project.conf("sweep", f"{CONFIG.format(repeats=REPEATS)}\n[sweep.grid]\nloader.seed = [{seeds}]\n")
        return project

    def at_point(self, point, repeat):
        settings = self.trial["settings"]
        settings = settings | {"loader": settings["loader"] | {"seed": point}, "measure": settings["measure"] | {"repeats": REPEATS}}
        return self.trial | {"id": f"{self.trial['variant']}-{point:05}-r{repeat}-{point:08x}", "point": {"loader.seed": point},
                             "repeat": repeat, "settings": settings}


class Times:
    """Wall times by command and N."""

    def __init__(self):
        self.seconds = {}

    def measure(self, verb, n, project, *arguments, before=lambda: None):
        walls, peaks = [], []
        for _ in range(RUNS):
            before()
            _, wall, peak = project.run(*arguments)
            walls.append(wall)
            peaks.append(peak)
        self.seconds.setdefault(verb, {})[n] = walls
        middle, low, high = of_runs(f"{verb}, {n}, s", walls, "s")
        of_runs(f"{verb}, {n}, memory", peaks, "B")
        say(f"{verb}, {n}: {middle:.3f} s ({low:.3f}–{high:.3f}), {statistics.median(peaks) / 2**20:.0f} MiB")

    def exponents(self):
        for verb, by_n in self.seconds.items():
            for name, sizes in EXPONENTS.items():
                runs = {n: by_n[n] for n in sizes}
                value, interval = exponent(runs)
                figure(f"{verb}, {name}", value, interval, sum(map(len, runs.values())))

    def table(self):
        print(f"| | {' | '.join([f'{n:,}' for n in SIZES] + list(EXPONENTS))} |")
        print("|---|" + "---:|" * (len(SIZES) + len(EXPONENTS)))
        for verb, by_n in self.seconds.items():
            cells = [f"{statistics.median(by_n[n]):.3f} s" for n in SIZES]
            for sizes in EXPONENTS.values():
                value, interval = exponent({n: by_n[n] for n in sizes})
                cells.append(f"{value:.2f} [{interval['low']:.2f}–{interval['high']:.2f}]")
            print(f"| {verb} | {' | '.join(cells)} |")


def measure_jobs(times, n, project, place):
    """What is asked of a whole ledger."""
    site = place / f"site-{n}"

    def forget():
        shutil.rmtree(project.cache, ignore_errors=True)

    def no_site():
        forget()
        shutil.rmtree(site, ignore_errors=True)

    def change():
        """Another outcome of the newest job, as after a retry."""
        (outcome,) = (project.runs / str(n)).glob("*/attempt-1/outcome.json")
        text = outcome.read_bytes()
        outcome.unlink()
        outcome.write_bytes(text)

    def warm(*arguments):
        """A first run filled the cache; a second one confirms it."""
        project.run(*arguments)

    times.measure("status, nothing cached", n, project, "status", before=forget)
    warm("status")
    times.measure("status", n, project, "status")
    times.measure("status --json", n, project, "status", "--json")
    times.measure("history CONF, nothing cached", n, project, "history", "nightly", before=forget)
    warm("history", "nightly")
    times.measure("history CONF", n, project, "history", "nightly")
    times.measure("site DIR, no page yet", n, project, "site", site, before=no_site)
    warm("site", site)
    times.measure("site DIR, nothing new", n, project, "site", site)
    # The rates of all jobs are read for the second time when the page of rates is made again.
    change()
    warm("site", site)
    times.measure("site DIR, one job new", n, project, "site", site, before=change)
    times.measure("report of one job", n, project, "report", n)
    times.measure("completion of a job", n, project, "completions", "--after", "report")


def measure_trials(times, n, project):
    """What is asked of a job of n trials, and a config of as many."""
    sweep = project.root / "conf/sweep.toml"
    times.measure("status JOB", n, project, "status", 1)
    times.measure("status JOB --json", n, project, "status", 1, "--json")
    times.measure("watch JOB, which has ended", n, project, "watch", 1)
    times.measure("report JOB", n, project, "report", 1)
    times.measure("compare JOB JOB", n, project, "compare", 1, 2)
    times.measure("plan CONF", n, project, "plan", sweep)
    times.measure("submit CONF --dry-run", n, project, "submit", sweep, "--backend", "local", "--dry-run")


def submit_to_slurm(trials):
    """One submission to a development cluster; the job is cancelled at once."""
    import load_slurm

    with tempfile.TemporaryDirectory(prefix="expctl-scale-") as name:
        place = pathlib.Path(name)
        # The daemons of the cluster run as users of their own.
        place.chmod(0o755)
        cluster = str(place / "cluster")
        up = [str(load_slurm.TOOLS / "up.sh"), cluster, "--nodes", "2", "--cpus", "16", "--mem", "8000", "--owner", str(os.getpid())]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            asked = argparse.Namespace(expctl=shutil.which("expctl"), worker=shutil.which("expctl-worker"), trials=trials)
            bench = load_slurm.Bench(asked, place, load_slurm.cluster_env(cluster))
            bench.run("data", "build", "006-kuzmin-tmi", "--samples", "200", "--scale", "0.05", log="build")
            wall, _, peak, questions = bench.run("submit", str(bench.conf), "--backend", "slurm", log="submit")
            calls = (place / "calls-submit").read_text().splitlines()
            bench.run("cancel", bench.text("submit").strip(), log="cancel", codes=(0, 5, 6))
        finally:
            subprocess.run([str(load_slurm.TOOLS / "down.sh"), cluster], check=False)
    sent = sum(call.startswith("sbatch") for call in calls)
    say(f"submit to Slurm, {trials} trials: {wall:.2f} s, {questions} questions, {sent} times sbatch, {peak:.0f} MiB")
    figure("submit to Slurm, trials", trials, None, 1)
    figure("submit to Slurm, s", wall, None, 1, "s")
    figure("submit to Slurm, questions", questions, None, 1)
    figure("submit to Slurm, sbatch", sent, None, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slurm", type=int, metavar="N", help="submit N trials to a development cluster, too")
    args = parser.parse_args()
    times = Times()
    with tempfile.TemporaryDirectory(prefix="expctl-scale-") as name:
        place = pathlib.Path(name)
        real = RealJob(place)
        for n in SIZES:
            say(f"writing a ledger of {n} jobs and two jobs of {n} trials …")
            jobs, trials = real.many_jobs(place, n), real.many_trials(place, n)
            # Writing is not what is measured.
            os.sync()
            measure_jobs(times, n, jobs, place)
            measure_trials(times, n, trials)
            # The largest ledgers have some hundred thousand files.
            shutil.rmtree(jobs.root)
            shutil.rmtree(trials.root)
    times.exponents()
    times.table()
    if args.slurm:
        submit_to_slurm(args.slurm)
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/launcher_scale.py" + (f" --slurm {args.slurm}" if args.slurm else ""))


if __name__ == "__main__":
    main()
