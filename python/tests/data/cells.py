"""Small AnnData files for the tests, and what anndata says is in them."""

import json
import pathlib
import tempfile

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse

KINDS = [["B cell", "NK"], ["NK", "T cell", "B cell"], ["T cell"]]


def adata(number, rows, genes, sparse=True):
    """One file's AnnData: counts, a layer, raw, and obs columns of all kinds."""
    rng = np.random.default_rng(number)
    counts = np.where(rng.random((rows, len(genes))) < 0.3, rng.integers(1, 300, (rows, len(genes))), 0).astype("float32")
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical.from_codes(rng.integers(-1, len(KINDS[number]), rows), KINDS[number]),
            "n_counts": counts.sum(1),
            "score": rng.random(rows),
            "plate": (np.arange(rows) % 5 - 1).astype("int16"),
            "good": rng.random(rows) < 0.5,
            "weight": rng.random(rows) + 0.1,
            "donor": [f"donor {i % 3}" for i in range(rows)],
        },
        index=[f"cell {number}/{i}" for i in range(rows)],
    )
    matrix = scipy.sparse.csr_matrix if sparse else np.asarray
    found = anndata.AnnData(matrix(counts), obs=obs, var=pd.DataFrame(index=genes))
    found.layers["halves"] = matrix(counts / 2)
    found.obsm["X_pca"] = rng.standard_normal((rows, 4))
    return found


GENES = [["a", "b", "c", "d", "e", "f", "g"], ["g", "f", "c", "x", "a"], ["c", "b", "a", "g", "y", "z"]]
ROWS = [101, 67, 50]


class Cells:
    """Three files of one format in a temporary folder."""

    def __init__(self, format="h5ad", sparse=True):
        self.folder = tempfile.TemporaryDirectory()
        self.adatas = [adata(i, ROWS[i], GENES[i], sparse) for i in range(3)]
        self.files = []
        for i, one in enumerate(self.adatas):
            path = pathlib.Path(self.folder.name, f"part{i}.{format}")
            if format == "h5ad":
                one.write_h5ad(path, compression="gzip")
            elif format == "zarr":
                one.write_zarr(path)
            else:
                write_parquet(one, path)
            self.files.append(str(path))

    def joined(self, join="inner"):
        return anndata.concat(self.adatas, join=join, fill_value=0)

    def close(self):
        self.folder.cleanup()


def write_parquet(one, path):
    """CSR rows as lists, the columns of obs beside them."""
    matrix = scipy.sparse.csr_matrix(one.X)
    matrix.sort_indices()
    rows = [slice(*matrix.indptr[i : i + 2]) for i in range(matrix.shape[0])]
    columns = {
        "indices": pa.array([matrix.indices[row] for row in rows], pa.list_(pa.int32())),
        "values": pa.array([matrix.data[row] for row in rows], pa.list_(pa.float32())),
    }
    columns |= {name: pa.Array.from_pandas(one.obs[name]) for name in one.obs}
    notes = {
        "expctl.genes": json.dumps(list(one.var_names)),
        "expctl.categories": json.dumps({"cell_type": list(one.obs["cell_type"].cat.categories)}),
    }
    pq.write_table(pa.table(columns).replace_schema_metadata(notes), path, row_group_size=32)


def dense(batch):
    """X of a batch as a dense NumPy array."""
    x = batch.X
    if isinstance(x, tuple):
        x = scipy.sparse.csr_matrix((np.from_dlpack(x.values), np.from_dlpack(x.col), np.from_dlpack(x.crow)), x.shape)
    if hasattr(x, "layout") and str(x.layout) == "torch.sparse_csr":
        x = x.to_dense()
    if scipy.sparse.issparse(x):
        return x.toarray()
    return np.from_dlpack(x) if hasattr(x, "__dlpack__") else np.asarray(x)
