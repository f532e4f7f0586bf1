"""With `expctl.Run`: the times of the loader threads are in the steps."""

import contextlib
import io
import json
import pickle
import unittest
from concurrent.futures import ThreadPoolExecutor

import expctl
import expctl.data as xd
from cells import Cells


class Recorded(unittest.TestCase):
    def test_steps_have_the_stages_of_the_loader_threads(self):
        cells = Cells()
        self.addCleanup(cells.close)
        loader = xd.Loader(xd.open(cells.files, obs=["cell_type"]), 16, threads=1, out="numpy")
        run = expctl.Run(program="cells", warmup=1, steps=20)
        busy, rows, read = {}, 0, 0
        for step, batch in zip(run.steps(), run.loader(loader, endless=True)):
            self.assertEqual(step.samples, len(batch))
            self.assertEqual(step.bytes_batch, batch.nbytes)
            for stage, exposed in step.exposed.items():
                self.assertGreaterEqual(exposed, 0, stage)
            for stage, ns in step.busy.items():
                busy[stage] = busy.get(stage, 0) + ns
            rows, read = rows + step.samples, read + step.bytes_read
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run.close()
        self.assertTrue(all(busy[stage] > 0 for stage in ["read", "decode", "collate"]), busy)
        self.assertEqual(rows, 14 * 16 - 6 + 7 * 16)
        self.assertGreater(read, 0)

    def test_what_a_batch_says_is_what_the_step_has(self):
        cells = Cells()
        self.addCleanup(cells.close)
        loader = xd.Loader(xd.open(cells.files), 16, threads=0, out="numpy")
        waited = 10**9
        for batch in loader:
            busy = {stage: ns for stage, ns, _ in batch.stage_times() if ns}
            exposed = {stage: ns for stage, _, ns in batch.stage_times() if ns}
            exposed["other"] = exposed.get("other", 0) + waited - sum(exposed.values())
            times, samples, bytes_read, size = batch.expctl_record(waited)
            self.assertEqual(json.loads(f"{{{times}}}"), {"busy": busy, "exposed": exposed})
            self.assertEqual((samples, bytes_read, size), (len(batch), batch.bytes_read, batch.nbytes))
            # As text, beside stages of the step's own, and of two batches.
            step = expctl.Step(0, True)
            step.load(times, waited)
            self.assertEqual(recorded(step), (busy, exposed))
            with step.stage("forward"):
                pass
            self.assertEqual({**recorded(step)[1], "forward": 0}, {**exposed, "forward": 0})
            step.load(times, waited)
            twice = {stage: 2 * ns for stage, ns in busy.items()}
            self.assertEqual({**recorded(step)[0], "forward": 0}, {**twice, "forward": 0})
            # Inside an open stage the wait is no time of it.
            step = expctl.Step(0, True)
            with step.stage("optimizer"):
                step.load(times, waited)
            self.assertEqual(step.exposed["optimizer"], 0)

    def test_a_batch_of_another_process_is_recorded_as_well(self):
        cells = Cells()
        self.addCleanup(cells.close)
        batch = pickle.loads(pickle.dumps(next(iter(xd.Loader(xd.open(cells.files), 16, threads=0, out="numpy")))))
        self.assertIsNone(batch.expctl_record(5))
        step = expctl.Step(0, True)
        self.assertTrue(expctl.loader.loaded(step, batch, 10**9))
        self.assertEqual((step.samples, sum(step.exposed.values())), (16, 10**9))


class Beside(unittest.TestCase):
    """Loaders that no line gives to the run."""

    def setUp(self):
        self.cells = Cells()
        self.addCleanup(self.cells.close)
        self.ds = xd.open(self.cells.files)

    def loader(self, **options):
        return xd.Loader(self.ds, 16, **({"threads": 1, "out": "numpy", "sampler": "sequential"} | options))

    def run_of(self, steps):
        run = expctl.Run(program="cells", warmup=0, steps=steps)

        def close():
            with contextlib.redirect_stderr(io.StringIO()):
                run.close()

        self.addCleanup(close)
        return run

    def test_a_plain_loop_is_recorded(self):
        run, loader = self.run_of(14), self.loader()
        table = run._table
        loader.set_epoch(3)
        for step, batch in zip(run.steps(), loader):
            self.assertEqual((step.samples, step.epoch), (len(batch), 3))
        self.assertEqual((step.bytes_read, step.bytes_batch), (batch.bytes_read, batch.nbytes))
        self.assertEqual((table.steps, table.samples), (14, 218))
        self.assertTrue(all(table.busy[stage] > 0 for stage in ("read", "decode", "collate")), table.busy)
        self.assertGreater(sum(table.exposed.values()), 0)
        self.assertLessEqual(sum(table.exposed.values()), table.wall)

    def test_what_the_program_says_itself_is_not_counted_twice(self):
        def given(run, loader):
            yield from zip(run.steps(), run.loader(loader))

        def added(run, loader):
            for step, batch in zip(run.steps(), loader):
                times = batch.expctl_times
                for stage, busy, exposed in times.stages:
                    step.add(stage, busy=busy, exposed=exposed)
                step.bytes_read = times.bytes_read
                yield step, batch

        def left(run, loader):
            yield from zip(run.steps(), loader)

        for walk in (given, added, left):
            steps = list(walk(self.run_of(14), self.loader()))
            self.assertEqual(len(steps), 14)
            for step, batch in steps:
                busy = {stage: ns for stage, ns, _ in batch.stage_times() if ns}
                self.assertEqual((step.busy, step.bytes_read), (busy, batch.bytes_read), walk.__name__)
            self.assertEqual([step.samples for step, _ in steps], [16] * 13 + [10])

    def test_a_stage_around_it_has_the_wait(self):
        run, iterator, steps = self.run_of(3), iter(self.loader()), []
        for step in run.steps():
            with step.stage("read"):
                next(iterator)
            steps.append(step)
        self.assertEqual([list(step.busy) for step in steps], [["read"]] * 3)

    def test_another_thread_waits_for_itself(self):
        run, iterator, steps = self.run_of(3), iter(self.loader()), []
        with ThreadPoolExecutor(1) as pool:
            for step in run.steps():
                pool.submit(next, iterator).result()
                steps.append(step)
        self.assertEqual([(step.busy, step.samples) for step in steps], [({}, 0)] * 3)

    def test_samples_are_those_of_the_first_batch_of_a_step_until_they_are_set(self):
        run, train, other = self.run_of(2), iter(self.loader()), self.loader(sampler=range(40))
        counts = []
        for step in run.steps():
            first = next(train)
            rest = [batch.bytes_read for batch in other]
            counts.append((step, first.bytes_read + sum(rest)))
            if step.number == 1:
                step.samples = 7
        self.assertEqual([step.samples for step, _ in counts], [16, 7])
        self.assertEqual([step.bytes_read for step, _ in counts], [read for _, read in counts])

    def test_a_run_that_is_closed_is_told_nothing(self):
        run = self.run_of(3)
        self.assertIs(expctl.run.current, run)
        run.close()
        self.assertIsNone(expctl.run.current)
        self.assertEqual(len(list(self.loader())), 14)


def recorded(step):
    """Busy and exposed times in the line of a step."""
    line = json.loads(step.line(0, 1))["step"]
    return line["busy"], line["exposed"]


if __name__ == "__main__":
    unittest.main()
