"""What a collection of many rows in many files costs: to open, in memory, until the first batch, and a second; and how that grows.

    "$(benches/peers/setup.sh --python expctl_python)" benches/many_rows.py
    EXPCTL_BENCH_RECORD=FILE     write the figures there, as scripts/reference.sh does
    MANY_ROWS_FILES=10,100,1000  numbers of files
    MANY_ROWS_GENES=1000,30000   numbers of genes, with 100 files
    MANY_ROWS_RUNS=N             runs of each case, default 3
    MANY_ROWS_SECONDS=N          time over which rows are counted, default 5

One `.h5ad` file has 100,000 rows of 1,000 genes with five values each, uncompressed as AnnData writes it, and a column of weights. A collection is
hard links of it: to the loader they are different files, and all of them fit into the page cache. Each run is a process of its own, which
opens the collection, makes a loader of two threads (the sampler reads what it needs) and takes sparse batches of 1,024 rows.

Memory is PSS (the process' share of its pages, /proc/self/smaps_rollup): before, after opening, after the first batch; and the peak of the
resident pages while opening (VmHWM). The exponent of seconds against N is the slope of a line through the logarithms of all runs, with the 95 %
interval of 2,000 bootstrap samples of the runs of each N. Bytes a row are what memory grows by from the smallest to the largest number
of rows, over the difference of rows, with the interval of the same samples. Prints a table in markdown.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROWS, VALUES, BATCH, THREADS = 100_000, 5, 1024, 2
# Genes of the collections of many rows, and files of those of many genes.
GENES, FILES = 1000, 100
DRAWS = ("uniform", "chunked", "weighted")
SECONDS = float(os.environ.get("MANY_ROWS_SECONDS", "5"))
COMMAND = '"$(benches/peers/setup.sh --python expctl_python)" benches/many_rows.py'


def write_file(path, genes):
    """The file of a collection: columns of a row are in five equal parts of the genes, so they ascend."""
    import anndata
    import numpy
    import pandas
    import scipy.sparse

    random, stretch = numpy.random.default_rng(1), genes // VALUES
    columns = random.integers(0, stretch, (ROWS, VALUES)) + numpy.arange(VALUES) * stretch
    values = random.integers(1, 9, ROWS * VALUES).astype("float32")
    starts = numpy.arange(0, ROWS * VALUES + 1, VALUES)
    matrix = scipy.sparse.csr_matrix((values, columns.reshape(-1), starts), shape=(ROWS, genes))
    obs = pandas.DataFrame({"weight": random.random(ROWS)}, index=[f"cell_{row}" for row in range(ROWS)])
    var = pandas.DataFrame(index=[f"gene_{gene:05}" for gene in range(genes)])
    anndata.AnnData(matrix, obs=obs, var=var).write_h5ad(path)


def memory(file, key):
    """Bytes of this process that a file in /proc/self has under a key."""
    with open(f"/proc/self/{file}") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024


def measure(folder, draw):
    """Opens the files of a folder and takes batches; prints the figures of this run as JSON."""
    import built_loaders  # noqa: F401
    import expctl.data as xd

    files = sorted(str(path) for path in pathlib.Path(folder).iterdir())
    sampler = {"uniform": xd.uniform, "chunked": lambda: xd.chunked(512, 32), "weighted": lambda: xd.weighted("weight")}[draw]()
    found = {"PSS before": memory("smaps_rollup", "Pss")}
    resident = memory("status", "VmRSS")
    begun = time.monotonic()
    loader = xd.Loader(xd.open(files), BATCH, sampler=sampler, threads=THREADS, out="numpy", sparse=True, drop_last=True)
    found["open"] = time.monotonic() - begun
    found["peak"] = max(memory("status", "VmHWM") - resident, 0)
    found["PSS opened"] = memory("smaps_rollup", "Pss")
    begun = time.monotonic()
    batches = iter(loader)
    next(batches).X  # noqa: B018
    found["first batch"] = time.monotonic() - begun
    found["PSS first batch"] = memory("smaps_rollup", "Pss")
    begun, rows = time.monotonic(), 0
    for batch in batches:
        batch.X  # noqa: B018
        rows += BATCH
        if time.monotonic() - begun >= SECONDS:
            break
    found["rate"] = rows / (time.monotonic() - begun)
    print(json.dumps(found))


def run(*arguments):
    """Standard output of this program with other arguments, in a process of its own."""
    return subprocess.run([sys.executable, __file__, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout


class Collections:
    """Folders of hard links, by number of files and of genes."""

    def __init__(self, place):
        self.place, self.files = place, {}

    def folder(self, count, genes):
        if genes not in self.files:
            self.files[genes] = self.place / f"{genes}.h5ad"
            run("--write", self.files[genes], genes)
        folder = self.place / f"{genes}-{count}"
        if not folder.exists():
            folder.mkdir()
            for number in range(count):
                os.link(self.files[genes], folder / f"part-{number:05}.h5ad")
        return folder


class Costs:
    """The figures of all runs of a draw, by size."""

    def __init__(self, draw):
        self.draw, self.runs = draw, {}

    def measure(self, size, folder, runs):
        self.runs[size] = [json.loads(run("--measure", folder, self.draw)) for _ in range(runs)]
        middle = {key: statistics.median(one[key] for one in self.runs[size]) for key in self.runs[size][0]}
        print(f"{self.draw}, {folder.name}: {middle}", file=sys.stderr, flush=True)

    def of(self, figure):
        return {size: [figure(one) for one in runs] for size, runs in self.runs.items()}


def grown(key):
    return lambda one: max(one[key] - one["PSS before"], 0)


def seconds(key):
    return lambda one: one[key]


# What a case has a figure of: its name, how it is found, and its unit.
FIGURES = (
    ("open", seconds("open"), "s"),
    ("first batch", seconds("first batch"), "s"),
    ("memory opened", grown("PSS opened"), "B"),
    ("memory first batch", grown("PSS first batch"), "B"),
    ("peak while opening", seconds("peak"), "B"),
    ("rate", seconds("rate"), "rows/s"),
)


def main():
    sys.path.insert(0, str(HERE))
    from bench_record import figure, of_runs, write_record
    from exponent import exponent, interval

    def sizes(name, default):
        return [int(size) for size in os.environ.get(name, default).split(",")]

    def bytes_a_row(by_files):
        few, many = min(by_files), max(by_files)
        return (statistics.median(by_files[many]) - statistics.median(by_files[few])) / ((many - few) * ROWS)

    runs, table = int(os.environ.get("MANY_ROWS_RUNS", "3")), []
    by_files, by_genes = sizes("MANY_ROWS_FILES", "10,100,1000"), sizes("MANY_ROWS_GENES", "1000,30000")
    with tempfile.TemporaryDirectory(prefix="expctl-rows-") as name:
        collections = Collections(pathlib.Path(name))
        for draw in DRAWS:
            costs = Costs(draw)
            for count in by_files:
                costs.measure(count, collections.folder(count, GENES), runs)
                for key, of, unit in FIGURES:
                    of_runs(f"{draw}, {count}: {key}", costs.of(of)[count], unit)
            cells = []
            for key in ("open", "first batch"):
                value, ends = exponent(costs.of(seconds(key)))
                figure(f"{draw}: {key}, exponent", value, ends, runs * len(by_files))
                cells.append(f"{value:.2f} [{ends['low']:.2f}–{ends['high']:.2f}]")
            for key in ("memory opened", "memory first batch", "peak while opening"):
                of = next(of for name, of, _ in FIGURES if name == key)
                value, ends = bytes_a_row(costs.of(of)), interval(costs.of(of), bytes_a_row)
                figure(f"{draw}: {key}, bytes a row", value, ends, runs * 2, "bytes")
                cells.append(f"{value:.2f} [{ends['low']:.2f}–{ends['high']:.2f}]")
            largest = {key: statistics.median(costs.of(of)[by_files[-1]]) for key, of, _ in FIGURES}
            table.append((draw, largest, cells))
        costs = Costs("uniform")
        for genes in by_genes:
            costs.measure(genes, collections.folder(FILES, genes), runs)
            for key, of, unit in FIGURES:
                of_runs(f"genes, {genes}: {key}", costs.of(of)[genes], unit)
        if len(by_genes) > 1:
            value, ends = exponent(costs.of(seconds("open")))
            figure("genes: open, exponent", value, ends, runs * len(by_genes))

    print(f"{by_files[-1]} files of {ROWS:,} rows:\n")
    figures = "open, s | first batch, s | memory, MB | peak while opening, MB | rows/s"
    print(f"| Draw | {figures} | exponent of open | of first batch | bytes a row, opened | with a batch | peak |")
    print("|---|" + "---:|" * 10)
    for draw, largest, cells in table:
        figures = [f"{largest['open']:.2f}", f"{largest['first batch']:.3f}", f"{largest['memory opened'] / 1e6:.0f}"]
        figures += [f"{largest['peak while opening'] / 1e6:.0f}", f"{largest['rate']:,.0f}"]
        print(f"| {draw} | {' | '.join(figures + cells)} |")
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), COMMAND)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_file(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["--measure"]:
        sys.path[:0] = [str(HERE / "peers"), str(HERE)]
        measure(sys.argv[2], sys.argv[3])
    else:
        main()
