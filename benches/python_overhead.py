"""What the Python layer of the loaders (expctl.data) adds to a batch, by batch size and by what a batch is made of.

    "$(benches/peers/setup.sh --python expctl_python)" benches/python_overhead.py [--record FILE]

Rows of 16 genes in memory, drawn with replacement, one loader thread. The time of a batch is that of the loop, which takes X and nothing else
(with `all` also `index` and the column of obs), less what the loop waited for the loader thread by the loader's own times. So it is the
program's own thread in Python. The first batch of each turn is not in it: threads begin then. All cases take turns. Prints the median of the
turns, the smallest and the largest, and the time of a batch with the waiting. `--record FILE` (or EXPCTL_BENCH_RECORD) writes them in the
form of crates/ledger/src/bench_record.rs.
"""

import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "peers"), HERE]

import built_loaders  # noqa: E402, F401, I001

import bench_record  # noqa: E402
import expctl.data as xd  # noqa: E402

TURNS = 9
ROWS, GENES = 4096, 16
# Rows of a batch, and batches of a turn.
SIZES = {1: 4000, 128: 4000, 1024: 1000}
# Name, arguments of the loader, whether the loop takes all of a batch.
CASES = {
    "torch dense": ({"out": "torch"}, False),
    "torch sparse": ({"out": "torch", "sparse": True}, False),
    "torch sparse, all": ({"out": "torch", "sparse": True}, True),
    "numpy dense": ({"out": "numpy"}, False),
    "numpy sparse": ({"out": "numpy", "sparse": True}, False),
    "scipy": ({"out": "scipy"}, False),
}


def written(folder):
    """A file of rows without a 0, with one column of classes and one of weights."""
    import anndata
    import numpy
    import pandas
    import scipy.sparse

    rng = numpy.random.default_rng(0)
    values = rng.integers(1, 100, (ROWS, GENES)).astype("float32")
    names = [str(row) for row in range(ROWS)]
    obs = pandas.DataFrame({"class": pandas.Categorical(rng.integers(0, 4, ROWS).astype(str)), "weight": 1.0}, index=names)
    path = os.path.join(folder, "rows.h5ad")
    anndata.AnnData(scipy.sparse.csr_matrix(values), obs=obs).write_h5ad(path)
    return path


def turn(dataset, batch_size, batches, options, takes_all):
    """µs of a batch in Python, and with the waiting."""
    sampler = xd.weighted("weight", rows=batch_size * batches)
    loader = xd.Loader(dataset, batch_size, sampler=sampler, threads=1, prefetch=8, **options)
    iterator = iter(loader)
    next(iterator)
    waited = loader.stages().waited
    begin = time.perf_counter()
    if takes_all:
        for batch in iterator:
            batch.X, batch.index, batch.obs  # noqa: B018
    else:
        for batch in iterator:
            batch.X  # noqa: B018
    took = time.perf_counter() - begin
    waited = loader.stages().waited - waited
    return (took - waited) / (batches - 1) * 1e6, took / (batches - 1) * 1e6


def cell(key, values):
    """Puts the figure into the record; its cell of the table."""
    middle, low, high = bench_record.of_runs(key, values, "µs")
    return f"{middle:.1f} [{low:.1f}–{high:.1f}]"


def main(record):
    with tempfile.TemporaryDirectory() as folder:
        dataset = xd.open(written(folder), obs=["class"], memory=True)
        cases = [(case, size) for case in CASES for size in SIZES]
        own, whole = {case: [] for case in cases}, {case: [] for case in cases}
        for case, size in cases:
            turn(dataset, size, 200, *CASES[case])
        for number in range(TURNS):
            # Each goes first and last in turn, so that a drift of the machine is not of one case.
            for case, size in cases if number % 2 == 0 else cases[::-1]:
                python, all_of_it = turn(dataset, size, SIZES[size], *CASES[case])
                own[case, size].append(python)
                whole[case, size].append(all_of_it)
    print(f"µs of a batch in Python; with the wait for the loader thread. Medians, smallest and largest of {TURNS} turns.\n")
    print("| A batch is |" + "".join(f" {size} × {GENES} | the same with the wait |" for size in SIZES))
    print("|---|" + "---:|---:|" * len(SIZES))
    for case in CASES:
        cells = [cell(f"{case}, {size}{suffix}", of[case, size]) for size in SIZES for suffix, of in (("", own), (" with the wait", whole))]
        print(f"| {case} | {' | '.join(cells)} |")
    bench_record.write_record(record, '"$(benches/peers/setup.sh --python expctl_python)" benches/python_overhead.py')


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments[arguments.index("--record") + 1] if "--record" in arguments else os.environ.get("EXPCTL_BENCH_RECORD"))
