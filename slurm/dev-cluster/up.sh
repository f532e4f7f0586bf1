#!/usr/bin/env bash
# Start a throw-away Slurm cluster of N virtual nodes on this machine, all of it under DIR and on loopback.
#   up.sh [DIR] [--nodes N] [--cpus N] [--mem MB] [--gpus N] [--processor NODE=NAME]... [--first-job-id N] [--max-array-size N] [--port BASE]
#         [--dbd] [--users a,b] [--rest] [--netns] [--cgroup] [--slurm PREFIX] [--owner PID]
# Without DIR a folder in /tmp is made. Prints the folder; then:
#   . DIR/env       sets SLURM_CONF, and sbatch, squeue, expctl ... speak to this cluster
#   down.sh DIR --wipe
# README.md says what the options do.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
. "$here/lib.sh"
usage="usage: up.sh [DIR] [options]; $here/README.md lists them"

# Far from the local backend's numbers, which count from 1 in the same ledger.
D='' NODES=2 CPUS=16 MEM=4000 GPUS=0 FIRST=100000 MAXARRAY=1001 PORT='' DBD=0 USERS=root REST=0 CGROUP=0 PREFIX='' OWNER=''
netns=0 processors=()
while [ $# -gt 0 ]; do
  case $1 in
    --dbd) DBD=1; shift; continue ;;
    --rest) REST=1; shift; continue ;;
    --netns) netns=1; shift; continue ;;
    --cgroup) CGROUP=1; shift; continue ;;
    --nodes | --cpus | --mem | --gpus | --first-job-id | --max-array-size | --port | --users | --slurm | --owner | --processor)
      [ $# -ge 2 ] || die "up.sh: $1 needs a value" "$usage" ;;
    -*) die "up.sh: unknown option $1" "$usage" ;;
    *) [ -z "$D" ] || die "up.sh: one folder only" "$usage"; D=$1; shift; continue ;;
  esac
  case $1 in
    --nodes) NODES=$2 ;; --cpus) CPUS=$2 ;; --mem) MEM=$2 ;; --gpus) GPUS=$2 ;;
    --first-job-id) FIRST=$2 ;; --max-array-size) MAXARRAY=$2 ;; --port) PORT=$2 ;; --users) USERS=$2 ;;
    --slurm) PREFIX=$2 ;; --owner) OWNER=$2 ;; --processor) processors+=("$2") ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || die "up.sh must run as root: slurmd gives every virtual node a hostname of its own"
[ -z "$OWNER" ] || alive "$OWNER" || die "up.sh: there is no process $OWNER to own the cluster"
PLUGINS='' STEPD=''
if [ -n "$PREFIX" ]; then
  [ -e "$PREFIX/slurm.paths" ] || die "there is no other Slurm in $PREFIX" "run $here/newer.sh $PREFIX"
  PREFIX=$(cd "$PREFIX" && pwd); . "$PREFIX/slurm.paths"; PATH=$PREFIX/bin:$PATH
fi
command -v slurmctld munged >/dev/null || die "Slurm is not installed" "run $here/install.sh"
[ $REST = 0 ] || command -v slurmrestd >/dev/null || die "slurmrestd is not installed" "run $here/install.sh"
[ $DBD = 0 ] || command -v slurmdbd mariadbd >/dev/null || die "accounting is not installed" "run $here/install.sh --dbd"
[ $CGROUP = 0 ] || [ -e /sys/fs/cgroup/memory/tasks ] || die "--cgroup needs the controllers of cgroup v1 in /sys/fs/cgroup"
[ -n "$D" ] || D=$(mktemp -d "${TMPDIR:-/tmp}/expctl-slurm-XXXXXX")
mkdir -p "$D"; D=$(cd "$D" && pwd)
case $D in *[!a-zA-Z0-9._/-]*) die "up.sh: Slurm's configuration cannot hold the folder name $D" "use letters, digits, . _ -" ;; esac
compgen -G "$D/run/*.pid" >/dev/null && die "$D holds pid files of a cluster" "run $here/down.sh $D first"

