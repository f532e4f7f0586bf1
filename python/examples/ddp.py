"""Distributed training with torch, reported to expctl: the same file for ranks that expctl starts and for torchrun.

    [variant.ddp]
    worker.command = ["python", "python/examples/ddp.py"]

    [variant.torchrun]
    worker.command = ["torchrun", "python/examples/ddp.py"]
    worker.starts_ranks = true
"""

import expctl
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    # Address, port and ranks come from the environment, whoever started the ranks.
    dist.init_process_group("gloo")
    run = expctl.Run(program="ddp", backend="gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))
    settings = run.settings.get("loader", {"batch_size": 32, "workers": 0})
    sampler = DistributedSampler(data, seed=settings.get("seed", 0))
    dataloader = DataLoader(data, settings["batch_size"], sampler=sampler, num_workers=settings["workers"], drop_last=True)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)))
    optimizer = torch.optim.AdamW(model.parameters())

    for step, (features, target) in zip(run.steps(), run.loader(dataloader, endless=True)):
        with step.stage("forward"):
            loss = torch.nn.functional.mse_loss(model(features), target)
        with step.stage("backward"):
            optimizer.zero_grad()
            # With the exchange of gradients in it.
            loss.backward()
        with step.stage("optimizer"):
            optimizer.step()
        step.samples, step.loss = len(target), loss.item()

    run.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
