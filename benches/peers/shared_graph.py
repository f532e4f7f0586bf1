"""The graph and the records of the trigenic interactions, as the data set of our own loaders has them.

The graph is graph.safetensors, records are LMDB of JSON (docs/guide/datasets.md). What the peers of graphs share: they make their samples of it.
Needs torch, and no library of graphs.
"""

import json
import pathlib

import lmdb
import numpy as np
import torch
from safetensors.torch import load_file


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


def perturbed(graph, record):
    """Names and ascending indices of the perturbed genes that the graph has, and the phenotype."""
    experiment = record[0]["experiment"]
    names = [p["systematic_gene_name"] for p in experiment["genotype"]["perturbations"]]
    names = sorted(name for name in names if name in graph.index)
    return names, [graph.index[name] for name in names], experiment["phenotype"]


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
