"""Row groups of parquet through pyarrow, a few shuffled together: the algorithm of NVIDIA Merlin's loader, without Merlin.

sampler.chunks row groups (Merlin's parts_per_chunk) are decoded by loader.workers threads while the batches of those in front are
yielded; a batch takes its rows from the decoded row groups, in random order over all of them, without a copy of the block. Settings,
with the sentence of pyarrow's docstrings (22.0.0) that each follows:

- The column X alone: "If not None, only these columns will be read from the row group."
- Threads that read a row group each, `use_threads=False`: it means "Perform multi-threaded column reads.", and there is one column.
- The metadata of a file is read once: "Use existing metadata object, rather than reading from file."
- `pre_buffer` stays off, its default for a ParquetFile: "Coalesce and issue file reads in parallel to improve performance on high-latency
  filesystems (e.g. S3)." The files are local.
- `set_cpu_count`: "Set the number of threads to use in parallel operations."

Dense alone: the files have a value for every gene.
"""

import measured


def batches(request):
    request.needs("row groups", draw=["chunked"], output=["dense"])
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    threads = max(request.workers, 1)
    pa.set_cpu_count(threads)
    metadata = [pq.read_metadata(path) for path in request.files]
    groups = [(i, group) for i, about in enumerate(metadata) for group in range(about.num_row_groups)]
    rng = np.random.default_rng(request.seed)

    def rows_of(file, group):
        # A reader is for one thread at a time; opening one with its metadata at hand reads nothing.
        reader = pq.ParquetFile(request.files[file], metadata=metadata[file])
        column = reader.read_row_group(group, columns=["X"], use_threads=False)["X"].combine_chunks()
        return column.flatten().to_numpy().reshape(len(column), -1)

    def blocks():
        while True:
            order = rng.permutation(len(groups))
            for start in range(0, len(order), request.chunks):
                yield [groups[i] for i in order[start:start + request.chunks]]

    with ThreadPoolExecutor(threads) as pool:
        def ask(block):
            return [pool.submit(rows_of, *group) for group in block]

        source = blocks()
        ahead = ask(next(source))
        while True:
            parts = [future.result() for future in ahead]
            ahead = ask(next(source))
            part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            row_of = np.concatenate([np.arange(len(part)) for part in parts])
            order = rng.permutation(len(row_of))
            for at in range(0, len(order) - request.batch + 1, request.batch):
                chosen = order[at:at + request.batch]
                batch = torch.empty(request.batch, parts[0].shape[1])
                rows = batch.numpy()
                for i, part, row in zip(range(request.batch), part_of[chosen], row_of[chosen]):
                    rows[i] = parts[part][row]
                yield batch
            del parts


if __name__ == "__main__":
    measured.run_rows("row groups (pyarrow)", ["pyarrow", "numpy"], batches, by_system_calls=False)
