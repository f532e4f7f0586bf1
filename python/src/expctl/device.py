"""Stages on a CUDA stream, between two events. They are read when the step ends, behind one synchronisation."""

import sys


def device_stage(step, name):
    """A stage on the current stream; None where the program has no torch with CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
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
