#!/usr/bin/env bash
# Start a throw-away Slurm cluster of N virtual nodes on this machine, all of it under DIR and on loopback.
#   up.sh [DIR] [--nodes N] [--cpus N] [--mem MB] [--gpus N] [--first-job-id N] [--port BASE] [--dbd] [--users a,b]
# Without DIR a folder in /tmp is made. Prints the folder; then:
#   . DIR/env       sets SLURM_CONF, and sbatch, squeue, expctl ... speak to this cluster
#   down.sh DIR --wipe
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
usage="usage: up.sh [DIR] [--nodes N] [--cpus N] [--mem MB] [--gpus N] [--first-job-id N] [--port BASE] [--dbd] [--users a,b]"

# Far from the local backend's numbers, which count from 1 in the same ledger.
D='' NODES=2 CPUS=16 MEM=4000 GPUS=0 FIRST=100000 PORT='' DBD=0 USERS=root
while [ $# -gt 0 ]; do
  case $1 in
    --dbd) DBD=1; shift; continue ;;
    --nodes | --cpus | --mem | --gpus | --first-job-id | --port | --users)
      [ $# -ge 2 ] || die "up.sh: $1 needs a value" "$usage" ;;
    -*) die "up.sh: unknown option $1" "$usage" ;;
    *) [ -z "$D" ] || die "up.sh: one folder only" "$usage"; D=$1; shift; continue ;;
  esac
  case $1 in
    --nodes) NODES=$2 ;; --cpus) CPUS=$2 ;; --mem) MEM=$2 ;; --gpus) GPUS=$2 ;;
    --first-job-id) FIRST=$2 ;; --port) PORT=$2 ;; --users) USERS=$2 ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || die "up.sh must run as root: slurmd gives every virtual node a hostname of its own"
command -v slurmctld munged >/dev/null || die "Slurm is not installed" "run $here/install.sh"
[ $DBD = 0 ] || command -v slurmdbd mariadbd >/dev/null || die "accounting is not installed" "run $here/install.sh --dbd"
[ -n "$D" ] || D=$(mktemp -d "${TMPDIR:-/tmp}/expctl-slurm-XXXXXX")
mkdir -p "$D"; D=$(cd "$D" && pwd)
case $D in *[!a-zA-Z0-9._/-]*) die "up.sh: Slurm's configuration cannot hold the folder name $D" "use letters, digits, . _ -" ;; esac
compgen -G "$D/run/*.pid" >/dev/null && die "$D holds pid files of a cluster" "run $here/down.sh $D first"

# A failure half way leaves nothing running.
trap 'rc=$?; [ $rc = 0 ] || "$here/down.sh" "$D"; exit $rc' EXIT

port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
block_free() { local p; for p in "$1" $(($1 + 2)) $(($1 + 4)) $(seq $(($1 + 101)) $(($1 + 100 + NODES))); do port_free "$p" || return 1; done; }
if [ -z "$PORT" ]; then
  # Below the ports that the kernel hands out itself.
  for _ in $(seq 50); do
    PORT=$((12000 + RANDOM % 80 * 200)); ! block_free "$PORT" || break; PORT=''
  done
  [ -n "$PORT" ] || die "no block of free ports found" "give one: --port BASE"
fi

mkdir -p "$D"/{etc,log,run,state,spool,dev}
for ((i = 1; i <= NODES; i++)); do mkdir -p "$D/spool/n$i"; done
for ((i = 0; i < GPUS; i++)); do ln -sfn /dev/null "$D/dev/nvidia$i"; done
chmod 755 "$D" "$D"/{etc,log,run,spool,dev}
install -d -o munge -g munge -m 711 "$D/munge"

# --- munge: a key and a socket of its own
if [ ! -s "$D/munge/munge.key" ]; then
  (umask 077; dd if=/dev/urandom of="$D/munge/munge.key" bs=1024 count=1 status=none)
  chown munge:munge "$D/munge/munge.key"; chmod 400 "$D/munge/munge.key"
fi
setpriv --reuid munge --regid munge --clear-groups \
  munged --key-file="$D/munge/munge.key" --socket="$D/munge/sock" --pid-file="$D/munge/munged.pid" \
         --log-file="$D/munge/munged.log" --seed-file="$D/munge/munged.seed" --num-threads=2
cp "$D/munge/munged.pid" "$D/run/munged.pid"

