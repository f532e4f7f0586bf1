"""What is read is what anndata reads: `python -m unittest discover python/tests/data`."""

import os
import pathlib
import unittest
import warnings

import anndata
import numpy as np
import pandas as pd
import scipy.sparse

import expctl.data as xd
from cells import Cells, dense

ROWS = [0, 217, 5, 5, 100, 101, 167, 168, 3]


def plain(matrix):
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)


class Reading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def test_rows_of_all_formats_and_joins_are_those_of_concat(self):
        for format, sparse in [("h5ad", True), ("h5ad", False), ("zarr", True), ("zarr", False), ("parquet", True)]:
            cells = Cells(format, sparse)
            self.addCleanup(cells.close)
            for join in ["inner", "outer"]:
                for memory in [False, True]:
                    with self.subTest(format=format, sparse=sparse, join=join, memory=memory):
                        truth = cells.joined(join)
                        ds = xd.open(cells.files, join=join, memory=memory)
                        self.assertEqual(ds.shape, truth.shape)
                        self.assertEqual(ds.var_names, list(truth.var_names))
                        self.assertEqual(ds.in_memory, memory)
                        np.testing.assert_array_equal(dense(ds[ROWS]), plain(truth.X)[ROWS])
                        for out, is_sparse in [("numpy", False), ("numpy", True), ("scipy", True), ("dlpack", True)]:
                            batch = ds.read(ROWS, out=out, sparse=is_sparse)
                            np.testing.assert_array_equal(dense(batch), plain(truth.X)[ROWS])
                            np.testing.assert_array_equal(np.from_dlpack(batch.index), ROWS)

    def test_what_the_loaders_warn_of_is_a_warning_of_python(self):
        one = self.cells.adatas[0].copy()
        one.X = scipy.sparse.csc_matrix(one.X)
        path = os.path.join(self.cells.folder.name, "columns.h5ad")
        one.write_h5ad(path)
        with self.assertWarnsRegex(UserWarning, r"stored by columns \(CSC\).*columns\.h5ad"):
            read = xd.open(path)[:]
        np.testing.assert_array_equal(dense(read), plain(one.X))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaisesRegex(UserWarning, "CSC"):
                xd.open(path)[:]
            # It was said once.
            np.testing.assert_array_equal(dense(xd.open(self.cells.files[0])[[0]]), plain(self.cells.adatas[0].X)[[0]])

    def test_layers_raw_and_genes(self):
        one = self.cells.adatas[0]
        ds = xd.open(self.cells.files[0], layer="halves")
        np.testing.assert_array_equal(dense(ds[:]), one.layers["halves"].toarray())
        ds = xd.open(self.cells.files[0], genes=["f", "b"])
        self.assertEqual((ds.shape, ds.var_names), ((101, 2), ["f", "b"]))
        for genes in [one.var_names[[5, 1]], np.array(["f", "b"]), ("f", "b")]:
            self.assertEqual(xd.open(self.cells.files[0], genes=genes).var_names, ["f", "b"])
        np.testing.assert_array_equal(dense(ds[:]), one[:, ["f", "b"]].X.toarray())
        raw = one.copy()
        raw.raw = one
        raw = raw[:, ["a"]].copy()
        path = os.path.join(self.cells.folder.name, "raw.h5ad")
        raw.write_h5ad(path)
        np.testing.assert_array_equal(dense(xd.open(path, raw=True)[:]), one.X.toarray())
        self.assertEqual(xd.open(path).shape, (101, 1))

    def test_indices_as_of_a_list(self):
        ds = xd.open(self.cells.files)
        truth = self.cells.joined().X.toarray()
        self.assertEqual(len(ds), 218)
        for key in [slice(None), slice(3, 90, 7), slice(-5, None), slice(5, 5), [7], np.array([3, 1]), truth[:, 0] > 0]:
            np.testing.assert_array_equal(dense(ds[key]), truth[key])
        np.testing.assert_array_equal(dense(ds[-1]), truth[[-1]])
        np.testing.assert_array_equal(dense(ds[np.int64(4)]), truth[[4]])
        for wrong in [218, -219, [218], [-1]]:
            with self.assertRaises(IndexError):
                ds[wrong]

    def test_normalized_as_scanpy_does_over_all_genes(self):
        counts = self.cells.adatas[0].X.toarray()
        sums = counts.sum(1, keepdims=True)
        expected = np.log1p(counts * np.where(sums > 0, 1e4 / np.where(sums > 0, sums, 1), 1))[:, [5, 1]]
        ds = xd.open(self.cells.files[0], genes=["f", "b"])
        np.testing.assert_allclose(dense(ds.read(range(101), normalize=1e4, log1p=True)), expected, rtol=1e-5)

    def test_dtypes_are_copies_of_the_same_values(self):
        ds = xd.open(self.cells.files[0])
        for dtype in ["float64", "float16", np.float64]:
            batch = ds.read([1, 2], out="numpy", dtype=dtype)
            self.assertEqual(batch.X.dtype, np.dtype(dtype))
            np.testing.assert_array_equal(batch.X, self.cells.adatas[0].X[[1, 2]].toarray())

    def test_a_pattern_and_the_order_of_names(self):
        ds = xd.open(os.path.join(self.cells.folder.name, "part*.h5ad"))
        self.assertEqual(ds.files, self.cells.files)
        self.assertEqual(xd.open([pathlib.Path(f) for f in self.cells.files]).shape, ds.shape)


