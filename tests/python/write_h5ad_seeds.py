"""Small .h5ad matrices for crates/anndata-io/examples/fuzz_h5ad.rs: mostly what describes the data, of many kinds.

    write_h5ad_seeds.py FOLDER

In files named *-strict.h5ad everything that says where the data is, and the data, has checksums.
"""

import sys
from pathlib import Path

import anndata
import h5py
import hdf5plugin
import numpy as np
import scipy.sparse as sp

folder = Path(sys.argv[1])
rng = np.random.default_rng(3)
dense = (rng.integers(1, 9, (40, 30)) * (rng.random((40, 30)) < 0.3)).astype("f4")
m = sp.csr_matrix(dense)

for libver in ["earliest", "latest"]:
    for name, options in {
        "none": {},
        "flat": None,
        "gzip": dict(compression="gzip", shuffle=True),
        "lzf": dict(compression="lzf"),
        "zstd": dict(hdf5plugin.Zstd()),
        "lz4": dict(hdf5plugin.LZ4()),
        "blosc": dict(hdf5plugin.Blosc(cname="lz4")),
        "blosc-zstd": dict(hdf5plugin.Blosc(cname="zstd")),
        "strict": dict(fletcher32=True),
        "gzip-strict": dict(fletcher32=True, compression="gzip"),
    }.items():
        if name.endswith("strict") and libver == "earliest":
            continue
        for form in ["csr", "csc", "dense"]:
            with h5py.File(folder / f"{libver}-{form}-{name}.h5ad", "w", libver=libver) as f:
                if form == "dense":
                    f.create_dataset("X", data=dense, chunks=None if options is None else (7, 8), **(options or {}))
                    continue
                c = m if form == "csr" else sp.csc_matrix(m)
                g = f.create_group("X")
                g.attrs["encoding-type"] = np.bytes_(f"{form}_matrix")
                g.attrs["encoding-version"] = np.bytes_("0.1.0")
                g.attrs["shape"] = np.array(dense.shape)
                for part in ["data", "indices", "indptr"]:
                    chunks = None if options is None else ((50,) if part != "indptr" else (20,))
                    g.create_dataset(part, data=getattr(c, part), chunks=chunks, **(options or {}))

a = anndata.AnnData(m.copy())
a.raw = a.copy()
a.write_h5ad(folder / "anndata.h5ad", compression="gzip")
