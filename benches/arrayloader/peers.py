"""One Python loader, measured for some seconds. The loaders are those of benches/peers, and by_hand.py.

Usage: peers.py PEER --data FOLDER [--batch 128] [--workers 0] [--output sparse|dense] [--seconds 5]
       [--chunk-rows 512] [--chunks 32] [--gzip] [--weighted]

Prints JSON: rows, seconds, rows_per_s, cpu (seconds of processor per second, worker processes included). Sparse is what
the loader yields by itself, CSR; dense is a float32 tensor of torch. A second before the clock starts fills what is
ahead. Chunked loaders shuffle chunk-rows × chunks rows together.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time

import psutil
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from measured import as_output  # noqa: E402
from request import Request  # noqa: E402

# Module, its function, the draw where it is not by weight.
PEERS = {
    "scipy": ("scipy_peer", "batches", "uniform"),
    "h5py_rows": ("by_hand", "h5py_rows", "uniform"),
    "h5py_blocks": ("by_hand", "h5py_blocks", "chunked"),
    "mapped": ("mapped_collection_peer", "batches", "uniform"),
    "annbatch": ("annbatch_peer", "batches", "chunked"),
    "scdataset": ("scdataset_peer", "batches", "chunked"),
    "scdl": ("scdl_peer", "batches", "uniform"),
    "scdl_by_hand": ("by_hand", "scdl_rows", "uniform"),
    "parquet": ("row_groups_peer", "batches", "chunked"),
}


def request_of(options):
    """What the loader is asked for."""
    h5ad = tuple(sorted((options.data / "h5ad").glob("*.h5ad")))
    folder = "parquet" if options.peer == "parquet" else "h5ad_gzip" if options.gzip else "h5ad"
    return Request(
        files=tuple(sorted((options.data / folder).glob("*.parquet" if folder == "parquet" else "*.h5ad"))),
        h5ad=h5ad,
        own=options.data,
        draw="weighted" if options.weighted else PEERS[options.peer][2],
        chunk_rows=options.chunk_rows,
        chunks=options.chunks,
        output="dense" if options.peer in ("mapped", "parquet") else options.output,
        batch=options.batch,
        workers=options.workers,
        seed=1,
        memory=options.peer == "scipy",
    )


def cpu_seconds():
    """Of this process and those it has started."""
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if process is this:
            total += times.children_user + times.children_system
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    for name, value in {"batch": 128, "workers": 0, "chunk-rows": 512, "chunks": 32}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--output", choices=["sparse", "dense"], default="sparse")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--weighted", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    module, function, _ = PEERS[options.peer]
    request = request_of(options)
    rows, warm, start, cpu = 0, False, time.perf_counter(), 0.0
    for batch in getattr(importlib.import_module(module), function)(request):
        rows += as_output(batch, request.output).shape[0]
        now = time.perf_counter()
        if not warm and now - start > 1:
            rows, warm, start, cpu = 0, True, now, cpu_seconds()
        elif warm and now - start > options.seconds:
            break
    seconds = time.perf_counter() - start
    cpu = (cpu_seconds() - cpu) / seconds
    print(json.dumps({"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
