"""A Lightning callback that reports the steps of training to expctl, and ends training after the last one."""

from time import perf_counter_ns

try:
    from lightning.pytorch.callbacks import Callback as Base
except ImportError:
    from pytorch_lightning.callbacks import Callback as Base

from .loader import loaded
from .run import Run


class Callback(Base):
    """Times of a step: *read* until the batch is there (its way to the device included), *forward* until the backward pass
    begins, *backward*, and *optimizer* for the rest of the batch. Batches of `expctl.data` say themselves what the wait was for: *sample*,
    *read*, *decode*, *collate*, and *other* for the rest. `batch_size` is that of a rank, where `len(batch)` is not. Gradient accumulation
    counts every batch as a step.
    """

    def __init__(self, program="lightning", batch_size=None, **about):
        super().__init__()
        self._named, self._batch_size = {"program": program, **about}, batch_size
        self._mark = 0

    def _part(self, stage):
        now = perf_counter_ns()
        if self.run._step is not None:
            self.run._step.add(stage, busy=now - self._mark, exposed=now - self._mark)
        self._mark = now

    def on_train_start(self, trainer, module):
        import lightning

        versions = {"lightning": lightning.__version__, **(self._named.pop("versions", None) or {})}
        about = {"device": trainer.strategy.root_device.type, **self._named}
        self.run = Run(rank=trainer.global_rank, world_size=trainer.world_size, versions=versions, **about)
        # The step is told when the trainer has its batch.
        self.run.counts_beside = False
        self._steps = self.run.steps()
        self._step = next(self._steps)
        self._mark = perf_counter_ns()

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        now = perf_counter_ns()
        step, waited, self._mark = self.run._step, now - self._mark, now
        if step is not None and not loaded(step, batch, waited):
            step.add("read", busy=waited, exposed=waited)

    def on_before_backward(self, trainer, module, loss):
        self._part("forward")
        if self._step is not None:
            self._step.loss = loss.detach()

    def on_after_backward(self, trainer, module):
        self._part("backward")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self._step is None:
            return
        self._part("optimizer")
        self._step.samples = self._batch_size if self._batch_size is not None else samples(batch)
        self._step.epoch = trainer.current_epoch
        self._step = next(self._steps, None)
        self._mark = perf_counter_ns()
        if self._step is None:
            trainer.should_stop = True
            self.run.close()

    def on_exception(self, trainer, module, exception):
        if hasattr(self, "run"):
            self.run.close(f"{type(exception).__name__}: {exception}")


def samples(batch):
    """Samples of a batch: of a tuple or a dictionary, those of its first part."""
    if isinstance(batch, dict):
        batch = next(iter(batch.values()))
    elif isinstance(batch, (tuple, list)):
        batch = batch[0]
    graphs = getattr(batch, "num_graphs", None)
    return graphs if isinstance(graphs, int) else len(batch)
