#!/usr/bin/env bash
# Runs the programs of the wheels on Debian 11 (glibc 2.31, no compiler): a starter project, a job of it, and its report.
#
#   scripts/wheels/try_old_system.sh DIR [WHEELS]     DIR is where the system is unpacked; a system that is there already is taken.
#                                                     WHEELS is the folder of the wheels, dist/ if none is named
#
# Needs root (chroot) and debootstrap. Both wheels are installed as pip installs them for Python 3.11, by the pip of this system: Debian 11's own
# Python is 3.9, for which there is no PyTorch 2.11, and no older Debian or Ubuntu has a newer one. libtorch is the one of scripts/libtorch.sh, in
# the place of PyTorch's wheel, of which it is a part. Exit 3: this machine cannot do it, and the last line says why.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/common.sh"
root=$(dirname "$here")
wheels=${2:-$root/dist}
cannot() { say "$1"; exit 3; }

[ "$(id -u)" = 0 ] || cannot "only root can run programs in another system (chroot)"
ls "$wheels"/expctl_hpc-*.whl "$wheels"/expctl_worker-*.whl >/dev/null 2>&1 || cannot "there are no wheels in $wheels: make wheels"
command -v debootstrap >/dev/null || need_packages "an older system" debootstrap
libtorch=$("$here/libtorch.sh")
system=$1

if [ ! -e "$system/.complete" ]; then
  say "==> Debian 11 into $system"
  rm -rf "$system"
  mkdir -p "$system"
  debootstrap --variant=minbase bullseye "$system" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$system.log" 2>&1 ||
    cannot "debootstrap could not fetch Debian 11: $(tail -1 "$system.log")"
  touch "$system/.complete"
fi

prefix=$system/opt/expctl
packages=$prefix/lib/python3.11/site-packages
rm -rf "$prefix" "$system/root/project"
mkdir -p "$packages" "$system/root/project"
python3 -m pip install --quiet --no-deps --no-index --no-compile --only-binary :all: --python-version 3.11 --implementation cp --abi cp311 --abi abi3 \
  --platform manylinux_2_28_x86_64 --target "$packages" "$wheels"/*.whl >&2 ||
  die "pip does not install $wheels/*.whl"
# pip --target puts programs into the folder of packages; an environment has them beside it.
mv "$packages/bin" "$prefix/bin"

unmount() { umount "$system/proc" "$system/dev/shm" "$packages/torch" 2>/dev/null || true; }
trap unmount EXIT
mkdir -p "$packages/torch" "$system/dev/shm"
{ mount --bind "$libtorch" "$packages/torch" && mount -t proc proc "$system/proc" && mount -t tmpfs shm "$system/dev/shm"; } 2>/dev/null ||
  cannot "this machine lets nobody mount folders (a container?)"

old() { chroot "$system" /usr/bin/env -i HOME=/root PATH=/opt/expctl/bin:/usr/bin:/bin LC_ALL=C.UTF-8 sh -c "cd /root/project && $1"; }
say "==> $(chroot "$system" ldd --version | head -1)"
old "! command -v cc" || die "this system has a compiler"
old "expctl --version && expctl-worker --version"
old "expctl doctor"
old "expctl init first --graph && expctl check conf/first.toml"
old "expctl submit conf/first.toml --backend local --wait"
old "expctl report 1 && expctl compare 1"
