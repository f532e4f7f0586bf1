"""With `expctl.Run`: the times of the loader threads are in the steps."""

import contextlib
import io
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


if __name__ == "__main__":
    unittest.main()
