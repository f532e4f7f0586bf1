"""The loader on torch's DataLoader, and on PyG's where that is installed: `python -m unittest discover python/tests`."""

import contextlib
import importlib.util
import io
import json
import time
import unittest

import expctl
import torch
from expctl.table import Table
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Slow(Dataset):
    extra = 5

    def __len__(self):
        return 24

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((8,), float(i))


class Stream(IterableDataset):
    def __iter__(self):
        for i in range(24):
            time.sleep(0.002)
            yield torch.full((8,), float(i))


def collate(samples):
    time.sleep(0.004)
    return torch.stack(samples)


def walk(dataloader, steps=8, **more):
    """Steps as their lines have them, and the batches."""
    run = expctl.Run(program="test", warmup=0, steps=steps)
    lines, batches = [], []
    for step, batch in zip(run.steps(), run.loader(dataloader, endless=True, **more)):
        lines.append(step)
        batches.append(batch)
        step.samples = len(batch)
    run._table = None
    wall = 10**12
    return [json.loads(step.line(0, wall))["step"] for step in lines], batches


class Loaders(unittest.TestCase):
    def test_what_is_fetched_and_collated_is_told_apart_in_any_process(self):
        for data in (Slow(), Stream()):
            for workers in (0, 1):
                dataloader = DataLoader(data, 4, num_workers=workers, collate_fn=collate)
                steps, batches = walk(dataloader)
                # 6 batches an epoch, in order, and none of them wrapped.
                self.assertEqual([batch[0, 0].item() for batch in batches], [0, 4, 8, 12, 16, 20, 0, 4])
                self.assertEqual([step["epoch"] for step in steps], [0] * 6 + [1] * 2)
                for step in steps:
                    self.assertGreaterEqual(step["busy"]["read"], 8_000_000)
                    self.assertGreaterEqual(step["busy"]["collate"], 4_000_000)
                    self.assertEqual(step["bytes_batch"], 4 * 8 * 4)
                if workers == 0:
                    # The step waits for all that is done.
                    self.assertGreaterEqual(steps[0]["exposed"]["read"], 8_000_000)
                    self.assertGreaterEqual(steps[0]["exposed"]["collate"], 4_000_000)
                # The loader that was given is as it was.
                self.assertIs(dataloader.dataset, data)
                self.assertIs(dataloader.collate_fn, collate)

    def test_the_wait_is_split_over_what_was_done_to_the_batch_meanwhile(self):
        timed = expctl.timed_batches.Timed(None, 100, 200, 250)
        cases = [
            # All is done while the step waits; the way between processes is other.
            ((90, 300), {"read": 110, "collate": 50, "other": 50}),
            ((150, 220), {"read": 50, "collate": 20}),
            # It was ready before the step asked.
            ((400, 410), {"other": 10}),
        ]
        for (start, end), exposed in cases:
            step = expctl.Step(0, True)
            expctl.loader.split(step, timed, start, end)
            self.assertEqual((step.exposed, step.busy), (exposed, {"read": 100, "collate": 50}))
        timed.pin_from, timed.pin_to = 270, 290
        step = expctl.Step(0, True)
        expctl.loader.split(step, timed, 240, 300)
        self.assertEqual(step.exposed, {"collate": 10, "other": 30, "pin": 20})

    def test_a_data_set_is_itself_in_all_else(self):
        loader = expctl.loader.timed(DataLoader(Slow(), 4))
        loader.dataset.extra = 7
        self.assertEqual((loader.dataset.extra, len(loader.dataset), len(loader)), (7, 24, 6))

    def test_any_iterable_is_read(self):
        steps, _ = walk([[1, 2], [3, 4]], steps=3)
        self.assertEqual([step["samples"] for step in steps], [2, 2, 2])
        self.assertTrue(all(step["exposed"]["read"] > 0 for step in steps))
        with self.assertRaisesRegex(ValueError, "no batch"):
            walk([])

    @unittest.skipUnless(importlib.util.find_spec("torch_geometric"), "torch_geometric is not installed")
    def test_graphs_of_pyg(self):
        from torch_geometric.data import Data
        from torch_geometric.loader import DataLoader as GraphLoader

        graph = Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
        for workers in (0, 1):
            steps, batches = walk(GraphLoader([graph] * 12, batch_size=4, num_workers=workers), steps=3)
            self.assertEqual([batch.num_graphs for batch in batches], [4, 4, 4])
            self.assertTrue(all(step["busy"]["collate"] > 0 and step["bytes_batch"] > 0 for step in steps))


class Steps(unittest.TestCase):
    def test_samples_are_the_batch_size_of_the_config_until_they_are_set(self):
        run = expctl.Run(program="test", warmup=0, steps=2)
        run._table = None
        run.settings = {"loader": {"batch_size": 16}}
        counted = []
        for step in run.steps():
            if step.number == 1:
                step.samples = 3
            counted.append(json.loads(step.line(0, 1))["step"]["samples"])
        self.assertEqual(counted, [16, 3])

    def test_a_stage_inside_another_is_taken_out_of_it(self):
        run = expctl.Run(program="test", warmup=1, steps=2)
        run._table = None
        for step in run.steps():
            begin = time.perf_counter_ns()
            with step.stage("forward"):
                time.sleep(0.01)
                with step.stage("transfer", device=True):
                    time.sleep(0.02)
                step.add("read", busy=90_000_000, exposed=1_000_000)
            own, wall = step.exposed, time.perf_counter_ns() - begin
            self.assertLessEqual(sum(own.values()), wall)
            self.assertGreaterEqual(own["forward"], 9_000_000)
            self.assertGreaterEqual(own["transfer"], 20_000_000)
            self.assertEqual((step.busy["read"], own["read"]), (90_000_000, 1_000_000))
        self.assertEqual(step.measured, True)
        with self.assertRaisesRegex(ValueError, "there is no stage 'reading'; stages are sample, read"):
            step.stage("reading")

    def test_what_was_waited_for_is_sent_as_measured(self):
        step = expctl.Step(0, True)
        step.add("read", exposed=900)
        step.add("forward", exposed=300)
        line = json.loads(step.line(5, 600))["step"]
        self.assertEqual((line["exposed"], line["wall_ns"]), ({"read": 900, "forward": 300}, 600))

    def test_the_table_shows_stages_that_were_counted_twice(self):
        step = expctl.Step(0, True)
        step.add("read", exposed=900_000)
        step.add("forward", exposed=300_000)
        table = Table()
        table.add(step, 600_000)
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            table.print("test", 0)
        self.assertRegex(shown.getvalue(), r"read +0\.900")
        self.assertRegex(shown.getvalue(), r"unattributed +-0\.600")

    def test_a_loss_that_is_no_number_is_left_out(self):
        step = expctl.Step(3, False)
        for loss, expected in ((torch.tensor(0.25), 0.25), (float("nan"), None), (float("inf"), None), (None, None)):
            step.loss = loss
            self.assertEqual(json.loads(step.line(0, 1))["step"].get("loss"), expected)


if __name__ == "__main__":
    unittest.main()
