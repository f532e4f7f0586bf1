"""Which rows come when: epochs, ranks, samplers and saved states."""

import itertools
import json
import random
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells, dense


def rows_of(loader):
    return [np.asarray(batch.index).tolist() for batch in loader]


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


class Batches:
    """A sampler that yields batches, as BatchSampler of torch does, and knows its epoch, as DistributedSampler does."""

    def __init__(self, n, batch_size, seed=None):
        self.n, self.batch_size, self.seed, self.epoch = n, batch_size, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        rows = list(range(self.n))
        random.Random(None if self.seed is None else self.seed + self.epoch).shuffle(rows)
        yield from (rows[i : i + self.batch_size] for i in range(0, self.n, self.batch_size))

    def __len__(self):
        return -(-self.n // self.batch_size)


class OrderCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()
        cls.ds = xd.open(cls.cells.files, obs=["cell_type", "n_counts"])
        cls.memory = xd.open(cls.cells.files, memory=True)
        cls.truth = cls.cells.joined().X.toarray()

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def loader(self, batch_size=16, ds=None, **options):
        return xd.Loader(ds or self.ds, batch_size, **({"out": "numpy", "threads": 2} | options))


class Order(OrderCase):
    def test_each_row_once_an_epoch_over_all_ranks(self):
        rng = random.Random(1)
        for sampler in ["uniform", "sequential", "chunked", xd.chunked(7, 3), xd.uniform(range(218)), list(range(218))]:
            for _ in range(6):
                world, batch, drop = rng.randint(1, 5), rng.randint(1, 50), rng.random() < 0.5
                with self.subTest(sampler=str(sampler), world=world, batch=batch, drop=drop):
                    drawn = [
                        rows_of(self.loader(batch, sampler=sampler, rank=(rank, world), drop_last=drop, seed=3))
                        for rank in range(world)
                    ]
                    self.assertEqual(len({len(batches) for batches in drawn}), 1)
                    rows = flat(flat(drawn))
                    if drop:
                        self.assertEqual(len(rows), len(set(rows)))
                        self.assertEqual(len(rows), len(drawn[0]) * batch * world)
                    else:
                        self.assertEqual(set(rows), set(range(218)))
                        self.assertLess(len(rows) - 218, world)

    def test_values_and_columns_are_those_of_the_rows(self):
        counts = np.concatenate([one.obs["n_counts"] for one in self.cells.adatas])
        for sampler in ["uniform", "chunked", "sequential", xd.weighted("weight"), xd.balanced("cell_type"), [5, 5, 9]]:
            for ds, threads in [(self.ds, 0), (self.ds, 3), (self.memory, 2)]:
                for batch in self.loader(sampler=sampler, ds=ds, threads=threads):
                    np.testing.assert_array_equal(dense(batch), self.truth[batch.index])
                    if ds is self.ds:
                        np.testing.assert_array_equal(batch.obs["n_counts"], counts[batch.index])

    def test_epochs_and_seeds_have_orders_of_their_own(self):
        loader = self.loader(seed=5)
        first, second = rows_of(loader), rows_of(loader)
        self.assertNotEqual(first, second)
        loader.set_epoch(0)
        self.assertEqual(rows_of(loader), first)
        self.assertEqual(loader.epoch, 1)
        self.assertNotEqual(rows_of(self.loader(seed=6)), first)
        self.assertEqual(rows_of(self.loader(seed=5, threads=0)), first)
        self.assertEqual(len(loader), 14)
        self.assertEqual(len(self.loader(drop_last=True)), 13)

    def test_weights_and_classes(self):
        loader = self.loader(64, sampler=xd.weighted("weight", rows=20_000))
        rows = np.concatenate([batch.index for batch in loader])
        weight = np.concatenate([one.obs["weight"] for one in self.cells.adatas])
        self.assertEqual(len(rows), 20_000)
        self.assertGreater(np.corrcoef(np.bincount(rows, minlength=218), weight)[0, 1], 0.9)
        loader = self.loader(64, sampler=xd.balanced("cell_type", rows=9_000))
        codes = np.concatenate([batch.obs["cell_type"] for batch in loader])
        self.assertTrue((abs(np.bincount(codes) - 3_000) < 300).all(), np.bincount(codes))

    def test_rows_are_taken_in_their_order_and_a_split_in_another(self):
        rows = np.array([9, 3, 3, 200, 7])
        self.assertEqual(rows_of(self.loader(2, sampler=rows)), [[9, 3], [3, 200], [7]])
        self.assertEqual(rows_of(self.loader(2, sampler=rows, drop_last=True)), [[9, 3], [3, 200]])
        self.assertEqual(rows_of(self.loader(2, sampler=rows, rank=(1, 2))), [[3, 200], [9]])
        mask = np.arange(218) % 2 == 0
        self.assertEqual(flat(rows_of(self.loader(sampler=mask))), list(range(0, 218, 2)))
        split = self.loader(sampler=xd.uniform(mask), seed=2)
        self.assertEqual(sorted(flat(rows_of(split))), list(range(0, 218, 2)))
        self.assertNotEqual(flat(rows_of(split)), list(range(0, 218, 2)))

    def test_samplers_of_others(self):
        loader = self.loader(sampler=Batches(100, 7, seed=1))
        self.assertEqual(len(loader), 15)
        for epoch in [0, 1]:
            expected = Batches(100, 7, seed=1)
            expected.set_epoch(epoch)
            self.assertEqual(rows_of(loader), list(expected))
        self.assertEqual(rows_of(self.loader(sampler=[[4, 5], [1]])), [[4, 5], [1]])
        rows = self.loader(4, sampler=iter(range(10)))
        self.assertEqual(rows_of(rows), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        with self.assertRaisesRegex(TypeError, "batches and single rows"):
            iter(self.loader(sampler=[[1], 2]))
        with self.assertRaisesRegex(TypeError, "has no len"):
            len(rows)

    def test_a_transform_sees_each_batch(self):
        loader = self.loader(transform=lambda batch: (dense(batch).sum(), batch.index.sum()))
        self.assertEqual(sum(int(total[1]) for total in loader), sum(range(218)))


class States(OrderCase):
    """States: saved in the middle and at the end, and what does not fit is refused."""

    def test_resumed_in_the_middle_twice_and_at_the_end(self):
        for sampler in ["uniform", "chunked", xd.weighted("weight"), Batches(100, 7, seed=3), list(range(50))]:
            with self.subTest(sampler=str(sampler)):
                make = lambda: self.loader(sampler=sampler, seed=4)  # noqa: E731
                whole = make()
                expected = [rows_of(whole) for _ in range(3)]
                loader = make()
                list(loader)
                found = []
                for stop in [1, 2]:
                    iterator = iter(loader)
                    found += [next(iterator).index.tolist() for _ in range(stop)]
                    state = json.loads(json.dumps(loader.state_dict()))
                    iterator.close()
                    loader = make()
                    loader.load_state_dict(state)
                    self.assertEqual(loader.epoch, 1)
                    # As training loops do at the start of each epoch, the resumed one included.
                    loader.set_epoch(1)
                self.assertEqual(found + rows_of(loader), expected[1])
                end = loader.state_dict()
                self.assertEqual((end["epoch"], end["batch"]), (2, 0))
                loader = make()
                loader.load_state_dict(end)
                self.assertEqual(rows_of(loader), expected[2])

    def test_threads_that_are_kept_change_no_order(self):
        samplers = ["uniform", "chunked", xd.chunked(7, 3), xd.balanced("cell_type"), list(range(100)), Batches(218, 16, seed=1)]
        for sampler in samplers:
            kept, anew = self.loader(sampler=sampler, persistent=True), self.loader(sampler=sampler)
            for epoch in [None, None, None, 2, 7, None]:
                if epoch is not None:
                    kept.set_epoch(epoch)
                    anew.set_epoch(epoch)
                self.assertEqual(rows_of(kept), rows_of(anew))
                self.assertEqual(kept.state_dict(), anew.state_dict())
            self.assertEqual(kept.stages().rows, anew.stages().rows)
            self.assertEqual(kept.stages().batches, anew.stages().batches)
            iterator = iter(kept)
            next(iterator)
            state = kept.state_dict()
            iterator.close()
            for loader in (kept, anew):
                loader.load_state_dict(state)
            for _ in range(2):
                self.assertEqual(rows_of(kept), rows_of(anew))

    def test_at_the_last_batch_the_epoch_is_over(self):
        loader = self.loader(100)
        for _ in loader:
            state = loader.state_dict()
        self.assertEqual((state["epoch"], state["batch"]), (1, 0))

    def test_another_epoch_leaves_the_middle(self):
        loader = self.loader()
        iterator = iter(loader)
        next(iterator)
        other = self.loader()
        other.load_state_dict(loader.state_dict())
        other.set_epoch(3)
        self.assertEqual(len(rows_of(other)), len(loader))

    def test_an_exception_in_a_transform_leaves_its_batch_to_come(self):
        calls = []

        def transform(batch):
            calls.append(batch.index.tolist())
            if len(calls) == 3:
                raise KeyError("mine")
            return batch

        loader = self.loader(transform=transform)
        with self.assertRaisesRegex(KeyError, "mine"):
            list(loader)
        state = loader.state_dict()
        self.assertEqual(state["batch"], 2)
        loader.load_state_dict(state)
        self.assertEqual(rows_of(loader), rows_of(self.loader())[2:])

    def test_what_does_not_fit_is_refused_with_the_reason(self):
        state = self.loader(seed=1, rank=(0, 2)).state_dict()
        for options, text in [
            ({"rank": (0, 4), "seed": 1}, "world_size was 2 and is 4"),
            ({"rank": (1, 2), "seed": 9}, "seed was 1 and is 9"),
            ({"rank": (1, 2), "seed": 1, "sampler": "chunked"}, r"sampler was 'uniform\(\)' and is 'chunked\(chunks=32\)'"),
        ]:
            with self.assertRaisesRegex(ValueError, text):
                self.loader(**options).load_state_dict(state)
        self.loader(seed=1, rank=(1, 2)).load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "version 7"):
            self.loader().load_state_dict(state | {"version": 7})

    def test_a_sampler_that_draws_others_than_before_is_noticed(self):
        loader = self.loader(sampler=Batches(100, 7))
        next(iter(loader))
        other = self.loader(sampler=Batches(100, 7))
        other.load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(ValueError, "drew other rows"):
            iter(other)

    def test_stages_add_up(self):
        loader = self.loader(threads=2)
        self.assertIn("No batch", loader.explain())
        list(loader)
        times = loader.stages()
        self.assertEqual((times.batches, times.rows), (14, 218))
        self.assertGreater(times.bytes_read, 0)
        self.assertGreater(times.busy["read"], 0)
        self.assertLessEqual(times.waited, times.seconds)
        self.assertIn("waited for batches", loader.explain())
        self.assertIn("collate", str(times))


if __name__ == "__main__":
    unittest.main()
