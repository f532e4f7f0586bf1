"""NVIDIA Merlin's data loader: row groups of parquet, parts_per_chunk of them shuffled together, on the CPU.

Settings, with what Merlin's own documentation (23.8.0) says of each:

- merlin.io.Dataset of the parquet files: "The NVTabular dataset should be created from Parquet files in order to get the best possible
  performance, preferably with a row group size of around 128MB." Row groups of ours are 82 MB once decoded.
- A row group a part: "for parquet-formatted data, the partitioning is done at the row-group level".
- Loader with shuffle and parts_per_chunk = sampler.chunks, of which no documentation says more; a column that nothing reads is left out
  of the schema.

It is for GPUs: "providing GPU optimized dataloaders that read data directly into the GPU". Without one its tables are pandas', where
a row of a list column is an object. It has one thread of its own and no worker processes. Dense alone: the files have a value for every
gene.
"""

import warnings

import measured


def batches(request):
    request.needs("Merlin", draw=["chunked"], output=["dense"], workers=False)
    if request.files[0].suffix != ".parquet":
        import request as asked

        asked.stop("Merlin reads parquet alone: set array.format = \"parquet\"")
    warnings.simplefilter("ignore")
    from merlin.dataloader.torch import Loader
    from merlin.io import Dataset
    from merlin.schema import Tags  # noqa: F401  registers the schema's types

    paths = [str(path) for path in request.files]
    data = Dataset(paths, engine="parquet", cpu=True, row_groups_per_part=1)
    data.schema = data.schema.select_by_name(["X"])
    while True:
        loader = Loader(data, batch_size=request.batch, shuffle=True, parts_per_chunk=request.chunks, drop_last=True)
        for inputs, _ in loader:
            yield inputs["X__values"].reshape(request.batch, -1)


if __name__ == "__main__":
    packages = ["merlin-dataloader", "merlin-core", "dask", "pandas", "pyarrow"]
    measured.run_rows("Merlin", packages, batches, by_system_calls=False)
