"""With torch: tensors, and the loaders of torch around these."""

import importlib.util
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells, dense

HAS_TORCH = importlib.util.find_spec("torch") is not None


class Without(unittest.TestCase):
    """What does not need torch does not import it, and says what it is for."""

    def setUp(self):
        self.cells = Cells()
        self.addCleanup(self.cells.close)

    def test_the_default_is_torch_where_it_is_installed(self):
        loader = xd.Loader(xd.open(self.cells.files), 16)
        self.assertIn("out='torch'" if HAS_TORCH else "out='numpy'", repr(loader))
        self.assertIn("218 rows × 3 genes, sparse", repr(loader))
        self.assertRegex(repr(next(iter(loader))), r"Batch\(rows=16, genes=3, dense\)")

    @unittest.skipIf(HAS_TORCH, "torch is installed")
    def test_tensors_need_torch(self):
        with self.assertRaises(ImportError):
            xd.Loader(xd.open(self.cells.files), 16, out="torch")

    def test_arrays_have_no_devices(self):
        batch = xd.open(self.cells.files).read([1], out="numpy")
        with self.assertRaisesRegex(TypeError, 'for out="torch"'):
            batch.to("cpu")


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()
        cls.ds = xd.open(cls.cells.files, obs={"cell_type": "class", "n_counts": "float32", "donor": "text"})
        cls.truth = cls.cells.joined().X.toarray()

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def test_tensors(self):
        import torch

        for sparse in [False, True]:
            for dtype in [torch.float32, torch.bfloat16, "float64"]:
                loader = xd.Loader(self.ds, 16, threads=2, sparse=sparse, dtype=dtype)
                for batch in loader:
                    self.assertIs(batch.X.layout, torch.sparse_csr if sparse else torch.strided)
                    self.assertEqual(str(batch.X.dtype), f"torch.{str(dtype).removeprefix('torch.')}")
                    rows = batch.index
                    self.assertEqual((rows.dtype, batch.obs["cell_type"].dtype), (torch.int64, torch.int64))
                    self.assertEqual(batch.obs["n_counts"].dtype, torch.float32)
                    self.assertIsInstance(batch.obs["donor"], list)
                    if dtype is not torch.bfloat16:
                        np.testing.assert_array_equal(dense(batch), self.truth[rows])
        # Sparse values multiply as they are.
        weights = torch.ones(3, 2)
        found = self.ds.read([1, 2], sparse=True).X @ weights
        torch.testing.assert_close(found, torch.tensor(self.truth[[1, 2]]) @ weights)

    def test_devices(self):
        batch = self.ds.read([1, 2], sparse=True).to("cpu")
        self.assertEqual((str(batch.X.device), batch.index.tolist()), ("cpu", [1, 2]))
        self.assertEqual(batch.obs["donor"], ["donor 1", "donor 2"])

    def test_in_a_dataloader(self):
        import torch
        from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

        loader = xd.Loader(self.ds, 16, seed=2)
        self.assertIsInstance(loader, IterableDataset)
        around = DataLoader(loader, batch_size=None, num_workers=0)
        self.assertEqual(len(around), 14)
        expected = [batch.index.tolist() for batch in xd.Loader(self.ds, 16, seed=2)]
        self.assertEqual([batch.index.tolist() for batch in around], expected)
        with self.assertRaisesRegex(RuntimeError, "num_workers=0"):
            list(DataLoader(loader, batch_size=None, num_workers=1))
        # As a map-style data set, in worker processes too.
        generator = torch.Generator().manual_seed(0)
        for workers in [0, 2]:
            sampler = BatchSampler(RandomSampler(self.ds, generator=generator), 20, False)
            batches = list(DataLoader(self.ds, sampler=sampler, batch_size=None, num_workers=workers))
            for batch in batches:
                np.testing.assert_array_equal(dense(batch), self.truth[batch.index])
                self.assertEqual((len(batch), len(batch.obs["donor"])), (batch.shape[0], len(batch.index)))
            self.assertEqual(sorted(torch.cat([batch.index for batch in batches]).tolist()), list(range(218)))
        # With a batch size, as any other data set.
        for workers in [0, 2]:
            batches = list(DataLoader(self.ds, batch_size=20, shuffle=True, num_workers=workers))
            self.assertEqual([len(batch) for batch in batches], [20] * 10 + [18])
            for batch in batches:
                self.assertIsInstance(batch, xd.Batch)
                np.testing.assert_array_equal(dense(batch), self.truth[batch.index])
            self.assertEqual(sorted(torch.cat([batch.index for batch in batches]).tolist()), list(range(218)))
        # Batches of one row each are not taken for the batch that they would be together.
        with self.assertRaisesRegex(TypeError, "20 batches are no batch"):
            next(iter(DataLoader(ConcatDataset([self.ds, self.ds]), batch_size=20)))
        # Samplers of torch in a Loader.
        sampler = BatchSampler(RandomSampler(range(100), generator=generator), 7, True)
        loader = xd.Loader(self.ds, 999, sampler=sampler)
        self.assertEqual((len(loader), len(list(loader))), (14, 14))
        loader = xd.Loader(self.ds, 16, sampler=WeightedRandomSampler([0.0] * 117 + [1.0] * 101, 64))
        self.assertEqual((len(loader), min(batch.index.min().item() for batch in loader) >= 117), (4, True))

    def test_ranks_of_torch(self):
        from torch.utils.data import DistributedSampler

        rows = []
        for rank in range(3):
            sampler = DistributedSampler(range(218), 3, rank, seed=1)
            loader = xd.Loader(self.ds, 10, sampler=sampler, rank=(rank, 3))
            loader.set_epoch(2)
            rows += [row for batch in loader for row in batch.index.tolist()]
        self.assertEqual(len(rows), 219)
        self.assertEqual(set(rows), set(range(218)))

    def test_rows_in_random_order_are_learned_from(self):
        import torch

        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        losses = []
        for _ in range(8):
            for batch in xd.Loader(self.ds, 32, normalize=1e2, log1p=True):
                known = batch.obs["cell_type"] >= 0
                loss = torch.nn.functional.cross_entropy(model(batch.X)[known], batch.obs["cell_type"][known])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertLess(sum(losses[-7:]), sum(losses[:7]))


if __name__ == "__main__":
    unittest.main()
