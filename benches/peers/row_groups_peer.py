"""Row groups of parquet through pyarrow, a few shuffled together: what NVIDIA Merlin's loader does, without Merlin.

sampler.chunks row groups (Merlin's parts_per_chunk) are put into one array and its rows taken in random order. Threads
of pyarrow, loader.workers of them, in place of worker processes. Dense alone: the files have a value for every gene.
"""

import measured


def batches(request):
    request.needs("row groups", draw=["chunked"], output=["dense"])
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    threads = max(request.workers, 1)
    pa.set_cpu_count(threads)
    pa.set_io_thread_count(threads)
    files = [pq.ParquetFile(path, memory_map=True) for path in request.files]
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]
    rng = np.random.default_rng(request.seed)

    def rows_of(file, group):
        column = file.read_row_group(group, columns=["X"], use_threads=threads > 1)["X"].combine_chunks()
        return column.values.to_numpy(zero_copy_only=False).reshape(len(column), -1)

    rest = None
    while True:
        order = rng.permutation(len(groups))
        for start in range(0, len(order), request.chunks):
            parts = [rows_of(*groups[i]) for i in order[start:start + request.chunks]]
            rows = np.concatenate(parts if rest is None else [rest, *parts])
            del parts
            shuffled = rng.permutation(len(rows))
            full = len(rows) - len(rows) % request.batch
            for at in range(0, full, request.batch):
                yield torch.from_numpy(rows[shuffled[at:at + request.batch]])
            rest = rows[shuffled[full:]]


if __name__ == "__main__":
    measured.run_rows("row groups (pyarrow)", ["pyarrow", "numpy"], batches, by_system_calls=False)
