"""expctl in Python, graphs: `expctl.data.graph` (docs/guide/python.md). No peer: our own. Its argument is the processor: `pyg` makes the
batches of the peer pyg_lazy, `perturbation` those of pyg_perturbation.

The same trial as native ones: `loader.workers` threads, `loader.prefetch_factor` batches that each may be ahead, `pipeline.edge_types`,
`pipeline.metabolism`, `pipeline.follow_batch`. Batches of PyTorch Geometric carry no times, so each step has what the loader counted
since the one before; what Python adds to the wait is *other*. To sum their bytes takes time, so that is done in the warm-up alone:
measured steps have its mean bytes a sample.
"""

import built_loaders  # noqa: F401, I001

import sys
from time import perf_counter_ns

import expctl
import expctl.data.graph
import measured
import pyg_graph
from request import again, stop


def main(processor):
    if processor not in ("pyg", "perturbation"):
        stop(f"expctl_python_graph takes pyg or perturbation, and not {processor}")
    versions = {"expctl": expctl.__version__, **measured.versions(["torch_geometric", "numpy"])}
    run = expctl.Run(program=f"expctl in Python, {processor}", versions=versions)
    measured.limit_threads(run)
    pyg_graph.refuse(run.settings)
    pipeline, asked = run.settings["pipeline"], run.settings["loader"]
    dataset = expctl.data.graph.open(run.data_dir, edge_types=pipeline["edge_types"] or None, metabolism=pipeline["metabolism"])
    loader = expctl.data.graph.Loader(
        dataset, asked["batch_size"], processor=processor, follow_batch=pipeline["follow_batch"],
        sampler="uniform" if asked["shuffle"] else "sequential", threads=asked["workers"], prefetch=asked["prefetch_factor"],
        drop_last=asked["drop_last"], seed=asked["seed"], persistent=True,
    )
    run.note(samples_per_epoch=len(dataset), samples_total=len(dataset))
    batches, before = again(loader), loader.stages()
    samples = size = 0
    for step in run.steps():
        begin = perf_counter_ns()
        batch = next(batches)
        waited = perf_counter_ns() - begin
        now = loader.stages()
        waited -= add_stages(step, before, now)
        step.add("other", exposed=max(waited, 0))
        step.samples, step.bytes_read = now.rows - before.rows, now.bytes_read - before.bytes_read
        step.epoch = (now.batches - 1) // len(loader)
        if not step.measured:
            samples, size = samples + step.samples, size + pyg_graph.batch_bytes(batch)
        step.bytes_batch = size * step.samples // max(samples, 1)
        before = now
    run.close()


def add_stages(step, before, now):
    """Put what a loader counted between two of its times into the step; the ns that the step waited in them."""
    total = 0
    for name, busy in now.busy.items():
        exposed = round((now.exposed[name] - before.exposed.get(name, 0)) * 1e9)
        step.add(name, busy=round((busy - before.busy.get(name, 0)) * 1e9), exposed=exposed)
        total += exposed
    return total


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nothing")
