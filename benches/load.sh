#!/bin/bash
# How long the launcher takes over a job of 1,000 trials, and how much memory: status, report, watch of a job that has ended,
# and, where the development cluster runs (SLURM_CONF leads to it), submit and status of a real array.
#
#   benches/load.sh [RUNS]
#   EXPCTL=path/to/expctl    EXPCTL_LOAD_TRIALS, _RANKS, _STEPS: 1000, 2, 100
#   EXPCTL_LOAD_PROJECT=DIR  keeps the project there, and uses the one that an earlier run left
#
# Needs what `make env` prints. Prints the median and the slowest of RUNS (default 5) wall times and the highest peak.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
expctl=${EXPCTL:-${CARGO_TARGET_DIR:?run: eval "\$(make -s env)"}/release/expctl}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
root=${EXPCTL_LOAD_PROJECT:-$place/project}

if [ ! -d "$root" ]; then
  echo "writing the ledger …" >&2
  EXPCTL_LOAD_DIR=$root cargo test -q --release -p expctl --test load -- --ignored --exact write_a_ledger >&2
fi

measure() {
  python3 - "$runs" "$@" <<'PY'
import os, statistics, subprocess, sys, time
runs, name, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
wall, peak = [], 0
for _ in range(runs):
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall.append(time.monotonic() - begun)
    peak = max(peak, usage.ru_maxrss / 1024)
    child.returncode = code = os.waitstatus_to_exitcode(status)
    if code:
        sys.exit(f"{name}: exit code {code}")
print(f"{name:32} {statistics.median(wall):7.3f} s  (slowest {max(wall):.3f} s)  {peak:6.0f} MiB")
PY
}

measure "status" "$expctl" --root "$root" status
measure "status JOB" "$expctl" --root "$root" status 1
measure "report" "$expctl" --root "$root" report 1
measure "watch of a job that has ended" "$expctl" --root "$root" watch 1

if [ -n "${SLURM_CONF:-}" ] && scontrol ping >/dev/null 2>&1; then
  cat > "$root/conf/load.toml" <<'TOML'
[experiment]
study = "006-kuzmin-tmi"
title = "Load"
[data]
samples = 200
scale = 0.05
[loader]
batch_size = 8
workers = 0
[train]
mode = "data"
[measure]
warmup = 1
steps = 5
repeats = 1000
[variant.ids]
pipeline.processor = "ids"
TOML
  # Nothing runs meanwhile: what is measured is the launcher, not the cluster.
  partition=$(sinfo -h -o %R | head -1)
  scontrol update "partitionname=$partition" state=down
  trap 'scontrol update "partitionname=$partition" state=up; rm -rf "$place"' EXIT
  submit() { "$expctl" --root "$root" submit "$root/conf/load.toml" --backend slurm 2>/dev/null; }
  job=$(submit) # builds the data set, if it was not
  scancel "$job"
  runs=1
  measure "submit of 1,000 trials" "$expctl" --root "$root" submit "$root/conf/load.toml" --backend slurm
  job=$(squeue -h -o %A | sort -n | tail -1)
  measure "status JOB, all in the queue" "$expctl" --root "$root" status "$job"
  scancel "$job"
fi
