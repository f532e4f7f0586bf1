#!/usr/bin/env python3
"""How good `expctl search` is: runs the whole grid of a config's [search] once, then searches, and compares.

    benches/search.py [CONF]         default conf/search.toml
    EXPCTL_BENCH_RECORD=FILE         write the figures there, as scripts/reference.sh does
    EXPCTL_BENCH_MINUTES=N           end after about so many minutes, with exit code 75; the same command goes on
    SEARCH_STARTS=N                  searches, each with other seeds of the order of samples; default 10

The grid is a sweep over the points that `expctl plan --json` names, each three times, one after another (interleaved by repeat). Then each
search begins anew. For each it says whether the chosen settings are within 5 % of the best of the sweep, by the rates of the sweep, and what
share of the trial time of the sweep it took. Prints a table in markdown, with the summary in the end.

The sweep takes about five minutes on two processors, and each search up to two. Each is a part that is kept (`Parts` in bench_record.py).
"""

import json
import os
import statistics
import sys
import tempfile
import time

from bench_record import Parts, expctl, figure, of_runs, write_record

REPEATS = 3
NEAR = 0.95


def toml(value):
    """A plain value as TOML, of which JSON is a part for these."""
    return json.dumps(value)


def points_of(conf):
    """The points of the only variant with a search, the config's own settings first."""
    search = json.loads(expctl("plan", conf, "--json"))["search"]
    if len(search) != 1:
        sys.exit(f"{conf} has {len(search)} variants; the bench is for one")
    return search[0]["points"]


def without_search(conf):
    """The text of a config without its [search], which is the last table."""
    with open(conf) as text:
        return text.read().split("\n[search]", 1)[0]


def sweep(conf, points):
    """Rate of each point, samples/s, and seconds of all trials of the sweep."""
    rows = ", ".join("{ " + ", ".join(f'"{key}" = {toml(value)}' for key, value in point.items()) + " }" for point in points)
    # Beside the config, because it may extend others.
    with tempfile.NamedTemporaryFile("w", suffix=".toml", prefix="search_grid_", dir=os.path.dirname(conf) or ".") as grid:
        grid.write(f"{without_search(conf)}\n[sweep]\nlist = [{rows}]\n")
        grid.flush()
        # Batches that are loaded ahead must be within the warm-up.
        ahead = max(point.get("loader.workers", 0) * point.get("loader.prefetch_factor", 0) for point in points)
        own = json.loads(expctl("plan", conf, "--json"))["trials"][0]["settings"]["measure"]["warmup"]
        job = expctl("submit", grid.name, "--backend", "local", "--wait", "--set", f"measure.repeats={REPEATS}", "--set",
                     "measure.interleave=true", "--set", f"measure.warmup={max(ahead, own)}").split()[0]
    rates = {}
    for group in json.loads(expctl("compare", job, "--format", "json"))["groups"]:
        for row in group["lines"]:
            rates[name_of(row["point"])] = statistics.geometric_mean(row["samples_per_s"])
    return {"rates": [rates[name_of(point)] for point in points], "trial_s": trial_seconds(job)}


def name_of(point):
    """A point as text: a comparison has its values as text, a plan as they are."""
    return ", ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in sorted(point.items()))


def trial_seconds(job):
    """Wall time of all trials of a job, s."""
    runs = os.environ.get("EXPCTL_RUNS", os.path.join("results", "runs"))
    total = 0
    folder = os.path.join(runs, job)
    for trial in os.listdir(folder):
        path = os.path.join(folder, trial, "attempt-1", "outcome.json")
        if os.path.exists(path):
            with open(path) as text:
                outcome = json.load(text)
            total += outcome["ended"] - outcome["started"]
    return total


def search(conf, start):
    """The chosen point of a search, the seconds of its trials, and how it ended."""
    found = json.loads(expctl("search", conf, "--backend", "local", "--again", "--json", "--set", f"loader.seed={start}"))
    chosen = found["rows"][0]
    return {"point": chosen["point"], "set": chosen["set"], "trial_s": found["trial_s"], "rounds": len(found["jobs"]), "end": found["end"]}


def main(conf):
    starts = int(os.environ.get("SEARCH_STARTS", "10"))
    points = points_of(conf)
    parts = Parts("search")
    begin = time.monotonic()
    grid = parts.get(f"{conf}: the whole grid", lambda: sweep(conf, points))
    rates, grid_s = grid["rates"], grid["trial_s"]
    best = max(rates)
    print(f"grid: {len(points)} points, {grid_s} s of trials, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    near, shares, gains = [], [], []
    print("| Search | Chosen | Rate over the best of the sweep | Within 5 % | Trials, s | Share of the sweep's time | Rounds | End |")
    print("|---:|---|---:|---|---:|---:|---:|---|")
    for start in range(1, starts + 1):
        found = parts.get(f"{conf}: search {start}", lambda: search(conf, start), grid_s / 3)  # noqa: B023
        rate = rates[points.index(found["point"])] / best
        share = found["trial_s"] / grid_s
        near.append(float(rate >= NEAR))
        shares.append(share)
        gains.append(rate)
        print(f"| {start} | {', '.join(found['set'])} | {rate:.3f} | {'yes' if rate >= NEAR else 'no'} | {found['trial_s']:.0f} | "
              f"{share * 100:.0f} % | {found['rounds']} | {found['end']} |", flush=True)
    print()
    print(f"within 5 % of the best: {sum(near):.0f} of {starts}; median share of the sweep's time: {statistics.median(shares):.3f}")
    of_runs("rate of the chosen settings over the best", gains)
    of_runs("share of the time of the grid", shares)
    figure("within 5 % of the best", sum(near) / starts, None, starts)
    figure("points", float(len(points)), None, 1)
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/search.py", parts)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "conf/search.toml")
