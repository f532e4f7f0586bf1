"""Runs ours and the peers in turn, and writes what they did.

Usage: run.py --data FOLDER --out FOLDER [--rounds 5] [--seconds 5] [--only WORD,…] [--cold]

Every round runs every case once, each round beginning with another one. A case is one process; while it runs, the
memory of it and of all that it started is looked at (PSS: smaps_rollup). --cold drops the page cache before each run
(root only) and takes the cases that read files. Writes rates.csv, a line a run, and rates.md, a line a case: median
[least..most] of n.

ARRAY_RATES is our program (target/release/examples/array_rates). ARRAY_FLOOR (array_floor beside it), if it is set,
measures in each round what the memory allows.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.resolve().parent / "peers"))
from pss import pss_bytes  # noqa: E402

Case = collections.namedtuple("Case", "group name command")
COLUMNS = ["round", "group", "case", "rows_per_s", "cpu", "pss_mb", "bytes_read_per_s", "error"]


def cases(data):
    """The table of speeds: groups of cases that are compared with each other."""
    found = []

    def peer(group, name, *options):
        found.append(Case(group, name, (sys.executable, str(here / "peers.py"), *options, "--data", str(data))))

    def ours(group, name, folder, *options):
        files = sorted(str(path) for path in (data / folder).glob("*.parquet" if "parquet" in folder else "*.h5ad"))
        if files:
            found.append(Case(group, f"expctl {name}", (os.environ["ARRAY_RATES"], *files, *options)))

    if "ARRAY_FLOOR" in os.environ:
        file = next(iter(sorted((data / "h5ad").glob("*.h5ad"))), None)
        for threads in ["1", "2"]:
            for batch in ["128", "1024"]:
                for output in ["sparse", "dense"]:
                    command = (os.environ["ARRAY_FLOOR"], "--threads", threads, "--batch", batch, "--output", output)
                    found.append(Case("floor", f"memory, {output}, batch {batch}, threads {threads}", command))
                    if file and batch == "128":
                        found.append(Case("floor", f"file, {output}, batch {batch}, threads {threads}",
                                          (*command, "--file", str(file))))

    weighted = ["--draw", "weighted", "--by", "weight", "--label", "cell_type"]
    for workers in ["0", "2"]:
        peer("weighted", f"MappedCollection, dense, workers {workers}", "mapped", "--weighted", "--output", "dense",
             "--workers", workers)
        peer("gzip rows", f"MappedCollection, dense, workers {workers}", "mapped", "--gzip", "--workers", workers)
    for output in ["sparse", "dense"]:
        peer("weighted", f"BioNeMo SCDL, {output}", "scdl", "--weighted", "--output", output)
        peer("weighted", f"rows of SCDL's files by hand, {output}", "scdl_by_hand", "--weighted", "--output", output)
        peer("weighted", f"scDataset, block 1, {output}", "scdataset", "--weighted", "--output", output,
             "--chunk-rows", "1", "--chunks", "16384")
        peer("chunked", f"annbatch 512 × 32, {output}", "annbatch", "--output", output)
        peer("chunked", f"h5py blocks 64 × 256, {output}", "h5py_blocks", "--output", output, "--chunk-rows", "64",
             "--chunks", "256")
        peer("gzip chunked", f"scDataset 16 × 128, {output}", "scdataset", "--gzip", "--output", output,
             "--chunk-rows", "16", "--chunks", "1024")
        for batch in ["128", "1024"]:
            peer("memory", f"scipy, {output}, batch {batch}", "scipy", "--output", output, "--batch", batch)
            for workers in ["0", "1", "2"]:
                ours("memory", f"{output}, batch {batch}, workers {workers}", "h5ad", "--memory", "--output", output,
                     "--batch", batch, "--workers", workers)
        for workers in ["1", "2"]:
            options = ["--output", output, "--workers", workers]
            ours("weighted", f"{output}, workers {workers}", "h5ad", *weighted, *options)
            ours("gzip rows", f"{output}, workers {workers}", "h5ad_gzip", *weighted, *options)
            ours("chunked", f"512 × 32, {output}, workers {workers}", "h5ad", "--draw", "chunked", *options)
            ours("gzip chunked", f"16 × 1024, {output}, workers {workers}", "h5ad_gzip", "--draw", "chunked",
                 "--chunk-rows", "16", "--chunks", "1024", *options)
    for workers in ["1", "2"]:
        peer("parquet", f"pyarrow row groups, {workers} threads", "parquet", "--batch", "1024", "--chunks", "8",
             "--workers", workers)
        ours("parquet", f"workers {workers}", "parquet", "--draw", "chunked", "--chunk-rows", "1024", "--chunks", "8",
             "--batch", "1024", "--output", "dense", "--workers", workers)
    return found


def run(case, seconds):
    """One process; its JSON, and the most memory that it had."""
    command = [*case.command, "--seconds", str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most, done = [0.0], threading.Event()

    def look():
        while not done.wait(0.25):
            most[0] = max(most[0], pss_bytes(process.pid) / 1e6)

    watch = threading.Thread(target=look)
    watch.start()
    try:
        out, err = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += "\nno answer in 600 s"
    finally:
        done.set()
        watch.join()
    try:
        return json.loads(out.strip().splitlines()[-1]) | {"pss_mb": most[0], "error": ""}
    except (ValueError, IndexError):
        last = err.strip().splitlines() or ["no output"]
        return {"error": last[-1][:300]}


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def spread(values, digits=0):
    return f"{statistics.median(values):,.{digits}f} [{min(values):,.{digits}f}..{max(values):,.{digits}f}]"


def table(results, all_cases):
    lines = ["| Group | Case | rows/s | CPU | PSS MB | n |", "|---|---|---|---|---|---|"]
    for case in all_cases:
        runs = results[case]
        good = [result for result in runs if not result["error"]]
        if not good:
            lines.append(f"| {case.group} | {case.name} | failed: {runs[-1]['error'] if runs else 'not run'} | | | 0 |")
            continue
        rates, cpu, pss = ([result[key] for result in good] for key in ("rows_per_s", "cpu", "pss_mb"))
        cells = [case.group, case.name, spread(rates), f"{statistics.median(cpu):.1f}", spread(pss), str(len(good))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="", help="words of which a case's group or name must have one")
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    chosen = cases(options.data)
    words = [word for word in options.only.split(",") if word]
    chosen = [case for case in chosen if not words or any(word in f"{case.group} {case.name}" for word in words)]
    if options.cold:
        chosen = [case for case in chosen if case.group != "memory"]
    options.out.mkdir(parents=True, exist_ok=True)
    results = collections.defaultdict(list)
    with open(options.out / "rates.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number in range(options.rounds):
            first = number * len(chosen) // max(options.rounds, 1)
            for case in chosen[first:] + chosen[:first]:
                if options.cold:
                    drop_caches()
                result = run(case, options.seconds)
                results[case].append(result)
                row = {key: f"{result[key]:.6g}" for key in ("rows_per_s", "cpu", "pss_mb") if key in result}
                if "bytes_read" in result:
                    row["bytes_read_per_s"] = f"{result['bytes_read'] / result['seconds']:.6g}"
                about = {"round": number, "group": case.group, "case": case.name, "error": result["error"]}
                writer.writerow(row | about)
                file.flush()
                said = row.get("rows_per_s", result["error"])
                print(time.strftime("%H:%M:%S"), number, f"{case.group}: {case.name}: {said}", file=sys.stderr, flush=True)
            (options.out / "rates.md").write_text(table(results, chosen))
    print(table(results, chosen), end="")


if __name__ == "__main__":
    main()
