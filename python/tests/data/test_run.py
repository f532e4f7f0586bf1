"""With `expctl.Run`: the times of the loader threads are in the steps."""

import contextlib
import io
import json
import pickle
import unittest

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


def recorded(step):
    """Busy and exposed times in the line of a step."""
    line = json.loads(step.line(0, 1))["step"]
    return line["busy"], line["exposed"]


if __name__ == "__main__":
    unittest.main()
