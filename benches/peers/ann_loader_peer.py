"""AnnLoader (anndata.experimental): a lazy concatenation of .h5ad files, a batch of random rows fetched at once.

Settings, with the sentence of anndata's docstrings (0.13.2) that each follows:

- AnnCollection of files opened with `backed="r"`, `join_vars="inner"` as its example has it.
- `indices_strict=False`: "can be set to `False` if the order in the returned arrays is not important, for example, when using them for
  stochastic gradient descent. In this case the performance of subsetting can be a bit better."
- `shuffle=True`: "Set to `True` to have the data reshuffled at every epoch."
- The default converter: "Use the default converter to convert arrays to pytorch tensors". It makes dense tensors, so dense is all there is.
- Several ranks by torch's DistributedSampler, which it is given as its `sampler`.

Rows alone: columns of obs are read when a batch is asked for them. Worker processes fail on open files: handles of HDF5 cannot be
pickled. It is deprecated: "Use :class:`annbatch.Loader` instead of `AnnLoader`".
"""

import measured


def batches(request):
    request.needs("AnnLoader", output=["dense"], workers=False, ranks=True)
    import anndata as ad
    from anndata.experimental import AnnCollection, AnnLoader
    from h5ad_rows import row_sampler

    parts = [ad.read_h5ad(path, backed="r") for path in request.files]
    collection = AnnCollection(parts, join_vars="inner", join_obs="inner", index_unique="_", indices_strict=False)
    drawn = {"sampler": row_sampler(request, collection)} if request.ranks > 1 else {"shuffle": True}
    loader = AnnLoader(collection, batch_size=request.batch, drop_last=True, **drawn)
    for batch in request.endless(loader):
        yield batch.X


if __name__ == "__main__":
    measured.run_rows("AnnLoader", ["anndata", "h5py"], batches)
