"""A small data set of a graph for the tests, and by their definition the masks of its samples, with NumPy and py-lmdb alone."""

import json
import os
import pathlib
import unittest

import lmdb
import numpy as np
from safetensors.numpy import load_file

METABOLIC = ("reaction", "gpr", "rmr")


def folder():
    """The data set that EXPCTL_TEST_GRAPH names: of `expctl data build`, converted to all stores."""
    found = os.environ.get("EXPCTL_TEST_GRAPH")
    if not found:
        raise unittest.SkipTest("EXPCTL_TEST_GRAPH names no data set of `expctl data build 006-kuzmin-tmi`")
    return pathlib.Path(found)


class Truth:
    """The graph and the samples of a data set."""

    def __init__(self, folder):
        tensors = load_file(folder / "graph.safetensors")
        manifest = json.loads((folder / "manifest.json").read_text())
        self.genes = (folder / "genes.txt").read_text().split()
        self.edge_types = [network["name"] for network in manifest["networks"]]
        self.edges = {name: tensors[f"edge_index/{name}"] for name in self.edge_types}
        self.edges |= {name: tensors[f"hyperedge_index/{name}"] for name in ("gpr", "rmr")}
        self.stoichiometry = tensors["stoichiometry/rmr"]
        self.reactions, self.metabolites = manifest["bipartite"]["reactions"], manifest["bipartite"]["metabolites"]
        place = {name: i for i, name in enumerate(self.genes)}
        self.samples = []
        with lmdb.open(str(folder / "processed" / "lmdb"), readonly=True, lock=False) as env, env.begin() as transaction:
            for i in range(env.stat()["entries"]):
                experiment = json.loads(transaction.get(str(i).encode()))[0]["experiment"]
                names = [each["systematic_gene_name"] for each in experiment["genotype"]["perturbations"]]
                phenotype = experiment["phenotype"]
                genes = sorted(place[name] for name in names if name in place)
                self.samples.append((genes, phenotype["gene_interaction"], phenotype["gene_interaction_p_value"]))

    def mask(self, name, sample):
        """bool [E]: an edge is kept if no end of it is gone; a reaction is gone with any of its genes."""
        gone = self.samples[sample][0]
        if name in self.edge_types:
            return ~np.isin(self.edges[name], gone).any(0)
        gpr = ~np.isin(self.edges["gpr"][0], gone)
        reactions = np.ones(self.reactions, dtype=bool)
        reactions[self.edges["gpr"][1][~gpr]] = False
        return {"gpr": gpr, "reaction": reactions, "rmr": reactions[self.edges["rmr"][0]]}[name]
