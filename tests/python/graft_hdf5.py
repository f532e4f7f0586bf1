"""Makes an .h5ad of each matrix of numbers in HDF5 files of others: the data set stays where and how it is, and is the file's X by a link.

    graft_hdf5.py FOLDER OUT            OUT/FILE.NUMBER.h5ad
    graft_hdf5.py --compare OUT NEW     NEW/FILE.NUMBER.h5ad, where it is there, has the values that h5py reads from X of OUT's
"""

import pathlib
import shutil
import sys

import h5py
import numpy as np


def matrices(file):
    """Paths of the data sets of the file that are matrices of numbers."""
    found = []

    def look(name, item):
        if isinstance(item, h5py.Dataset) and item.shape is not None and len(item.shape) == 2 and item.dtype.kind in "iuf":
            found.append(name)

    file.visititems(look)
    return sorted(found)


def frame(file, name, rows):
    group = file.create_group(name)
    group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
    group.attrs.create("column-order", [], dtype=h5py.string_dtype())
    index = group.create_dataset("_index", data=[f"{name}{i}" for i in range(rows)], dtype=h5py.string_dtype())
    index.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})


def graft(path, out):
    with h5py.File(path, "r", locking=False) as file:
        names = matrices(file)
    for number, name in enumerate(names):
        target = out / f"{path.stem}.{number}.h5ad"
        shutil.copyfile(path, target)
        with h5py.File(target, "r+") as file:
            file["X"] = file[name]
            file["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
            file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
            for axis, rows in zip(("obs", "var"), file["X"].shape):
                frame(file, axis, rows)


def dense(x, shape):
    """X of an .h5ad, an array or in CSR, as float32."""
    if isinstance(x, h5py.Group):
        import scipy.sparse

        values, columns, starts = (x[part][()] for part in ("data", "indices", "indptr"))
        return scipy.sparse.csr_matrix((values, columns, starts), shape=shape).toarray().astype("f4")
    return x[()].astype("f4")


def compare(new, expected_of):
    """Compares X of each file in `new` with the matrix that `expected_of(its name without .h5ad)` reads, and prints how many there are."""
    compared = 0
    for path in sorted(new.glob("*.h5ad")):
        expected = expected_of(path.stem).astype("f4")
        with h5py.File(path) as file:
            got = dense(file["X"], expected.shape)
        assert got.shape == expected.shape and np.array_equal(got, expected, equal_nan=True), f"{path.name}: {got} for {expected}"
        compared += 1
    print(compared)


def original(old, name):
    with h5py.File(old / f"{name}.h5ad") as file:
        return file["X"][()]


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        old, new = map(pathlib.Path, sys.argv[2:])
        compare(new, lambda name: original(old, name))
    else:
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*.hdf5")):
            graft(path, pathlib.Path(sys.argv[2]))
