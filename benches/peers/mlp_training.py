"""Training steps of the MLP of expctl's array models, for the peers that train it.

Written as PyTorch's documentation does: DDP with its defaults where there are several ranks, the bare model for one, as expctl has;
AdamW with its defaults but for the learning rate and the decay, gradients clipped, gradients set to none. `train.precision` of the trial
holds: with "bf16_mixed" the forward pass is under autocast, and the loss is float32. Without checks of values (`isnan`), which expctl
does with the loss.

On a GPU stages are timed there, as expctl's are, and the step ends with the one wait for the loss.
"""

import os

import torch
from torch.nn.parallel import DistributedDataParallel


class MlpTraining:
    """The model of a trial and its optimizer. `sizes` has `hidden`, `layers` and `fused`: AdamW in one pass, as expctl's, and not as it is
    by default: on the host an operation after another, on a GPU over lists of parameters."""

    def __init__(self, run, device, genes, classes, sizes):
        self.train, self.on_gpu, self.device = run.settings["train"], device.type == "cuda", device
        self.mixed = self.train["precision"] == "bf16_mixed"
        torch.manual_seed(run.settings["loader"]["seed"])
        width, parts = genes, []
        for _ in range(sizes.layers):
            parts += [torch.nn.Linear(width, sizes.hidden), torch.nn.ReLU()]
            width = sizes.hidden
        self.model = torch.nn.Sequential(*parts, torch.nn.Linear(width, classes)).to(device)
        if run.world_size > 1:
            self.model = DistributedDataParallel(self.model, device_ids=[device.index] if self.on_gpu else None)
        rates = {"lr": self.train["learning_rate"], "weight_decay": self.train["weight_decay"]}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **rates, fused=True if sizes.fused else None)

    def step(self, step, values, labels):
        """The rest of `step` once its batch is on the device."""
        with step.stage("forward", device=self.on_gpu):
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed):
                prediction = self.model(values)
            loss = torch.nn.functional.cross_entropy(prediction.float(), labels)
        with step.stage("backward", device=self.on_gpu):
            self.optimizer.zero_grad()
            # With the exchange of gradients in it.
            loss.backward()
        if self.train["clip_norm"] > 0:
            with step.stage("clip", device=self.on_gpu):
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.train["clip_norm"])
        with step.stage("optimizer", device=self.on_gpu):
            self.optimizer.step()
        # On a GPU the wait for all of it, of which the device's part is the copy.
        with step.stage("other", device=self.on_gpu):
            step.loss = loss.item()


def add_sizes(arguments):
    """Adds what `MlpTraining` takes as `sizes` to the arguments of a peer."""
    arguments.add_argument("--fused", action="store_true")
    arguments.add_argument("--hidden", type=int, default=1024)
    arguments.add_argument("--layers", type=int, default=5)


def backend_of(settings, device):
    """The backend of torch's process group: as `launch.backend` of the trial says, else NCCL where each rank has a GPU of its own, else gloo."""
    asked = settings["launch"]["backend"]
    if asked != "auto":
        return asked
    # A rank that Slurm bound to its own GPU sees that one alone.
    ranks_here = 1 if settings["slurm"]["gpus_per_rank"] > 0 else int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return "nccl" if device.type == "cuda" and torch.cuda.device_count() >= ranks_here else "gloo"
