"""Filters and splits: views of some rows, and loaders of them."""

import itertools
import json
import pickle
import random
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells, dense
from test_order import Batches

N = 218


class ViewCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()
        cls.ds = xd.open(cls.cells.files, obs=["cell_type", "n_counts"])
        cls.joined = cls.cells.joined()
        cls.truth = cls.joined.X.toarray()
        cls.even = cls.ds.subset(range(0, N, 2))

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def loader(self, ds, batch_size=16, **options):
        return xd.Loader(ds, batch_size, **({"out": "numpy", "threads": 2} | options))

    def rows(self, loader):
        """Rows of the files, and checks that the batches are of them."""
        found = []
        for batch in loader:
            rows = loader.dataset.rows[batch.index]
            np.testing.assert_array_equal(dense(batch), self.truth[rows])
            np.testing.assert_array_equal(batch.obs["n_counts"], self.joined.obs["n_counts"].to_numpy()[rows])
            found.append(rows.tolist())
        return found


class Filters(ViewCase):
    def test_rows_are_those_of_pandas(self):
        for query in ["n_counts > 400", "cell_type == 'NK'", "cell_type.isna()", "good and plate >= 2", "donor in ['donor 1']",
                      "index.str.startswith('cell 1')", "`score` < 0.5 or weight > 1", "cell_type == 'donor'"]:
            truth = np.flatnonzero(self.joined.obs.index.isin(self.joined.obs.query(query, engine="python").index))
            with self.subTest(query=query):
                if not len(truth):
                    with self.assertRaisesRegex(xd.DataError, "none of 218 rows"):
                        xd.open(self.cells.files, filter=query)
                    continue
                ds = xd.open(self.cells.files, obs=["n_counts"], filter=query)
                np.testing.assert_array_equal(ds.rows, truth)
                self.assertEqual((len(ds), ds.shape), (len(truth), (len(truth), 3)))
                self.assertEqual(ds.obs_names, list(self.joined.obs_names[truth]))
                self.assertEqual(ds.obs["n_counts"].tolist(), self.joined.obs["n_counts"].iloc[truth].tolist())
                self.assertEqual(ds.obs.to_pandas().shape, (len(truth), 7))
                np.testing.assert_array_equal(dense(ds[:]), self.truth[truth])
                np.testing.assert_array_equal(dense(ds[-1]), self.truth[truth[-1:]])
                self.assertEqual(sorted(itertools.chain(*self.rows(self.loader(ds)))), truth.tolist())

    def test_what_is_no_filter_is_refused(self):
        for query, text in [("tissue == 'lung'", "tissue.*donor"), ("n_counts >", "n_counts"), ("@x > 1", "@")]:
            with self.assertRaisesRegex(xd.DataError, text):
                xd.open(self.cells.files, filter=query)
        with self.assertRaisesRegex(TypeError, "not a int"):
            xd.open(self.cells.files, filter=3)

    def test_only_the_columns_that_it_names_are_read(self):
        ds = xd.open(self.cells.files)
        xd_rows = __import__("expctl.data.views", fromlist=["matching"]).matching(ds, "n_counts > 400 and donor != 'plate'")
        self.assertEqual(set(ds.obs._read), {"n_counts", "donor"})
        self.assertGreater(len(xd_rows), 0)


