"""Samples of the trigenic interactions as the published Python makes them, over the data set that our own loaders read.

The graph is graph.safetensors, records are LMDB of JSON (docs/guide/datasets.md). Written from the published description of
LazySubgraphRepresentation and of the Perturbation processor (Mjvolk3/torchcell, experiment 006); nothing is copied. Three
things are quicker than published, so that the peer is not slower than it has to be: a record is parsed but not made into
objects of pydantic, perturbed genes are looked up in a dictionary and not searched in the list of all names (twice,
1.9 ms a sample), and the incidence is sorted at once and not in a loop over all edges.
"""

import json
import pathlib

import lmdb
import numpy as np
import torch
from safetensors.torch import load_file
from torch_geometric.data import HeteroData


def incidence(edges, nodes, first_end_alone=False):
    """Where the edges of each node stand in `edges` [2, E]: positions int64, and where each node's start [nodes + 1].

    Each edge is listed at both ends, a self-loop once; with `first_end_alone` at its first end alone.
    """
    source, target = edges.numpy()
    position = np.arange(len(source))
    if not first_end_alone:
        both = source != target
        source = np.concatenate([source, target[both]])
        position = np.concatenate([position, position[both]])
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], np.arange(nodes + 1))
    return torch.from_numpy(position[order]), starts.tolist()


