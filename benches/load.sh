#!/bin/bash
# How long the launcher takes over a job of 1,000 trials, and how much memory: status, report, watch of a job that has ended.
#
#   benches/load.sh [RUNS]
#   benches/load.sh --slurm [OPTIONS of load_slurm.py]   starts a development cluster and runs 1,000 real trials on it: submit,
#       status meanwhile and after, Slurm's commands counted, report, peak memory, what each phase of a trial costs (10 minutes
#       on two processors; needs root). Fails if a trial does not complete.
#   EXPCTL=path/to/expctl    EXPCTL_LOAD_TRIALS, _RANKS, _STEPS: 1000, 2, 100
#   EXPCTL_LOAD_PROJECT=DIR  keeps the project there, and uses the one that an earlier run left
#
# Needs what `make env` prints. Prints the median and the slowest of RUNS (default 5) wall times and the highest peak.
set -euo pipefail
cd "$(dirname "$0")/.."
expctl=${EXPCTL:-${CARGO_TARGET_DIR:?run: eval "\$(make -s env)"}/release/expctl}
if [ "${1:-}" = --slurm ]; then
  shift
  exec python3 benches/load_slurm.py --expctl "$expctl" --worker "$(dirname "$expctl")/expctl-worker" "$@"
fi
runs=${1:-5}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
root=${EXPCTL_LOAD_PROJECT:-$place/project}

if [ ! -d "$root" ]; then
  echo "writing the ledger …" >&2
  EXPCTL_LOAD_DIR=$root cargo test -q --release -p expctl --test integration -- --ignored --exact slow::load::write_a_ledger >&2
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
