#!/usr/bin/env bash
# One virtual node of the cluster in DIR, or one of its services (NODE is then ctld, dbd or rest):
#   node.sh up DIR NODE      start its daemon
#   node.sh down DIR NODE    stop its daemon; running steps go on
#   node.sh kill DIR NODE    as a power loss: SIGKILL its daemon and every process of a job on the node
#   node.sh cut DIR NODE     take the node's network away (a cluster of up.sh --netns); its processes go on
#   node.sh join DIR NODE    give it back
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
usage="usage: node.sh up|down|kill|cut|join DIR NODE"
act=${1:?$usage} D=${2:?$usage} node=${3:?$usage}
D=$(cd "$D" && pwd)
[ -e "$D/env" ] || { echo "node.sh: $D is not the folder of a cluster" >&2; exit 2; }
. "$D/etc/settings"; . "$D/env"
network head
case $node in
  ctld) daemon=(slurmctld) name=slurmctld ;;
  dbd) daemon=(slurmdbd) name=slurmdbd ;;
  rest) daemon=() name=slurmrestd ;;
  n[0-9]*)
    [ -d "$D/spool/$node" ] || { echo "node.sh: there is no node $node" >&2; exit 2; }
    network "$node"; daemon=(slurmd -N "$node" ${STEPD:+-d "$STEPD"}) name=slurmd.$node ;;
  *) echo "node.sh: $node is not a node; $usage" >&2; exit 2 ;;
esac
pidfile=$D/run/$name.pid

listens() { "${inside[@]}" bash -c "exec 3<>/dev/tcp/$ADDR/$1" 2>/dev/null; }
start() {
  if [ -s "$pidfile" ] && alive "$(cat "$pidfile")"; then echo "node.sh: $node is up" >&2; exit 2; fi
  case $node in
    dbd) "${inside[@]}" slurmdbd; tries 300 listens $((PORT + 2)) || fail ;;
    rest)
      # slurmrestd refuses root and SlurmUser: it runs as the package's own user.
      # It insists on a slurmdbd, unless it is told to leave that part of its interface out.
      plugins=()
      if [ "$DBD" = 0 ]; then plugins=(-s openapi/v0.0.38); [ -z "$STEPD" ] || plugins=(-s slurmctld); fi
      (umask 022; : > "$D/log/slurmrestd.log"); chown slurm "$D/log/slurmrestd.log"
      SLURM_JWT=daemon setsid "${inside[@]}" setpriv --reuid slurm --regid slurm --clear-groups \
        slurmrestd "${plugins[@]}" -a rest_auth/jwt "$ADDR:$((PORT + 3))" </dev/null >>"$D/log/slurmrestd.log" 2>&1 &
      echo $! > "$pidfile"
      served() { alive "$(cat "$pidfile")" || fail; listens $((PORT + 3)); }
      tries 300 served || fail ;;
    *)
      # A mount namespace where /etc/hosts knows every node (slurmctld answers an srun under the hostname it gave), and for
      # a node a UTS namespace where the hostname is the node's. Nothing outside sees either.
      ns=(--mount --propagation slave); [ "$node" = ctld ] || ns+=(--uts)
      "${inside[@]}" unshare "${ns[@]}" "$here/inside.sh" "$D" "$node" "${daemon[@]}"
      if [ "$node" = ctld ]; then tries 200 answers || fail; fi ;;
  esac
}
answers() { "${inside[@]}" scontrol ping 2>/dev/null | grep -q UP; }
fail() { tail -5 "$D/log/$name.log" >&2; echo "node.sh: $name does not answer" >&2; exit 1; }

stop() {
  [ -s "$pidfile" ] || { echo "node.sh: $node is not up" >&2; exit 2; }
  pid=$(cat "$pidfile"); kill "$pid"
  for _ in $(seq 100); do alive "$pid" || break; sleep 0.05; done
  rm -f "$pidfile"
}

power_loss() {
  [ ! -s "$pidfile" ] || kill -9 "$(cat "$pidfile")" 2>/dev/null || true
  rm -f "$pidfile"
  [ -d "$D/spool/$node" ] || return 0
  # The steps are children of process 1; their sockets in the node's spool folder tell which they are.
  for s in "$D/spool/$node/${node}"_*.*; do
    [ -S "$s" ] || continue
    p=$("${inside[@]}" ss -lxpH src "unix:$s" 2>/dev/null | grep -o 'pid=[0-9]*' | head -1 | cut -d= -f2) || true
    [ -z "$p" ] || kill -9 "$p" 2>/dev/null || true
    rm -f "$s"
  done
  # What the jobs started, in whatever session: it has the names of the node and of the cluster in its environment.
  grep -lszxF "SLURMD_NODENAME=$node" /proc/[0-9]*/environ | while IFS=/ read -r _ _ p _; do
    grep -qszxF "SLURM_CONF=$D/etc/slurm.conf" "/proc/$p/environ" && kill -9 "$p" 2>/dev/null || true
  done || true
}

link() {
  [ -n "$NETNS" ] && [ -d "$D/spool/$node" ] ||
    { echo "node.sh: $act is for a node of a cluster that was started with --netns" >&2; exit 2; }
  ip -n "$NETNS-head" link set "v${node#n}" "$1"
}

case $act in
  up) start ;;
  down) stop ;;
  kill) power_loss ;;
  cut) link down ;;
  join) link up ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
