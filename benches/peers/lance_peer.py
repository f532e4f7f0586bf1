"""Lance, by itself: a table with a row for each cell, a list of gene numbers and one of values; single rows by number, or ranges of rows.

Settings, with the sentence of its docstrings (pylance 14.0.2) or of its documentation on PyTorch that each follows:

- `uniform`, `weighted`: `take` of the rows of a batch, as SafeLanceDataset does it: "Leverage native batch reading". That class makes Python's lists
  of them ("Convert to python-native format"), 2,900 numbers a row; here the arrays of Arrow become CSR as they are.
- `chunked`: `LanceDataset`, "a subclass of torch.utils.data.IterableDataset", with `ShardedBatchSampler(randomize=True)`: "The order in which batches
  are loaded is randomized." Its batches are ranges of sampler.chunk_rows rows. It shuffles nothing within them and has no buffer, so
  sampler.chunks of them are shuffled together here, in numpy.
- `batch_readahead`: left at its 16, "The number of batches to read ahead in different (Rust) threads for each fragment."
- Written by `write_dataset` with its defaults.
- loader.workers threads that decode (LANCE_CPU_THREADS); by default they are as many as processors. Threads that read are left at its default. No
  worker processes: "lance is not fork-safe".

Rows alone. The table is on the local disk, or, with an address as argument (`s3://line/peers/lance`), in the object store that `AWS_ENDPOINT_URL`
names.
"""

import os
import sys

import measured

COLUMNS = ["genes", "values"]


def object_store():
    """Lance's options of a store that is not Amazon's; keys it reads from the environment."""
    address = os.environ.get("AWS_ENDPOINT_URL")
    if not address:
        return None
    plain = "true" if address.startswith("http://") else "false"
    return {"aws_endpoint": address, "allow_http": plain, "aws_region": os.environ.get("AWS_REGION", "us-east-1")}


def csr(genes, values, width):
    """Lists of Arrow as scipy's CSR, without a copy of them."""
    import scipy.sparse as sp

    ends = genes.offsets.to_numpy()
    return sp.csr_matrix((values.flatten().to_numpy(), genes.flatten().to_numpy(), ends - ends[0]), shape=(len(genes), width))


def single_rows(request, table, width):
    """Batches of single rows, in the order of the draw."""
    from h5ad_rows import orders

    for order in orders(request, table.count_rows()):
        for at in range(0, len(order) - request.batch + 1, request.batch):
            found = table.take(order[at:at + request.batch].tolist(), columns=COLUMNS)
            yield csr(*(found[column].combine_chunks() for column in COLUMNS), width)


def blocks(request, table):
    """Chunks in random order, as many as are shuffled together, epoch after epoch."""
    from lance.sampler import ShardedBatchSampler
    from lance.torch.data import LanceDataset

    epoch = 0
    while True:
        # Its seed gives one order: another one for each epoch.
        sampler = ShardedBatchSampler(0, 1, randomize=True, seed=request.seed + epoch)
        block = []
        for chunk in LanceDataset(table, batch_size=request.chunk_rows, columns=COLUMNS, sampler=sampler, to_tensor_fn=None):
            block.append(chunk)
            if len(block) == request.chunks:
                yield block
                block = []
        if block:
            yield block
        epoch += 1


def shuffled(request, table, width):
    """Batches of the rows of some chunks, in random order."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(request.seed)
    for block in blocks(request, table):
        rows = sp.vstack([csr(chunk["genes"], chunk["values"], width) for chunk in block], format="csr")
        order = rng.permutation(rows.shape[0])
        for at in range(0, len(order) - request.batch + 1, request.batch):
            yield rows[order[at:at + request.batch]]


def batches(request):
    request.needs("Lance", draw=["uniform", "weighted", "chunked"])
    # Read when the package is imported.
    os.environ["LANCE_CPU_THREADS"] = str(max(request.workers, 1))
    import json

    import lance

    folder = request.format("lance")
    width = json.loads((folder / "about.json").read_text())["genes"]
    remote = sys.argv[1] if len(sys.argv) > 1 else None
    table = lance.dataset(f"{remote}/rows", storage_options=object_store()) if remote else lance.dataset(str(folder / "rows"))
    yield from (shuffled if request.draw == "chunked" else single_rows)(request, table, width)


if __name__ == "__main__":
    measured.run_rows("Lance", ["pylance", "pyarrow", "scipy"], batches)
