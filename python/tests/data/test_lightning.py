"""In a Lightning trainer: epochs, checkpoints and ranks."""

import contextlib
import importlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

import numpy as np

import expctl.data as xd
from cells import Cells
from test_guide import GUIDE

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/cells_lightning.py"
INSTALLED = [name for name in ("lightning", "pytorch_lightning") if importlib.util.find_spec(name) and importlib.util.find_spec("torch")]


def model_of(pl):
    """A model that notes the rows that it sees."""
    import torch

    class Model(pl.LightningModule):
        def __init__(self, genes=3):
            super().__init__()
            self.linear = torch.nn.Linear(genes, 3)
            self.seen, self.validated, self.stop_after = [], [], None

        def training_step(self, batch, batch_idx):
            self.seen.append((self.current_epoch, batch.epoch, batch.index.tolist()))
            known = batch.obs["cell_type"] >= 0
            loss = torch.nn.functional.cross_entropy(self.linear(batch.X)[known], batch.obs["cell_type"][known])
            self.log("loss", loss, on_epoch=True, batch_size=len(batch))
            return loss

        def validation_step(self, batch, batch_idx):
            self.validated += batch.index.tolist()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    return Model()


def trainer_of(pl, folder, callbacks=(), **options):
    return pl.Trainer(
        accelerator="cpu", default_root_dir=folder, logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=bool(callbacks), callbacks=list(callbacks), num_sanity_val_steps=0,
        **({"max_epochs": 3, "devices": 1} | options),
    )


# One process each: their data modules are classes of their own.
@unittest.skipUnless(INSTALLED, "neither lightning nor pytorch_lightning is installed")
class Trainers(unittest.TestCase):
    def test_each_package_in_a_process_of_its_own(self):
        for package in INSTALLED:
            with self.subTest(package=package):
                run = subprocess.run(
                    [sys.executable, "-W", "ignore", __file__, package], capture_output=True, text=True, timeout=300
                )
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                self.assertIn("Ran 7 tests", run.stderr)

    @unittest.skipUnless("lightning" in INSTALLED and EXAMPLE.exists(), "lightning or the example is not there")
    def test_the_example(self):
        cells = Cells()
        self.addCleanup(cells.close)
        run = subprocess.run(
            [sys.executable, "-W", "ignore", str(EXAMPLE), "cell_type", *cells.files], cwd=cells.folder.name, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"train_loss \d+\.\d+\nval_loss \d+\.\d+\n")


