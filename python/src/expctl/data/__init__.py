"""Loads rows (cells) of AnnData files into training loops: h5ad, zarr, parquet and MDS, from disk or from object stores.

    import expctl.data as xd

    ds = xd.open("atlas/*.h5ad", obs=["cell_type", "n_counts"])
    loader = xd.Loader(ds, batch_size=4096, sampler="chunked", seed=1)
    for epoch in range(10):
        loader.set_epoch(epoch)
        for batch in loader:
            batch.X                  # float32 [4096, genes], a torch tensor if torch is installed
            batch.obs["cell_type"]   # int64 [4096], class numbers; names are in ds.classes["cell_type"]
            batch.index              # int64 [4096], rows of ds

Threads of this process read ahead; there are no worker processes. Guide: docs/guide/python.md. Samples of a graph are in
`expctl.data.graph`.
"""

import os as _os

try:
    from .. import _native
except ImportError as error:
    raise ImportError(
        "expctl.data needs its native module, which is built when the package is installed: pip install ./python"
    ) from error
from .._native import DataError
from .batch import CSR, Batch
from .dataset import Dataset, open
from .encoders import Encoders
from .loader import Loader
from .obs import Obs
from .samplers import balanced, chunked, sequential, uniform, weighted
from .times import StageTimes

__all__ = [
    "Batch", "CSR", "DataError", "Dataset", "Encoders", "Loader", "Obs", "StageTimes",
    "balanced", "chunked", "open", "sequential", "uniform", "weighted",
]

# A child has none of the threads of its parent: what must not be used there says so.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_native.after_fork)
