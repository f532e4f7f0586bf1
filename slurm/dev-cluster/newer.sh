#!/usr/bin/env bash
# A newer Slurm from Debian beside the installed one, without touching the system's packages: those of another suite are
# unpacked under PREFIX with the libraries (the C library too) that they need, and each program is told to use these. Jobs
# still run on the machine's own files and libraries.
#   newer.sh PREFIX [trixie|forky]      trixie: Slurm 24.11; forky: whatever that suite has today
#   up.sh --slurm PREFIX
# The packages are kept in ~/.cache/expctl (EXPCTL_CACHE); a PREFIX that is there already is left as it is. PREFIX must be
# readable for every user that is to run jobs. munge, MariaDB and the users come from install.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
usage="usage: newer.sh PREFIX [trixie|forky]"
prefix=${1:?$usage} suite=${2:-trixie}
case $suite in trixie | forky) ;; *) die "newer.sh: unknown suite $suite" "$usage" ;; esac
mkdir -p "$prefix" "$EXPCTL_CACHE"; prefix=$(cd "$prefix" && pwd)
# It is going to be run by root, and may lie in a folder where anybody may make files.
[ -O "$prefix" ] || die "$prefix belongs to another user" "name another folder"
exec 9> "$EXPCTL_CACHE/slurm-$suite.lock"
flock 9
if [ -e "$prefix/slurm.paths" ]; then
  grep -q "^SUITE=$suite\$" "$prefix/slurm.paths" || die "$prefix holds the Slurm of another suite" "name another folder"
  exit 0
fi
need_packages "a newer Slurm" patchelf

# --- the packages
debs=$EXPCTL_CACHE/slurm-$suite
if [ ! -d "$debs" ]; then
  say "==> Slurm of Debian $suite: fetching its packages into $debs"
  work=$debs.part
  rm -rf "$work"
  mkdir -p "$work/debs"
  debian_suite "$suite" "$work" || { tail -5 "$work/apt/log" >&2; die "apt-get cannot read Debian $suite"; }
  want=(slurmctld slurmd slurm-client slurmdbd slurmrestd slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin)
  # All libraries that they depend on, but no more of the base system than that.
  mapfile -t libraries < <(
    apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
      --no-enhances "${want[@]}" |
      grep -E '^lib' | grep -vE '^lib(c-|perl|pam-|nss|gcc)|-(dev|bin|data|common|perl)$|:' | sort -u)
  (cd "$work/debs" && apt-get "${apt[@]}" download "${want[@]}" "${libraries[@]}" >>"$work/apt/log" 2>&1) ||
    { tail -5 "$work/apt/log" >&2; die "apt-get cannot fetch Slurm of Debian $suite"; }
  mv "$work/debs" "$debs"
  rm -rf "$work"
fi

# --- unpacked, and told where its libraries are
root=$prefix/root bin=$prefix/bin
rm -rf "$root" "$bin"; mkdir -p "$root" "$bin"
for d in "$debs"/*.deb; do dpkg -x "$d" "$root"; done
rm -rf "$root/usr/share"
loader=$(find "$root" -name ld-linux-x86-64.so.2 | sort | tail -1)
libs=$root/usr/lib/x86_64-linux-gnu
path=$libs:$libs/slurm-wlm:$root/lib/x86_64-linux-gnu
for b in "$root"/usr/sbin/slurm* "$root"/usr/bin/*; do
  [ -f "$b" ] && [ ! -L "$b" ] && head -c 4 "$b" | grep -q ELF || continue
  patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$path" "$b"
  n=${b##*/}; ln -sfn "$b" "$bin/${n%-wlm}"
done
for s in "$libs"/slurm-wlm/*.so; do patchelf --force-rpath --set-rpath "$path" "$s"; done
# Plugins whose optional library is not here only make noise in the logs.
rm -f "$libs"/slurm-wlm/{mpi_pmix*,gpu_nvidia,gpu_rsmi,gpu_oneapi}.so
say "==> $("$bin/slurmctld" -V) is in $prefix"
printf 'SUITE=%s\nPLUGINS=%s\nSTEPD=%s\n' "$suite" "$libs/slurm-wlm" "$bin/slurmstepd" > "$prefix/slurm.paths"
