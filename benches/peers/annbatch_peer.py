"""annbatch (scverse): zarr shards in its own layout, shuffled chunks of rows, decoded in Rust.

Settings, and the sentence of its README (annbatch 0.3.1, METADATA of the wheel) or of zarrs' (0.2.3) that each follows:

- zarrs: "Using zarrs is necessary for local filesystem performance."
- `load_adata` with X and the columns of array.labels alone; no labels: X alone. "WARNING: Without custom loading *all* obs columns
  will be loaded and yielded potentially degrading performance."
- `remove_unused_categories=False`, as its example has it: "ensures that you don't lose/alter your categorical codes".
- chunk_size = sampler.chunk_rows ("Defaults to 512."), preload_nchunks = sampler.chunks ("Defaults to 32."). Written by `add_adatas` with
  its defaults: "shuffling is needed if you want to use chunked access, but is the default".
- loader.workers threads of zarrs: "the maximum number of threads used internally by the `ZarrsCodecPipeline` on the Rust side". No worker
  processes: "we strongly discourage using `torch.utils.data.DataLoader` and if you must, you should not use workers as `annbatch` is
  already multi-threaded".
- `preload_to_gpu=False`, its default without cupy.

`to` is left at its default, which yields scipy's CSR; dense is made of it by scipy. Its README makes dense tensors elsewhere:
"Important: For performance reasons convert to dense on GPU". The codes of a label stay in pandas.
"""

import measured


def batches(request):
    request.needs("annbatch", draw=["chunked"])
    import anndata as ad
    import numpy as np
    import zarr
    from annbatch import DatasetCollection, Loader

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": max(request.workers, 1)})

    def load(group):
        obs = ad.io.read_elem(group["obs"])[list(request.labels)] if request.labels else None
        return ad.AnnData(X=ad.io.sparse_dataset(group["X"]), obs=obs)

    with ad.settings.override(remove_unused_categories=False):
        loader = Loader(batch_size=request.batch, chunk_size=request.chunk_rows, preload_nchunks=request.chunks, shuffle=True,
                        drop_last=True, preload_to_gpu=False, rng=np.random.default_rng(request.seed))
        loader.use_collection(DatasetCollection(request.format("annbatch.zarr"), mode="r"), load_adata=load)
        for batch in request.endless(loader):
            yield batch["X"]


if __name__ == "__main__":
    measured.run_rows("annbatch", ["annbatch", "zarr", "zarrs", "scipy"], batches)
