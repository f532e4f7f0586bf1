"""One Python loader, measured for some seconds.

Usage: peers.py PEER --data FOLDER [--batch 128] [--workers 0] [--output sparse|dense] [--seconds 5]
       [--chunk-rows 512] [--chunks 32] [--gzip] [--weighted]

Prints JSON: rows, seconds, rows_per_s, cpu (seconds of processor per second, worker processes included). Sparse is what
the loader yields by itself, CSR; dense is a float32 tensor of torch. A second before the clock starts fills what is
ahead. MappedCollection and row groups are dense only.
"""

import argparse
import json
import pathlib
import time

import anndata as ad
import h5py
import numpy as np
import psutil
import scipy.sparse as sp
import torch


def as_output(matrix, output):
    """A batch in the form asked for."""
    return torch.from_numpy(matrix.toarray()) if output == "dense" else matrix


def h5ad_files(options):
    return sorted((options.data / ("h5ad_gzip" if options.gzip else "h5ad")).glob("*.h5ad"))


class Files:
    """Rows of several AnnData files (CSR): rows are read in the order of the files and put back in their own."""

    def __init__(self, paths):
        self.parts = [ad.io.sparse_dataset(h5py.File(path)["X"]) for path in paths]
        self.starts = np.cumsum([0] + [part.shape[0] for part in self.parts])

    def __len__(self):
        return int(self.starts[-1])

    def __getitem__(self, rows):
        rows = np.atleast_1d(np.asarray(rows))
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        cuts = np.searchsorted(ascending, self.starts)
        parts = []
        for part, start, a, b in zip(self.parts, self.starts, cuts, cuts[1:]):
            if b > a:
                unique, back = np.unique(ascending[a:b] - start, return_inverse=True)
                found = part[unique]
                parts.append(found if unique.size == b - a else found[back])
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return sp.vstack(parts, format="csr")[back]


def obs_column(options, column):
    def read(path):
        with h5py.File(path) as file:
            return ad.io.read_elem(file["obs"])[column].to_numpy()

    return np.concatenate([read(path) for path in h5ad_files(options)])


def scipy_memory(options):
    matrix = sp.vstack([ad.read_h5ad(path).X for path in h5ad_files(options)], format="csr")
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(matrix.shape[0])
        for start in range(0, len(order) - options.batch + 1, options.batch):
            yield as_output(matrix[order[start:start + options.batch]], options.output)


def h5py_rows(options):
    """Row by row, as each row is asked for."""
    files = [h5py.File(path)["X"] for path in h5ad_files(options)]
    genes = int(files[0].attrs["shape"][1])
    indptrs = [file["indptr"][:] for file in files]
    parts = [(file["data"], file["indices"]) for file in files]
    starts = np.cumsum([0] + [len(indptr) - 1 for indptr in indptrs])
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(starts[-1])
        for start in range(0, len(order) - options.batch + 1, options.batch):
            data, indices, indptr = [], [], [0]
            for row in order[start:start + options.batch]:
                file = int(np.searchsorted(starts, row, side="right")) - 1
                a, b = indptrs[file][row - starts[file]:row - starts[file] + 2]
                data.append(parts[file][0][a:b])
                indices.append(parts[file][1][a:b])
                indptr.append(indptr[-1] + int(b - a))
            batch = sp.csr_matrix((np.concatenate(data), np.concatenate(indices), indptr), shape=(options.batch, genes))
            yield as_output(batch, options.output)


def h5py_blocks(options):
    """Blocks of rows, a buffer of them shuffled: what a careful user writes."""
    files = Files(h5ad_files(options))
    size, held = options.chunk_rows, options.chunks
    blocks = [(part, row) for part, n in enumerate(np.diff(files.starts)) for row in range(0, n, size)]
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(len(blocks))
        for start in range(0, len(order), held):
            these = sorted(blocks[i] for i in order[start:start + held])
            buffer = sp.vstack([files.parts[part][row:row + size] for part, row in these], format="csr")
            rows = rng.permutation(buffer.shape[0])
            for at in range(0, len(rows) - options.batch + 1, options.batch):
                yield as_output(buffer[rows[at:at + options.batch]], options.output)


def mapped(options):
    """lamindb's MappedCollection under torch's DataLoader: dense rows and a label."""
    from lamindb.core._mapped_collection import MappedCollection
    from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler

    files = [str(path) for path in h5ad_files(options)]
    data = MappedCollection(files, obs_keys=["cell_type"], parallel=options.workers > 0)
    if options.weighted:
        sampler = WeightedRandomSampler(data.get_label_weights("cell_type"), len(data))
    else:
        sampler = RandomSampler(data)
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler, num_workers=options.workers, drop_last=True)
    while True:
        for batch in loader:
            yield batch["X"]


