"""annbatch (scverse): zarr shards of its own, shuffled chunks of rows, decoded in Rust.

Settings, as its documentation has them: the zarrs codec pipeline; `add_adatas` with its defaults (rows shuffled once,
as it advises); chunk_size = sampler.chunk_rows (512 advised) and preload_nchunks = sampler.chunks (32); no GPU. It has
threads of its own and no worker processes. Sparse is scipy's CSR, dense made of it.
"""

import measured


def batches(request):
    request.needs("annbatch", draw=["chunked"], workers=False)
    import zarr
    from annbatch import DatasetCollection, Loader

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    collection = DatasetCollection(request.format("annbatch.zarr"), mode="r")
    while True:
        loader = Loader(batch_size=request.batch, chunk_size=request.chunk_rows, preload_nchunks=request.chunks,
                        shuffle=True, preload_to_gpu=False)
        loader.use_collection(collection)
        for batch in loader:
            if batch["X"].shape[0] == request.batch:
                yield batch["X"]


if __name__ == "__main__":
    measured.run_rows("annbatch", ["annbatch", "zarr", "zarrs", "scipy"], batches)