mkdir -p "$D"/{bin,etc,log,run,state,spool,dev}
rm -f "$D/env"
for ((i = 1; i <= NODES; i++)); do mkdir -p "$D/spool/n$i"; done
for ((i = 0; i < GPUS; i++)); do ln -sfn /dev/null "$D/dev/nvidia$i"; done
chmod 755 "$D" "$D"/{bin,etc,log,run,spool,dev}
for named in "${processors[@]}"; do
  node=${named%%=*}
  [ "$node" != "$named" ] && [ -n "$node" ] && [ -d "$D/spool/$node" ] ||
    die "up.sh: --processor $named does not name a node of this cluster" "write NODE=NAME, as n2='AMD EPYC 7763'"
  NAME=${named#*=} awk '/^model name/ { print "model name\t: " ENVIRON["NAME"]; next } { print }' /proc/cpuinfo > "$D/etc/cpuinfo.$node"
  chmod 644 "$D/etc/cpuinfo.$node"
done

# A failure half way leaves nothing running.
trap 'rc=$?; [ $rc = 0 ] || "$here/down.sh" "$D"; exit $rc' EXIT
# From here on, neither does an owner that is killed.
if [ -n "$OWNER" ]; then
  setsid "$here/guard.sh" "$D" "$OWNER" $$ </dev/null >"$D/log/guard.log" 2>&1 &
  echo $! > "$D/run/guard.pid"
fi

NETNS='' ADDR=127.0.0.1 ADDRS=127.0.0.1
range() { [ "$1" -eq "$2" ] && echo "$1" || echo "[$1-$2]"; }
if [ $netns = 1 ]; then
  ADDR=10.77.0.254 ADDRS=10.77.0.$(range 1 "$NODES")
  "$here/netns.sh" up "$D" "$NODES"
  NETNS=$(cat "$D/run/netns")
fi
port_free() { ! (exec 3<>"/dev/tcp/$ADDR/$1") 2>/dev/null; }
block_free() { local p; for p in $(seq "$1" $(($1 + 4))) $(seq $(($1 + 101)) $(($1 + 100 + NODES))); do port_free "$p" || return 1; done; }
if [ -n "$NETNS" ]; then PORT=${PORT:-12000}; fi
if [ -z "$PORT" ]; then
  # Below the ports that the kernel hands out itself.
  for _ in $(seq 50); do
    PORT=$((12000 + RANDOM % 80 * 200))
    # Held by the daemons for as long as they live: another up.sh may look before they listen.
    mkdir -p "${TMPDIR:-/tmp}/expctl-ports"
    exec 8>"${TMPDIR:-/tmp}/expctl-ports/$PORT"
    ! { flock -n 8 && block_free "$PORT"; } || break
    PORT=''
  done
  [ -n "$PORT" ] || die "no block of free ports found" "give one: --port BASE"
fi

# --- configuration: the templates with their @WORDS@ filled in, and the lines that do not apply left out
only_if() { [ "$2" -gt 0 ] && echo "s|^@$1@||" || echo "/^@$1@/d"; }
HOST=$(hostname -s)
fill() {
  sed -e "$(only_if DBD $DBD)" -e "$(only_if GPU "$GPUS")" -e "$(only_if REST $REST)" -e "$(only_if PREFIX ${#PREFIX})" \
      -e "$(only_if CGROUP $CGROUP)" -e "$(only_if PLAIN $((1 - CGROUP)))" -e "$(only_if LOOPBACK $((1 - netns)))" \
      -e "s|@D@|$D|g" -e "s|@HOST@|$HOST|g" -e "s|@PORT@|$PORT|g" -e "s|@SLURMDPORT@|$((PORT + 1))|g" \
      -e "s|@DBDPORT@|$((PORT + 2))|g" -e "s|@DBPORT@|$((PORT + 4))|g" -e "s|@FIRST@|$FIRST|g" \
      -e "s|@IDX@|$(range 1 "$NODES")|g" -e "s|@NODEPORTS@|$(range $((PORT + 101)) $((PORT + 100 + NODES)))|g" \
      -e "s|@CPUS@|$CPUS|g" -e "s|@MEM@|$MEM|g" -e "s|@MAXARRAY@|$MAXARRAY|g" -e "s|@ADDR@|$ADDR|g" -e "s|@ADDRS@|$ADDRS|g" \
      -e "s|@PLUGINS@|$PLUGINS|g" \
      -e "s|@GRES@|$([ "$GPUS" -eq 0 ] || echo "Gres=gpu:fake:$GPUS")|g" -e "s|@DEVS@|$(range 0 $((GPUS > 0 ? GPUS - 1 : 0)))|g" \
      -e "s|@ACCT@|$([ $DBD = 1 ] && echo slurmdbd || echo none)|g" "$here/$1.in"
}
for f in slurm gres cgroup; do fill $f.conf > "$D/etc/$f.conf"; done
chmod 644 "$D"/etc/*.conf
[ $DBD = 0 ] || (umask 077; rm -f "$D/etc/slurmdbd.conf"; fill slurmdbd.conf > "$D/etc/slurmdbd.conf")
# What every node and the controller see as /etc/hosts. In a network of its own the controller's name is its address there.
{ if [ -z "$NETNS" ]; then cat /etc/hosts; else grep -vw "$HOST" /etc/hosts || true; echo "$ADDR $HOST"; fi
  for ((i = 1; i <= NODES; i++)); do echo "${ADDRS//\[*/$i} n$i"; done; } > "$D/etc/hosts"
for s in NODES DBD REST NETNS ADDR PORT CGROUP USERS STEPD; do echo "$s=${!s}"; done > "$D/etc/settings"
{ echo "export SLURM_CONF=$D/etc/slurm.conf"
  [ -z "$PREFIX" ] || echo "export PATH=$PREFIX/bin:\$PATH"
  [ -z "$NETNS" ] || echo "export PATH=$D/bin:\$PATH"
  [ $REST = 0 ] || echo "export SLURMRESTD_URL=http://$ADDR:$((PORT + 3))"; } > "$D/env"
# Run a command where the cluster can be reached from.
cat > "$D/enter" <<X
#!/bin/sh
. $D/env
$([ -z "$NETNS" ] || printf '%s\n' "exec nsenter --net=/run/netns/$NETNS-head unshare --mount --propagation slave \\" \
  "  sh -c 'mount --bind $D/etc/hosts /etc/hosts; exec \"\$@\"' sh \"\$@\"")
exec "\$@"
X
chmod 755 "$D/enter"
if [ -n "$NETNS" ]; then
  # Slurm's commands of the same name, which enter the network by themselves when they are outside of it: a job's are inside.
  for c in sbatch squeue sacct scancel scontrol sinfo srun salloc sacctmgr sstat sprio sreport; do
    p=$(command -v $c) || continue
    printf '#!/bin/sh\n[ "$(readlink /proc/self/ns/net)" != "%s" ] || exec %s %s "$@"\nexec %s "$@"\n' \
      "$(readlink /proc/self/ns/net)" "$D/enter" "$p" "$p" > "$D/bin/$c"
    chmod 755 "$D/bin/$c"
  done
fi

network head
"${inside[@]}" "$here/start.sh" "$D"
say "==> $NODES nodes ready; to use them: . $D/env   to end them: $here/down.sh $D --wipe"
echo "$D"
