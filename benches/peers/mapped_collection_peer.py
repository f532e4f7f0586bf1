"""MappedCollection (lamindb): single rows of .h5ad files, made dense one by one, stacked by torch's DataLoader.

Settings, with the sentence of lamindb's docstrings (2.12.1) that each follows:

- torch's DataLoader over the collection: "Map-style collection for use in data loaders."
- `obs_keys` = array.labels; `cache_categories` is on by default: "Enable caching categories of ``obs_keys`` for faster access."
- With worker processes `parallel=True`: "Enable sampling with multiple processes.", and `torch_worker_init_fn`: "Improves performance for
  `num_workers > 1`."
- Several ranks by torch's DistributedSampler.
- Weighted draws by torch's WeightedRandomSampler: its weights "can be directly passed to a sampler".

Dense alone: rows are dense arrays as soon as they are read.
"""

import measured


def batches(request):
    request.needs("MappedCollection", draw=["uniform", "weighted"], output=["dense"], ranks=True)
    from h5ad_rows import row_sampler
    from lamindb.core._mapped_collection import MappedCollection
    from torch.utils.data import DataLoader

    parallel = request.workers > 0
    data = MappedCollection([str(path) for path in request.files], obs_keys=list(request.labels) or None, parallel=parallel)
    more = {"worker_init_fn": data.torch_worker_init_fn, "prefetch_factor": request.ahead, "persistent_workers": True}
    loader = DataLoader(data, batch_size=request.batch, sampler=row_sampler(request, data), drop_last=True,
                        num_workers=request.workers, **(more if parallel else {}))
    for batch in request.endless(loader):
        yield batch["X"]


if __name__ == "__main__":
    measured.run_rows("MappedCollection", ["lamindb", "h5py", "anndata"], batches)
