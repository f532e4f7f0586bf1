"""Cases of matrices in files, for the tests that read them: `FOLDER/cases.json`, where FOLDER is the first argument.

A list of {file, location, rows, columns, nnz, form} for what can be read, with the values as float32 in FOLDER/<values>; and of
{file, location, error} for what cannot, where `error` is in the message.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

warnings.filterwarnings("ignore")
folder = Path(sys.argv[1])
rng = np.random.default_rng(5)
cases = []


def matrix(rows=83, columns=61, density=0.2, dtype="<f4"):
    """Small whole numbers, which every type can hold, some rows and columns empty."""
    dense = rng.integers(1, 100, (rows, columns)) * (rng.random((rows, columns)) < density)
    dense[[0, rows // 2, rows - 1]] = 0
    dense[:, 7] = 0
    return dense.astype(dtype)


def compressed(dense, kind):
    """The same as CSR or CSC."""
    return (sp.csr_matrix if kind == "csr" else sp.csc_matrix)(dense.astype("f8"))


def good(file, location, dense, form="sparse", nnz=None):
    """What reads as `dense`; of a sparse one what is not 0 is stored, or `nnz` values; of a dense one all."""
    values = f"{len(cases)}.f32"
    dense.astype("<f4").tofile(folder / values)
    if nnz is None:
        nnz = dense.size if form == "dense" else np.count_nonzero(dense)
    rows, columns = dense.shape
    cases.append(dict(file=file, location=location, rows=rows, columns=columns, nnz=int(nnz), form=form, values=values))


def bad(file, location, error):
    """What is refused."""
    cases.append(dict(file=file, location=location, error=error))


def write_cases():
    (folder / "cases.json").write_text(json.dumps(cases))
