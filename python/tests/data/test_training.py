"""What happens to a loader in a program that is interrupted, fails, or keeps its place with torchdata."""

import gc
import importlib.util
import json
import signal
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells
from test_process import threads_of_loaders, until

HAS_TORCHDATA = importlib.util.find_spec("torchdata") is not None and importlib.util.find_spec("torch") is not None


class TrainingCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()
        cls.ds = xd.open(cls.cells.files, obs=["cell_type"])

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def loader(self, **options):
        return xd.Loader(self.ds, 16, **({"threads": 2, "seed": 5, "out": "numpy"} | options))

    def rows(self, batches):
        return [np.asarray(batch.index).tolist() for batch in batches]


class Failures(TrainingCase):
    def after(self, failed, batches):
        """The loader goes on from its state as if nothing had happened, and so does a new one."""
        expected = self.rows(self.loader())
        state = json.loads(json.dumps(failed.state_dict()))
        self.assertEqual((state["epoch"], state["batch"]), (0, batches))
        gc.collect()
        self.assertTrue(until(lambda: not threads_of_loaders()), threads_of_loaders())
        for loader in [failed, self.loader()]:
            loader.transform = None
            loader.load_state_dict(state)
            self.assertEqual(self.rows(loader), expected[batches:])
        # Without a state the next iteration is the next epoch.
        self.assertEqual(failed.epoch, 1)

    def fail_at(self, number, error):
        calls = []

        def transform(batch):
            calls.append(batch)
            if len(calls) == number:
                error()
            return batch

        return transform

    def raise_mine(self):
        raise KeyError("mine")

    def test_a_transform_that_raises(self):
        for threads in [0, 2]:
            loader = self.loader(threads=threads, transform=self.fail_at(4, self.raise_mine))
            with self.assertRaisesRegex(KeyError, "mine"):
                list(loader)
            # The iteration is over: an iterator that raised does not go on.
            self.after(loader, 3)

    def test_the_iterator_of_a_failed_transform_is_at_its_end(self):
        iterator = iter(self.loader(transform=self.fail_at(2, self.raise_mine)))
        next(iterator)
        with self.assertRaises(KeyError):
            next(iterator)
        self.assertEqual(list(iterator), [])

    def test_an_exception_in_the_loop(self):
        loader = self.loader()
        with self.assertRaisesRegex(ValueError, "loss"):
            for step, _ in enumerate(loader):
                if step == 4:
                    raise ValueError("the loss is not a number")
        self.after(loader, 5)

    def test_an_iterator_that_is_dropped_midway(self):
        loader = self.loader()
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        del iterator
        self.after(loader, 3)
        loader = self.loader()
        for _ in zip(range(3), loader):
            pass
        # zip asks its second argument last.
        self.after(loader, 3)

    def test_an_iterator_that_never_began(self):
        loader = self.loader()
        iterator = iter(loader)
        del iterator
        self.after(loader, 0)

    def test_an_interrupt_in_a_transform_and_in_the_loop(self):
        # It is ignored where a shell started this in the background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        interrupt = lambda: signal.raise_signal(signal.SIGINT)  # noqa: E731
        loader = self.loader(transform=self.fail_at(3, interrupt))
        with self.assertRaises(KeyboardInterrupt):
            list(loader)
        self.after(loader, 2)
        loader = self.loader()
        with self.assertRaises(KeyboardInterrupt):
            for step, _ in enumerate(loader):
                if step == 1:
                    interrupt()
        self.after(loader, 2)


@unittest.skipUnless(HAS_TORCHDATA, "torchdata is not installed")
class Torchdata(TrainingCase):
    def around(self, loader):
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(loader, batch_size=None, num_workers=0)

    def loader(self, **options):
        return super().loader(**({"out": "torch"} | options))

    def test_its_state_is_that_of_the_loader(self):
        for sampler in ["uniform", xd.chunked(7, 3), xd.weighted("weight")]:
            whole = self.around(self.loader(sampler=sampler))
            expected = [self.rows(whole) for _ in range(3)]
            self.assertNotEqual(expected[0], expected[1])
            for stop in [1, 6, len(expected[0])]:
                with self.subTest(sampler=str(sampler), stop=stop):
                    first = self.around(self.loader(sampler=sampler))
                    iterator = iter(first)
                    found = self.rows(next(iterator) for _ in range(stop))
                    state = json.loads(json.dumps(first.state_dict()))
                    other = self.around(self.loader(sampler=sampler))
                    other.load_state_dict(state)
                    # At the last batch the epoch is over, and the next one comes.
                    following = found + self.rows(other) + self.rows(other)
                    self.assertEqual(following[: 2 * len(expected[0])], expected[0] + expected[1])

    def test_after_an_epoch_the_next_one_comes(self):
        whole = self.around(self.loader())
        expected = [self.rows(whole) for _ in range(3)]
        first = self.around(self.loader())
        self.assertEqual(self.rows(first), expected[0])
        other = self.around(self.loader())
        other.load_state_dict(first.state_dict())
        self.assertEqual(self.rows(other), expected[1])
        self.assertEqual(self.rows(other), expected[2])

    def test_another_order_is_refused(self):
        first = self.around(self.loader())
        next(iter(first))
        other = self.around(self.loader(seed=6))
        other.load_state_dict(first.state_dict())
        with self.assertRaisesRegex(ValueError, "seed was 5 and is 6"):
            next(iter(other))


if __name__ == "__main__":
    unittest.main()
