"""PyTorch Geometric, lazy graph batches: edge index of each sample and masks (published as LazySubgraphRepresentation).

What the published runs did: PyG's DataLoader with its own collation and follow_batch. A batch of 28 is 1.2 GB.
"""

import pyg_graph

if __name__ == "__main__":
    pyg_graph.run_graph("PyG lazy", "lazy_sample")
