"""Reports the steps of a training program to expctl; see docs/command-workers.md."""

from .run import Run
from .stages import STAGES
from .step import Step

__all__ = ["Run", "STAGES", "Step"]
__version__ = "0.1.0"
