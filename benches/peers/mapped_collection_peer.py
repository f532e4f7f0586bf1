"""MappedCollection (lamindb): single rows of .h5ad files, made dense one by one, stacked by torch's DataLoader.

Settings, as its documentation has them: torch's DataLoader with `worker_init_fn` and `parallel` for worker processes; a
label; weighted draws by torch's WeightedRandomSampler. Dense alone.
"""

import measured


def batches(request):
    request.needs("MappedCollection", draw=["uniform", "weighted"], output=["dense"])
    from h5ad_rows import row_sampler
    from lamindb.core._mapped_collection import MappedCollection
    from torch.utils.data import DataLoader

    parallel = request.workers > 0
    data = MappedCollection([str(path) for path in request.files], obs_keys=["cell_type"], parallel=parallel)
    more = {"worker_init_fn": data.torch_worker_init_fn, "prefetch_factor": request.ahead, "persistent_workers": True}
    loader = DataLoader(data, batch_size=request.batch, sampler=row_sampler(request, data), drop_last=True,
                        num_workers=request.workers, **(more if parallel else {}))
    for batch in request.endless(loader):
        yield batch["X"]


if __name__ == "__main__":
    measured.run_rows("MappedCollection", ["lamindb", "h5py", "anndata"], batches)
