"""Compares samples and batches of the graph's peers with what our own side has made: a `compressed` store.

Usage: check_graph.py DATASET [COUNT]    in the environment pyg; DATASET/stores/compressed must be there

    $(benches/peers/setup.sh --python pyg_lazy) benches/peers/check_graph.py DATASET

Every mask of COUNT samples (50), genes and label are compared with the store's (expctl data convert --to compressed,
which checks them against its own masks), then two batches with the samples that they are of. Ends with 1 at a difference.
"""

import io
import json
import pathlib
import sys

import lmdb
import numpy as np
import torch
from torch_geometric.loader.dataloader import Collater

import lazy_samples
import shared_graph

FOLLOW = ["x", "x_pert", "perturbation_indices"]


def stored_masks(sample, graph):
    """Masks of a sample under the names that the store has for them."""
    found = {f"edge_masks/gene__{name}__gene": sample["gene", name, "gene"].mask for name in graph.edge_types}
    found |= {f"node_masks/{name}": sample[name].mask for name in ("gene", "reaction", "metabolite")}
    found["edge_masks/gene__gpr__reaction"] = sample["gene", "gpr", "reaction"].mask
    found["edge_masks/reaction__rmr__metabolite"] = sample["reaction", "rmr", "metabolite"].mask
    return found


def check_sample(sample, stored, graph):
    names = set()
    for name, mask in stored_masks(sample, graph).items():
        assert np.array_equal(np.flatnonzero(~mask.numpy()), stored[f"{name}/false_indices"]), name
        names.add(f"{name}/false_indices")
    assert names == {name for name in stored if name.endswith("/false_indices")}
    for name in ("perturbation_indices", "phenotype_values", "phenotype_stat_values"):
        assert np.array_equal(sample["gene"][name].numpy(), stored[f"gene/{name}"], equal_nan="phenotype" in name), name


def check_batch(samples, batch, graph):
    """Edge indices of sample i are shifted by i graphs, masks follow one another, genes keep their numbers."""
    for key in [("gene", name, "gene") for name in graph.edge_types]:
        edges = graph.edges[key[1]]
        parts = batch[key].edge_index.split(edges.shape[1], dim=1)
        assert len(parts) == len(samples)
        assert all(torch.equal(part, edges + i * graph.genes) for i, part in enumerate(parts)), key
        assert torch.equal(batch[key].mask, torch.cat([sample[key].mask for sample in samples])), key
    shift = torch.tensor([[graph.reactions], [graph.metabolites]])
    parts = batch["reaction", "rmr", "metabolite"].hyperedge_index.split(graph.rmr.shape[1], dim=1)
    assert all(torch.equal(part, graph.rmr + i * shift) for i, part in enumerate(parts))
    gene = batch["gene"]
    assert torch.equal(gene.perturbation_indices, torch.cat([s["gene"].perturbation_indices for s in samples]))
    assert gene.perturbation_indices_batch.tolist() == [i for i, s in enumerate(samples) for _ in s["gene"].ids_pert]
    assert gene.batch.bincount().tolist() == [graph.genes] * len(samples)


def main():
    folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    graph = shared_graph.CellGraph(folder, [], metabolism=True)
    samples = shared_graph.Samples(folder, graph, lazy_samples.lazy_sample)
    env = lmdb.open(str(folder / "stores" / "compressed" / "lmdb"), readonly=True, lock=False)
    chosen = np.random.default_rng(1).choice(len(samples), min(count, len(samples)), replace=False)
    with env.begin() as transaction:
        for index in chosen:
            stored = dict(np.load(io.BytesIO(transaction.get(str(index).encode())), allow_pickle=False))
            check_sample(samples[int(index)], stored, graph)
    few = [samples[int(index)] for index in chosen[:4]]
    check_batch(few, Collater(samples, FOLLOW)(few), graph)
    plain = [lazy_samples.perturbation_sample(graph, json.loads(samples.read(int(index)))) for index in chosen[:4]]
    batch = Collater(samples, FOLLOW)(plain)["gene"]
    assert torch.equal(batch.mask, torch.cat([sample["gene"].mask for sample in few]))
    assert torch.equal(batch.phenotype_values, torch.cat([sample["gene"].phenotype_values for sample in few]))
    print(f"{len(chosen)} samples have the masks, genes and labels of the store; batches are what they are made of")


if __name__ == "__main__":
    main()
