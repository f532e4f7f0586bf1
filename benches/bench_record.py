"""The record of a benchmark in Python: the same file as the Rust benches write (crates/ledger/src/bench_record.rs).

Figures are collected in FIGURES; `write_record` writes them with command, commit, processor and memory. A tree with changes outside of
results/ is named dirty.
"""

import json
import os
import platform
import statistics
import subprocess
import time

FIGURES = []


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


def write_record(path, command):
    """Writes FIGURES to `path`; `None` writes nothing."""
    if not path:
        return
    head = git("rev-parse", "--short=12", "HEAD").stdout.strip()
    clean = git("diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)results").returncode == 0
    with open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    record = {
        "bench_schema": 1,
        "command": command,
        "commit": (head if clean else f"{head}-dirty") if head else None,
        "measured": int(time.time()),
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "figures": FIGURES,
    }
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as out:
        json.dump(record, out, indent=2, ensure_ascii=False)
        out.write("\n")
