#!/usr/bin/env bash
# Start the daemons of the cluster that up.sh configured under DIR, from within its network. up.sh calls this.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
. "$here/lib.sh"
D=${1:?usage: start.sh DIR}
. "$D/etc/settings"; . "$D/env"

# --- munge: a key and a socket of its own
install -d -o munge -g munge -m 711 "$D/munge"
if [ ! -s "$D/munge/munge.key" ]; then
  (umask 077; dd if=/dev/urandom of="$D/munge/munge.key" bs=1024 count=1 status=none)
  chown munge:munge "$D/munge/munge.key"; chmod 400 "$D/munge/munge.key"
fi
setpriv --reuid munge --regid munge --clear-groups \
  munged --key-file="$D/munge/munge.key" --socket="$D/munge/sock" --pid-file="$D/munge/munged.pid" \
         --log-file="$D/munge/munged.log" --seed-file="$D/munge/munged.seed" --num-threads=2
cp "$D/munge/munged.pid" "$D/run/munged.pid"

# The key that REST's tokens are signed with.
[ $REST = 0 ] || [ -s "$D/state/jwt.key" ] || (umask 077; head -c 32 /dev/urandom > "$D/state/jwt.key")

# --- accounting
if [ $DBD = 1 ]; then
  # In a temporary folder of its own: a server that starts removes all temporary tables that it finds, also another server's.
  install -d -o mysql -g mysql -m 700 "$D/mysql" "$D/mysql/tmp"
  [ -d "$D/mysql/data/mysql" ] ||
    TMPDIR="$D/mysql/tmp" mariadb-install-db --no-defaults --user=mysql --datadir="$D/mysql/data" \
      --skip-test-db --auth-root-authentication-method=normal >"$D/log/mariadb-install.log" 2>&1 ||
    { head -20 "$D/log/mariadb-install.log" >&2; die "mariadb-install-db failed"; }
  # slurmdbd is its only reader, and nobody minds if a test cluster loses its last transactions.
  setsid mariadbd --no-defaults --user=mysql --datadir="$D/mysql/data" --socket="$D/mysql/sock" --pid-file="$D/mysql/pid" \
    --tmpdir="$D/mysql/tmp" \
    --bind-address=127.0.0.1 --port=$((PORT + 4)) --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=128M \
    --innodb-lock-wait-timeout=900 --skip-log-bin --performance-schema=OFF --log-error="$D/mysql/log" \
    </dev/null >/dev/null 2>&1 &
  echo $! > "$D/run/mariadbd.pid"
  answers() {
    mariadb-admin --no-defaults -uroot -S "$D/mysql/sock" ping >/dev/null 2>&1 && return
    alive "$(cat "$D/run/mariadbd.pid")" || { tail -5 "$D/mysql/log" >&2; die "mariadbd died"; }
    return 1
  }
  tries 300 answers || die "mariadbd does not answer"
  mariadb --no-defaults -uroot -S "$D/mysql/sock" -e "
    create database if not exists slurm_acct;
    create user if not exists slurm@localhost identified by 'slurm';
    create user if not exists slurm@'127.0.0.1' identified by 'slurm';
    grant all on slurm_acct.* to slurm@localhost;
    grant all on slurm_acct.* to slurm@'127.0.0.1';"
  "$here/node.sh" up "$D" dbd
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

# --- controller and nodes
"$here/node.sh" up "$D" ctld
for ((i = 1; i <= NODES; i++)); do "$here/node.sh" up "$D" "n$i"; done
ready() { [ "$(sinfo -h -N -p batch -o %T | grep -cE '^(idle|mixed|allocated)$' || true)" -eq "$NODES" ]; }
tries 300 ready || { sinfo -N -l >&2; sinfo -R >&2; die "not every node is ready"; }
[ $REST = 0 ] || "$here/node.sh" up "$D" rest
