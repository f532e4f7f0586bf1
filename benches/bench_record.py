"""The record of a benchmark in Python: the same file as the Rust benches write (crates/ledger/src/bench_record.rs).

Figures are collected in FIGURES; `write_record` writes them with command, commit, processor and memory. A tree with changes outside of
results/ is named dirty.

A benchmark of more than some minutes is made of parts (`Parts`), so that it can be measured in several sittings; its record names them.
"""

import hashlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

FIGURES = []

# What a figure may depend on. The same parts of another commit are still of use if all of these are the same.
MEASURED = ["Cargo.lock", "benches", "conf", "crates", "experiments", "src"]
# Exit code of a benchmark that has to be called again (EX_TEMPFAIL).
TO_GO_ON = 75


def expctl(*arguments):
    """Standard output of expctl; its messages go to this program's own."""
    done = subprocess.run(["expctl", *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"expctl {' '.join(arguments)}: exit {done.returncode}")
    return done.stdout


def of_runs(key, values, unit=""):
    """Adds a figure of several runs, with the smallest and the largest; returns median, smallest and largest."""
    middle, low, high = statistics.median(values), min(values), max(values)
    FIGURES.append({"key": key, "median": middle, "low": low, "high": high, "interval": "range", "n": len(values), "unit": unit})
    return middle, low, high


def figure(key, value, interval, n, unit=""):
    """Adds a figure with a 95 % confidence interval; without one (`None`) its ends are the value."""
    low, high = (interval["low"], interval["high"]) if interval else (value, value)
    FIGURES.append({"key": key, "median": value, "low": low, "high": high, "interval": "confidence95", "n": n, "unit": unit})


def git(*arguments):
    return subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), *arguments], capture_output=True, text=True)


def is_clean():
    """Whether the working tree has no changes outside of results/."""
    return git("diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)results").returncode == 0


def machine():
    """Processor, number of processors and memory, as a record has them."""
    with open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": cpu, "cpus": len(os.sched_getaffinity(0)), "memory_bytes": memory}


class Parts:
    """The parts of a benchmark that were measured, a file each, from one sitting to the next.

    They lie in EXPCTL_BENCH_PARTS, or else in the cache folder, and count for the same code on the same kind of machine alone; of a tree with
    changes they count in one sitting. EXPCTL_BENCH_MINUTES is how long a sitting may take: it ends, with exit code 75, before a part that is
    expected to end later. A part that was interrupted is measured again from its beginning.
    """

    def __init__(self, bench):
        cache = os.environ.get("EXPCTL_CACHE") or os.path.expanduser("~/.cache/expctl")
        self.folder = os.environ.get("EXPCTL_BENCH_PARTS") or os.path.join(cache, "benches", bench)
        self.began = time.time()
        minutes = os.environ.get("EXPCTL_BENCH_MINUTES")
        self.ends = self.began + 60 * float(minutes) if minutes else None
        code = git("rev-parse", *[f"HEAD:{path}" for path in MEASURED])
        known = code.returncode == 0 and is_clean()
        of = code.stdout if known else f"{self.began} {os.getpid()}"
        self.key = hashlib.sha256(f"{of}{json.dumps(machine())}".encode()).hexdigest()[:16]
        os.makedirs(self.folder, exist_ok=True)
        self.used = []

    def path(self, name):
        plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        return os.path.join(self.folder, f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.json")

    def stored(self, name):
        """What is known of a part; `None`: it has to be measured."""
        try:
            with open(self.path(name)) as text:
                part = json.load(text)
        except (OSError, ValueError):
            return None
        return part if part.get("key") == self.key and part.get("name") == name else None

    def get(self, name, measure, expected_s=0.0):
        """The result of a part, something that JSON has: that of an earlier sitting, or what `measure` returns now. `expected_s`: about as long
        as it takes."""
        part = self.stored(name)
        if part is None:
            begun = time.time()
            if self.ends and self.used_now() and begun + expected_s > self.ends:
                print(f"this sitting is over before {name}: the same command goes on", file=sys.stderr)
                sys.exit(TO_GO_ON)
            part = {"key": self.key, "name": name, "sitting": self.began, "began": begun, "result": measure()}
            part["ended"] = time.time()
            with open(self.path(name) + ".tmp", "w") as out:
                json.dump(part, out)
            os.replace(self.path(name) + ".tmp", self.path(name))
        self.used.append(part)
        return part["result"]

    def used_now(self):
        """The parts that this sitting measured."""
        return [part for part in self.used if part["sitting"] == self.began]

    def sittings(self):
        """When the parts were measured, a sitting each, the first one first."""
        by_sitting = {}
        for part in self.used:
            by_sitting.setdefault(part["sitting"], []).append(part)
        spans = [
            {"began": int(min(part["began"] for part in parts)), "ended": int(max(part["ended"] for part in parts)), "parts": len(parts)}
            for parts in by_sitting.values()
        ]
        return sorted(spans, key=lambda span: span["began"])

    def forget(self):
        """Removes the parts that a record was made of: the next one is measured anew."""
        for part in self.used:
            if os.path.exists(self.path(part["name"])):
                os.remove(self.path(part["name"]))


def plain(value):
    """A float with six digits, of which no document shows more than four."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write_record(path, command, parts=None):
    """Writes FIGURES to `path`; `None` writes nothing. `parts`: what they were measured in, which is then forgotten."""
    if not path:
        return
    head = git("rev-parse", "--short=12", "HEAD").stdout.strip()
    record = {
        "bench_schema": 1,
        "command": command,
        "commit": (head if is_clean() else f"{head}-dirty") if head else None,
        "measured": int(time.time()),
        **machine(),
    }
    sittings = parts.sittings() if parts else []
    if len(sittings) > 1:
        record["sittings"] = sittings
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    # A line for each figure: records of hundreds of them are read, and committed.
    lines = [json.dumps({key: plain(value) for key, value in one.items()}, ensure_ascii=False) for one in FIGURES]
    with open(path, "w") as out:
        head = json.dumps(record, indent=2, ensure_ascii=False).removesuffix("\n}")
        out.write(head + ',\n  "figures": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n")
    if parts:
        parts.forget()
