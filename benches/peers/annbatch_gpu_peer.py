"""annbatch's rows on a GPU: CSR batches of annbatch_peer.py, copied there and made dense there, for a training step of the MLP.

    worker.command = ["benches/peers/run", "annbatch_gpu", "--fused", "--hidden", "256", "--layers", "1"]

As its README has it: "Important: For performance reasons convert to dense on GPU". With loader.pin_memory the three arrays of a batch are
page-locked before they are copied. Rows are as stored; labels are drawn once, because what a step takes does not depend on them.
"""

import argparse

import annbatch_peer
import measured

CLASSES = 16


def tensors(batch, pinned):
    """crow, col and values of a CSR matrix of scipy, as tensors of the host."""
    import torch

    # torch wants both kinds of positions to be of one type.
    crow, values = batch.indptr.astype(batch.indices.dtype, copy=False), batch.data.astype("f4", copy=False)
    parts = [torch.from_numpy(part) for part in (crow, batch.indices, values)]
    return [part.pin_memory() for part in parts] if pinned else parts


def main():
    import mlp_training

    arguments = argparse.ArgumentParser()
    mlp_training.add_sizes(arguments)
    sizes = arguments.parse_args()

    import expctl
    import request as asked
    import torch

    device = expctl.torch_device()
    on_gpu = device.type == "cuda"
    settings = {"hidden": sizes.hidden, "layers": sizes.layers}
    packages = ["annbatch", "zarr", "zarrs", "scipy"]
    run = expctl.Run(program="annbatch, dense on the device", versions=measured.versions(packages), settings=settings, device=device.type)
    measured.limit_threads(run)
    request = asked.of_trial(run.settings, run.data_dir, endless=lambda loader: run.loader(loader, endless=True))
    source = annbatch_peer.batches(request)
    pinned = on_gpu and run.settings["loader"]["pin_memory"]
    labels = torch.randint(0, CLASSES, (request.batch,), device=device)
    training = None
    for step in run.steps():
        with step.stage("read"):
            batch = next(source)
        with step.stage("pin"):
            parts = tensors(batch, pinned)
        with step.stage("transfer", device=on_gpu):
            crow, col, values = (part.to(device, non_blocking=pinned) for part in parts)
        with step.stage("collate", device=on_gpu):
            dense = torch.sparse_csr_tensor(crow, col, values, size=batch.shape).to_dense()
        if training is None:
            # How wide rows are is known with the first batch, which is of the warm-up.
            training = mlp_training.MlpTraining(run, device, batch.shape[1], CLASSES, sizes)
        training.step(step, dense, labels[: batch.shape[0]])
        step.samples, step.bytes_batch = batch.shape[0], sum(part.nbytes for part in parts)
        step.bytes_moved = step.bytes_batch if on_gpu else 0
    run.note(stored_bytes=request.stored_bytes())
    run.close()


if __name__ == "__main__":
    main()
