"""Read folders in zarr that expctl wrote with AnnData and zarr, and compare them with the .h5ad files that they were made of.

    read_zarr.py FOLDER_OF_H5AD FOLDER_OF_ZARR
"""

import sys
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr

warnings.simplefilter("ignore")
sources, folder = Path(sys.argv[1]), Path(sys.argv[2])
found = sorted(folder.glob("*.zarr"))
assert found
for path in found:
    base, other = anndata.read_h5ad(sources / f"{path.stem}.h5ad"), anndata.read_zarr(path)
    assert isinstance(other.X, sp.csr_matrix) and other.X.dtype == np.float32 and other.X.shape == base.X.shape
    expected = sp.csr_matrix(base.X.astype("f4"))
    assert (expected != other.X).nnz == 0, path
    assert other.X.has_canonical_format
    pd.testing.assert_frame_equal(other.obs, base.obs)
    pd.testing.assert_frame_equal(other.var, base.var)
    assert set(other.obsm) == set(base.obsm) and set(other.uns) == set(base.uns)
    for name in base.obsm:
        assert (np.asarray(other.obsm[name]) == np.asarray(base.obsm[name])).all()
    # What is in one place says the same as what is in all of them.
    inside, outside = zarr.open_consolidated(path), zarr.open_group(path, use_consolidated=False)
    names = sorted(name for name, _ in outside.members(max_depth=None))
    assert names == sorted(name for name, _ in inside.members(max_depth=None))
    for name in names:
        assert dict(inside[name].attrs) == dict(outside[name].attrs)
        if isinstance(outside[name], zarr.Array):
            assert inside[name].metadata == outside[name].metadata
            outside[name][...]
    assert outside["X/data"].shards is not None
print(len(found))
