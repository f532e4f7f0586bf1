"""PyTorch's DistributedDataParallel: training steps of the MLP of expctl's array models, at the same sizes.

    worker.command = ["benches/peers/run", "torch_ddp", "--hidden", "1024", "--layers", "5"]

Written as PyTorch's documentation does: DDP with its defaults over gloo, AdamW with its defaults but for the learning rate and
the decay, gradients clipped, gradients set to none. Rows of the files are dense batches before the first step, of which it takes
one after another: reading costs it nothing, as a loader would. Without checks of values (`isnan`), which expctl does with the loss.

On a GPU (launch.device) batches are page-locked, NCCL is the backend, and a single rank has the bare model, as expctl has. With
--fused AdamW steps in one pass, as expctl's does, and not as it is by default. With
--drawn the rows are drawn at random in the place of those of the files: a machine with PyTorch alone can run it, and what a step
takes does not depend on the values.
"""

import argparse
import os
import pathlib

import measured

# Batches that are made before the first step.
BATCHES = 64


def batches_of(folder, loader, rank, world_size):
    """Batches of this rank, with labels: [batch, genes] float32, [batch] int64."""
    import numpy as np
    import torch
    from h5ad_rows import Files, obs_column

    files, batch = sorted(pathlib.Path(folder).glob("files/part-*.h5ad")), loader["batch_size"]
    rows = Files(files)
    _, labels = np.unique(obs_column(files, "cell_type").astype(str), return_inverse=True)
    order = np.random.default_rng(loader["seed"]).permutation(len(rows))[rank::world_size]
    made = []
    for i in range(BATCHES):
        chosen = np.take(order, range(i * batch, (i + 1) * batch), mode="wrap")
        values = rows[chosen].toarray().astype("f4")
        # As array.normalize and array.log1p have it.
        values = np.log1p(values * (1e4 / np.maximum(values.sum(axis=1, keepdims=True), 1)), dtype="f4")
        made.append((torch.from_numpy(values), torch.from_numpy(labels[chosen].astype("i8"))))
    return made, int(labels.max()) + 1


def drawn(batch, rank):
    """The same of random rows, as wide as those of the data set at a tenth of its genes."""
    import torch

    made, generator = [], torch.Generator().manual_seed(rank)
    for _ in range(BATCHES):
        values = torch.rand(batch, 2000, generator=generator) * (torch.rand(batch, 2000, generator=generator) < 0.1)
        made.append((values, torch.randint(0, 30, (batch,), generator=generator)))
    return made, 30


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--drawn", action="store_true")
    arguments.add_argument("--fused", action="store_true")
    arguments.add_argument("--hidden", type=int, default=1024)
    arguments.add_argument("--layers", type=int, default=5)
    sizes = arguments.parse_args()

    import expctl
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend)
    name = f"torch DDP {sizes.layers} × {sizes.hidden}" + (", fused AdamW" if sizes.fused else "")
    settings = {"hidden": sizes.hidden, "layers": sizes.layers, "batches in memory": BATCHES}
    run = expctl.Run(program=name, versions=measured.versions([]), settings=settings, backend=backend)
    measured.limit_threads(run)
    train = run.settings["train"]
    loader = run.settings["loader"]
    if sizes.drawn:
        made, classes = drawn(loader["batch_size"], run.rank)
    else:
        made, classes = batches_of(run.data_dir, loader, run.rank, run.world_size)
    if device.type == "cuda":
        made = [(values.pin_memory(), labels.pin_memory()) for values, labels in made]

    torch.manual_seed(loader["seed"])
    width, parts = made[0][0].shape[1], []
    for _ in range(sizes.layers):
        parts += [torch.nn.Linear(width, sizes.hidden), torch.nn.ReLU()]
        width = sizes.hidden
    model = torch.nn.Sequential(*parts, torch.nn.Linear(width, classes)).to(device)
    if device.type == "cpu":
        model = DistributedDataParallel(model)
    elif run.world_size > 1:
        model = DistributedDataParallel(model, device_ids=[device.index])
    # Without --fused as PyTorch does it by itself: on the host an operation after another, on a GPU over lists of parameters.
    rates = {"lr": train["learning_rate"], "weight_decay": train["weight_decay"]}
    optimizer = torch.optim.AdamW(model.parameters(), **rates, fused=True if sizes.fused else None)

    for step in run.steps():
        with step.stage("read"):
            values, labels = made[step.number % BATCHES]
            values, labels = values.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with step.stage("forward"):
            loss = torch.nn.functional.cross_entropy(model(values), labels)
        with step.stage("backward"):
            optimizer.zero_grad()
            # With the exchange of gradients in it.
            loss.backward()
        with step.stage("clip"):
            if train["clip_norm"] > 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), train["clip_norm"])
        with step.stage("optimizer"):
            optimizer.step()
        step.samples, step.bytes_batch, step.loss = len(labels), values.nbytes + labels.nbytes, loss.item()
    run.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
