"""The speed table of docs/performance.md, from what run.py wrote.

Usage: ratios.py OUT/rates.csv

A line for each comparison: how many times the rows per second of another case ours has. Ratios are taken within each
round, where both ran one soon after the other; median [least..most] of the rounds.
"""

import collections
import csv
import statistics
import sys

# Group, our case, the other case, what it is for. {} stands for the output.
PAIRS = [
    ("weighted", "expctl {}, workers 1", "BioNeMo SCDL, {}", ("sparse", "dense")),
    ("weighted", "expctl {}, workers 2", "BioNeMo SCDL, {}", ("sparse", "dense")),
    ("weighted", "expctl {}, workers 1", "rows of SCDL's files by hand, {}", ("sparse", "dense")),
    ("weighted", "expctl {}, workers 2", "rows of SCDL's files by hand, {}", ("sparse", "dense")),
    ("weighted", "expctl {}, workers 2", "MappedCollection, {}, workers 2", ("dense",)),
    ("weighted", "expctl {}, workers 2", "expctl {}, workers 1", ("sparse", "dense")),
    ("gzip rows", "expctl {}, workers 1", "MappedCollection, {}, workers 0", ("dense",)),
    ("gzip rows", "expctl {}, workers 2", "MappedCollection, {}, workers 2", ("dense",)),
    ("gzip rows", "expctl {}, workers 2", "expctl {}, workers 1", ("sparse", "dense")),
    ("chunked", "expctl 512 × 32, {}, workers 1", "annbatch 512 × 32, {}", ("sparse", "dense")),
    ("chunked", "expctl 512 × 32, {}, workers 2", "annbatch 512 × 32, {}", ("sparse", "dense")),
    ("chunked", "expctl 512 × 32, {}, workers 2", "h5py blocks 64 × 256, {}", ("sparse", "dense")),
    ("chunked", "expctl 512 × 32, {}, workers 2", "expctl 512 × 32, {}, workers 1", ("sparse", "dense")),
    ("gzip chunked", "expctl 16 × 1024, {}, workers 1", "scDataset 16 × 128, {}", ("sparse", "dense")),
    ("gzip chunked", "expctl 16 × 1024, {}, workers 2", "scDataset 16 × 128, {}", ("sparse", "dense")),
    ("gzip chunked", "expctl 16 × 1024, {}, workers 2", "expctl 16 × 1024, {}, workers 1", ("sparse", "dense")),
    *(
        ("memory", f"expctl {{}}, batch {batch}, workers {workers}", f"scipy, {{}}, batch {batch}", ("sparse", "dense"))
        for batch in (128, 1024)
        for workers in (0, 1, 2)
    ),
    *(
        ("memory", f"expctl {{}}, batch {batch}, workers 2", f"expctl {{}}, batch {batch}, workers 1", ("sparse", "dense"))
        for batch in (128, 1024)
    ),
    ("parquet", "expctl workers 1", "pyarrow row groups, 1 threads", ("",)),
    ("parquet", "expctl workers 2", "pyarrow row groups, 2 threads", ("",)),
    ("parquet", "expctl workers 2", "expctl workers 1", ("",)),
]
# Ours and the floor of as many threads: of memory, or of reading from a file that the system has in memory.
FLOORS = [
    ("memory", "expctl {}, batch 128, workers {}", "memory, {}, batch 128"),
    ("memory", "expctl {}, batch 1024, workers {}", "memory, {}, batch 1024"),
    ("chunked", "expctl 512 × 32, {}, workers {}", "memory, {}, batch 128"),
    ("chunked", "expctl 512 × 32, {}, workers {}", "file, {}, batch 128"),
    ("weighted", "expctl {}, workers {}", "memory, {}, batch 128"),
]


def ratios(rates, ours, other):
    return [rates[ours][r] / rates[other][r] for r in sorted(rates[ours]) if r in rates[other]]


def line(name, other, rates, ours_key, other_key):
    found = ratios(rates, ours_key, other_key)
    if not found:
        return None
    middle = statistics.median(rates[ours_key].values())
    spread = f"**{statistics.median(found):.2f}** [{min(found):.2f}..{max(found):.2f}]"
    return f"| {name} | {middle:,.0f} | {other} | {spread} | {len(found)} |"


def main():
    rates = collections.defaultdict(dict)
    with open(sys.argv[1], newline="") as file:
        for row in csv.DictReader(file):
            if row["rows_per_s"]:
                rates[row["group"], row["case"]][int(row["round"])] = float(row["rows_per_s"])
    lines = ["| expctl | rows/s | compared with | times | n |", "|---|---:|---|---:|---:|"]
    for group, ours, other, outputs in PAIRS:
        for output in outputs:
            one, two = ours.format(output), other.format(output)
            lines.append(line(f"{group}: {one.removeprefix('expctl ')}", two, rates, (group, one), (group, two)))
    lines += ["", "| expctl | rows/s | floor | share | n |", "|---|---:|---|---:|---:|"]
    for group, ours, other in FLOORS:
        for output in ("sparse", "dense"):
            for threads in ("1", "2"):
                one = ours.format(output, threads)
                floor = f"{other.format(output)}, threads {threads}"
                lines.append(line(f"{group}: {one.removeprefix('expctl ')}", floor, rates, (group, one), ("floor", floor)))
    print("\n".join(text for text in lines if text is not None))


if __name__ == "__main__":
    main()
