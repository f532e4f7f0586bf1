"""AnnLoader (anndata.experimental): a lazy concatenation of .h5ad files, a batch of random rows fetched at once.

Settings, as its documentation has them: AnnCollection of files opened with `backed="r"`, its default converter (dense
tensors). Worker processes fail on open files (handles of HDF5 cannot be pickled). Dense alone: the converter is what it
is; sparse rows would be another loader.
"""

import measured


def batches(request):
    request.needs("AnnLoader", output=["dense"], workers=False)
    import anndata as ad
    from anndata.experimental import AnnCollection, AnnLoader

    parts = [ad.read_h5ad(path, backed="r") for path in request.files]
    collection = AnnCollection(parts, join_vars="inner", join_obs="inner", index_unique="_")
    loader = AnnLoader(collection, batch_size=request.batch, shuffle=True, drop_last=True)
    for batch in request.endless(loader):
        yield batch.X


if __name__ == "__main__":
    measured.run_rows("AnnLoader", ["anndata", "h5py"], batches)
