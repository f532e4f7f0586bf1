#!/usr/bin/env bash
# Stop the cluster under DIR, by the process ids that it recorded itself.
#   down.sh DIR [--wipe]      --wipe: remove DIR too
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
D=${1:?usage: down.sh DIR [--wipe]}; [ -d "$D" ] || exit 0
D=$(cd "$D" && pwd)
[ -d "$D/run" ] && [ -d "$D/spool" ] || { echo "down.sh: $D is not the folder of a cluster" >&2; exit 2; }
stop() { # PIDFILE...: SIGTERM to all, then wait for each
  local f p pids=()
  for f; do p=$(cat "$f" 2>/dev/null) && [ -n "$p" ] && pids+=("$p"); done
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
  for p in ${pids[@]+"${pids[@]}"}; do
    for _ in $(seq 200); do alive "$p" || break; sleep 0.05; done
    alive "$p" && { echo "down.sh: process $p needs SIGKILL" >&2; kill -9 "$p"; }
  done
  rm -f "$@"
}
# The guard may be who asks.
[ "$(cat "$D/run/guard.pid" 2>/dev/null)" != $$ ] && stop "$D/run/guard.pid"
if [ -e "$D/env" ]; then
  . "$D/etc/settings"; . "$D/env"
  network head
  # No job outlives the cluster.
  if [ -s "$D/run/slurmctld.pid" ]; then
    ids=$(timeout 5 "${inside[@]}" squeue -h -o %A 2>/dev/null | sort -u)
    if [ -n "$ids" ]; then
      # shellcheck disable=SC2086
      timeout 5 "${inside[@]}" scancel $ids
      for _ in $(seq 40); do [ -z "$(timeout 5 "${inside[@]}" squeue -h -o %A)" ] && break; sleep 0.25; done
    fi
  fi
  stop "$D/run/slurmrestd.pid" "$D/run/slurmctld.pid"
  stop "$D"/run/slurmd.*.pid
  # Steps that the controller could not be asked to end.
  for n in "$D"/spool/*; do [ -d "$n" ] && "$here/node.sh" kill "$D" "${n##*/}"; done
  stop "$D/run/slurmdbd.pid"
  stop "$D/run/mariadbd.pid"
fi
stop "$D/run/munged.pid"
[ ! -e "$D/run/netns" ] || "$here/netns.sh" down "$D"
if [ -e "$D/etc/settings" ] && grep -q '^CGROUP=1' "$D/etc/settings"; then
  # A group can be removed once its last process has been reaped.
  for _ in $(seq 40); do
    left=$(find /sys/fs/cgroup -type d -name "expctl${D//\//_}")
    [ -n "$left" ] || break
    # shellcheck disable=SC2086
    find $left -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.25
  done
fi
[ "${2:-}" = --wipe ] && rm -rf "$D"
exit 0
