"""Trains a classifier of cells on AnnData files with DDP:

    torchrun --nproc_per_node 2 cells_ddp.py OBS_COLUMN FILE...

Each rank loads its own rows, by the rank that torch.distributed says. The loader's position is a part of the checkpoint, so that a
run that was stopped goes on with the batch that comes next (cells_ddp.pt; remove it to begin anew).
"""

import os
import sys

import expctl.data as xd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS, CHECKPOINT = 3, "cells_ddp.pt"


def main(column, files):
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    data = xd.open(files, obs={column: "class"})
    loader = xd.Loader(data, batch_size=32, sampler="chunked", seed=1, sparse=True, normalize=1e4, log1p=True)
    torch.manual_seed(0)
    inner = torch.nn.Sequential(
        torch.nn.Linear(data.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, len(data.classes[column]))
    ).to(device)
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT, map_location=device)
        inner.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
    rows = 0
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            # Sparse to the device, dense there: a fraction of the bytes is moved.
            batch = batch.to(device)
            known = batch.obs[column] >= 0
            loss = torch.nn.functional.cross_entropy(model(batch.X.to_dense())[known], batch.obs[column][known])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows += len(batch)
        if dist.get_rank() == 0:
            # All ranks are at the same place.
            torch.save(
                {"model": inner.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}, CHECKPOINT
            )
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    print(f"rank {dist.get_rank()}: {rows} rows", flush=True)
    if dist.get_rank() == 0:
        print(loader.explain(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
