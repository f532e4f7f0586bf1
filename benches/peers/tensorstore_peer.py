"""TensorStore (Google): CSR in zarr 3, its arrays read by asynchronous slices; rows, chunks of rows and batches made of them by hand.

It is a library of arrays and no loader: a batch is what its documentation says of reading, around the sampler of a trial. Settings, with the
sentence of its documentation (0.1.86) that each follows:

- `ts.Batch` around the slices of a batch of rows, or of a block of chunks: "Batches are used to group together read operations for
  potentially improved efficiency."
- `cache_pool` of 64 MiB, which the indices of all shards fit into: "It is very helpful to specify a cache pool with a non-zero
  total_bytes_limit value. Otherwise, every read operation will require an additional read to obtain the shard index."
- `recheck_cached_data` and `recheck_cached_metadata` "open": the files do not change.
- loader.workers threads that decode (`data_copy_concurrency`), one without any; then nothing is read ahead either. With them loader.prefetch_factor
  batches, or one block, are asked for ahead: `read` returns "a future representing the asynchronous read result".

Rows alone. Sparse batches are scipy's CSR. Files are those of array.format = "zarr", which ours reads as well; indptr is in memory.
"""

import collections
import json

import measured

CACHE_BYTES = 64 << 20


class Part:
    """The CSR matrix of one folder in zarr."""

    def __init__(self, path, context):
        import tensorstore as ts

        def array(name):
            spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/X/{name}/"},
                    "recheck_cached_data": "open", "recheck_cached_metadata": "open"}
            return ts.open(spec, context=context, read=True).result()

        attributes = json.loads((path / "X" / "zarr.json").read_text())["attributes"]
        self.rows, self.genes = attributes["shape"]
        self.indptr = array("indptr").read().result().astype("int64")
        self.data, self.indices = array("data"), array("indices")


class Files:
    """Rows of several of them, numbered through."""

    def __init__(self, paths, threads):
        import numpy as np
        import tensorstore as ts

        context = ts.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES}, "data_copy_concurrency": {"limit": threads}})
        self.parts = [Part(path, context) for path in paths]
        self.starts = np.cumsum([0] + [part.rows for part in self.parts])
        self.genes = self.parts[0].genes

    def __len__(self):
        return int(self.starts[-1])

    def ask(self, ranges):
        """Asks for ranges of rows, none of which reaches over the end of a file; what comes is for `csr`."""
        import numpy as np
        import tensorstore as ts

        wanted = []
        with ts.Batch() as batch:
            for start, end in ranges:
                number = int(np.searchsorted(self.starts, start, side="right")) - 1
                part, first = self.parts[number], int(self.starts[number])
                indptr = part.indptr[start - first:end - first + 1]
                values = slice(int(indptr[0]), int(indptr[-1]))
                wanted.append((np.diff(indptr), part.data[values].read(batch=batch), part.indices[values].read(batch=batch)))
        return wanted

    def csr(self, asked):
        """The rows that were asked for, in that order."""
        import numpy as np
        import scipy.sparse as sp

        lengths, data, indices = zip(*((lengths, data.result(), indices.result()) for lengths, data, indices in asked))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        rows = len(indptr) - 1
        return sp.csr_matrix((np.concatenate(data), np.concatenate(indices), indptr), shape=(rows, self.genes))


def row_batches(request, rows, rng):
    """Single rows of each batch, in random order, without end."""
    while True:
        order = rng.permutation(rows)
        for at in range(0, rows - request.batch + 1, request.batch):
            yield [(int(row), int(row) + 1) for row in order[at:at + request.batch]]


def chunk_blocks(request, starts, rng):
    """Chunks of rows, in random order, as many as are shuffled together; none reaches over the end of a file."""
    chunks = [(at, min(at + request.chunk_rows, int(end)))
              for start, end in zip(starts, starts[1:]) for at in range(int(start), int(end), request.chunk_rows)]
    while True:
        order = rng.permutation(len(chunks))
        for at in range(0, len(order), request.chunks):
            yield [chunks[i] for i in order[at:at + request.chunks]]


def batches(request):
    request.needs("tensorstore", draw=["uniform", "chunked"])
    if request.files[0].suffix != ".zarr":
        import request as asked

        asked.stop("tensorstore reads CSR in zarr: set array.format = \"zarr\"")
    import numpy as np

    files, rng = Files(request.files, max(request.workers, 1)), np.random.default_rng(request.seed)
    single = request.draw == "uniform"
    wanted = row_batches(request, len(files), rng) if single else chunk_blocks(request, files.starts, rng)
    ahead = (request.ahead * request.workers if single else 1) if request.workers else 0
    asked = collections.deque()
    while True:
        while len(asked) <= ahead:
            asked.append(files.ask(next(wanted)))
        rows = files.csr(asked.popleft())
        if single:
            yield rows
            continue
        order = rng.permutation(rows.shape[0])
        for at in range(0, len(order) - request.batch + 1, request.batch):
            yield rows[order[at:at + request.batch]]


if __name__ == "__main__":
    measured.run_rows("TensorStore", ["tensorstore", "numpy", "scipy"], batches)
