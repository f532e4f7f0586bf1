"""The rows of BioNeMo SCDL's memory maps, joined with numpy in place of torch's DataLoader: what SCDL's files allow in Python.

No library's own loader: `get_row` of SingleCellMemMapDataset for each row of a batch, then one CSR matrix of scipy. One thread.
"""

import measured


def batches(request):
    request.needs("SCDL by hand", draw=["uniform", "weighted"], workers=False)
    import numpy as np
    import scipy.sparse as sp
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset
    from h5ad_rows import orders

    data = SingleCellMemMapDataset(str(request.format("scdl")))
    genes = int(data.shape()[1][0])
    for order in orders(request, len(data)):
        for start in range(0, len(order) - request.batch + 1, request.batch):
            found = [data.get_row(int(row))[0] for row in order[start:start + request.batch]]
            indptr = np.cumsum([0] + [len(values) for values, _ in found])
            values, columns = (np.concatenate(part) for part in zip(*found))
            yield sp.csr_matrix((values.astype(np.float32, copy=False), columns, indptr), shape=(request.batch, genes))


if __name__ == "__main__":
    measured.run_rows("SCDL's files by hand", ["bionemo-scdl", "numpy", "scipy"], batches, by_system_calls=False)