class OnePackage(unittest.TestCase):
    """The tests of the package that the command names."""

    @classmethod
    def setUpClass(cls):
        cls.pl = importlib.import_module("lightning.pytorch" if sys.argv[1] == "lightning" else "pytorch_lightning")
        from expctl.data.lightning import DataModule

        cls.DataModule = DataModule
        cls.cells = Cells()
        cls.folder = cls.cells.folder.name
        cls.ds = xd.open(cls.cells.files, obs=["cell_type"])
        cls.train, cls.val = cls.ds.split((0.8, 0.2), seed=1)

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def data(self, **options):
        return self.DataModule(train=self.train, val=self.val, batch_size=16, seed=3, threads=1, **options)

    def expected(self, epochs=3):
        loader = xd.Loader(self.train, 16, seed=3, out="numpy")
        return [(epoch, epoch, batch.index.tolist()) for epoch in range(epochs) for batch in loader]

    def test_epochs_are_those_of_a_loader(self):
        self.assertTrue(issubclass(self.DataModule, self.pl.LightningDataModule))
        model = model_of(self.pl)
        trainer = trainer_of(self.pl, self.folder)
        trainer.fit(model, datamodule=self.data())
        self.assertEqual(model.seen, self.expected())
        self.assertEqual(model.validated, list(range(len(self.val))) * 3)
        self.assertIn("loss_epoch", trainer.callback_metrics)

    @unittest.skipUnless(GUIDE.exists(), "the guide is not there")
    def test_the_lines_of_the_guide(self):
        lines = re.search(r"## With Lightning.*?```py\n(.*?)```", GUIDE.read_text(), re.S).group(1)
        model = model_of(self.pl)
        exec(lines, {"ds": self.ds, "model": model, "trainer": trainer_of(self.pl, self.folder)})
        self.assertEqual([epoch for epoch, _, _ in model.seen], [0, 1, 2])
        self.assertEqual(len(model.seen[0][2]) + len(model.validated) // 3, 218)

    def test_a_run_has_what_batches_cost(self):
        if sys.argv[1] != "lightning":
            # The callback is of `lightning` where both are installed.
            return
        from expctl.lightning import Callback

        with contextlib.redirect_stderr(io.StringIO()) as shown:
            trainer_of(self.pl, self.folder, [Callback("cells", warmup=1, steps=20)]).fit(model_of(self.pl), datamodule=self.data())
        for stage in ["read", "decode", "collate", "forward", "backward"]:
            self.assertRegex(shown.getvalue(), rf"(?m)^{stage} +\d")
        self.assertIn("20 steps", shown.getvalue())

    def test_training_goes_on_from_a_checkpoint(self):
        per_epoch = len(self.expected(1))
        for steps in [4, per_epoch, per_epoch + 7]:
            with self.subTest(steps=steps):
                callback = self.pl.callbacks.ModelCheckpoint(
                    dirpath=os.path.join(self.folder, f"at{steps}"), every_n_train_steps=steps, save_top_k=-1,
                    filename="{step}",
                )
                first = model_of(self.pl)
                trainer_of(self.pl, self.folder, [callback], max_epochs=-1, max_steps=steps).fit(first, datamodule=self.data())
                path = os.path.join(self.folder, f"at{steps}", f"step={steps}.ckpt")
                second = model_of(self.pl)
                trainer_of(self.pl, self.folder).fit(second, datamodule=self.data(), ckpt_path=path)
                self.assertEqual(first.seen + second.seen, self.expected())

    def test_loaders_without_a_data_module(self):
        model = model_of(self.pl)
        loaders = [xd.Loader(self.train, 16, seed=3), xd.Loader(self.val, 16, sampler="sequential")]
        trainer_of(self.pl, self.folder).fit(model, *loaders)
        # Trainers do not tell them the epoch.
        for epoch in range(3):
            rows = [row for current, _, rows in model.seen for row in rows if current == epoch]
            self.assertEqual(sorted(rows), list(range(len(self.train))))
        self.assertEqual(len(model.validated), 3 * len(self.val))

    def test_sparse_batches_go_to_the_device_and_the_sampler_is_ours(self):
        import torch

        data = self.data(sparse=True, sampler=xd.balanced("cell_type"))
        loader = data.train_dataloader()
        batch = next(iter(loader))
        moved = data.transfer_batch_to_device(batch, torch.device("cpu"), 0)
        self.assertIs(moved.X.layout, torch.sparse_csr)
        self.assertEqual(data.transfer_batch_to_device([torch.ones(1)], torch.device("cpu"), 0)[0].item(), 1)
        self.assertIn("balanced", repr(loader))
        list(loader)
        self.assertEqual(loader.stages().rows, len(batch) + len(self.train))
        self.assertIn("waited for batches", loader.explain())
        with self.assertRaisesRegex(ValueError, "tensors"):
            self.data(out="numpy")
        with self.assertRaisesRegex(TypeError, "train is what"):
            self.DataModule(train=[1])

    def test_two_ranks_have_all_rows(self):
        out = os.path.join(self.folder, "ranks")
        os.mkdir(out)
        run = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, sys.argv[1], "rank", out, *self.cells.files],
            capture_output=True, text=True, timeout=200,
        )
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        seen = [np.load(os.path.join(out, f"{rank}.npy")) for rank in range(2)]
        self.assertEqual([len(rows) for rows in seen], [109, 109])
        self.assertEqual(sorted(np.concatenate(seen)), list(range(218)))


def two_ranks(package, out, files):
    """Train on two ranks; each writes the rows that it saw."""
    pl = importlib.import_module("lightning.pytorch" if package == "lightning" else "pytorch_lightning")
    from expctl.data.lightning import DataModule

    model = model_of(pl)
    data = DataModule(train=xd.open(files, obs=["cell_type"]), batch_size=16, threads=1)
    trainer = trainer_of(pl, out, max_epochs=1, devices=2, strategy="ddp")
    trainer.fit(model, datamodule=data)
    np.save(os.path.join(out, f"{trainer.global_rank}.npy"), [row for _, _, rows in model.seen for row in rows])


def load_tests(loader, tests, pattern):
    """The tests of one package run in processes that the others start."""
    cases = [OnePackage] if len(sys.argv) > 1 and sys.argv[1] in INSTALLED and __name__ == "__main__" else [Trainers]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    if sys.argv[2:3] == ["rank"]:
        two_ranks(sys.argv[1], sys.argv[3], sys.argv[4:])
    elif sys.argv[1:] and sys.argv[1] in INSTALLED:
        warnings.simplefilter("ignore")
        unittest.main(argv=sys.argv[:1], warnings="ignore")
    else:
        unittest.main()
