#!/usr/bin/env bash
# The demo: two real jobs on this machine, and the notes they wrote. Run through `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
export PATH=$PWD/bin:$PATH EXPCTL_BACKEND=local

run() { # CONFIG [OPTION...]
  say "==> expctl submit $*"
  local job
  job=$(expctl submit --wait "$@")
  note=$(expctl report "$job")
}

run conf/demo.toml
first=$note
# The published way of loading keeps batches of 1.2 GB ahead; on a small machine fewer of them.
available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
small=()
if [ "$available" -lt 16384 ]; then
  say "==> $available MiB of memory are free: batches may take half of them"
  small=(--set "loader.buffer_mib=$((available / 2))")
fi
run conf/086_dataloader.toml "${small[@]}"
second=$note

for n in "$first" "$second"; do
  say ""; say "==> $n"; say ""
  cat "$n"
done
say ""
say "==> the same tables for published results: expctl compare 392 447 456"
expctl compare 392 447 456
say ""
say "Notes of this run:"
printf '%s\n' "$first" "$second"
