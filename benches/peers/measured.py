"""Steps of a peer as a worker of expctl: the batch is awaited in "read", made dense in "collate"."""

import importlib.metadata
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "src"))


class SystemReads:
    """Bytes that this process read through system calls since the last look; what is mapped is not in it."""

    def __init__(self):
        self.file, self.last = os.open("/proc/self/io", os.O_RDONLY), 0
        self.since()

    def since(self):
        now = int(os.pread(self.file, 64, 0).split()[1])
        read, self.last = now - self.last, now
        return read


def as_output(batch, output):
    """A batch in the form asked for: CSR as it came, or a float32 tensor of torch."""
    import torch

    if output == "sparse" or (isinstance(batch, torch.Tensor) and batch.layout == torch.strided):
        return batch
    return batch.to_dense() if isinstance(batch, torch.Tensor) else torch.from_numpy(batch.toarray())


def run_rows(peer, packages, batches, finish=as_output, by_system_calls=True):
    """Runs a peer of arrays: `batches(request)` yields batches without end, `finish` gives them their form.

    Bytes are recorded of peers that read in this process and through system calls.
    """
    import expctl
    import request as asked

    run = expctl.Run(program=peer, versions=versions(packages))
    limit_threads(run)
    ranks = {"rank": run.rank, "ranks": run.world_size}
    request = asked.of_trial(run.settings, run.data_dir, endless=lambda loader: run.loader(loader, endless=True), **ranks)
    source = batches(request)
    reads = SystemReads() if by_system_calls and request.workers == 0 else None
    counts = lambda batch: (batch.shape[0], batch_bytes(batch))  # noqa: E731
    steps(run, source, lambda batch: finish(batch, request.output), counts, reads)
    run.note(stored_bytes=request.stored_bytes())
    run.close()


def batch_bytes(batch):
    """Bytes of a batch: a CSR matrix of scipy or torch, or a dense tensor."""
    if hasattr(batch, "indptr"):
        return batch.data.nbytes + batch.indices.nbytes + batch.indptr.nbytes
    dense = str(batch.layout) == "torch.strided"
    parts = (batch,) if dense else (batch.values(), batch.col_indices(), batch.crow_indices())
    return sum(part.nbytes for part in parts)


def steps(run, source, finish, counts, reads=None):
    """The warm-up and the measured steps; `counts(batch)` are its samples and bytes."""
    for step in run.steps():
        with step.stage("read"):
            batch = next(source)
        with step.stage("collate"):
            batch = finish(batch)
        step.samples, step.bytes_batch = counts(batch)
        if reads:
            step.bytes_read += reads.since()


def limit_threads(run):
    """torch's threads, as our own ranks have them."""
    import torch

    torch.set_num_threads(run.settings["launch"]["threads"])


def versions(packages):
    """Versions of what is measured, and of what it stands on."""
    found = {name: importlib.metadata.version(name) for name in packages}
    import torch

    return found | {"python": sys.version.split()[0], "torch": torch.__version__}
