"""Read a rank's step table with pandas and print its columns and a few facts as JSON. Usage: read_steps.py FILE"""

import json
import os
import sys

import pandas

steps = pandas.read_parquet(sys.argv[1])
measured = steps[steps.measured]
print(
    json.dumps(
        {
            "columns": list(steps.columns),
            "rows": len(steps),
            "measured": int(steps.measured.sum()),
            "every_step_has_a_loss": bool(steps.loss.notna().all()),
            "samples_per_s": float(measured.samples.sum() / (measured.wall_ns.sum() / 1e9)),
        }
    )
)
# On a busy machine pyarrow's threads may abort an interpreter that ends ("terminate called without an active exception").
sys.stdout.flush()
os._exit(0)
