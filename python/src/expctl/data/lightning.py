"""Loaders in a Lightning trainer, of `lightning` or `pytorch_lightning` 2.2 or later.

    from expctl.data.lightning import DataModule

    train, val = ds.split((0.9, 0.1), seed=1)
    trainer.fit(model, datamodule=DataModule(train=train, val=val, batch_size=4096, sampler="chunked", seed=1))

`expctl.lightning.Callback` is another thing: it reports the steps of training to expctl.
"""

import sys
from typing import Any, Dict, Iterator, Optional

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    # The one that the program uses: each has a DataModule of its own.
    from pytorch_lightning import LightningDataModule as Base
else:
    try:
        from lightning.pytorch import LightningDataModule as Base
    except ImportError:
        from pytorch_lightning import LightningDataModule as Base

from .batch import Batch
from .dataset import Dataset
from .loader import Loader
from .times import StageTimes


class DataModule(Base):
    """Data sets as the data of a trainer. Its loaders are made when the trainer asks, in each process for its own rank.

    - Epochs are those of the trainer, and a checkpoint has the place of the training loader: training goes on with the batch
      after the last one, in the middle of an epoch too.
    - Rows are divided among ranks by the loader. The trainer leaves it alone, whatever `use_distributed_sampler` is.
    - Batches are `expctl.data.Batch`, moved to the device of the trainer as a whole. `self.log(..., on_epoch=True)` needs
      `batch_size=len(batch)`.

    Args:
        train, val, test, predict: data sets; None has no such loader.
        batch_size: rows of a batch on each rank.
        sampler, drop_last, seed: of `train`. The others are read in the order of their files, all rows.
        options: all other arguments of `Loader`, for all data sets. `out` is torch, and `rank` that of torch.distributed.
    """

    def __init__(
        self,
        train: Optional[Dataset] = None,
        val: Optional[Dataset] = None,
        test: Optional[Dataset] = None,
        predict: Optional[Dataset] = None,
        *,
        batch_size: int = 128,
        sampler: Any = "uniform",
        drop_last: bool = False,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__()
        if options.get("out", "torch") != "torch":
            raise ValueError(f"out={options['out']!r}: a trainer takes tensors of torch")
        self._datasets = {"train": train, "val": val, "test": test, "predict": predict}
        for name, dataset in self._datasets.items():
            if dataset is not None and not isinstance(dataset, Dataset):
                raise TypeError(f"{name} is what expctl.data.open gives, and not a {type(dataset).__name__}")
        self._options = {"batch_size": batch_size, "out": "torch", **options}
        self._train_options = {"sampler": sampler, "drop_last": drop_last, "seed": seed}

    def train_dataloader(self) -> Any:
        """The loader of this rank, which the trainer tells its epochs."""
        return Epochs(self._loader("train", self._train_options))

    def val_dataloader(self) -> Any:
        """All rows in order."""
        return self._loader("val", {"sampler": "sequential"})

    def test_dataloader(self) -> Any:
        """All rows in order."""
        return self._loader("test", {"sampler": "sequential"})

    def predict_dataloader(self) -> Any:
        """All rows in order; several ranks have the first rows twice where rows do not fill them."""
        return self._loader("predict", {"sampler": "sequential"})

    def _loader(self, name: str, options: Dict[str, Any]) -> Any:
        dataset = self._datasets[name]
        return [] if dataset is None else Loader(dataset, **self._options, **options)

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """The batch with all its tensors on the device; sparse ones stay sparse."""
        if isinstance(batch, Batch):
            return batch.to(device, non_blocking=True)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


class Epochs:
    """A loader to which a trainer tells its epochs: it looks for `sampler.set_epoch`."""

    batch_sampler = None

    def __init__(self, loader: Loader):
        self.loader = loader

    @property
    def sampler(self) -> "Epochs":
        """Where the trainer looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; if it is in the middle of a loaded state, it goes on there."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> Dict[str, Any]:
        """The place of the loader, which the trainer puts into its checkpoints."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Go on at the place of a checkpoint."""
        self.loader.load_state_dict(state)

    def stages(self) -> StageTimes:
        """What all batches so far cost, by stage: busy and exposed seconds."""
        return self.loader.stages()

    def explain(self) -> str:
        """What holds the trainer up, in a few sentences."""
        return self.loader.explain()

    def __iter__(self) -> Iterator[Any]:
        # Begins with the first batch: a trainer makes iterators that it does not use, and then tells the epoch.
        yield from self.loader

    def __len__(self) -> int:
        return len(self.loader)

    def __repr__(self) -> str:
        return repr(self.loader)
