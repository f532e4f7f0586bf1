"""PyTorch Geometric's NeighborLoader with all neighbours: the subgraph within some hops of the perturbed genes (neighbor_samples.py).

    benches/peers/run neighbor_loader [--hops N] [--induced] [--merged]

--hops: 1 if it is not given. --induced: all edges between the genes found, not only those that were followed. --merged: one subgraph for a batch, not
one for each sample.

pyg-lib samples where it is installed, except induced subgraphs, which torch-sparse alone can make; else torch-sparse. The package index has
torch-sparse as source, which setup.sh compiles (requirements/neighbors_extensions.txt), and no pyg-lib for the CPU. The run names the sampler
and its version.
"""

import argparse
import importlib.util

import measured
import pyg_graph


def sampler_of(induced):
    """The package that samples, of those that PyG can use."""
    return "pyg_lib" if importlib.util.find_spec("pyg_lib") and not induced else "torch_sparse"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hops", type=int, default=1)
    parser.add_argument("--induced", action="store_true")
    parser.add_argument("--merged", action="store_true")
    asked = parser.parse_args()

    import expctl

    sampler = sampler_of(asked.induced)
    run = expctl.Run(
        program=f"PyG NeighborLoader with {sampler}",
        versions=measured.versions(["torch_geometric", sampler, "lmdb", "safetensors", "numpy"]),
    )
    measured.limit_threads(run)
    pyg_graph.refuse(run.settings)
    import neighbor_samples
    import shared_graph
    import torch

    pipeline, loader = run.settings["pipeline"], run.settings["loader"]
    graph = shared_graph.CellGraph(run.data_dir, pipeline["edge_types"], metabolism=False)
    around = neighbor_samples.Neighborhoods(graph, asked.hops, "induced" if asked.induced else "directional")
    if not asked.merged:
        samples = shared_graph.Samples(run.data_dir, graph, around.sample)
        source = pyg_graph.loader(samples, run.settings, pipeline["follow_batch"])
    else:
        samples = shared_graph.Samples(run.data_dir, graph, shared_graph.perturbed)
        more = {"prefetch_factor": loader["prefetch_factor"], "persistent_workers": True} if loader["workers"] else {}
        source = torch.utils.data.DataLoader(
            samples, batch_size=loader["batch_size"], shuffle=loader["shuffle"], drop_last=loader["drop_last"],
            num_workers=loader["workers"], collate_fn=around.merged, **more,
        )
    pyg_graph.run_batches(run, samples, source)


if __name__ == "__main__":
    main()
