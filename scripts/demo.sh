#!/usr/bin/env bash
# The demo: two real jobs on this machine, and what their notes say. Run through `make demo`.
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

# Of a note, the summary and the first table of its results.
short() { # NOTE
  awk '/^<!-- expctl:begin (summary|results) /{ on = 1; table = 0; next }
       /^<!-- expctl:end / || (table && !/^\|/) { on = 0 }
       on { print }
       /^\|/ { table = 1 }' "$1"
}

for n in "$first" "$second"; do
  say ""; say "==> $n"; say ""
  short "$n"
done
say ""
say "Published results in the same form: expctl compare 392 447 456"
say "The whole notes of this run:"
printf '%s\n' "$first" "$second"
