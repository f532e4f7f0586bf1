"""tiledbsoma: a batch of random rows of a SOMA experiment read at once by their numbers, nothing loaded ahead.

This is how Rybakov et al. (2024) read each backend for their figure 2a: "simple dataloaders pull a single batch of random indices for hdf5,
zarr, and tiledbsoma every iteration without collation or pre-loading". Settings, with the sentence of tiledbsoma's docstrings (2.3.0) that
each follows:

- `SparseNDArray.read` with the numbers of the rows, ascending, and all columns: "Reads a user-defined slice of the SparseNDArray."
- `.tables().concat()`: the whole batch as one table of Arrow, of which a CSR matrix of scipy is made.

Rows alone. The experiment is on the local disk, as tiledbsoma.io.from_anndata writes it. Its threads are TileDB's, as many as processors.
"""

import measured


def batches(request):
    request.needs("tiledbsoma", draw=["uniform"], workers=False)
    import numpy as np
    import scipy.sparse as sp
    import tiledbsoma
    from h5ad_rows import orders

    with tiledbsoma.Experiment.open(str(request.format("tiledbsoma"))) as experiment:
        rows, genes = experiment.obs.count, experiment.ms["RNA"].var.count
        matrix = experiment.ms["RNA"].X["data"]
        for order in orders(request, rows):
            for at in range(0, rows - request.batch + 1, request.batch):
                wanted = np.sort(order[at:at + request.batch])
                table = matrix.read((wanted, slice(None))).tables().concat()
                row = np.searchsorted(wanted, table["soma_dim_0"].to_numpy())
                values, columns = table["soma_data"].to_numpy(), table["soma_dim_1"].to_numpy()
                yield sp.coo_matrix((values, (row, columns)), shape=(request.batch, genes)).tocsr()


if __name__ == "__main__":
    measured.run_rows("tiledbsoma", ["tiledbsoma", "pyarrow", "scipy"], batches)
