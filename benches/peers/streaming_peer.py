"""MosaicML streaming: rows serialised one by one in MDS shards, shuffled by py1e within blocks of rows.

Settings, with the sentence of StreamingDataset's docstring (0.13.0) that each follows:

- `batch_size`: "Per-device batch size, the same as what is passed to the DataLoader. This affects how the dataset is partitioned over the
  workers and is necessary for deterministic resumption and optimal performance."
- `shuffle=True`, `shuffle_algo`: "Defaults to ``py1e``." The blocks that it shuffles in stay at their default,
  ``max(4_000_000 // num_canonical_nodes), 1 << 18)`` rows: all of ours; sampler.chunk_rows and sampler.chunks are not used.
- `num_canonical_nodes`: left out, which is "simply the number of physical nodes of the initial run": 1.
- `predownload`: left out, "its value is set to ``8 * batch_size``". The shards are local and uncompressed, so nothing is downloaded.

torch's DataLoader, as its README has it (its own counts samples for resuming, of tensors alone); samples are (genes, values) arrays,
joined to CSR as batches are collated.
"""

import measured


class Collate:
    """Samples to scipy's CSR."""

    def __init__(self, genes):
        self.genes = genes

    def __call__(self, samples):
        import numpy as np
        import scipy.sparse as sp

        indptr = np.cumsum([0] + [len(sample["values"]) for sample in samples])
        values = np.concatenate([sample["values"] for sample in samples])
        genes = np.concatenate([sample["genes"] for sample in samples])
        return sp.csr_matrix((values, genes, indptr), shape=(len(samples), self.genes))


def batches(request):
    request.needs("MosaicML streaming", draw=["chunked"])
    import json

    from streaming_packages import StreamingDataset
    from torch.utils.data import DataLoader

    folder = request.format("mds")
    genes = json.loads((folder / "about.json").read_text())["genes"]
    rows = str(folder / "rows")
    data = StreamingDataset(local=rows, shuffle=True, shuffle_seed=request.seed, batch_size=request.batch)
    more = {"prefetch_factor": request.ahead, "persistent_workers": True} if request.workers else {}
    loader = DataLoader(data, batch_size=request.batch, drop_last=True, num_workers=request.workers,
                        collate_fn=Collate(genes), **more)
    yield from request.endless(loader)


if __name__ == "__main__":
    measured.run_rows("MosaicML streaming", ["mosaicml-streaming", "numpy", "scipy"], batches, by_system_calls=True)
