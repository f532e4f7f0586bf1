"""Compares the subgraphs around perturbed genes of the peers with ours: the same genes, and the same edges of each type.

Usage: check_neighbors.py PEER DATASET HOPS < OURS    PEER: neighbor_loader, neighbor_loader_induced or graphbolt

    data=$(expctl data build 006-kuzmin-tmi --samples 1000 --networks completed)    # what conf/peers_subgraph.toml reads
    ours() { cargo run --release -p expctl-datasets --example neighborhoods -- "$data" "$@"; }
    ours incoming 2 20 | $(benches/peers/setup.sh --python neighbor_loader) benches/peers/check_neighbors.py neighbor_loader "$data" 2
    ours per_type 1 20 | $(benches/peers/setup.sh --python neighbor_loader) benches/peers/check_neighbors.py neighbor_loader_induced "$data" 1
    ours incoming 2 20 | $(benches/peers/setup.sh --python graphbolt) benches/peers/check_neighbors.py graphbolt "$data" 2

OURS is a line of JSON for each sample. The peer makes one batch of all of them, which is taken apart again. Edges are compared as sorted
lists, so that parallel ones count. Ends with 1 at a difference.
"""

import json
import sys

import numpy as np
import shared_graph
import torch


def neighbor_loader(graph, samples, numbers, hops, subgraph_type):
    """For each sample its genes, and the ends of its edges by type, of a batch of PyG's collation."""
    import neighbor_samples
    from torch_geometric.loader.dataloader import Collater

    samples.make = neighbor_samples.Neighborhoods(graph, hops, subgraph_type).sample
    batch = Collater(samples, [])([samples[number] for number in numbers])
    genes, ptr = batch["gene"].n_id, batch["gene"].ptr
    for number in range(len(numbers)):
        edges = {}
        for name in graph.edges:
            ends = batch["gene", name, "gene"].edge_index
            inside = (ends[1] >= ptr[number]) & (ends[1] < ptr[number + 1])
            assert torch.equal(inside, (ends[0] >= ptr[number]) & (ends[0] < ptr[number + 1])), "edges stay in their sample"
            edges[name] = genes[ends[:, inside]]
        yield genes[ptr[number]:ptr[number + 1]], edges


def graphbolt(graph, samples, numbers, hops):
    """The same of a minibatch of GraphBolt."""
    import graphbolt_samples
    from graphbolt_samples import gb

    minibatch = gb.MiniBatch()
    minibatch.seed_nodes = torch.tensor(numbers)
    around = graphbolt_samples.Neighborhoods(samples, hops)
    minibatch = around.each(around.read(minibatch))
    [subgraph] = minibatch.sampled_subgraphs
    genes, starts = subgraph.original_row_node_ids["gene"], minibatch.gene_starts
    targets = subgraph.original_column_node_ids["gene"]
    of_target = torch.repeat_interleave(minibatch.target_counts)
    for number in range(len(numbers)):
        edges = {}
        for name in graph.edges:
            one = subgraph.sampled_csc[graphbolt_samples.edge_type(name)]
            column = torch.repeat_interleave(one.indptr.diff())
            inside = of_target[column] == number
            rows = one.indices[inside]
            assert bool(((rows >= starts[number]) & (rows < starts[number + 1])).all()), "edges stay in their sample"
            edges[name] = torch.stack([genes[rows], targets[column[inside]]])
        yield genes[starts[number]:starts[number + 1]], edges


def in_order(edges):
    """Edges [2, E] as a sorted array of pairs."""
    sources, targets = np.asarray(edges, dtype=np.int64).reshape(2, -1)
    order = np.lexsort((targets, sources))
    return np.stack([sources[order], targets[order]])


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    peer, folder, hops = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ours = [json.loads(line) for line in sys.stdin]
    assert ours, "no sample on stdin"
    graph = shared_graph.CellGraph(folder, [], metabolism=False)
    samples = shared_graph.Samples(folder, graph, None)
    numbers = [sample["sample"] for sample in ours]
    if peer == "graphbolt":
        theirs = graphbolt(graph, samples, numbers, hops)
    else:
        theirs = neighbor_loader(graph, samples, numbers, hops, {"neighbor_loader": "directional", "neighbor_loader_induced": "induced"}[peer])
    compared = 0
    for sample, (genes, edges) in zip(ours, theirs):
        where = f"sample {sample['sample']}"
        assert np.array_equal(np.sort(genes.numpy()), sample["genes"]), f"{where}: genes"
        assert list(edges) == list(sample["edges"]), f"{where}: edge types"
        for name, ends in edges.items():
            assert np.array_equal(in_order(ends.numpy()), in_order(sample["edges"][name])), f"{where}: edges of {name}"
            compared += ends.shape[1]
    print(f"{len(ours)} samples have the same genes and the same {compared:,} edges")


if __name__ == "__main__":
    main()
