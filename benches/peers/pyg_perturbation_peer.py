"""PyTorch Geometric, perturbed genes and masks of nodes, no edges (published as the Perturbation processor, DANGO)."""

import pyg_graph

if __name__ == "__main__":
    pyg_graph.run_graph("PyG perturbation", "perturbation_sample")