class Annotations(unittest.TestCase):
    def setUp(self):
        self.cells = Cells()
        self.addCleanup(self.cells.close)
        self.obs = anndata.concat(self.cells.adatas).obs

    def test_columns_of_a_batch(self):
        columns = {"cell_type": "auto", "n_counts": "auto", "score": "float64", "plate": "auto", "good": "auto",
                   "donor": "text"}
        for format in ["h5ad", "zarr", "parquet"]:
            with self.subTest(format=format):
                cells = Cells(format)
                self.addCleanup(cells.close)
                ds = xd.open(cells.files, obs=columns)
                batch = ds.read(ROWS, out="numpy")
                obs = self.obs.iloc[ROWS]
                names = ds.classes["cell_type"]
                self.assertEqual(batch.obs["cell_type"].dtype, np.int64)
                found = [names[code] if code >= 0 else None for code in batch.obs["cell_type"]]
                truth = [None if kind != kind else kind for kind in obs["cell_type"].astype(object)]
                self.assertEqual(found, truth)
                self.assertEqual(batch.obs["n_counts"].dtype, np.float32)
                np.testing.assert_array_equal(batch.obs["n_counts"], obs["n_counts"].to_numpy("float32"))
                np.testing.assert_array_equal(batch.obs["score"], obs["score"])
                self.assertEqual(batch.obs["plate"].dtype, np.int64)
                np.testing.assert_array_equal(batch.obs["plate"], obs["plate"])
                self.assertEqual([ds.classes["good"][code] for code in batch.obs["good"]], [str(x) for x in obs["good"]])
                self.assertEqual(list(batch.obs["donor"]), list(obs["donor"]))
                self.assertEqual(ds.read(ROWS, out="dlpack").obs["donor"], list(obs["donor"]))

    def test_obs_is_that_of_anndata(self):
        ds = xd.open(self.cells.files)
        frame = ds.obs.to_pandas()
        self.assertEqual(list(frame.columns), list(self.obs.columns))
        self.assertEqual(list(frame.index), list(self.obs.index))
        self.assertEqual(ds.obs_names, list(self.obs.index))
        for name in frame:
            truth = self.obs[name]
            if name in ("cell_type", "donor"):
                frame[name], truth = frame[name].astype(object), truth.astype(object)
            self.assertTrue(frame[name].equals(truth.astype(frame[name].dtype)), name)
        self.assertEqual(frame["good"].dtype, bool)
        self.assertEqual(set(ds.obs), set(self.obs.columns))
        # Nothing is read to know what there is.
        fresh = xd.open(self.cells.files).obs
        self.assertEqual(("donor" in fresh, "tissue" in fresh, fresh.get("tissue"), fresh._read), (True, False, None, {}))
        self.assertEqual(fresh.get("donor").tolist(), self.obs["donor"].tolist())

    def test_numbers_as_classes_and_classes_as_numbers(self):
        ds = xd.open(self.cells.files, obs={"plate": "class", "good": "float32"})
        self.assertEqual(ds.classes["plate"], ["-1", "0", "1", "2", "3"])
        batch = ds.read([0, 1, 5], out="numpy")
        np.testing.assert_array_equal(batch.obs["plate"], [0, 1, 0])
        np.testing.assert_array_equal(batch.obs["good"], self.obs["good"].iloc[[0, 1, 5]].astype("float32"))
        with self.assertRaisesRegex(ValueError, "column 'n_counts'|column \"score\" has"):
            xd.open(self.cells.files, obs={"score": "int64"})


