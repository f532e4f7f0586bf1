"""The device of a rank, and stages on its CUDA stream. Such a stage lies between two events, which are read when the step ends, behind
one synchronisation."""

import os
import sys

from . import about


def torch_device():
    """The `torch.device` that `launch.device` of the trial asks for; of several GPUs the one of this rank, which is made the current one.

    `auto`, and outside expctl, is a GPU where torch can use one. Raises RuntimeError for `cuda` where torch cannot.
    """
    import torch

    choice = about.trial().get("settings", {}).get("launch", {}).get("device", "auto")
    usable = choice != "cpu" and torch.cuda.is_available()
    if choice == "cuda" and not usable:
        raise RuntimeError('launch.device is "cuda", but torch has no GPU that it can use')
    if not usable:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def device_stage(step, name):
    """A stage on the current stream; None where the program has not used CUDA: it computes on the host, whatever the machine has."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    if step.device is None:
        step.device = []
    return DeviceStage(step, name, torch)


class DeviceStage:
    """Two events around what is done below `with`."""

    def __init__(self, step, name, torch):
        self.step, self.name = step, name
        self.start = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)

    def __enter__(self):
        self.start.record()
        return self

    def __exit__(self, *_):
        self.end.record()
        self.step.device.append(self)


def collect(step):
    """Wait for the stages of `step` and add their times: busy and exposed alike, because the step ends after them."""
    # The events of one stream come in order; those of others are waited for one by one.
    for stage in reversed(step.device):
        stage.end.synchronize()
    for stage in step.device:
        ns = int(stage.start.elapsed_time(stage.end) * 1e6)
        step.add(stage.name, busy=ns, exposed=ns)
    step.device = None