def annbatch(options):
    import zarr
    from annbatch import DatasetCollection, Loader

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    while True:
        loader = Loader(batch_size=options.batch, chunk_size=options.chunk_rows, preload_nchunks=options.chunks,
                        shuffle=True, preload_to_gpu=False)
        loader.use_collection(DatasetCollection(options.data / "annbatch.zarr", mode="r"))
        for batch in loader:
            x = batch["X"]
            if x.shape[0] == options.batch:
                yield as_output(x, options.output)


def scdataset(options):
    from scdataset import BlockShuffling, BlockWeightedSampling, scDataset
    from torch.utils.data import DataLoader

    data = Files(h5ad_files(options))
    if options.weighted:
        strategy = BlockWeightedSampling(weights=obs_column(options, "weight"), total_size=len(data),
                                         block_size=options.chunk_rows)
    else:
        strategy = BlockShuffling(block_size=options.chunk_rows)
    dataset = scDataset(data, strategy, batch_size=options.batch, fetch_factor=options.chunks, drop_last=True)
    while True:
        if options.workers == 0:
            for batch in dataset:
                yield as_output(batch, options.output)
        else:
            ahead = {"num_workers": options.workers, "prefetch_factor": options.chunks + 1}
            for batch in DataLoader(dataset, batch_size=None, **ahead):
                yield as_output(batch, options.output)


def scdl(options):
    """As its documents say: torch's DataLoader, its own way of making a batch."""
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset
    from bionemo.scdl.util.torch_dataloader_utils import collate_sparse_matrix_batch
    from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler

    data = SingleCellMemMapDataset(str(options.data / "scdl"))
    if options.weighted:
        sampler = WeightedRandomSampler(torch.from_numpy(obs_column(options, "weight").astype(float)), len(data))
    else:
        sampler = RandomSampler(data)
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler, num_workers=options.workers, drop_last=True,
                        collate_fn=collate_sparse_matrix_batch)
    while True:
        for batch in loader:
            yield batch.to_dense() if options.output == "dense" else batch


def scdl_by_hand(options):
    """The rows of its memory maps, joined without torch: what its files allow in Python."""
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset

    data = SingleCellMemMapDataset(str(options.data / "scdl"))
    genes = int(data.shape()[1][0])
    weights = obs_column(options, "weight") if options.weighted else None
    rng = np.random.default_rng(1)
    cumulative = None if weights is None else np.cumsum(weights / weights.sum())
    while True:
        n = len(data)
        order = rng.permutation(n) if weights is None else np.searchsorted(cumulative, rng.random(n)).clip(max=n - 1)
        for start in range(0, n - options.batch + 1, options.batch):
            values, columns, indptr = [], [], [0]
            for row in order[start:start + options.batch]:
                (v, c) = data.get_row(int(row))[0]
                values.append(v)
                columns.append(c)
                indptr.append(indptr[-1] + len(v))
            shape = (options.batch, genes)
            batch = sp.csr_matrix((np.concatenate(values), np.concatenate(columns), indptr), shape=shape)
            yield as_output(batch.astype(np.float32, copy=False), options.output)


def parquet(options):
    """Row groups through pyarrow, a few of them shuffled together, as Merlin's reader does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(max(options.workers, 1))
    pa.set_io_thread_count(max(options.workers, 1))
    files = [pq.ParquetFile(path, memory_map=True) for path in sorted((options.data / "parquet").glob("*.parquet"))]
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(len(groups))
        for start in range(0, len(order), options.chunks):
            for i in order[start:start + options.chunks]:
                file, group = groups[i]
                table = file.read_row_group(group, columns=["X"], use_threads=options.workers > 1)
                column = table["X"].combine_chunks()
                values = column.values.to_numpy(zero_copy_only=False)
                rows = values.reshape(len(column), -1)
                order_in = rng.permutation(len(rows))
                for at in range(0, len(rows) - options.batch + 1, options.batch):
                    yield torch.from_numpy(rows[order_in[at:at + options.batch]])


PEERS = {"scipy": scipy_memory, "h5py_rows": h5py_rows, "h5py_blocks": h5py_blocks, "mapped": mapped,
         "annbatch": annbatch, "scdataset": scdataset, "scdl": scdl, "scdl_by_hand": scdl_by_hand,
         "parquet": parquet}


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
    rows, warm, start, cpu = 0, False, time.perf_counter(), 0.0
    for batch in PEERS[options.peer](options):
        rows += batch.shape[0]
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
