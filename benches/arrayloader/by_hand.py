"""Loaders that a careful user writes: what h5py and SCDL's files allow in Python, without a library's own loader."""

import h5py
import numpy as np
import scipy.sparse as sp
from h5ad_rows import Files, orders


def h5py_rows(request):
    """Row by row, as each row is asked for."""
    files = [h5py.File(path)["X"] for path in request.files]
    genes = int(files[0].attrs["shape"][1])
    indptrs = [file["indptr"][:] for file in files]
    parts = [(file["data"], file["indices"]) for file in files]
    starts = np.cumsum([0] + [len(indptr) - 1 for indptr in indptrs])

    def row_of(row):
        file = int(np.searchsorted(starts, row, side="right")) - 1
        a, b = indptrs[file][row - starts[file]:row - starts[file] + 2]
        return parts[file][0][a:b], parts[file][1][a:b]

    yield from joined_rows(request, starts[-1], genes, row_of)


def scdl_rows(request):
    """The rows of SCDL's memory maps, joined without torch: what its files allow in Python."""
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset

    data = SingleCellMemMapDataset(str(request.format("scdl")))
    genes = int(data.shape()[1][0])
    for batch in joined_rows(request, len(data), genes, lambda row: data.get_row(int(row))[0]):
        yield batch.astype(np.float32, copy=False)


def joined_rows(request, rows, genes, row_of):
    """CSR of single rows; `row_of` gives values and genes of one."""
    for order in orders(request, rows):
        for start in range(0, len(order) - request.batch + 1, request.batch):
            found = [row_of(row) for row in order[start:start + request.batch]]
            indptr = np.cumsum([0] + [len(values) for values, _ in found])
            values, columns = (np.concatenate(part) for part in zip(*found))
            yield sp.csr_matrix((values, columns, indptr), shape=(request.batch, genes))


def h5py_blocks(request):
    """Blocks of rows, a buffer of them shuffled."""
    files = Files(request.files)
    size = request.chunk_rows
    blocks = [(part, row) for part, n in enumerate(np.diff(files.starts)) for row in range(0, n, size)]
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(len(blocks))
        for start in range(0, len(order), request.chunks):
            these = sorted(blocks[i] for i in order[start:start + request.chunks])
            buffer = sp.vstack([files.parts[part][row:row + size] for part, row in these], format="csr")
            rows = rng.permutation(buffer.shape[0])
            for at in range(0, len(rows) - request.batch + 1, request.batch):
                yield buffer[rows[at:at + request.batch]]
