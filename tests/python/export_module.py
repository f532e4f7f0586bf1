"""Export a small model as TorchScript: python export_module.py OUT.pt [GENES [HIDDEN]].

The model of docs/guide/training.md: an embedding of each gene, their sum over a sample, batch normalisation and a linear layer.
"""

import sys

import torch


class Sum(torch.nn.Module):
    def __init__(self, genes: int, hidden: int):
        super().__init__()
        self.embedding = torch.nn.Embedding(genes, hidden)
        self.norm = torch.nn.BatchNorm1d(hidden)
        self.head = torch.nn.Linear(hidden, 1)

    def forward(self, genes: torch.Tensor, gene_sample: torch.Tensor, batch_size: int) -> torch.Tensor:
        rows = self.embedding(genes)
        sums = torch.zeros([batch_size, rows.size(1)], dtype=rows.dtype, device=rows.device)
        sums = sums.index_add(0, gene_sample, rows)
        return self.head(torch.relu(self.norm(sums))).squeeze(1)


if __name__ == "__main__":
    out = sys.argv[1]
    genes = int(sys.argv[2]) if len(sys.argv) > 2 else 6607
    hidden = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    torch.manual_seed(1)
    torch.jit.script(Sum(genes, hidden)).save(out)