class Mistakes(unittest.TestCase):
    def setUp(self):
        self.cells = Cells()
        self.addCleanup(self.cells.close)

    def refused(self, kind, text, call):
        with self.assertRaisesRegex(kind, text):
            call()

    def test_what_cannot_be_opened_says_why(self):
        file = self.cells.files[0]
        self.refused(FileNotFoundError, "gone.h5ad", lambda: xd.open("gone.h5ad"))
        self.refused(FileNotFoundError, "no file matches", lambda: xd.open("/nothing/*.h5ad"))
        self.refused(xd.DataError, "obs has no column \"cell_typ\".*cell_type", lambda: xd.open(file, obs=["cell_typ"]))
        self.refused(xd.DataError, "is none of the 7 genes", lambda: xd.open(file, genes=["q"]))
        for genes in ["ab", [], np.array([])]:
            self.refused(ValueError, "is a list of names, and None is all", lambda: xd.open(file, genes=genes))
        self.refused(xd.DataError, "layers/none", lambda: xd.open(file, layer="none"))
        self.refused(ValueError, "raw has no layers", lambda: xd.open(file, layer="halves", raw=True))
        self.refused(ValueError, "neither \"inner\" nor", lambda: xd.open(file, join="left"))
        self.refused(ValueError, "does not say its format", lambda: xd.open(__file__))
        self.refused(ValueError, "format \"loom\" is none", lambda: xd.open(file, format="loom"))
        self.refused(ValueError, "none of auto, class", lambda: xd.open(file, obs={"score": "int8"}))
        with open(os.path.join(self.cells.folder.name, "text.h5ad"), "w") as text:
            text.write("no HDF5" * 1000)
        self.refused((xd.DataError, OSError), "text.h5ad", lambda: xd.open(text.name))

    def test_arguments_of_a_loader(self):
        ds = xd.open(self.cells.files)
        for kind, text, options in [
            (ValueError, "none of uniform, sequential, chunked; it needs a column", {"sampler": "weighted"}),
            (ValueError, "dtype='int8' is none of", {"dtype": "int8"}),
            (ValueError, "out='jax' is none of", {"out": "jax"}),
            (ValueError, "for sparse values", {"out": "scipy", "sparse": False}),
            (ValueError, "neither \"auto\" nor", {"rank": 3}),
            (ValueError, "below their number", {"rank": (2, 2)}),
            (ValueError, "1 at least", {"batch_size": 0}),
            (ValueError, "no batch", {"batch_size": 1000, "drop_last": True}),
            (ValueError, "no sum that rows can have", {"normalize": -1.0}),
            (IndexError, "row 218 is listed", {"sampler": [3, 218]}),
            (IndexError, "row -1 is listed", {"sampler": [-1]}),
            (xd.DataError, "weights in donor|holds strings|has classes", {"sampler": xd.weighted("donor")}),
            (xd.DataError, "no column \"kind\"", {"sampler": xd.balanced("kind")}),
            (TypeError, "rows are integers", {"sampler": np.array([0.5])}),
            (ValueError, "threads=-1 is 0 at least", {"threads": -1}),
            (ValueError, "prefetch=0 are 1 at least", {"prefetch": 0}),
            (TypeError, "normalize=True: it is the sum", {"normalize": True}),
        ]:
            options = {"out": "numpy"} | options
            with self.subTest(**options):
                self.refused(kind, text, lambda: next(iter(xd.Loader(ds, **options))))
        self.refused(TypeError, "what expctl.data.open gives", lambda: xd.Loader([1], out="numpy"))
        self.refused(TypeError, "normalize=True: it is the sum", lambda: ds.read([0], out="numpy", normalize=True))
        for draw in [xd.weighted, xd.balanced]:
            self.refused(TypeError, rf"{draw.__name__}\(ndarray\): it takes the name of an obs column", lambda: draw(np.ones(218)))

    def test_a_mask_of_another_data_set_is_refused(self):
        ds = xd.open(self.cells.files)
        view = ds.subset(range(100))
        for mask in [np.ones(217, dtype=bool), np.ones(219, dtype=bool), [True] * 100, pd.Series([True, False])]:
            for use in [
                lambda: ds[mask], lambda: ds.subset(mask), lambda: xd.Loader(ds, 8, sampler=mask, out="numpy"),
                lambda: xd.Loader(ds, 8, sampler=xd.uniform(mask), out="numpy"),
            ]:  # fmt: skip
                self.refused(IndexError, f"a mask of {len(mask)} truth values is given, and there are 218 rows", use)
        self.refused(IndexError, "there are 100 rows", lambda: view[np.ones(218, dtype=bool)])
        self.assertEqual(len(view[np.arange(100) < 7]), 7)

    def test_a_closed_data_set_says_so(self):
        with xd.open(self.cells.files, obs=["cell_type"], layers=["halves"]) as ds:
            loader = xd.Loader(ds, 16, out="numpy", threads=1)
            iterator = iter(loader)
            next(iterator)
            view = ds.subset([3, 1])
        for use in [
            lambda: ds[0], lambda: len(ds), lambda: ds.shape, lambda: ds.obs, lambda: ds.var_names, lambda: ds.subset([1]),
            lambda: xd.Loader(ds, 16, out="numpy"), lambda: next(iter(loader)),
        ]:  # fmt: skip
            self.refused(ValueError, "this data set was closed", use)
        self.assertEqual((repr(ds), ds.closed, view.closed), ("Dataset(closed, 3 files)", True, False))
        # Views and what was begun go on.
        self.assertEqual(len(list(iterator)), 13)
        self.assertEqual(view.read([0, 1], out="numpy").X.tolist(), self.cells.joined().X.toarray()[[1, 3]].tolist())
        ds.close()

    def test_a_file_that_is_removed_ends_the_iteration(self):
        loader = iter(xd.Loader(xd.open(self.cells.files[0]), 4, threads=1, prefetch=1, out="numpy"))
        next(loader)
        os.remove(self.cells.files[0])
        with self.assertRaisesRegex(OSError, "part0.h5ad"):
            list(loader)

    def test_a_file_that_changes_ends_the_iteration(self):
        ds = xd.open(self.cells.files[0])
        loader = iter(xd.Loader(ds, 4, threads=1, prefetch=1, out="numpy"))
        next(loader)
        with open(self.cells.files[0], "r+b") as file:
            file.seek(0, 2)
            file.write(b"more")
        with self.assertRaisesRegex(OSError, "was rewritten while it was read"):
            list(loader)


if __name__ == "__main__":
    unittest.main()
