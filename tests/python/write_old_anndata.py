"""Write the file of crates/anndata-io/tests/anndata that an old AnnData is to have written.

    python write_old_anndata.py FOLDER

Run with the AnnData in question: 0.6.22 (Python 3.7, numpy 1.17.5, pandas 0.25.3, h5py 2.10.0, scipy 1.3.3), 0.7.8 (3.8, 1.20.3,
1.2.5, 3.1.0, 1.6.3), 0.8.0 (3.9, 1.22.4, 1.4.4, 3.7.0, 1.8.1), 0.10.9 (3.10, 1.26.4, 2.1.4, 3.10.0, 1.11.4).
"""

import pathlib
import sys

import anndata
import numpy as np
import pandas as pd
import scipy.sparse

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import anndata_truth  # noqa: E402

rng = np.random.RandomState(7)
rows, genes = 23, 9
counts = scipy.sparse.csr_matrix(rng.poisson(0.6, (rows, genes)).astype(np.float32))
kinds = pd.Categorical(rng.choice(["T cell", "B cell", "NK, α-β"], rows), categories=["T cell", "NK, α-β", "none", "B cell"])
kinds_missing = kinds.copy()
kinds_missing[3] = np.nan
obs = pd.DataFrame(
    {
        "kind": kinds,
        "kind_missing": kinds_missing,
        "donor": pd.Categorical(rng.randint(0, 3, rows)),
        "barcode": ["%04x-α" % (i * 2654435 % 65521) for i in range(rows)],
        "batch": rng.choice(["b2", "b10", "a"], rows),
        "depth": rng.randint(0, 5, rows),
        "wide": rng.randint(0, 2**40, rows),
        "share": rng.rand(rows).round(1).astype(np.float32),
        "score": np.where(rng.rand(rows) < 0.2, np.nan, rng.randn(rows)),
        "doublet": rng.rand(rows) < 0.3,
    },
    index=["cell %d" % i for i in range(rows)],
)
var = pd.DataFrame({"high": rng.rand(genes) < 0.5}, index=["gene-%s" % name for name in "zyxwvutsr"])
adata = anndata.AnnData(counts, obs=obs, var=var)
adata.strings_to_categoricals()
adata.obs["kind"] = adata.obs["kind"].cat.set_categories(["T cell", "NK, α-β", "none", "B cell"])
adata.raw = adata
adata = adata[:, :6].copy()
adata.layers["dense"] = np.asarray(rng.randn(rows, 6))
folder = pathlib.Path(sys.argv[1])
path = folder / ("anndata_%s.h5ad" % anndata.__version__)
adata.write(str(path), compression="gzip")
anndata_truth.write(str(folder / "anndata.json"), anndata.read_h5ad(str(path)))
print(path)
