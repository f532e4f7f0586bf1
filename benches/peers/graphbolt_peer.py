"""DGL's GraphBolt with all neighbours: the subgraph within some hops of the perturbed genes (graphbolt_samples.py).

    benches/peers/run graphbolt [--hops N] [--merged]

--hops: 1 if it is not given. --merged: one subgraph for a batch, not one for each sample. The whole wait for a batch is *read*: GraphBolt's
DataLoader does not say what it is made of.

DGL 2.1 is the last release on the package index. It loads into PyTorch 2.0 to 2.2.1 only, so its environment has a PyTorch of its own.
"""

import argparse

import measured
import pyg_graph
from request import again


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hops", type=int, default=1)
    parser.add_argument("--merged", action="store_true")
    asked = parser.parse_args()

    import expctl

    run = expctl.Run(program="DGL GraphBolt", versions=measured.versions(["dgl", "torchdata", "lmdb", "safetensors", "numpy"]))
    measured.limit_threads(run)
    pyg_graph.refuse(run.settings)
    import graphbolt_samples
    import shared_graph

    graph = shared_graph.CellGraph(run.data_dir, run.settings["pipeline"]["edge_types"], metabolism=False)
    samples = shared_graph.Samples(run.data_dir, graph, make=None)
    around = graphbolt_samples.Neighborhoods(samples, asked.hops)
    batches = again(graphbolt_samples.loader(around, run.settings, asked.merged))
    counts = lambda batch: (len(batch.labels), graphbolt_samples.batch_bytes(batch))  # noqa: E731
    measured.steps(run, batches, lambda batch: batch, counts)
    run.close()


if __name__ == "__main__":
    main()
