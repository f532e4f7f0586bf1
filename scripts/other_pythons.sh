#!/usr/bin/env bash
# Other Pythons than that of scripts/python.sh, for the tests of expctl.data: its module is one for all of them.
#
#   scripts/other_pythons.sh    set up, then print interpreters on stdout, one a line; exit with 3 if there are none
#
# 3.10, 3.12, 3.13 and 3.14 are taken where PATH or pyenv has them. 3.13 and 3.14 come from Debian otherwise (15 MB each, unpacked in the cache
# with the C library that they need). Where Debian is out of reach they are left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

suite=forky
usable() { "$1" -c "import bz2, ctypes, lzma, sqlite3, ssl, sys; assert '%d.%d' % sys.version_info[:2] == '$2'" 2>/dev/null; }

# Fetch and unpack Python VERSION of Debian into DIR. The program is told to use the C library and the libraries that come with it.
from_debian() { # VERSION DIR
  local dir=$2 work=$2.part apt libraries root deb
  rm -rf "$dir" "$work"; mkdir -p "$work/debs"
  debian_suite "$suite" "$work" || return
  mapfile -t libraries < <(
    apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
      --no-enhances "python$1-minimal" "libpython$1-stdlib" |
      grep -E '^(lib|zlib1g)' | grep -vE '^lib(c-|perl|pam-|nss|newt|slang|textwrap|debian)|-(dev|bin|data|common|perl)$|:' | sort -u)
  (cd "$work/debs" && apt-get "${apt[@]}" download "python$1-minimal" "${libraries[@]}" >>"$work/apt/log" 2>&1) || return
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root" || return; done
  rm -rf "$work"/root/usr/share "$work"/{apt,debs}
  mv "$work" "$dir"
  root=$dir/root/usr/lib/x86_64-linux-gnu
  patchelf --set-interpreter "$root/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$root" "$dir/root/usr/bin/python$1"
}

mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 9>"$EXPCTL_CACHE/python-other.lock"
flock 9
found=()
for version in 3.10 3.12 3.13 3.14; do
  dir=$EXPCTL_CACHE/python-debian-$version
  python=
  for one in "$(command -v "python$version" || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3 "$dir/root/usr/bin/python$version"; do
    if [ -x "$one" ] && usable "$one" "$version"; then python=$one; break; fi
  done
  case $python:$version in
    :3.13 | :3.14)
      say "==> Python $version of Debian $suite into $dir"
      need_packages "another Python" patchelf
      if from_debian "$version" "$dir" && usable "$dir/root/usr/bin/python$version" "$version"; then
        python=$dir/root/usr/bin/python$version
      else
        say "other_pythons: Debian $suite has no Python $version that runs here"
      fi;;
    :*) say "other_pythons: no Python $version in PATH or of pyenv";;
  esac
  [ -z "$python" ] || found+=("$python")
done
[ ${#found[@]} -gt 0 ] || exit 3
printf '%s\n' "${found[@]}"
