"""The genes around the perturbed ones, by DGL's GraphBolt with all neighbours (fan-out -1 for each hop).

GraphBolt goes from target to source, and a hop may take any edge type. The edges of the last hop, which the first of a minibatch's sampled
subgraphs has, are all that lead to a gene that the hops before it found: our `pipeline.walk = "incoming"`.

GraphBolt makes one subgraph of all seeds of a minibatch. Samples perturb different genes, so a model needs a subgraph for each:
`Neighborhoods.each` samples those of one sample after another with the functions that NeighborSampler is made of, and puts them one
behind the other, as PyG's collation does. With `merged` it is NeighborSampler as its documentation uses it, one subgraph for the whole
batch: less work, and another question.

Beside that a minibatch has the perturbed genes and the labels. It has no masks; ours have.
"""

import json
import os

# Without it DGL writes a file into the home folder that says so.
os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl.graphbolt as gb  # noqa: E402
import torch  # noqa: E402
from shared_graph import perturbed  # noqa: E402

#: All neighbours, whatever the type of the edge.
ALL = torch.tensor([-1])


def sampling_graph(graph):
    """All edge types in one table, by target and then by type."""
    edges = torch.cat(list(graph.edges.values()), dim=1)
    types = torch.cat([torch.full((one.shape[1],), number) for number, one in enumerate(graph.edges.values())])
    order = torch.sort(edges[1], stable=True).indices
    starts = torch.zeros(graph.genes + 1, dtype=torch.long)
    starts[1:] = edges[1].bincount(minlength=graph.genes).cumsum(0)
    return gb.fused_csc_sampling_graph(
        starts, edges[0][order],
        node_type_offset=torch.tensor([0, graph.genes]), type_per_edge=types[order],
        node_type_to_id={"gene": 0}, edge_type_to_id={edge_type(name): number for number, name in enumerate(graph.edges)},
    )


def edge_type(name):
    return f"gene:{name}:gene"


class Neighborhoods:
    """Subgraphs within `hops` of the perturbed genes."""

    def __init__(self, samples, hops):
        self.samples, self.hops = samples, hops
        self.sampling_graph = sampling_graph(samples.graph)

    def read(self, minibatch):
        """The records of the samples whose numbers the item sampler has drawn."""
        records = [json.loads(self.samples.read(index)) for index in minibatch.seed_nodes.tolist()]
        found = [perturbed(self.samples.graph, record) for record in records]
        minibatch.perturbed = [torch.tensor(genes, dtype=torch.long) for _, genes, _ in found]
        minibatch.labels = torch.tensor([phenotype[phenotype["label_name"]] for *_, phenotype in found])
        minibatch.seed_nodes = {"gene": torch.cat(minibatch.perturbed).unique()}
        return minibatch

    def around(self, genes):
        """The subgraph around some genes: its genes, these first, and the edges by type, to the first of its genes each."""
        seeds = {"gene": genes}
        for _ in range(self.hops):
            sampled = self.sampling_graph.sample_neighbors(seeds, ALL).sampled_csc
            targets = seeds["gene"]
            seeds, edges = gb.unique_and_compact_csc_formats(sampled, seeds)
        return seeds["gene"], targets, edges

    def each(self, minibatch):
        """A subgraph for each sample, one behind the other in one sampled subgraph."""
        found = [self.around(genes) for genes in minibatch.perturbed]
        genes = torch.cat([genes for genes, _, _ in found])
        targets = torch.cat([targets for _, targets, _ in found])
        counts = torch.tensor([len(genes) for genes, _, _ in found])
        minibatch.gene_starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
        minibatch.target_counts = torch.tensor([len(targets) for _, targets, _ in found])
        edges = {name: joined([one[name] for _, _, one in found], minibatch.gene_starts.tolist()) for name in found[0][2]}
        minibatch.sampled_subgraphs = [
            gb.SampledSubgraphImpl(
                sampled_csc=edges, original_column_node_ids={"gene": targets}, original_row_node_ids={"gene": genes}
            )
        ]
        minibatch.input_nodes = {"gene": genes}
        return minibatch


def joined(parts, gene_starts):
    """The edges of one type of several subgraphs, those of the next behind those of the last."""
    indptr, edges = [torch.zeros(1, dtype=torch.long)], 0
    for part in parts:
        indptr.append(part.indptr[1:] + edges)
        edges += len(part.indices)
    indices = [part.indices + start for part, start in zip(parts, gene_starts)]
    return gb.CSCFormatBase(indptr=torch.cat(indptr), indices=torch.cat(indices))


def loader(neighborhoods, settings, merged):
    """GraphBolt's DataLoader. It has its worker processes in front of the step that fetches features, so there is one that fetches none."""
    asked = settings["loader"]
    numbers = gb.ItemSet(torch.arange(len(neighborhoods.samples)), names="seed_nodes")
    pipe = gb.ItemSampler(numbers, batch_size=asked["batch_size"], shuffle=asked["shuffle"], drop_last=asked["drop_last"])
    pipe = pipe.transform(neighborhoods.read)
    if merged:
        pipe = pipe.sample_neighbor(neighborhoods.sampling_graph, [-1] * neighborhoods.hops)
    else:
        pipe = pipe.transform(neighborhoods.each)
    return gb.DataLoader(pipe.fetch_feature(gb.BasicFeatureStore({})), num_workers=asked["workers"])


def batch_bytes(minibatch):
    """Bytes of the tensors of a minibatch: genes and edges of each hop that it has, perturbed genes, labels."""
    parts = [minibatch.labels, *minibatch.perturbed]
    for subgraph in minibatch.sampled_subgraphs:
        parts.append(subgraph.original_row_node_ids["gene"])
        parts += [part for edges in subgraph.sampled_csc.values() for part in (edges.indptr, edges.indices)]
    return sum(part.nbytes for part in parts)
