#!/usr/bin/env bash
# cmake, which the HDF5 library is built with from its source: this system's own if it is new enough (Debian 12's is not),
# else the one of the Python package index, in the cache.
#
#   scripts/cmake.sh          set up, then print the program on stdout
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

needed=3.26
wheel=cmake-4.4.4-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
sha=f773a0544c66370408f451acd487c2c643b0dfebb48c5d64f3638bc1bb820238
dir=$EXPCTL_CACHE/cmake-4.4.4

if own=$(command -v cmake); then
  found=$("$own" --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
  if [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ]; then echo "$own"; exit 0; fi
fi
if [ ! -e "$dir/.complete" ]; then
  mkdir -p "$EXPCTL_CACHE"
  exec 9>"$EXPCTL_CACHE/cmake.lock"
  flock 9
fi
if [ ! -e "$dir/.complete" ]; then
  say "==> cmake 4.4.4: one wheel, 30 MB, into $EXPCTL_CACHE/wheels (once)"
  python3 "$here/fetch_wheel.py" cmake "$wheel" "$sha" "$EXPCTL_CACHE/wheels"
  rm -rf "$dir.partial" "$dir"
  python3 -m zipfile -e "$EXPCTL_CACHE/wheels/$wheel" "$dir.partial"
  # Unzipping by Python loses who may run what.
  chmod +x "$dir.partial"/cmake/data/bin/*
  touch "$dir.partial/.complete"
  mv -T "$dir.partial" "$dir"
fi
echo "$dir/cmake/data/bin/cmake"
