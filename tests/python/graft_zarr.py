"""Makes an AnnData store of each matrix of numbers in zarr arrays of others: the array's folder, as it is, becomes the store's X.

    graft_zarr.py FOLDER OUT            OUT/FOLDER-NAME.zarr
    graft_zarr.py --compare OUT NEW     NEW/FOLDER-NAME.h5ad, where it is there, has the values that zarr-python reads from X of OUT's
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import zarr
from graft_hdf5 import compare

ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}
STRINGS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
FRAME = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": []}


def graft(array, out, name):
    # Where a folder has the metadata of both versions, the newer one.
    version = 3 if (array / "zarr.json").exists() else 2
    metadata = array / (".zarray" if version == 2 else "zarr.json")
    said = json.loads(metadata.read_text())
    if version == 3 and said["node_type"] != "array" or len(said["shape"]) != 2:
        return
    root = zarr.create_group(out / f"{name}.zarr", zarr_format=version, attributes={"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for axis, rows in zip(("obs", "var"), said["shape"]):
        frame = root.create_group(axis, attributes=FRAME)
        index = np.array([f"{axis}{i}" for i in range(rows)], dtype=object)
        created = frame.create_array("_index", shape=index.shape, dtype=str, attributes=STRINGS)
        created[:] = index
    others = (".zarray", ".zattrs") if version == 3 else ()
    shutil.copytree(array, out / f"{name}.zarr" / "X", ignore=shutil.ignore_patterns(*others))
    if version == 2:
        (out / f"{name}.zarr" / "X" / ".zattrs").write_text(json.dumps(ARRAY))
    else:
        said["attributes"] = {**said.get("attributes", {}), **ARRAY}
        (out / f"{name}.zarr" / "X" / "zarr.json").write_text(json.dumps(said))


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        old, new = map(pathlib.Path, sys.argv[2:])
        compare(new, lambda name: zarr.open_array(old / f"{name}.zarr" / "X", mode="r")[:])
    else:
        folder, out = map(pathlib.Path, sys.argv[1:])
        for array in sorted({metadata.parent for name in (".zarray", "zarr.json") for metadata in folder.rglob(name)}):
            graft(array, out, "-".join(array.relative_to(folder).parts).removesuffix(".zarr"))
