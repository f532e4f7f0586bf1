"""Loads samples that perturb genes of one graph into training loops: torchcell's experiment 006, as published or as
`expctl data build` makes it.

    from expctl.data import graph

    ds = graph.open("data/006-kuzmin-tmi/scale-1_samples-10000_completed_seed-42", split="train")
    loader = graph.Loader(ds, batch_size=28, processor="pyg", seed=1)
    for epoch in range(10):
        loader.set_epoch(epoch)
        for batch in loader:
            batch["gene", "physical", "gene"].edge_index   # a HeteroDataBatch, as PyTorch Geometric makes it

    ds.edge_index["physical"]                              # int64 [2, E]: one graph for all samples
    for batch in graph.Loader(ds, batch_size=28, processor="packed"):
        batch.genes                                        # int64 [Σk]: perturbed genes, sample by sample
        batch.masks["physical"].kept()                     # bool [28, E]: edges that each sample keeps

Threads of this process read, parse and mask ahead; there are no worker processes. Guide: docs/guide/python.md.
"""

from .batch import Batch, PackedMask, RemovedEntries
from .dataset import Dataset, open
from .loader import PROCESSORS, Loader

__all__ = ["PROCESSORS", "Batch", "Dataset", "Loader", "PackedMask", "RemovedEntries", "open"]
