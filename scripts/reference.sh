#!/usr/bin/env bash
# Notes, pictures and records that documents cite, measured again on this machine. Run it where nothing else runs.
#
#   scripts/reference.sh NAME...    the jobs and benches of these names in scripts/reference.tsv; ALL is every one
#   scripts/reference.sh            lists them
#
#   REFERENCE_DIR=DIR   writes there in place of results/reference
#   REFERENCE_SET="key=value ..."   further --set of jobs, to try the script with small ones; needs REFERENCE_DIR
#   EXPCTL_BENCH_MINUTES=N   predictions and search end after about so many minutes, with exit code 75; the same command goes on
#   REFERENCE_FORCE=1   measures from a working tree with changes or on a busy machine; records are marked, no document may cite them
#
# `make figures` then makes the documents of them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
list=scripts/reference.tsv
if [ $# = 0 ]; then
  grep -v '^#' "$list" | cut -f1-3 | column -t -s "$(printf '\t')"
  exit
fi
names=("$@")
[ "$*" != ALL ] || mapfile -t names < <(grep -v '^#' "$list" | cut -f1)
for name in "${names[@]}"; do
  grep -q -P "^\Q$name\E\t" "$list" || die "there is no $name in $list" "scripts/reference.sh lists the names"
done
dir=${REFERENCE_DIR:-results/reference}
[ -z "${REFERENCE_SET:-}" ] || [ "$dir" != results/reference ] || die "REFERENCE_SET needs REFERENCE_DIR: results/reference has the jobs as they are listed"

refuse() { [ -n "${REFERENCE_FORCE:-}" ] || die "$@"; say "note: $1"; }

# What a job reads must be in the commit that its record names. New results are not read.
clean() {
  [ -z "$(git status --porcelain -- . ':(exclude)results')" ] ||
    refuse "the working tree has changes, so nobody could measure it again" "commit them; git status says which"
}

# Two looks, because the load average is of the minute before: at it, and at what is running now.
idle() {
  local busy load
  busy=$(ps -eo comm= | grep -E '^(cargo|rustc|cc1plus|expctl-worker)$' | sort -u | tr '\n' ' ' || true)
  [ -z "$busy" ] || refuse "the machine is busy: $busy" "wait until it has ended"
  # The wait is for what this script did itself just before.
  for _ in $(seq 30); do
    load=$(cut -d' ' -f1 /proc/loadavg)
    if awk -v now="$load" 'BEGIN { exit !(now < 0.5) }'; then return; fi
    [ -z "${REFERENCE_FORCE:-}" ] || break
    sleep 10
  done
  refuse "the machine is busy: load average $load" "wait until it is below 0.5"
}

clean
make -s build
export PATH=$PWD/bin:$PATH EXPCTL_BACKEND=local
eval "$(make -s env)"

# The data set that a config of array loaders reads warm, or over a line: built if it is not there.
array_data() { # CONFIG
  case $1 in
    conf/tahoe*) expctl data build tahoe-shape --samples 140000 --files 14 ;;
    *) expctl data build arrayloader --samples 200000 --files 8 ;;
  esac
}

job() { # NAME ARGUMENTS
  local id args=() variables=() set
  read -r -a args <<< "$2"
  # Variables of the environment stand before the config.
  while [[ ${args[0]} == *=* ]]; do variables+=("${args[0]}"); args=("${args[@]:1}"); done
  for set in ${REFERENCE_SET:-}; do args+=(--set "$set"); done
  # LINE_MB_S: the data set is also an object store, the bucket "line", behind a line of that bandwidth and 20 ms. MEMORY_MIB: the job has that much
  # memory, page cache included.
  case "${variables[*]}" in
    LINE_MB_S=*)
      set=$(array_data "${args[0]}")
      variables+=("$CARGO_TARGET_DIR/release/examples/object_line" --latency-ms 20 --mb-s "${variables[0]#*=}" "$set") ;;
    MEMORY_MIB=*) variables+=("$PWD/benches/limited_memory.sh" "${variables[0]#*=}") ;;
  esac
  id=$(env "${variables[@]}" expctl submit "${args[@]}" --wait)
  forget_note "$dir" "$1"
  # Earlier jobs of this ledger are not committed: a note that speaks of them could not be checked.
  expctl report "$id" --alone --notes "$dir" --name "$1" --record "$dir/records/$1.json" ${REFERENCE_FORCE:+--force}
}

mkdir -p "$dir/records"
for name in "${names[@]}"; do
  IFS=$'\t' read -r _ kind arguments before <<< "$(grep -P "^\Q$name\E\t" "$list")"
  say "==> $name: $arguments"
  [ -z "$before" ] || say "    before: $before"
  clean
  # Benches are built before the machine is idle, not while it measures.
  case $arguments in
    "cargo bench "*) $arguments --no-run >&2 ;;
    LINE_MB_S=*) cargo build --release --locked -p expctl-datasets --example object_line >&2 ;;
    # The loaders are compared warm: all their files are read once before any of them runs. Not of a trial with other data.
    "conf/peers.toml"* | "conf/peers_python"* | "conf/tahoe.toml"*)
      benches/peers/setup.sh loaders
      [ -n "${REFERENCE_SET:-}" ] || benches/peers/prepare.sh "$(array_data "$arguments")" warm ;;
    "conf/peers_graph.toml"*) benches/peers/setup.sh loaders ;;
    "cargo run "*) built=${arguments/cargo run/cargo build}; ${built%% -- *} >&2 ;;
  esac
  idle
  case $kind in
    job) job "$name" "$arguments" ;;
    bench)
      mkdir -p /tmp/expctl-remote-rates
      EXPCTL_BENCH_RECORD=$(realpath "$dir/records")/$name.json bash -c "$arguments" ;;
    *) die "$list: $name is of kind $kind; job and bench are known" ;;
  esac
done
say "==> written to $dir; make figures takes them into the documents"
