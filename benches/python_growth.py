"""Whether a loader in Python takes more memory the longer it runs.

    "$(benches/peers/setup.sh --python expctl_python)" benches/python_growth.py
    EXPCTL_BENCH_RECORD=FILE   write the figures there, as scripts/reference.sh does
    GROWTH_ROWS=N              rows of each case; default 10 million

Reads rows of 20,000 genes from eight `.h5ad` files, epoch after epoch, as tensors of torch: in chunks and one by one, sparse and dense. Memory is
PSS (the process' share of its pages, /proc/self/smaps_rollup), at fifty moments of a case. Its growth is the slope of a straight line through
those after the first fifth, in which buffers fill; the interval is that of least squares. Prints a table in markdown.
"""

import glob
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "peers"), HERE]

import built_loaders  # noqa: E402, F401, I001

import bench_record  # noqa: E402
import expctl.data as xd  # noqa: E402

BATCH, LOOKS = 128, 50
CASES = {
    "chunks, sparse": (lambda: xd.chunked(512, 32), True),
    "chunks, dense": (lambda: xd.chunked(512, 32), False),
    "single rows, sparse": (xd.uniform, True),
}


def pss():
    """Bytes of this process, pages that it shares counted in part."""
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def looks_at_memory(dataset, sampler, sparse, rows):
    """Rows read and PSS at each look."""
    loader = xd.Loader(dataset, BATCH, sampler=sampler, threads=2, out="torch", sparse=sparse, drop_last=True, persistent=True)
    seen, found, epoch, next_look = 0, [], 0, rows / LOOKS
    while seen < rows:
        loader.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            batch.X  # noqa: B018
            seen += BATCH
            if seen >= next_look:
                found.append((seen, pss()))
                next_look += rows / LOOKS
            if seen >= rows:
                break
    return found


def slope(points):
    """Bytes a row, and the half of its 95 % interval."""
    n = len(points)
    x, y = [point[0] for point in points], [point[1] for point in points]
    mean_x, mean_y = sum(x) / n, sum(y) / n
    spread = sum((value - mean_x) ** 2 for value in x)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in points) / spread
    left = sum((b - mean_y - rise * (a - mean_x)) ** 2 for a, b in points)
    # Student's t for 38 degrees of freedom, 97.5 %.
    return rise, 2.024 * math.sqrt(left / (n - 2) / spread)


def main():
    rows = int(os.environ.get("GROWTH_ROWS", "10000000"))
    folder = bench_record.expctl("data", "build", "arrayloader", "--samples", "200000", "--files", "8").strip()
    files = sorted(glob.glob(f"{folder}/**/*.h5ad", recursive=True))
    dataset = xd.open(files)
    print("| Loader | rows | PSS after a fifth, MB | in the end, MB | growth, bytes a row |\n|---|---:|---:|---:|---:|")
    for name, (sampler, sparse) in CASES.items():
        found = looks_at_memory(dataset, sampler(), sparse, rows)
        settled = found[LOOKS // 5 :]
        rise, half = slope(settled)
        early, late = settled[0][1] / 1e6, settled[-1][1] / 1e6
        print(f"| {name} | {found[-1][0]:,} | {early:.1f} | {late:.1f} | {rise:.3f} ± {half:.3f} |", flush=True)
        bench_record.figure(f"{name}: growth", rise, {"low": rise - half, "high": rise + half}, len(settled), "bytes")
        bench_record.figure(f"{name}: PSS after a fifth", early * 1e6, None, 1, "bytes")
        bench_record.figure(f"{name}: PSS in the end", late * 1e6, None, 1, "bytes")
    bench_record.write_record(os.environ.get("EXPCTL_BENCH_RECORD"), '"$(benches/peers/setup.sh --python expctl_python)" benches/python_growth.py')


if __name__ == "__main__":
    main()