class Splits(ViewCase):
    def test_parts_have_each_row_once(self):
        for seed in range(5):
            parts = self.ds.split((0.8, 0.1, 0.1), seed=seed)
            self.assertEqual(sorted(np.concatenate([part.rows for part in parts])), list(range(N)))
            self.assertEqual([len(part) for part in parts], [174, 22, 22])
            again = self.ds.split((0.8, 0.1, 0.1), seed=seed)
            self.assertEqual([part.rows.tolist() for part in parts], [part.rows.tolist() for part in again])
        self.assertNotEqual(parts[0].rows.tolist(), self.ds.split((0.8, 0.1, 0.1), seed=9)[0].rows.tolist())
        self.assertEqual([len(part) for part in self.ds.split((0.25, 0.25))], [54, 55])
        self.assertIs(type(parts[0]), xd.Dataset)
        self.assertIn("174 of 218 rows", repr(parts[0]))

    def test_open_splits(self):
        train, test = xd.open(self.cells.files, obs=["n_counts"], filter="n_counts > 300", split=(0.75, 0.25), split_seed=2)
        whole = xd.open(self.cells.files, filter="n_counts > 300")
        self.assertEqual([part.rows.tolist() for part in whole.split((0.75, 0.25), seed=2)], [train.rows.tolist(), test.rows.tolist()])
        self.assertEqual(sorted([*train.rows, *test.rows]), whole.rows.tolist())
        np.testing.assert_array_equal(dense(pickle.loads(pickle.dumps(test))[:]), self.truth[test.rows])
        for split in ["train", 0.8, 1]:
            with self.assertRaisesRegex(TypeError, "shares of a split are several"):
                xd.open(self.cells.files, split=split)

    def test_groups_stay_together_and_classes_are_divided(self):
        donors = self.joined.obs["donor"].to_numpy()
        for seed in range(4):
            parts = self.ds.split((0.6, 0.2, 0.2), seed=seed, by="donor")
            groups = [set(donors[part.rows]) for part in parts]
            self.assertEqual([len(group) for group in groups], [1, 1, 1])
            self.assertEqual(len(set.union(*groups)), 3)
            parts = self.ds.split((0.5, 0.5), seed=seed, stratify="cell_type")
            for name in ["NK", "B cell", "T cell"]:
                counts = [(part.obs["cell_type"] == name).sum() for part in parts]
                self.assertLessEqual(abs(counts[0] - counts[1]), 1)
        plates = self.ds.split((0.6, 0.2), by="plate")
        self.assertEqual([part.obs["plate"].nunique() for part in plates], [3, 1])

    def test_views_are_of_the_same_open_files(self):
        for ds in [self.ds, xd.open(self.cells.files, memory=True)]:
            for view in [ds.subset([1]), *ds.split((0.5, 0.5)), ds.subset([1, 2]).subset([0])]:
                self.assertIs(view._native, ds._native)

    def test_views_of_views(self):
        lung = xd.open(self.cells.files, obs=["n_counts"], filter="n_counts > 300")
        train, test = lung.split((0.5, 0.5), seed=1)
        self.assertEqual(sorted([*train.rows, *test.rows]), lung.rows.tolist())
        copy = pickle.loads(pickle.dumps(train))
        np.testing.assert_array_equal(copy.rows, train.rows)
        self.assertEqual(copy.obs["n_counts"].tolist(), train.obs["n_counts"].tolist())
        np.testing.assert_array_equal(dense(copy[:5]), self.truth[train.rows[:5]])

    def test_what_cannot_be_split(self):
        for fractions, options, text in [((0.8, 0.3), {}, "1 at most"), ((0, 1), {}, "above 0"), ((0.999, 0.001), {}, "none of"),
                                         ((0.2,) * 5, {"by": "donor"}, "3 groups"),
                                         ((0.5, 0.5), {"by": "donor", "stratify": "cell_type"}, "choose one")]:
            with self.assertRaisesRegex(ValueError, text):
                self.ds.split(fractions, **options)
        with self.assertRaises(xd.DataError):
            self.ds.split((0.5, 0.5), by="tissue")


