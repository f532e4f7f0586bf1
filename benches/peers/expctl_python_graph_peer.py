"""expctl in Python, graphs: `expctl.data.graph` (docs/guide/python.md). No peer: our own. Its argument is the processor: `pyg` makes the
batches of the peer pyg_lazy, `perturbation` those of pyg_perturbation.

The same trial as native ones: `loader.workers` threads, `loader.prefetch_factor` batches that each may be ahead, `pipeline.edge_types`,
`pipeline.metabolism`, `pipeline.follow_batch`. Each batch says what loading it cost; what Python adds to the wait is *other*.
"""

import built_loaders  # noqa: F401, I001

import sys

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
    batches = again(loader)
    for _ in run.steps():
        # The loader tells the run what it cost.
        next(batches)
    run.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nothing")
