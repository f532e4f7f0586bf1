"""scipy: all rows in memory as one CSR matrix, a batch of random rows by indexing.

What scVI does, and what Python can do at best where the data fits: 2 GB of memory for 200,000 rows.
"""

import measured


def batches(request):
    request.needs("scipy", draw=["uniform", "weighted"], workers=False, memory=True)
    import anndata as ad
    import scipy.sparse as sp
    from h5ad_rows import orders

    matrix = sp.vstack([ad.read_h5ad(path).X for path in request.files], format="csr")
    for order in orders(request, matrix.shape[0]):
        for start in range(0, len(order) - request.batch + 1, request.batch):
            yield matrix[order[start:start + request.batch]]


if __name__ == "__main__":
    measured.run_rows("scipy", ["scipy", "numpy"], batches, by_system_calls=False)
