#!/usr/bin/env bash
# Install Debian's Slurm for the development cluster. Nothing is started and no machine-wide configuration is written.
#   install.sh [--dbd]      --dbd: with accounting (slurmdbd and MariaDB: 190 MB more)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../scripts/common.sh
. "$here/../../scripts/common.sh"

packages=(slurmctld slurmd slurm-client slurmrestd slurm-wlm-jwt-plugin munge iproute2 util-linux procps)
case ${1:-} in
  --dbd) packages+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server) ;;
  '') ;;
  *) die "install.sh: unknown option $1" "usage: install.sh [--dbd]" ;;
esac

# Test processes may call this at the same time; apt would not wait.
exec 9> "${TMPDIR:-/tmp}/expctl-slurm-install.lock"
flock 9

# The packages' own services stay off: a policy-rc.d that forbids starting them, only while apt runs.
policy=/usr/sbin/policy-rc.d
if [ "$(id -u)" = 0 ] && [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
need_packages "the development Slurm cluster" "${packages[@]}"
