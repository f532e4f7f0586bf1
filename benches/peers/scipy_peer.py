"""scipy: all rows in memory as one CSR matrix, a batch of random rows by indexing.

What scVI does with an AnnData in memory, and what Python can do at best where the data fits: 2 GB for 200,000 rows. Each file is read
into its part of one matrix, so no second copy of the values exists at any moment. scipy indexes with one thread.
"""

import measured


def batches(request):
    request.needs("scipy", draw=["uniform", "weighted"], workers=False, memory=True)
    from h5ad_rows import joined, orders

    matrix = joined(request.files)
    for order in orders(request, matrix.shape[0]):
        for start in range(0, len(order) - request.batch + 1, request.batch):
            yield matrix[order[start:start + request.batch]]


if __name__ == "__main__":
    measured.run_rows("scipy", ["scipy", "numpy", "h5py"], batches, by_system_calls=False)
