"""expctl in Python, with a training step of the MLP on each batch (expctl_python_peer.py has the loader, mlp_training.py the step).

    worker.command = ["benches/peers/run", "expctl_python_training", "--fused", "--hidden", "1250", "--layers", "1"]

Dense batches come from the loader threads. Labels are drawn once, as in annbatch_gpu_peer.py, because what a step takes does not depend on them.
"""

import argparse

import expctl_python_peer
import mlp_training

CLASSES = 16


def main():
    arguments = argparse.ArgumentParser()
    mlp_training.add_sizes(arguments)
    sizes = arguments.parse_args()

    import torch

    run, loader = expctl_python_peer.begin({"hidden": sizes.hidden, "layers": sizes.layers})
    labels = torch.randint(0, CLASSES, (run.settings["loader"]["batch_size"],))
    training = None
    for step, batch in zip(run.steps(), run.loader(loader, endless=True)):
        if training is None:
            # How wide rows are is known with the first batch, which is of the warm-up.
            training = mlp_training.MlpTraining(run, torch.device("cpu"), batch.X.shape[1], CLASSES, sizes)
        training.step(step, batch.X, labels)
    run.close()


if __name__ == "__main__":
    main()
