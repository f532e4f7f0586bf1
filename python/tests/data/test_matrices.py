"""Layers and arrays of obsm beside X; batches that are moved to where they are used."""

import pathlib
import pickle
import time
import unittest

import anndata
import cells
import numpy as np

import expctl.data as xd

try:
    import torch
except ImportError:
    torch = None


class Matrices(unittest.TestCase):
    def setUp(self):
        self.cells = cells.Cells()
        self.addCleanup(self.cells.close)

    def open(self, **options):
        return xd.open(self.cells.files, obs=["n_counts", "cell_type"], **options)

    def test_times_of_all_matrices_are_on_one_clock(self):
        ds = self.open(layers=["halves"], obsm=["X_pca"])
        for threads in (0, 1, 2):
            begin = time.monotonic_ns()
            loader = xd.Loader(ds, 16, threads=threads, out="numpy")
            busy = sum(ns for batch in loader for _, ns, _ in batch.stage_times())
            # No thread works longer than it is there.
            self.assertLessEqual(busy, max(threads, 1) * (time.monotonic_ns() - begin))

    def test_all_matrices_have_the_rows_of_x(self):
        samplers = ["uniform", "sequential", "chunked", xd.chunked(chunk_rows=8, chunks=3), xd.weighted("weight")]
        for format in ("h5ad", "zarr"):
            found = cells.Cells(format)
            self.addCleanup(found.close)
            joined = found.joined("outer")
            x, halves, pca = joined.X.toarray(), joined.layers["halves"].toarray(), joined.obsm["X_pca"].astype("float32")
            for memory in (False, True):
                ds = xd.open(found.files, join="outer", layers=["halves", "X"], obsm=["X_pca"], obs=["n_counts"], memory=memory)
                self.assertEqual((ds.layers, ds.obsm), (["halves", "X"], {"X_pca": 4}))
                for sampler in samplers:
                    for sparse, threads in ((False, 2), (True, 3), (False, 0)):
                        loader = xd.Loader(ds, 16, sampler=sampler, out="numpy", sparse=sparse, threads=threads, normalize=1e4, log1p=True)
                        rows = []
                        for batch in loader:
                            index = batch.index
                            rows.extend(index)
                            for name, expected in (("halves", halves), ("X", x)):
                                layer = batch.layers[name]
                                np.testing.assert_array_equal(dense(layer), expected[index])
                            np.testing.assert_array_equal(batch.obsm["X_pca"], pca[index])
                            np.testing.assert_allclose(batch.obs["n_counts"], joined.obs["n_counts"].to_numpy()[index], rtol=1e-6)
                            sums = x[index].sum(1, keepdims=True)
                            scaled = np.log1p(x[index] / np.where(sums > 0, sums, 1) * 1e4)
                            np.testing.assert_allclose(dense(batch.X), scaled, rtol=1e-5)
                            self.assertEqual(batch.nbytes % 4, 0)
                        if sampler != samplers[-1]:
                            self.assertEqual(sorted(rows)[: len(ds)], sorted(set(rows)))

    def test_genes_and_views_hold_for_layers(self):
        ds = self.open(genes=["g", "a"], layers=["halves"], obsm=["X_pca"])
        joined = self.cells.joined()
        view = ds.subset([200, 3, 77])
        batch = view.read([0, 2, 1], out="numpy")
        rows = [3, 200, 77]
        np.testing.assert_array_equal(batch.layers["halves"], joined[rows, ["g", "a"]].layers["halves"].toarray())
        np.testing.assert_array_equal(batch.obsm["X_pca"], joined.obsm["X_pca"][rows].astype("float32"))
        self.assertIn("layers=['halves'], obsm=['X_pca']", repr(batch))
        self.assertIn("layers=['halves'], obsm=['X_pca']", repr(ds))
        self.assertEqual(self.open().read([1], out="numpy").layers, {})

    def test_what_is_read_is_counted(self):
        def read(**options):
            loader = xd.Loader(self.open(**options), 32, sampler="sequential", out="numpy", threads=1)
            batches = list(loader)
            return sum(batch.bytes_read for batch in batches), sum(batch.nbytes for batch in batches), loader.stages()

        plain, layered = read(), read(layers=["halves"])
        self.assertGreater(layered[0], 1.5 * plain[0])
        rows, genes = self.open().shape
        self.assertEqual(layered[1] - plain[1], rows * genes * 4)
        self.assertGreater(layered[2].busy["read"], 0)

    def test_a_pickled_data_set_and_batch_have_their_matrices(self):
        ds = pickle.loads(pickle.dumps(self.open(layers=["halves"], obsm=["X_pca"])))
        batch = ds.read([5, 6], out="numpy")
        other = pickle.loads(pickle.dumps(batch))
        for of in (batch.layers, batch.obsm):
            self.assertTrue(of)
        np.testing.assert_array_equal(other.layers["halves"], batch.layers["halves"])
        np.testing.assert_array_equal(other.obsm["X_pca"], batch.obsm["X_pca"])

    def test_what_is_not_there_is_refused(self):
        for error, pattern, options in [
            (xd.DataError, "no matrix layers/thirds; it has X, layers/halves", {"layers": ["thirds"]}),
            (xd.DataError, "no matrix obsm/X_umap; it has obsm/X_pca", {"obsm": ["X_umap"]}),
            (ValueError, "is a list of names", {"layers": "halves"}),
            (ValueError, "a name twice", {"obsm": ["X_pca", "X_pca"]}),
            (ValueError, "raw has other genes", {"raw": True, "layers": ["halves"]}),
        ]:
            with self.assertRaisesRegex(error, pattern):
                self.open(**options)
        narrow = anndata.read_h5ad(self.cells.files[1])
        narrow.obsm["X_pca"] = narrow.obsm["X_pca"][:, :3]
        narrow.write_h5ad(self.cells.files[1])
        with self.assertRaisesRegex(ValueError, "obsm/X_pca of .*part1.h5ad has 3 columns, and of .*part0.h5ad 4"):
            self.open(obsm=["X_pca"])
        parquet = cells.Cells("parquet")
        self.addCleanup(parquet.close)
        with self.assertRaisesRegex(ValueError, "parquet files have no layers, and `obsm/X_pca` is asked for"):
            xd.open(parquet.files, obsm=["X_pca"])

    def test_an_obsm_that_is_a_table_is_refused(self):
        one = cells.adata(0, 9, ["a", "b"])
        one.obsm["table"] = one.obs[["n_counts"]]
        path = str(pathlib.Path(self.cells.folder.name, "table.h5ad"))
        one.write_h5ad(path)
        with self.assertRaisesRegex(xd.DataError, "obsm/table"):
            xd.open(path, obsm=["table"])


