"""Reports the steps of a training program to expctl; see docs/guide/command-workers.md."""

from .device import torch_device
from .run import Run
from .stages import STAGES
from .step import Step

__all__ = ["Run", "STAGES", "Step", "torch_device"]
__version__ = "0.2.0"
