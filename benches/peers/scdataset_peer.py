"""scDataset: blocks of rows of any source that can be indexed, many batches fetched at once and shuffled.

Settings, with the sentence of its README (0.3.0, METADATA of the wheel) that each follows:

- block_size = sampler.chunk_rows; its example has `BlockShuffling(block_size=16)`. Weighted draws by BlockWeightedSampling, in blocks of one
  row, so that each row is drawn by its weight.
- fetch_factor such that chunk_rows × chunks rows are fetched at once: "Configure `fetch_factor` to fetch multiple batches worth of data at
  once".
- Worker processes are torch's, with `batch_size=None`: "to delegate batching to `scDataset`". "We recommend setting `prefetch_factor` to
  `fetch_factor + 1` for efficient data loading."

The source is AnnData's own reader of CSR on disk over several files (h5ad_rows.py); scDataset asks for rows in ascending order. Rows
alone: labels would be a second source.
"""

import measured


def batches(request):
    request.needs("scDataset", draw=["uniform", "weighted", "chunked"])
    from h5ad_rows import Files, obs_column
    from scdataset import BlockShuffling, BlockWeightedSampling, scDataset
    from torch.utils.data import DataLoader

    data = Files(request.files)
    block = request.chunk_rows if request.draw == "chunked" else 1
    if request.draw == "weighted":
        weights = obs_column(request.h5ad, request.by)
        strategy = BlockWeightedSampling(weights=weights, total_size=len(data), block_size=block)
    else:
        strategy = BlockShuffling(block_size=block)
    fetch = max(request.held // request.batch, 1)
    dataset = scDataset(data, strategy, batch_size=request.batch, fetch_factor=fetch, drop_last=True)
    ahead = {"num_workers": request.workers, "prefetch_factor": fetch + 1} if request.workers else None
    yield from request.endless(dataset if ahead is None else DataLoader(dataset, batch_size=None, **ahead))


if __name__ == "__main__":
    measured.run_rows("scDataset", ["scdataset", "anndata", "h5py", "scipy"], batches)
