"""The genes around the perturbed ones, by PyTorch Geometric's NeighborLoader with all neighbours (num_neighbors = [-1] for each hop).

NeighborLoader goes from target to source, and a hop may take any edge type. With subgraph_type "directional", its default, a subgraph has the
edges that it followed: our `pipeline.walk = "incoming"`. With "induced" it has all edges between its genes, which at one hop is our
`pipeline.walk = "per_type"`.

NeighborLoader makes one subgraph of all seeds of a batch. Samples perturb different genes, so a model needs a subgraph for each:
`Neighborhoods.sample` calls NeighborLoader with the genes of one sample, and PyG's DataLoader collates. `Neighborhoods.merged` is one
subgraph for the whole batch, as PyG's documentation uses it: less work, and another question.

Beside what NeighborLoader gives (n_id, e_id and edge_index of each type) a sample has its perturbed genes and its label, as of lazy_samples.py.
It has no masks; ours have.
"""

import torch
from lazy_samples import put_phenotype
from shared_graph import perturbed
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader


class Neighborhoods:
    """Subgraphs within `hops` of the perturbed genes."""

    def __init__(self, graph, hops, subgraph_type):
        data = HeteroData()
        data["gene"].num_nodes = graph.genes
        for name, edges in graph.edges.items():
            data["gene", name, "gene"].edge_index = edges
        # Seeds are all genes, so that the index of a seed is its gene.
        self.around = NeighborLoader(data, num_neighbors=[-1] * hops, input_nodes="gene", subgraph_type=subgraph_type)

    def sample(self, graph, record):
        """The subgraph around the perturbed genes of one sample."""
        _, genes, phenotype = perturbed(graph, record)
        genes = torch.tensor(genes, dtype=torch.long)
        data = self.around(genes)
        data["gene"].perturbation_indices = genes
        put_phenotype(data["gene"], phenotype)
        return data

    def merged(self, samples):
        """One subgraph around the perturbed genes of all samples of a batch: (names, genes, phenotype) of each."""
        genes = [torch.tensor(genes, dtype=torch.long) for _, genes, _ in samples]
        data = self.around(torch.cat(genes).unique())
        data["gene"].perturbation_indices = torch.cat(genes)
        data["gene"].perturbation_indices_batch = torch.repeat_interleave(torch.tensor([len(one) for one in genes]))
        data["gene"].phenotype_values = torch.tensor([phenotype[phenotype["label_name"]] for *_, phenotype in samples])
        data.num_graphs = len(samples)
        return data
