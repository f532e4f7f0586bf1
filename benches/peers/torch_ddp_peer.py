"""PyTorch's DistributedDataParallel: training steps of the MLP of expctl's array models, at the same sizes.

    worker.command = ["benches/peers/run", "torch_ddp", "--hidden", "1024", "--layers", "5"]

How it trains stands in mlp_training.py. Rows of the files are dense batches before the first step, of which it takes one after another:
reading costs it nothing, as a loader would.

`launch.device` says what it computes on, `launch.backend` what its gradients are exchanged with. On a GPU batches are page-locked. With
--drawn the rows are drawn at random in the place of those of the files: a machine with PyTorch alone can run it, and what a step
takes does not depend on the values.
"""

import argparse
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
    import mlp_training

    arguments = argparse.ArgumentParser()
    arguments.add_argument("--drawn", action="store_true")
    mlp_training.add_sizes(arguments)
    sizes = arguments.parse_args()

    import expctl
    import torch.distributed as dist

    device = expctl.torch_device()
    on_gpu = device.type == "cuda"
    name = f"torch DDP {sizes.layers} × {sizes.hidden}" + (", fused AdamW" if sizes.fused else "")
    settings = {"hidden": sizes.hidden, "layers": sizes.layers, "batches in memory": BATCHES}
    backend = mlp_training.backend_of(expctl.about.trial()["settings"], device)
    run = expctl.Run(program=name, versions=measured.versions([]), settings=settings, device=device.type, backend=backend)
    if run.world_size > 1:
        dist.init_process_group(backend)
    measured.limit_threads(run)
    loader = run.settings["loader"]
    if sizes.drawn:
        made, classes = drawn(loader["batch_size"], run.rank)
    else:
        made, classes = batches_of(run.data_dir, loader, run.rank, run.world_size)
    if on_gpu:
        made = [(values.pin_memory(), labels.pin_memory()) for values, labels in made]

    training = mlp_training.MlpTraining(run, device, made[0][0].shape[1], classes, sizes)
    for step in run.steps():
        with step.stage("transfer" if on_gpu else "read", device=on_gpu):
            values, labels = made[step.number % BATCHES]
            values, labels = values.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        training.step(step, values, labels)
        step.samples, step.bytes_batch = len(labels), values.nbytes + labels.nbytes
        step.bytes_moved = step.bytes_batch if on_gpu else 0
    run.close()
    if run.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