class LoadersOfViews(ViewCase):
    samplers = ["uniform", "sequential", "chunked", xd.chunked(7, 3), xd.uniform(range(10, 60)), list(range(50, 0, -1))]

    def test_each_row_once_an_epoch_over_all_ranks(self):
        rng = random.Random(2)
        for sampler in self.samplers:
            for _ in range(4):
                world, batch, drop = rng.randint(1, 4), rng.randint(1, 30), rng.random() < 0.5
                with self.subTest(sampler=str(sampler), world=world, batch=batch, drop=drop):
                    options = {"sampler": sampler, "drop_last": drop, "seed": 3}
                    loaders = [self.loader(self.even, batch, rank=(rank, world), **options) for rank in range(world)]
                    drawn = [self.rows(loader) for loader in loaders]
                    self.assertEqual({len(batches) for batches in drawn}, {len(loaders[0])})
                    rows = list(itertools.chain(*itertools.chain(*drawn)))
                    whole = sorted(itertools.chain(*self.rows(self.loader(self.even, **options | {"drop_last": False}))))
                    self.assertEqual(len(set(whole)), len(whole))
                    if drop:
                        self.assertEqual(len(rows), len(set(rows)))
                        self.assertTrue(set(rows) <= set(whole))
                    else:
                        self.assertEqual(set(rows), set(whole))
        self.assertEqual(whole, sorted(2 * row for row in range(1, 51)))

    def test_orders(self):
        self.assertEqual(self.rows(self.loader(self.even, 40, sampler="sequential"))[0], list(range(0, 80, 2)))
        self.assertEqual(self.rows(self.loader(self.even, 2, sampler=[5, 5, 9])), [[10, 10], [18]])
        self.assertEqual(self.rows(self.loader(self.even, sampler=[[4, 5], [1]])), [[8, 10], [2]])
        loader = self.loader(self.even, sampler=xd.chunked(10, 2))
        first = list(itertools.chain(*self.rows(loader)))
        # Two chunks of ten, or three where one is the end of a file.
        block = sorted(first[:20])
        self.assertLessEqual(sum(after - row != 2 for row, after in zip(block, block[1:])), 2)
        self.assertNotEqual(block, first[:20])
        self.assertNotEqual(first, list(itertools.chain(*self.rows(loader))))
        with self.assertRaisesRegex(IndexError, "row 109 .* 109 rows"):
            self.loader(self.even, sampler=[109])
        with self.assertRaisesRegex(IndexError, "there are 109 rows"):
            self.even[[3, -1]]
        with self.assertRaisesRegex(ValueError, "no rows"):
            self.ds.subset([])
        with self.assertRaisesRegex(IndexError, "row 218"):
            self.ds.subset([1, 218])

    def test_weights_and_classes_are_of_the_view(self):
        loader = self.loader(self.even, 64, sampler=xd.weighted("weight", rows=20_000))
        rows = np.concatenate(self.rows(loader))
        counts = np.bincount(rows, minlength=N)
        self.assertEqual((len(rows), counts[1::2].sum()), (20_000, 0))
        self.assertGreater(np.corrcoef(counts[::2], self.joined.obs["weight"].to_numpy()[::2])[0, 1], 0.9)
        loader = self.loader(self.even, 64, sampler=xd.balanced("cell_type", rows=9_000))
        codes = np.concatenate([batch.obs["cell_type"] for batch in loader])
        self.assertTrue((abs(np.bincount(codes) - 3_000) < 300).all(), np.bincount(codes))
        with self.assertRaisesRegex(xd.DataError, "classes, and no numbers"):
            self.loader(self.even, sampler=xd.weighted("cell_type"))
        with self.assertRaisesRegex(xd.DataError, "row .* has -1"):
            self.loader(self.even, sampler=xd.weighted("plate"))

    def test_states(self):
        draws = ["uniform", "chunked", xd.weighted("weight"), xd.balanced("cell_type"), Batches(100, 7, seed=3)]
        for sampler in draws:
            with self.subTest(sampler=str(sampler)):
                make = lambda: self.loader(self.even, sampler=sampler, seed=4)  # noqa: E731
                whole = make()
                expected = [self.rows(whole) for _ in range(2)]
                loader = make()
                list(loader)
                iterator = iter(loader)
                next(iterator), next(iterator)
                for resumed in [make(), pickle.loads(pickle.dumps(make()))]:
                    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
                    self.assertEqual(self.rows(resumed), expected[1][2:])
        odd = self.ds.subset(range(1, N, 2))
        with self.assertRaisesRegex(ValueError, "view was"):
            self.loader(odd).load_state_dict(self.loader(self.even).state_dict())


if __name__ == "__main__":
    unittest.main()
