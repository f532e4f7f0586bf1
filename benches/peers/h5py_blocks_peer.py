"""Blocks of rows of .h5ad files through AnnData's reader of CSR on disk, a buffer of them shuffled: what a careful user writes.

No library's own loader. Each block is one contiguous read, in the order of the files; sampler.chunks blocks of sampler.chunk_rows rows
are shuffled together, batches are rows of that buffer. One thread: HDF5 has one lock.
"""

import measured


def batches(request):
    request.needs("h5py blocks", draw=["chunked"], workers=False)
    import numpy as np
    import scipy.sparse as sp
    from h5ad_rows import Files

    files = Files(request.files)
    size = request.chunk_rows
    blocks = [(part, row) for part, n in enumerate(np.diff(files.starts)) for row in range(0, n, size)]
    rng = np.random.default_rng(request.seed)
    while True:
        order = rng.permutation(len(blocks))
        for start in range(0, len(order), request.chunks):
            these = sorted(blocks[i] for i in order[start:start + request.chunks])
            buffer = sp.vstack([files.parts[part][row:row + size] for part, row in these], format="csr")
            rows = rng.permutation(buffer.shape[0])
            for at in range(0, len(rows) - request.batch + 1, request.batch):
                yield buffer[rows[at:at + request.batch]]


if __name__ == "__main__":
    measured.run_rows("h5py blocks", ["anndata", "h5py", "scipy"], batches)