class CellGraph:
    """The shared graph: all samples refer to its tensors."""

    def __init__(self, folder, edge_types, metabolism):
        folder = pathlib.Path(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        self.names = (folder / "genes.txt").read_text().split()
        self.index = {name: i for i, name in enumerate(self.names)}
        self.genes = len(self.names)
        tensors = load_file(folder / "graph.safetensors")
        self.edge_types = edge_types or [network["name"] for network in manifest["networks"]]
        self.edges = {name: tensors[f"edge_index/{name}"] for name in self.edge_types}
        self.incident = {name: incidence(edges, self.genes) for name, edges in self.edges.items()}
        self.x = torch.zeros(self.genes, 0)
        self.metabolism = metabolism
        if metabolism:
            self.reactions, self.metabolites = (manifest["bipartite"][key] for key in ("reactions", "metabolites"))
            self.gpr, self.rmr = tensors["hyperedge_index/gpr"], tensors["hyperedge_index/rmr"]
            self.stoichiometry = tensors["stoichiometry/rmr"]
            self.gpr_of_gene = incidence(self.gpr, self.genes, first_end_alone=True)
            self.rmr_of_reaction = incidence(self.rmr, self.reactions, first_end_alone=True)
            self.reaction_ids = [f"R_{i}" for i in range(self.reactions)]
            self.metabolite_ids = [f"M_{i}" for i in range(self.metabolites)]


def cleared(size, incident, nodes):
    """A mask of True, False at what is incident to any of the nodes."""
    positions, starts = incident
    mask = torch.ones(size, dtype=torch.bool)
    for node in nodes:
        mask[positions[starts[node]:starts[node + 1]]] = False
    return mask


def perturbed(graph, record):
    """Names and ascending indices of the perturbed genes that the graph has, and the phenotype."""
    experiment = record[0]["experiment"]
    names = [p["systematic_gene_name"] for p in experiment["genotype"]["perturbations"]]
    names = sorted(name for name in names if name in graph.index)
    return names, [graph.index[name] for name in names], experiment["phenotype"]


def put_phenotype(store, phenotype):
    """Label and p-value with the coordinates that they are published with."""
    zero = torch.zeros(1, dtype=torch.long)
    label, p_value = phenotype["label_name"], phenotype["label_statistic_name"]
    found = phenotype.get(p_value)
    store.phenotype_values = torch.tensor([phenotype[label]], dtype=torch.float32)
    store.phenotype_type_indices, store.phenotype_sample_indices = zero, zero.clone()
    store.phenotype_types = [label]
    store.phenotype_stat_values = torch.tensor([float("nan") if found is None else found], dtype=torch.float32)
    store.phenotype_stat_type_indices, store.phenotype_stat_sample_indices = zero.clone(), zero.clone()
    store.phenotype_stat_types = [p_value]


def lazy_sample(graph, record):
    """References to the full tensors, and masks: False at each edge of a perturbed gene (LazySubgraphRepresentation)."""
    names, genes, phenotype = perturbed(graph, record)
    data = HeteroData()
    gene = data["gene"]
    gene.node_ids, gene.num_nodes, gene.ids_pert = graph.names, graph.genes, names
    gene.perturbation_indices = torch.tensor(genes, dtype=torch.long)
    gene.x = graph.x
    gene.pert_mask = torch.zeros(graph.genes, dtype=torch.bool)
    gene.pert_mask[gene.perturbation_indices] = True
    gene.mask = ~gene.pert_mask
    put_phenotype(gene, phenotype)
    for name, edges in graph.edges.items():
        store = data["gene", name, "gene"]
        store.edge_index, store.num_edges = edges, edges.shape[1]
        store.mask = cleared(edges.shape[1], graph.incident[name], genes)
    if graph.metabolism:
        put_metabolism(graph, data, genes)
    return data


def put_metabolism(graph, data, genes):
    """Reactions need all their genes: one that has lost a gene is masked, and so are its edges to metabolites."""
    gpr, rmr = data["gene", "gpr", "reaction"], data["reaction", "rmr", "metabolite"]
    gpr.hyperedge_index, gpr.num_edges = graph.gpr, graph.gpr.shape[1]
    gpr.mask = cleared(graph.gpr.shape[1], graph.gpr_of_gene, genes)
    lost = graph.gpr[1, ~gpr.mask].unique()
    reaction, metabolite = data["reaction"], data["metabolite"]
    reaction.num_nodes, reaction.node_ids = graph.reactions, graph.reaction_ids
    reaction.w_growth = torch.zeros(graph.reactions)
    reaction.mask = torch.ones(graph.reactions, dtype=torch.bool)
    reaction.mask[lost] = False
    reaction.pert_mask = ~reaction.mask
    metabolite.num_nodes, metabolite.node_ids = graph.metabolites, graph.metabolite_ids
    metabolite.mask = torch.ones(graph.metabolites, dtype=torch.bool)
    metabolite.pert_mask = torch.zeros(graph.metabolites, dtype=torch.bool)
    rmr.hyperedge_index, rmr.num_edges = graph.rmr, graph.rmr.shape[1]
    rmr.stoichiometry = graph.stoichiometry
    rmr.mask = cleared(graph.rmr.shape[1], graph.rmr_of_reaction, lost.tolist())


def perturbation_sample(graph, record):
    """Genes and masks of nodes, no edges (the Perturbation processor, which DANGO is trained with)."""
    names, genes, phenotype = perturbed(graph, record)
    data = HeteroData()
    gene = data["gene"]
    gene.num_nodes, gene.perturbed_genes = graph.genes, names
    gene.perturbation_indices = torch.tensor(genes, dtype=torch.long)
    gene.pert_mask = torch.zeros(graph.genes, dtype=torch.bool)
    gene.pert_mask[gene.perturbation_indices] = True
    gene.mask = ~gene.pert_mask
    put_phenotype(gene, phenotype)
    return data


class Samples(torch.utils.data.Dataset):
    """Record to sample. LMDB is opened in each worker, as published: no lock, no readahead."""

    def __init__(self, folder, graph, make):
        self.path = str(pathlib.Path(folder) / "processed" / "lmdb")
        self.count = json.loads((pathlib.Path(folder) / "manifest.json").read_text())["store"]["records"]
        self.graph, self.make, self.env = graph, make, None

    def __len__(self):
        return self.count

    def read(self, index):
        """Bytes of a record."""
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False, max_readers=256,
                                 max_spare_txns=16)
        with self.env.begin() as transaction:
            return transaction.get(str(index).encode())

    def __getitem__(self, index):
        return self.make(self.graph, json.loads(self.read(index)))