@unittest.skipIf(torch is None, "torch is not installed")
class Moved(unittest.TestCase):
    def setUp(self):
        self.cells = cells.Cells()
        self.addCleanup(self.cells.close)
        self.ds = xd.open(self.cells.files, obs=["n_counts"], layers=["halves"], obsm=["X_pca"])

    def test_batches_come_on_the_device(self):
        seen = []
        for batch in xd.Loader(self.ds, 32, device="meta", transform=lambda batch: seen.append(batch.X.device.type) or batch):
            tensors = [batch.X, batch.index, batch.obs["n_counts"], batch.layers["halves"], batch.obsm["X_pca"]]
            self.assertEqual({tensor.device.type for tensor in tensors}, {"meta"})
        self.assertEqual(set(seen), {"meta"})
        self.assertEqual(pickle.loads(pickle.dumps(xd.Loader(self.ds, 32, device="meta")))._destination.device, "meta")

    def test_pinning_without_an_accelerator_has_no_effect(self):
        if torch.accelerator.is_available():
            self.assertTrue(next(iter(xd.Loader(self.ds, 32, pin=True))).X.is_pinned())
        else:
            self.assertEqual(len(list(xd.Loader(self.ds, 32, pin=True))), 7)

    def test_arrays_that_are_not_of_torch_are_on_no_device(self):
        for options in ({"device": "cpu"}, {"pin": True}):
            with self.assertRaisesRegex(TypeError, 'this is for out="torch"'):
                xd.Loader(self.ds, 32, out="numpy", **options)


def dense(matrix):
    if not isinstance(matrix, xd.CSR):
        return matrix
    import scipy.sparse

    return scipy.sparse.csr_matrix((matrix.values, matrix.col, matrix.crow), shape=matrix.shape).toarray()


if __name__ == "__main__":
    unittest.main()
