"""Samples of the trigenic interactions as the published Python makes them, over the data set that our own loaders read.

Written from the published description of LazySubgraphRepresentation and of the Perturbation processor (Mjvolk3/torchcell,
experiment 006); nothing is copied. Three things are quicker than published, so that the peer is not slower than it has to be: a
record is parsed but not made into objects of pydantic, perturbed genes are looked up in a dictionary and not searched in the
list of all names (twice, 1.9 ms a sample), and the incidence is sorted at once and not in a loop over all edges (shared_graph.py
has the graph, its incidence and the records).
"""

import torch
from shared_graph import perturbed
from torch_geometric.data import HeteroData


def cleared(size, incident, nodes):
    """A mask of True, False at what is incident to any of the nodes."""
    positions, starts = incident
    mask = torch.ones(size, dtype=torch.bool)
    for node in nodes:
        mask[positions[starts[node]:starts[node + 1]]] = False
    return mask


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
