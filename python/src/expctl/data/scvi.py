"""Loaders for models of scvi-tools 1.4, by its protocol of custom data modules: SCVI and models that take the same batches.

    from expctl.data.scvi import DataModule

    ds = expctl.data.open("atlas/*.h5ad", layer="counts", obs=["sample", "cell_type"])
    data = DataModule(ds, batch_key="sample", labels_key="cell_type", batch_size=128, sampler="chunked")
    model = scvi.model.SCVI(registry=data.registry)
    model.train(max_epochs=20, datamodule=data)
    latent = model.get_latent_representation(dataloader=data.inference_dataloader())
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence

import numpy
import scvi
import torch

from .._native import DataError
from .batch import Batch
from .dataset import Dataset
from .lightning import DataModule as Base
from .loader import Loader


class DataModule(Base):
    """Data sets as the data of a model of scvi-tools. X is as it is in the files: choose a layer of counts.

    A batch is a dict: `X` float32 [B, genes], `batch` and `labels` int64 [B, 1] (0 without a key), `extra_categorical_covs` int64
    [B, covariates] and `extra_continuous_covs` float32 [B, covariates], or None. With `sparse=True` X goes to the device as CSR,
    and becomes dense there.

    Args:
        train, val: data sets that were opened with `obs=` of all keys, and have the same class numbers: parts of a split, or with
            `encoders=`. `val` may be None.
        batch_key, labels_key: obs columns of classes, or None.
        categorical_covariate_keys: obs columns of classes.
        continuous_covariate_keys: obs columns of numbers.
        unlabeled_category: the class of `labels_key` that means none, for models that want one.
        model_name: name of the model's class.
        options: arguments of `expctl.data.lightning.DataModule` and of `Loader`.

    Raises:
        ValueError: a key is no column of `obs=`, or not of classes; `val` has other genes or class numbers.
        DataError: while loading: a row has no class.
    """

    def __init__(
        self,
        train: Dataset,
        val: Optional[Dataset] = None,
        *,
        batch_key: Optional[str] = None,
        labels_key: Optional[str] = None,
        categorical_covariate_keys: Optional[Sequence[str]] = None,
        continuous_covariate_keys: Optional[Sequence[str]] = None,
        unlabeled_category: Optional[str] = None,
        model_name: str = "SCVI",
        **options: Any,
    ):
        super().__init__(train=train, val=val, **options)
        self._batch_key, self._labels_key = batch_key, labels_key
        self._categorical: List[str] = list(categorical_covariate_keys or [])
        self._continuous: List[str] = list(continuous_covariate_keys or [])
        self.unlabeled_category, self.model_name = unlabeled_category, model_name
        self._train = train
        columns = [column.name for column in train._layout]
        for key in [*filter(None, [batch_key, labels_key]), *self._categorical]:
            if key not in train.encoders():
                raise ValueError(f"{key!r} is no column of classes of the data set: open it with obs={{{key!r}: \"class\"}}")
        for key in self._continuous:
            if key not in columns or key in train.classes:
                raise ValueError(f"{key!r} is no column of numbers of the data set: open it with obs={{{key!r}: \"float32\"}}")
        if val is not None and (val.var_names != train.var_names or val.encoders() != train.encoders()):
            raise ValueError("val has other genes or class numbers than train: take a split, or open it with genes= and encoders=")
        # Lightning and scvi-tools look for them.
        self._log_hyperparams = False
        self.allow_zero_length_dataloader_with_multiple_devices = False

    # -- what scvi-tools asks for ---------------------------------------------------------------------------------------

    @property
    def n_obs(self) -> int:
        """Rows of the training data."""
        return len(self._train)

    @property
    def n_vars(self) -> int:
        """Genes."""
        return self._train.shape[1]

    @property
    def var_names(self) -> Any:
        """Names of the genes: an array of str [genes]."""
        return numpy.array(self._train.var_names, dtype=object)

    @property
    def n_batch(self) -> int:
        """Classes of `batch_key`, or 1."""
        return 1 if self._batch_key is None else len(self.batch_labels)

    @property
    def n_labels(self) -> int:
        """Classes of `labels_key`, or 1."""
        return 1 if self._labels_key is None else len(self.labels)

    @property
    def n_samples(self) -> int:
        """0: there is no key of samples."""
        return 0

    @property
    def batch_labels(self) -> Any:
        """Names of the classes of `batch_key`, by number; or None."""
        return self._names(self._batch_key)

    @property
    def labels(self) -> Any:
        """Names of the classes of `labels_key`, by number; or None."""
        return self._names(self._labels_key)

    @property
    def label_keys(self) -> Any:
        """As `labels`: the name under which scvi-tools saves them."""
        return self.labels

    def _names(self, key: Optional[str]) -> Any:
        return None if key is None else numpy.array(self._train.classes[key], dtype=object)

    @property
    def registry(self) -> Dict[str, Any]:
        """What a model is made from: `scvi.model.SCVI(registry=data.registry)`."""
        one = numpy.array([0], dtype=object)
        batches = one if self._batch_key is None else self.batch_labels
        labels = one if self._labels_key is None else self.labels
        return {
            "scvi_version": scvi.__version__,
            "model_name": self.model_name,
            "setup_method_name": "setup_datamodule",
            "setup_args": {
                "layer": None,
                "batch_key": self._batch_key,
                "labels_key": self._labels_key,
                "samples_key": None,
                "size_factor_key": None,
                "categorical_covariate_keys": self._categorical or None,
                "continuous_covariate_keys": self._continuous or None,
            },
            "field_registries": {
                "X": _field("X", None, {"n_obs": self.n_obs, "n_vars": self.n_vars, "column_names": self.var_names},
                            {"n_vars": self.n_vars, "n_cells": self.n_obs}),
                "batch": _field("obs", "_scvi_batch", {"categorical_mapping": batches, "original_key": self._batch_key},
                                {"n_batch": self.n_batch}),
                "labels": _field("obs", "_scvi_labels", {
                    "categorical_mapping": labels, "original_key": self._labels_key,
                    "unlabeled_category": self.unlabeled_category,
                }, {"n_labels": self.n_labels}),
                "ind_x": _field("obs", "_indices", {}, {}),
                "sample": {
                    "data_registry": {"attr_name": "obs", "attr_key": "_scvi_sample"},
                    "state_registry": {"categorical_mapping": None, "original_key": None},
                    "n_obs_per_sample": {"n_obs_per_sample": torch.tensor([])},
                    "summary_stats": {"n_sample": 0},
                },
                "size_factor": {"data_registry": {}, "state_registry": {}, "summary_stats": {}},
                "extra_categorical_covs": self._categorical_field(),
                "extra_continuous_covs": self._continuous_field(),
            },
        }

    def _categorical_field(self) -> Dict[str, Any]:
        count = {"n_extra_categorical_covs": len(self._categorical)}
        if not self._categorical:
            return {"data_registry": {}, "state_registry": {}, "summary_stats": count}
        mapping = {key: self._names(key) for key in self._categorical}
        sizes = [len(names) for names in mapping.values()]
        state = {"field_keys": self._categorical, "mapping": mapping, "n_cats_per_key": sizes}
        return _field("obsm", "_scvi_extra_categorical_covs", state, count)

    def _continuous_field(self) -> Dict[str, Any]:
        count = {"n_extra_continuous_covs": len(self._continuous)}
        if not self._continuous:
            return {"data_registry": {}, "state_registry": {}, "summary_stats": count}
        columns = {"columns": numpy.array(self._continuous, dtype=object)}
        return _field("obsm", "_scvi_extra_continuous_covs", columns, count)

    # -- batches --------------------------------------------------------------------------------------------------------

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: Any = None) -> Any:
        """The dict of a batch."""
        if not isinstance(batch, Batch):
            return batch
        none = torch.zeros(len(batch), 1, dtype=torch.int64)
        categorical = [self._codes(batch, key) for key in self._categorical]
        continuous = [batch.obs[key][:, None].float() for key in self._continuous]
        return {
            "X": batch.X.float(),
            "batch": none if self._batch_key is None else self._codes(batch, self._batch_key),
            "labels": none if self._labels_key is None else self._codes(batch, self._labels_key),
            "extra_categorical_covs": torch.cat(categorical, dim=1) if categorical else None,
            "extra_continuous_covs": torch.cat(continuous, dim=1) if continuous else None,
            "sample": None,
        }

    def _codes(self, batch: Batch, key: str) -> Any:
        codes = batch.obs[key]
        if (codes < 0).any():
            row = int(batch.index[codes < 0][0])
            raise DataError(f"obs[{key!r}] of row {row} is missing: leave such rows out with filter=, or name a class for them")
        return codes[:, None]

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: Any = None) -> Any:
        """X becomes dense on the device."""
        if isinstance(batch, dict) and batch["X"].layout is not torch.strided:
            batch["X"] = batch["X"].to_dense()
        return batch

    def inference_dataloader(self, dataset: Optional[Dataset] = None, batch_size: Optional[int] = None) -> "Inference":
        """Batches of all rows in order, of the training data or of another data set, for `dataloader=` of a model's methods."""
        options = {**self._options, **({} if batch_size is None else {"batch_size": batch_size})}
        loader = Loader(self._train if dataset is None else dataset, **options, sampler="sequential")
        return Inference(self, loader)


class Inference:
    """Dicts of all batches, each time that it is iterated."""

    def __init__(self, module: DataModule, loader: Loader):
        self._module, self._loader = module, loader

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        for batch in self._loader:
            yield self._module.on_after_batch_transfer(self._module.on_before_batch_transfer(batch))

    def __len__(self) -> int:
        return len(self._loader)


def _field(name: str, key: Optional[str], state: Dict[str, Any], stats: Dict[str, Any]) -> Dict[str, Any]:
    return {"data_registry": {"attr_name": name, "attr_key": key}, "state_registry": state, "summary_stats": stats}
