"""Threads, files, forks, signals and memory."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells, dense


def threads_of_loaders():
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                names.append(comm.read().strip())
        except OSError:
            pass
    return [name for name in names if name.startswith("loader")]


def open_files():
    return len(os.listdir("/proc/self/fd"))


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def in_fork(work):
    """What `work` returns, or the text of its exception, in a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def sum_of(loader, send):
    send.send((loader.state_dict(), [float(dense(batch).sum()) for batch in loader]))


class Process(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def setUp(self):
        self.ds = xd.open(self.cells.files, obs=["cell_type"])

    def loader(self, batch_size=16, **options):
        return xd.Loader(self.ds, batch_size, **({"out": "numpy", "threads": 2} | options))

    def test_a_hundred_loaders_leave_no_thread_and_no_file(self):
        list(self.loader())
        gc.collect()
        self.assertTrue(until(lambda: not threads_of_loaders()))
        files = open_files()
        for i in range(100):
            loader = self.loader(sampler=["uniform", "chunked"][i % 2], persistent=i % 4 < 2)
            if i % 4 == 0:
                list(loader)
            iterator = iter(loader)
            next(iterator)
            if i % 3 == 0:
                # Without an end of its own: a generator that is dropped midway.
                del iterator
        del loader
        iterator = None
        gc.collect()
        self.assertTrue(until(lambda: not threads_of_loaders()), threads_of_loaders())
        self.assertLessEqual(open_files(), files)

    def test_data_sets_close_their_files(self):
        files = open_files()
        for _ in range(20):
            self.assertEqual(len(xd.open(self.cells.files)), 218)
        gc.collect()
        self.assertLessEqual(open_files(), files)
        with xd.open(self.cells.files, layers=["halves"], obsm=["X_pca"]) as ds:
            ds[0]
            names = ds.obs_names
        self.assertEqual((len(names), ds.closed), (218, True))
        self.assertLessEqual(open_files(), files)

    def test_batches_outlive_their_loader(self):
        batches = list(self.loader())
        truth = self.cells.joined().X.toarray()
        del self.ds
        gc.collect()
        for batch in batches:
            np.testing.assert_array_equal(batch.X, truth[batch.index])
        x = batches[0].X
        rows = batches[0].index.tolist()
        del batches, batch
        gc.collect()
        np.testing.assert_array_equal(x, truth[rows])

    def test_arrays_are_not_copied_may_be_written_to_and_their_memory_is_used_again(self):
        loader = self.loader(threads=1, prefetch=1)
        seen = set()
        for batch in loader:
            self.assertTrue(batch.X.flags.writeable)
            self.assertFalse(batch.X.flags.owndata)
            batch.X[:] = -1
            seen.add(batch.X.__array_interface__["data"][0])
        self.assertLess(len(seen), len(loader) // 2)
        for batch in self.loader():
            self.assertGreaterEqual(batch.X.min(), 0)

    def test_pickled_for_spawn_it_goes_on_where_it_was(self):
        loader = self.loader(seed=3)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        context = multiprocessing.get_context("spawn")
        receive, send = context.Pipe()
        resumed = self.loader(seed=3)
        resumed.load_state_dict(state)
        child = context.Process(target=sum_of, args=(resumed, send))
        child.start()
        found_state, sums = receive.recv()
        child.join()
        self.assertEqual(found_state, state)
        self.assertEqual(sums, [float(dense(batch).sum()) for batch in iterator])
        copy = pickle.loads(pickle.dumps(self.ds))
        self.assertEqual((copy.shape, copy.classes), (self.ds.shape, self.ds.classes))
        for out, sparse in [("numpy", False), ("numpy", True), ("scipy", True)]:
            batch = self.ds.read([3, 5], out=out, sparse=sparse)
            sent = pickle.loads(pickle.dumps(batch))
            np.testing.assert_array_equal(dense(sent), dense(batch))
            self.assertEqual(sent.index.tolist(), [3, 5])
            self.assertEqual((repr(sent), sent.stage_times()), (repr(batch), batch.stage_times()))

    def test_a_fork_before_any_thread_reads_as_its_parent(self):
        self.assertTrue(until(lambda: not threads_of_loaders()))
        loader = self.loader(seed=1)
        expected = [batch.index.tolist() for batch in self.loader(seed=1)]
        self.assertEqual(in_fork(lambda: [batch.index.tolist() for batch in loader]), str(expected))
        self.assertEqual(in_fork(lambda: dense(self.ds[3]).sum()), str(dense(self.ds[3]).sum()))

    def test_a_loaded_state_holds_in_a_fork_and_after_it(self):
        first = self.loader(seed=3)
        iterator = iter(first)
        next(iterator), next(iterator)
        state = first.state_dict()
        rest = [batch.index.tolist() for batch in iterator]
        self.assertEqual(len(rest), 12)
        self.assertTrue(until(lambda: not threads_of_loaders()))
        resumed = self.loader(seed=3)
        resumed.load_state_dict(state)
        rows = lambda: [batch.index.tolist() for batch in resumed]  # noqa: E731
        self.assertEqual(in_fork(rows), str(rest))
        self.assertEqual(rows(), rest)

    def test_a_fork_while_threads_run_is_refused_with_the_reason(self):
        loader = self.loader(prefetch=8)
        iterator = iter(loader)
        batch = next(iterator)
        for work in [lambda: next(iterator), lambda: list(self.loader()), lambda: self.ds[3]]:
            text = in_fork(work)
            self.assertIn("RuntimeError", text)
            self.assertIn("spawn", text)
        self.assertIn("process", in_fork(lambda: next(iterator)))
        # What was loaded is there, and neither its end nor that of the iterator hangs.
        def leave():
            nonlocal batch, iterator
            found = batch.X.sum()
            del batch, iterator
            gc.collect()
            return found
        expected = str(batch.X.sum())
        self.assertEqual(in_fork(leave), expected)

    def test_other_threads_run_while_a_batch_is_waited_for(self):
        # Nobody builds the batch before the stream is asked, on this thread; the other must count meanwhile.
        big = xd.Loader(self.ds, 20_000, sampler=np.arange(218).repeat(500),
                        threads=0, out="numpy")
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0)

        thread = threading.Thread(target=count)
        thread.start()
        try:
            for batch in big:
                before = counted[0]
        finally:
            done.set()
            thread.join()
        self.assertGreater(counted[0], 10)
        self.assertGreater(before, 0)

    def test_interrupts_end_the_wait_at_once(self):
        # Batches of two million rows: each takes a while.
        program = """
import os, signal, sys, threading, time
import numpy as np
import expctl.data as xd
# It is ignored where a shell started this in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
ds = xd.open(sys.argv[1])
rows = np.arange(101).repeat(20000)
loader = xd.Loader(ds, len(rows), sampler=rows, threads=1, out="numpy", sparse=True)
def load():
    for batch in loader:
        pass
def read():
    ds.read(rows, out="numpy", sparse=True)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    for _ in range(1000):
        globals()[sys.argv[2]]()
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - begun)
"""
        for what in ["load", "read"]:
            run = subprocess.run(
                [sys.executable, "-c", program, self.cells.files[0], what], capture_output=True, text=True, timeout=60
            )
            self.assertTrue(run.stdout.startswith("interrupted after"), run.stdout + run.stderr)
            self.assertLess(float(run.stdout.split()[-1]), 3)

    def test_two_iterations_at_a_time(self):
        loader = self.loader(seed=1)
        pairs = list(zip(loader, loader))
        self.assertEqual(len(pairs), len(loader))
        self.assertNotEqual(pairs[0][0].index.tolist(), pairs[0][1].index.tolist())

    def test_memory_does_not_grow(self):
        def resident():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def load(rows):
            loader = self.loader(256, sampler=xd.weighted("weight", rows=rows), sparse=True)
            return sum(len(batch) for batch in loader)

        load(50_000)
        gc.collect()
        before = resident()
        self.assertEqual(load(1_000_000), 1_000_000)
        gc.collect()
        self.assertLess(resident() - before, 16 << 20)

    def test_ranks_from_the_environment(self):
        self.assertEqual(self.loader().rank, (0, 1))
        os.environ |= {"RANK": "2", "WORLD_SIZE": "3"}
        try:
            self.assertEqual(self.loader().rank, (2, 3))
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
