#!/bin/bash
# How long `expctl timings` takes over many rows, and how much memory, beside pandas doing the notebook's analysis on the same file.
#
#   benches/timings.sh [ROWS] [RUNS]     default 100000000 rows, 3 runs of each (expctl, expctl with --out, pandas) in turns
#   EXPCTL=path/to/expctl    SCRATCH=DIR for the file (about 9 bytes a row) and for expctl's temporary file (8 bytes a row)
#   PANDAS=0 leaves pandas out; PANDAS_LIMIT_GB is the address space that it may have (default 20)
#
# Needs what `make env` prints. The file is generated, written once, and removed at the end. pandas is that of the tests
# (scripts/python.sh). Prints wall time, CPU time and the largest resident set of each run.
set -euo pipefail
cd "$(dirname "$0")/.."
expctl=${EXPCTL:-${CARGO_TARGET_DIR:?run: eval "\$(make -s env)"}/release/expctl}
rows=${1:-100000000}
runs=${2:-3}
place=$(mktemp -d -p "${SCRATCH:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$place"' EXIT

echo "writing $rows rows …" >&2
cargo run -q --release -p expctl --example timings_generated -- "$place/rows.parquet" "$rows" >&2
ls -l "$place/rows.parquet" >&2
if [ "${PANDAS:-1}" = 1 ]; then
  python=$(scripts/python.sh)
  cat > "$place/notebook.py" <<'PY'
import resource, sys
limit = int(float(sys.argv[2]) * 1e9)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
import numpy as np
import pandas as pd

df = pd.read_parquet(sys.argv[1])
df.method = df.method.astype(pd.CategoricalDtype(df.method.unique()))
# The file is not pandas' own, so its index is a column.
df = df.rename(columns={"__index_level_0__": "batch"})
counts = df[["method", "epoch"]].value_counts()

# The notebook compares with a list of Python integers; this is the same question without it.
def consecutive(batches):
    assert (batches.to_numpy() == np.arange(len(batches))).all()

df.groupby(["method", "epoch"], observed=True)["batch"].apply(consecutive)

def batch_times_df(batch_times):
    n = len(batch_times)
    batch_time_sum = batch_times.sort_values().cumsum().reset_index(drop=True).rename("batch_time_sum")
    batch_time_sum.index.name = "batch_rank"
    total = batch_time_sum.iloc[-1]
    time_frac = (batch_time_sum / total).rename("time_frac")
    batch_rank = batch_time_sum.index.to_series()
    batch_frac = ((batch_rank + 1) / n).rename("batch_frac")
    return pd.concat([batch_time_sum, time_frac, batch_frac], axis=1)

cdf = df.groupby(["method", "epoch"], observed=True)["batch_times"].apply(batch_times_df)
cdf["ratio"] = cdf.batch_frac / cdf.time_frac * (1 - cdf.time_frac) / (1 - cdf.batch_frac)
print(counts.sum(), cdf.ratio.max())
PY
fi

measure() {
  python3 - "$@" <<'PY'
import os, subprocess, sys, time
name, command = sys.argv[1], sys.argv[2:]
begun = time.monotonic()
child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
errors = child.stderr.read().decode()
_, status, usage = os.wait4(child.pid, 0)
wall = time.monotonic() - begun
child.returncode = code = os.waitstatus_to_exitcode(status)
cpu = usage.ru_utime + usage.ru_stime
print(f"{name:8} {wall:8.1f} s wall {cpu:8.1f} s CPU {usage.ru_maxrss / 1024:8.0f} MiB  exit {code}", flush=True)
if code:
    print("         " + (errors.strip().splitlines() or ["killed"])[-1], flush=True)
PY
}

for run in $(seq "$runs"); do
  TMPDIR=$place measure expctl "$expctl" timings "$place/rows.parquet" --json
  # With the note and its pictures, which need the dots.
  TMPDIR=$place measure "with out" "$expctl" timings "$place/rows.parquet" --out "$place/note"
  if [ "${PANDAS:-1}" = 1 ]; then
    measure pandas "$python" "$place/notebook.py" "$place/rows.parquet" "${PANDAS_LIMIT_GB:-20}"
  fi
done
