"""SCVI of scvi-tools trains from a loader, with the loss of training from the same rows in memory."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

import anndata
import numpy as np
import pandas as pd
import scipy.sparse

import expctl.data as xd
from cells import Cells
from test_guide import GUIDE

MISSING = [name for name in ("torch", "lightning", "scvi") if importlib.util.find_spec(name) is None]
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/cells_scvi.py"
REAL = pathlib.Path(__file__).resolve().parents[3] / "experiments/arrayloader/real/pbmc68k_reduced.h5ad"


class Training:
    """Training from `ds`, and from `adata`, which has the same rows; `keys` are their columns of batches and of labels."""

    keys = ("sample", "kind")

    def module(self, *datasets, **options):
        from expctl.data.scvi import DataModule

        keys = dict(zip(["batch_key", "labels_key"], self.keys))
        return DataModule(*(datasets or [self.ds]), **{**keys, "batch_size": 64, "threads": 1, "seed": 5, **options})

    def trained(self, data, model=None, epochs=3):
        import scvi

        scvi.settings.seed = 1
        model = scvi.model.SCVI(registry=self.module().registry, n_hidden=16, n_latent=4) if model is None else model()
        model.train(
            max_epochs=epochs, datamodule=data, accelerator="cpu", devices=1, enable_progress_bar=False, logger=None,
            enable_checkpointing=False, check_val_every_n_epoch=1 if data.val_dataloader() else None,
        )
        return model

    def in_memory(self, epochs=3):
        """The same rows in the same order, from the AnnData."""
        import torch
        from lightning.pytorch import LightningDataModule

        loader = xd.Loader(self.ds, 64, seed=5, out="numpy")
        orders = [[batch.index for batch in loader] for _ in range(epochs)]
        adata = self.adata
        codes = [torch.tensor(adata.obs[key].cat.codes.to_numpy().astype("int64")) for key in self.keys]

        class Epochs:
            def __init__(self):
                self.epoch = 0

            def __iter__(self):
                order = orders[self.epoch]
                self.epoch += 1
                for rows in order:
                    yield {"X": torch.tensor(adata.X[rows].toarray()), "batch": codes[0][rows][:, None],
                           "labels": codes[1][rows][:, None], "extra_categorical_covs": None, "extra_continuous_covs": None}

        class Module(LightningDataModule):
            n_obs = len(adata)

            def train_dataloader(self):
                return Epochs()

            def val_dataloader(self):
                return []

        return Module()

    def assert_same_training(self, one, other, epochs):
        for name in ["train_loss", "elbo_train", "reconstruction_loss_train"]:
            losses = [np.asarray(model.history[name], dtype=float).ravel() for model in [one, other]]
            self.assertEqual(len(losses[0]), epochs)
            np.testing.assert_array_equal(*losses)
            self.assertLess(losses[0][-1], losses[0][0])
        for (name, ours), theirs in zip(one.module.state_dict().items(), other.module.state_dict().values()):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=name)


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not installed")
class Scvi(Training, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore")
        cls.cells = Cells()
        rng = np.random.default_rng(0)
        n, genes = 300, 40
        counts = rng.poisson(rng.gamma(1, 2, genes), (n, genes)).astype("float32")
        obs = pd.DataFrame(
            {
                "sample": pd.Categorical.from_codes(rng.integers(0, 3, n), ["s1", "s2", "s3"]),
                "kind": pd.Categorical.from_codes(rng.integers(0, 2, n), ["B cell", "T cell"]),
                "age": rng.random(n).astype("float32"),
            },
            index=[f"cell {i}" for i in range(n)],
        )
        names = pd.DataFrame(index=[f"gene {i}" for i in range(genes)])
        cls.adata = anndata.AnnData(scipy.sparse.csr_matrix(counts), obs=obs, var=names)
        path = os.path.join(cls.cells.folder.name, "counts.h5ad")
        cls.adata.write_h5ad(path)
        cls.ds = xd.open(path, obs=["sample", "kind", "age"])

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def test_the_loss_is_that_of_training_from_memory(self):
        expected = self.trained(self.in_memory())
        for sparse in [False, True]:
            self.assert_same_training(self.trained(self.module(sparse=sparse)), expected, 3)

    def test_batches_are_those_of_scvi(self):
        import scvi
        from scvi.dataloaders import AnnDataLoader

        adata = self.adata.copy()
        scvi.model.SCVI.setup_anndata(adata, batch_key="sample", labels_key="kind", continuous_covariate_keys=["age"],
                                      categorical_covariate_keys=["kind"])
        model = scvi.model.SCVI(adata)
        data = self.module(continuous_covariate_keys=["age"], categorical_covariate_keys=["kind"], sparse=True)
        theirs = list(AnnDataLoader(model.adata_manager, batch_size=64, shuffle=False))
        ours = list(data.inference_dataloader())
        self.assertEqual((len(ours), len(data.inference_dataloader())), (len(theirs), len(theirs)))
        for one, other in zip(ours, theirs):
            for name in ["X", "batch", "labels", "extra_categorical_covs", "extra_continuous_covs"]:
                self.assertEqual(one[name].shape, other[name].shape, name)
                np.testing.assert_array_equal(one[name].numpy(), other[name].numpy(), err_msg=name)
        registered = scvi.model.SCVI(registry=data.registry)
        for name in ["n_vars", "n_batch", "n_labels", "n_extra_categorical_covs", "n_extra_continuous_covs"]:
            self.assertEqual(registered.summary_stats[name], model.summary_stats[name], name)
        shapes = [{name: value.shape for name, value in one.module.state_dict().items()} for one in [model, registered]]
        self.assertEqual(*shapes)

    def test_validation_and_inference_and_a_saved_model(self):
        import scvi

        train, val = self.ds.split((0.8, 0.2), seed=1)
        data = self.module(train, val)
        model = self.trained(data)
        self.assertEqual(len(model.history["elbo_validation"]), 3)
        latent = model.get_latent_representation(dataloader=data.inference_dataloader())
        self.assertEqual(latent.shape, (240, 4))
        self.assertEqual(model.get_latent_representation(dataloader=data.inference_dataloader(val, 7)).shape, (60, 4))
        folder = os.path.join(self.cells.folder.name, "model")
        model.save(folder, save_anndata=False, datamodule=data)
        loaded = scvi.model.SCVI.load(folder, adata=False)
        again = loaded.get_latent_representation(dataloader=data.inference_dataloader())
        np.testing.assert_array_equal(again, latent)

    @unittest.skipUnless(GUIDE.exists(), "the guide is not there")
    def test_the_lines_of_the_guide(self):
        import scvi

        adata = self.adata.copy()
        adata.layers["counts"], adata.obs["cell_type"] = adata.X, adata.obs["kind"]
        path = os.path.join(self.cells.folder.name, "with_layer.h5ad")
        adata.write_h5ad(path)
        lines = re.search(r"## With scvi-tools.*?```py\n(.*?)```", GUIDE.read_text(), re.S).group(1)
        for written, here in [("atlas/*.h5ad", path), ("max_epochs=20", "max_epochs=2"), ('"model"', repr(path + ".model"))]:
            self.assertIn(written, lines)
            lines = lines.replace(written, here)
        names = {"xd": xd, "scvi": scvi}
        exec(lines, names)
        self.assertEqual(names["latent"].shape[0], 300)
        self.assertIsInstance(names["again"], scvi.model.SCVI)

    def test_what_does_not_fit(self):
        with self.assertRaisesRegex(ValueError, "'tissue' is no column of classes"):
            self.module(batch_key="tissue")
        with self.assertRaisesRegex(ValueError, "'kind' is no column of numbers"):
            self.module(continuous_covariate_keys=["kind"])
        with self.assertRaisesRegex(ValueError, "other genes or class numbers"):
            self.module(self.ds, xd.open(self.ds.files, obs=["sample", "kind", "age"], genes=["gene 1"]))
        cells = xd.open(self.cells.files[0], obs=["cell_type"])
        data = self.module(cells, batch_key="cell_type", labels_key=None)
        with self.assertRaisesRegex(xd.DataError, "cell_type.*is missing"):
            list(data.inference_dataloader())
        whole = self.module(cells, batch_key=None, labels_key=None)
        self.assertEqual((whole.n_batch, whole.n_labels, whole.n_obs), (1, 1, 101))
        self.assertEqual(next(iter(whole.inference_dataloader()))["labels"].shape, (64, 1))


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not installed")
@unittest.skipUnless(REAL.exists(), "the real file is not there")
class RealFile(Training, unittest.TestCase):
    """700 blood cells. The file has their counts as ln(1 + c · count), with a c of each cell; its smallest value is of one count."""

    keys = ("phase", "bulk_labels")

    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore")
        cls.cells = Cells()
        cls.adata = anndata.read_h5ad(REAL).raw.to_adata()
        scaled = np.expm1(cls.adata.X.toarray().astype("float64"))
        counts = scaled / np.where(scaled > 0, scaled, np.inf).min(1, keepdims=True)
        np.testing.assert_allclose(counts, counts.round(), rtol=2e-3)
        cls.adata.X = scipy.sparse.csr_matrix(counts.round().astype("float32"))
        path = os.path.join(cls.cells.folder.name, "real.h5ad")
        anndata.AnnData(cls.adata.X, cls.adata.obs, cls.adata.var).write_h5ad(path, compression="gzip")
        cls.ds = xd.open(path, obs=list(cls.keys))

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    @unittest.skipUnless(EXAMPLE.exists(), "the example is not there")
    def test_the_example(self):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", str(EXAMPLE), "--raw", "--log1p", "phase", str(REAL)], cwd=self.cells.folder.name,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"elbo_train \d+\.\d\nelbo_validation \d+\.\d\nlatent \(630, 8\)\n")

    def test_counts_of_real_cells(self):
        def count(batch):
            scaled = batch.X.double().expm1()
            batch.X = (scaled / scaled.masked_fill(scaled == 0, float("inf")).amin(1, keepdim=True)).round().float()
            return batch

        expected = self.trained(self.in_memory(2), epochs=2)
        self.assert_same_training(self.trained(self.module(), epochs=2), expected, 2)
        # From the file as it is, whose values become counts in a transform.
        as_it_is = xd.open(str(REAL), raw=True, obs=list(self.keys))
        self.assert_same_training(self.trained(self.module(as_it_is, transform=count), epochs=2), expected, 2)


if __name__ == "__main__":
    unittest.main()
