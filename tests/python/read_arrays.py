"""Read every format of an array data set with AnnData and pyarrow and compare it with the base files; print what they hold."""

import glob
import json
import sys
import warnings

warnings.simplefilter("error")

import anndata
import h5py
import hdf5plugin  # noqa: F401  (registers Zstandard with HDF5)
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr

folder = sys.argv[1]


def files(pattern):
    return sorted(glob.glob(f"{folder}/{pattern}"))


base = [anndata.read_h5ad(path) for path in files("files/*.h5ad")]
everything = anndata.concat(base, merge="same")
found = {
    "rows": everything.n_obs,
    "genes": everything.n_vars,
    "nnz": int(everything.X.nnz),
    "sum": float(everything.X.sum(dtype="f8")),
    "columns": list(everything.obs.columns),
    "classes": {str(k): int(v) for k, v in everything.obs.cell_type.value_counts().items()},
    "missing_ages": int(everything.obs.age.isna().sum()),
    "formats": {},
}
assert everything.X.dtype == np.float32 and everything.X.indices.dtype == np.int32
assert (np.asarray(everything.X.sum(1)).ravel() == everything.obs.n_counts.values).all()
assert (np.diff(everything.X.indptr) == everything.obs.n_genes.values).all()
share = everything.obs.groupby("cell_type", observed=True).weight.agg(["sum", "nunique"])
assert (share["nunique"] == 1).all() and np.allclose(share["sum"], share["sum"].iloc[0])


def stored(path):
    with h5py.File(path) as file:
        data = file["X"] if isinstance(file["X"], h5py.Dataset) else file["X/data"]
        return {"chunks": data.chunks, "filters": data._filters}


for kind in ["gzip", "lzf", "zstd", "contiguous", "dense", "csc"]:
    paths = files(f"stores/h5ad_{kind}/*.h5ad")
    assert len(paths) in (0, len(base))
    for one, path in zip(base, paths):
        other = anndata.read_h5ad(path)
        expected = {"dense": np.ndarray, "csc": sp.csc_matrix}.get(kind, sp.csr_matrix)
        assert isinstance(other.X, expected) and other.X.dtype == np.float32
        assert (sp.csr_matrix(other.X) != one.X).nnz == 0
        pd.testing.assert_frame_equal(other.obs, one.obs)
        pd.testing.assert_frame_equal(other.var, one.var)
        found["formats"][f"h5ad_{kind}"] = stored(path)

shards = [anndata.read_h5ad(path) for path in files("stores/h5ad_shuffled/*.h5ad")]
if shards:
    shuffled = anndata.concat(shards, merge="same")
    assert shuffled.obs_names.is_unique and list(shuffled.obs_names) != list(everything.obs_names)
    position = shuffled.obs_names.str.slice(len("cell_")).astype(int).values
    again = shuffled[everything.obs_names]
    assert (again.X != everything.X).nnz == 0
    # AnnData drops the categories that a choice of rows does not have.
    for column in everything.obs.select_dtypes("category"):
        assert list(shuffled.obs[column].cat.categories) == list(everything.obs[column].cat.categories)
    used = {c: everything.obs[c].cat.remove_unused_categories() for c in everything.obs.select_dtypes("category")}
    pd.testing.assert_frame_equal(again.obs, everything.obs.assign(**used))
    pd.testing.assert_frame_equal(again.var, everything.var)
    found["shuffled"] = {
        "shards": [shard.n_obs for shard in shards],
        "correlation": float(np.corrcoef(position, np.arange(len(position)))[0, 1]),
    }

for kind in ["parquet", "parquet_sparse"]:
    for one, path in zip(base, files(f"stores/{kind}/*.parquet")):
        table = pq.read_table(path)
        if kind == "parquet":
            assert (np.stack(table["X"].to_pandas().values) == one.X.toarray()).all()
        else:
            assert (np.concatenate(table["indices"].to_pandas().values) == one.X.indices).all()
            assert (np.concatenate(table["values"].to_pandas().values) == one.X.data).all()
        assert (table["cell_type"].to_pandas().astype(str).values == one.obs.cell_type.astype(str).values).all()
        assert (table["n_counts"].to_numpy() == one.obs.n_counts.values).all()
        assert (table["age"].to_pandas().isna().values == one.obs.age.isna().values).all()
        found["formats"][kind] = pq.ParquetFile(path).metadata.num_row_groups

for one, path in zip(base, files("stores/zarr/*.zarr")):
    other = anndata.read_zarr(path)
    assert isinstance(other.X, sp.csr_matrix) and other.X.dtype == np.float32
    assert (other.X != one.X).nnz == 0
    pd.testing.assert_frame_equal(other.obs, one.obs)
    pd.testing.assert_frame_equal(other.var, one.var)
    found["formats"]["zarr"] = zarr.open_group(path)["X/data"].chunks

json.dump(found, sys.stdout)
