#!/usr/bin/env bash
# Runs a command whose processes may together use MIB of memory, the page cache of the files that they read included:
#
#   benches/limited_memory.sh MIB COMMAND [ARGUMENT]…
#
# Files that are larger can then not be read from the page cache, as on a machine with that much memory. The limit is that of a control group:
# memory.high of version 2, set by systemd or here; in version 1 memory.limit_in_bytes, beyond which processes are killed if the page cache is not
# what takes the memory. Pages that other processes have read stay where they are, and reading them again costs nothing: drop them first
# (measure.cold_cache).
#
# Ends with the command's exit code, or with 75 and the reasons where no such group may be made.
set -euo pipefail
. "$(dirname "$0")/../scripts/common.sh"
if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  say "usage: limited_memory.sh MIB COMMAND [ARGUMENT]…"
  exit 2
fi
mib=$1; shift
bytes=$((mib << 20))
reasons=()

# Makes a group with the limit in FILE, runs the command in it, removes it and ends with the command's exit code. Where there can be no such
# group, returns with the reason.
in_new_group() { # VERSION PARENT FILE COMMAND…
  local version=$1 parent=$2 file=$3 group=$2/expctl-memory-$$ status=0
  shift 3
  if ! { mkdir "$group" && echo "$bytes" > "$group/$file"; } 2>/dev/null; then
    rmdir "$group" 2>/dev/null || true
    reasons+=("cgroup $version: no group with $file may be made in $parent")
    return
  fi
  say "==> at most $mib MiB of memory: $group"
  # The shell in between joins the group: this script stays outside, or the group could not be removed.
  sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@" || status=$?
  # The last process may take a moment to go.
  for _ in 1 2 3 4 5; do
    if rmdir "$group" 2>/dev/null; then break; fi
    sleep 1
  done
  exit "$status"
}

with_systemd() {
  local manager=--user
  [ "$(id -u)" != 0 ] || manager=--system
  if [ ! -d /run/systemd/system ] || ! command -v systemd-run >/dev/null; then
    reasons+=("systemd: it is not running")
    return
  fi
  local run=(systemd-run "$manager" --scope --quiet -p "MemoryHigh=${mib}M" --)
  if ! "${run[@]}" true 2>/dev/null; then
    reasons+=("systemd: systemd-run $manager --scope -p MemoryHigh=… is refused")
    return
  fi
  say "==> at most $mib MiB of memory: MemoryHigh of a scope of systemd"
  exec "${run[@]}" "$@"
}

in_version_2() {
  local root=/sys/fs/cgroup own parent
  if [ "$(stat -fc %T "$root" 2>/dev/null)" != cgroup2fs ]; then
    reasons+=("cgroup v2: it is not mounted at $root")
    return
  fi
  # A group with processes cannot limit groups below it. So the new one goes beside that of this process, or below the root, which can.
  own=$(sed -n 's/^0:://p' /proc/self/cgroup)
  parent=$root$(dirname "$own")
  if ! grep -qsw memory "$parent/cgroup.subtree_control" && ! { echo +memory > "$parent/cgroup.subtree_control"; } 2>/dev/null; then
    reasons+=("cgroup v2: $parent does not give memory limits to the groups below it")
    return
  fi
  in_new_group v2 "$parent" memory.high "$@"
}

in_version_1() {
  local own parent
  own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
  parent=/sys/fs/cgroup/memory$own
  if [ -z "$own" ] || [ ! -e "$parent/memory.limit_in_bytes" ]; then
    reasons+=("cgroup v1: there is no $parent with memory.limit_in_bytes")
    return
  fi
  in_new_group v1 "$parent" memory.limit_in_bytes "$@"
}

with_systemd "$@"
in_version_2 "$@"
in_version_1 "$@"
say "error: no control group with $mib MiB of memory can be made here"
for reason in "${reasons[@]}"; do say "  $reason"; done
exit 75
