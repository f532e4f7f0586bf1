"""Copies of batches to a GPU, as PyTorch makes them: what a machine gives, beside what expctl gets out of it.

    worker.command = ["benches/peers/run", "torch_copies", "--pinned"]

A batch has loader.batch_size rows of --genes float32. With --pinned it is page-locked. Each step copies one and waits for it: nothing is
done meanwhile. On the host it is a copy from memory to memory.
"""

import argparse

import measured

# Batches that take turns, so that none is copied out of the processor's caches again and again.
BATCHES = 4


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--pinned", action="store_true")
    arguments.add_argument("--genes", type=int, default=2000)
    asked = arguments.parse_args()

    import expctl
    import torch

    device = expctl.torch_device()
    on_gpu = device.type == "cuda"
    name = "torch copies, " + ("page-locked" if asked.pinned else "pageable")
    run = expctl.Run(program=name, versions=measured.versions([]), settings={"genes": asked.genes}, device=device.type)
    measured.limit_threads(run)
    rows = run.settings["loader"]["batch_size"]
    made = [torch.rand(rows, asked.genes) for _ in range(BATCHES)]
    if asked.pinned and on_gpu:
        made = [values.pin_memory() for values in made]
    for step in run.steps():
        values = made[step.number % BATCHES]
        with step.stage("transfer", device=on_gpu):
            # Into memory of its own also on the host.
            values.to(device, non_blocking=asked.pinned, copy=True)
        step.samples, step.bytes_batch = rows, values.nbytes
        step.bytes_moved = values.nbytes if on_gpu else 0
    run.close()


if __name__ == "__main__":
    main()
