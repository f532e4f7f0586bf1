"""Which rows come when: epochs, ranks, samplers and saved states."""

import itertools
import json
import random
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells, dense
from expctl.data.times import ADVICE, StageTimes, explain


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


class Unnamed:
    """A sampler of rows, or of batches of so many, that does not say which."""

    def __init__(self, n, per_batch):
        self.n, self.per_batch = n, per_batch

    def __iter__(self):
        rows = list(range(self.n))
        return iter(rows if self.per_batch == 1 else [rows[i : i + self.per_batch] for i in range(0, self.n, self.per_batch)])

    def __len__(self):
        return -(-self.n // self.per_batch)


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
                    loaders = [
                        self.loader(batch, sampler=sampler, rank=(rank, world), drop_last=drop, seed=3) for rank in range(world)
                    ]
                    drawn = [rows_of(loader) for loader in loaders]
                    self.assertEqual(len({len(batches) for batches in drawn}), 1)
                    self.assertEqual({len(loader) for loader in loaders}, {len(drawn[0])})
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

    def test_whether_a_sampler_yields_batches_is_known_when_it_was_iterated(self):
        for per_batch, expected in [(1, 4), (7, 10)]:
            loader = self.loader(20, sampler=Unnamed(70, per_batch))
            with self.assertRaisesRegex(TypeError, "Unnamed yields rows or batches.*no batch_size"):
                len(loader)
            self.assertIn("threads=2)", repr(loader))
            self.assertEqual((len(list(loader)), len(loader)), (expected, expected))

    def test_presets_are_those_of_configs(self):
        for preset, rows, chunks in [("annbatch", 512, 32), ("scdataset", 16, 1024), ("census", 64, 1024), ("merlin", 0, 16)]:
            self.assertEqual(xd.chunked(preset=preset), xd.chunked(rows, chunks))
            self.assertEqual(xd.chunked(7, preset=preset), xd.chunked(7, chunks))
        self.assertEqual(xd.chunked(), xd.chunked(0, 32))
        self.assertEqual(sorted(flat(rows_of(self.loader(sampler=xd.chunked(preset="scdataset"))))), list(range(218)))
        with self.assertRaisesRegex(ValueError, "preset='lamin' is none of merlin, census, annbatch, scdataset"):
            xd.chunked(preset="lamin")

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

    def test_resumed_anywhere_with_any_settings(self):
        rng = random.Random(5)
        samplers = [
            "uniform", "sequential", "chunked", xd.chunked(7, 3), xd.weighted("weight"), xd.balanced("cell_type"), xd.uniform(range(100)),
            list(range(60)),
        ]
        for _ in range(40):
            world = rng.randint(1, 4)
            settings = {
                "sampler": rng.choice(samplers), "rank": (rng.randrange(world), world), "drop_last": rng.random() < 0.5,
                "seed": rng.randrange(1 << 64),
            }
            batch, epoch = rng.randint(1, 12), rng.randrange(2)
            work = lambda: {  # noqa: E731
                "threads": rng.randint(0, 3), "prefetch": rng.choice([None, 1, 3]), "persistent": rng.random() < 0.5,
            }
            whole = self.loader(batch, **settings)
            expected = [rows_of(whole) for _ in range(3)]
            stops = sorted(rng.randint(0, len(whole)) for _ in range(2))
            with self.subTest(batch=batch, epoch=epoch, stops=stops, **{name: str(value) for name, value in settings.items()}):
                loader, found = self.loader(batch, **settings, **work()), []
                loader.set_epoch(epoch)
                for stop in stops:
                    iterator = iter(loader)
                    found += [next(iterator).index.tolist() for _ in range(stop - len(found))]
                    state = json.loads(json.dumps(loader.state_dict()))
                    iterator.close()
                    loader = self.loader(batch, **settings, **work())
                    loader.load_state_dict(state)
                whole_epoch = len(found) == len(whole)
                self.assertEqual(found, expected[epoch][: len(found)])
                self.assertEqual(rows_of(loader), expected[epoch + 1] if whole_epoch else expected[epoch][len(found) :])

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


class Explained(unittest.TestCase):
    def times(self, seconds):
        return StageTimes(10, 160, 5_000_000, seconds, {"read": 1.5, "collate": 0.25, "mask": 0.0}, {"read": 1.0, "collate": 0.5, "mask": 0.0})

    def test_what_holds_a_loop_up(self):
        held, free = (explain(self.times(seconds), 2, "rows", ADVICE) for seconds in (2.0, 100.0))
        self.assertIn("In 1.50 s of it (75%) the program waited", held)
        self.assertIn("It waited longest for read (1.00 s). Reading holds the program up", held)
        self.assertIn("Loading does not hold the program up.", free)
        self.assertIn("There are no loader threads (threads=0)", explain(self.times(2.0), 0, "rows", ADVICE))

    def test_in_a_notebook(self):
        text, times = explain(self.times(2.0), 2, "rows", ADVICE), self.times(2.0)
        self.assertEqual((repr(text), repr(times)), (str(text), str(times)))
        self.assertIn("\n", repr(text))
        self.assertIn("<caption>10 batches, 160 rows, 5.0 MB read in 2.00 s</caption>", times._repr_html_())
        self.assertIn("<td>read</td><td>1.500</td><td>1.000</td>", times._repr_html_())
        self.assertNotIn("mask", times._repr_html_())


if __name__ == "__main__":
    unittest.main()
