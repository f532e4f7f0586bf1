#!/usr/bin/env bash
# One virtual node of the cluster in DIR, or its controller (NODE is then "ctld"):
#   node.sh up DIR NODE      start its daemon
#   node.sh down DIR NODE    stop its daemon; running steps go on
#   node.sh kill DIR NODE    as a power loss: SIGKILL its daemon and every step on the node
set -euo pipefail
usage="usage: node.sh up|down|kill DIR NODE"
act=${1:?$usage} D=${2:?$usage} node=${3:?$usage}
D=$(cd "$D" && pwd)
. "$D/env"
if [ "$node" = ctld ]; then
  daemon=(slurmctld) pidfile=$D/run/slurmctld.pid
else
  daemon=(slurmd -N "$node") pidfile=$D/run/slurmd.$node.pid
fi
# A zombie counts as gone: in a container, process 1 may take seconds to reap it.
alive() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }
case $act in
  up)
    # A mount namespace where /etc/hosts knows every node (slurmctld answers an srun under the hostname it gave), and for
    # a node a UTS namespace where the hostname is the node's. Nothing outside sees either.
    ns=(--mount --propagation slave); [ "$node" = ctld ] || ns+=(--uts)
    unshare "${ns[@]}" sh -c '
      mount --bind "$2" /etc/hosts; [ "$1" = ctld ] || hostname "$1"; shift 2; exec "$@"
      ' sh "$node" "$D/etc/hosts" "${daemon[@]}" ;;
  down)
    pid=$(cat "$pidfile"); kill "$pid"
    for _ in $(seq 100); do alive "$pid" || break; sleep 0.05; done
    rm -f "$pidfile" ;;
  kill)
    [ ! -s "$pidfile" ] || kill -9 "$(cat "$pidfile")" 2>/dev/null || true
    rm -f "$pidfile"
    # The steps are children of process 1; their sockets in the node's spool folder tell which they are.
    for s in "$D/spool/$node/${node}"_*.*; do
      [ -S "$s" ] || continue
      p=$(ss -lxpH src "unix:$s" 2>/dev/null | grep -o 'pid=[0-9]*' | head -1 | cut -d= -f2)
      [ -n "$p" ] || continue
      for c in $(pgrep -P "$p"); do kill -9 -- "-$c" 2>/dev/null || kill -9 "$c" 2>/dev/null || true; done
      kill -9 "$p" 2>/dev/null || true; rm -f "$s"
    done ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
