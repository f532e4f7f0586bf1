"""scDataset: blocks of rows of any source that can be indexed, many batches fetched at once and shuffled.

Settings, as its documentation has them: block_size = sampler.chunk_rows (16 advised), fetch_factor such that
chunk_rows × chunks rows are fetched at once, in a sorted order; weighted draws by BlockWeightedSampling. The source is
AnnData's own reader of CSR on disk over several files (h5ad_rows.py). Workers are torch's; its README: "We recommend
setting `prefetch_factor` to `fetch_factor + 1`".
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