# --- configuration: the templates with their @WORDS@ filled in, and the lines that do not apply left out
range() { [ "$1" -eq "$2" ] && echo "$1" || echo "[$1-$2]"; }
only_if() { [ "$2" -gt 0 ] && echo "s|^@$1@||" || echo "/^@$1@/d"; }
HOST=$(hostname -s)
fill() {
  sed -e "$(only_if DBD $DBD)" -e "$(only_if GPU "$GPUS")" \
      -e "s|@D@|$D|g" -e "s|@HOST@|$HOST|g" -e "s|@PORT@|$PORT|g" -e "s|@SLURMDPORT@|$((PORT + 1))|g" \
      -e "s|@DBDPORT@|$((PORT + 2))|g" -e "s|@DBPORT@|$((PORT + 4))|g" -e "s|@FIRST@|$FIRST|g" \
      -e "s|@IDX@|$(range 1 "$NODES")|g" -e "s|@NODEPORTS@|$(range $((PORT + 101)) $((PORT + 100 + NODES)))|g" \
      -e "s|@CPUS@|$CPUS|g" -e "s|@MEM@|$MEM|g" \
      -e "s|@GRES@|$([ "$GPUS" -eq 0 ] || echo "Gres=gpu:fake:$GPUS")|g" -e "s|@DEVS@|$(range 0 $((GPUS > 0 ? GPUS - 1 : 0)))|g" \
      -e "s|@ACCT@|$([ $DBD = 1 ] && echo slurmdbd || echo none)|g" "$here/$1.in"
}
fill slurm.conf > "$D/etc/slurm.conf"
fill gres.conf > "$D/etc/gres.conf"
chmod 644 "$D"/etc/*.conf
export SLURM_CONF=$D/etc/slurm.conf
echo "export SLURM_CONF=$SLURM_CONF" > "$D/env"

# --- accounting
if [ $DBD = 1 ]; then
  install -d -o mysql -g mysql -m 700 "$D/mysql"
  [ -d "$D/mysql/data/mysql" ] ||
    mariadb-install-db --no-defaults --user=mysql --datadir="$D/mysql/data" \
      --skip-test-db --auth-root-authentication-method=normal >"$D/log/mariadb-install.log" 2>&1
  # slurmdbd is its only reader, and nobody minds if a test cluster loses its last transactions.
  setsid mariadbd --no-defaults --user=mysql --datadir="$D/mysql/data" --socket="$D/mysql/sock" --pid-file="$D/mysql/pid" \
    --bind-address=127.0.0.1 --port=$((PORT + 4)) --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=128M \
    --innodb-lock-wait-timeout=900 --skip-log-bin --performance-schema=OFF --log-error="$D/mysql/log" \
    </dev/null >/dev/null 2>&1 &
  echo $! > "$D/run/mariadbd.pid"
  for _ in $(seq 300); do
    mariadb-admin --no-defaults -uroot -S "$D/mysql/sock" ping >/dev/null 2>&1 && break
    kill -0 "$(cat "$D/run/mariadbd.pid")" 2>/dev/null || { tail -5 "$D/mysql/log" >&2; die "mariadbd died"; }
    sleep 0.1
  done
  mariadb --no-defaults -uroot -S "$D/mysql/sock" -e "
    create database if not exists slurm_acct;
    create user if not exists slurm@localhost identified by 'slurm';
    create user if not exists slurm@'127.0.0.1' identified by 'slurm';
    grant all on slurm_acct.* to slurm@localhost;
    grant all on slurm_acct.* to slurm@'127.0.0.1';"
  fill slurmdbd.conf > "$D/etc/slurmdbd.conf"; chmod 600 "$D/etc/slurmdbd.conf"
  slurmdbd
  for _ in $(seq 200); do port_free $((PORT + 2)) || break; sleep 0.05; done
  # One sacctmgr for all of it: each start costs a third of a second.
  { echo "add cluster expctl"
    echo "add account lab description=lab organization=lab"
    for u in ${USERS//,/ }; do
      echo "add user $u account=lab"; echo "modify user $u set defaultaccount=lab"
    done
    echo quit
  } | timeout 30 sacctmgr -i -Q >"$D/log/sacctmgr.log" 2>&1 || true
  timeout 5 sacctmgr -n -P show assoc format=user | grep -q . ||
    { cat "$D/log/sacctmgr.log" >&2; tail -5 "$D/log/slurmdbd.log" >&2; die "slurmdbd has no associations"; }
fi

# --- controller and nodes; their /etc/hosts knows every node
{ cat /etc/hosts; for ((i = 1; i <= NODES; i++)); do echo "127.0.0.1 n$i"; done; } > "$D/etc/hosts"
"$here/node.sh" up "$D" ctld
for _ in $(seq 200); do scontrol ping 2>/dev/null | grep -q UP && break; sleep 0.1; done
scontrol ping 2>/dev/null | grep -q UP || { tail -5 "$D/log/slurmctld.log" >&2; die "slurmctld does not answer"; }
for ((i = 1; i <= NODES; i++)); do "$here/node.sh" up "$D" "n$i"; done
ready() { sinfo -h -N -p batch -o %T | grep -cE '^(idle|mixed|allocated)$' || true; }
for _ in $(seq 300); do [ "$(ready)" -eq "$NODES" ] && break; sleep 0.1; done
[ "$(ready)" -eq "$NODES" ] || { sinfo -N -l >&2; sinfo -R >&2; die "not every node is ready"; }
say "==> $NODES nodes ready; to use them: . $D/env   to end them: $here/down.sh $D --wipe"
echo "$D"
