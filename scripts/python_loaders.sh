#!/usr/bin/env bash
# The Python package of python/ with its native module, built by maturin, for the tests of expctl.data.
#
#   scripts/python_loaders.sh     build and install, then print the folder for PYTHONPATH on stdout
#
# The module is for every Python from 3.10 on, so that one folder serves the interpreters of scripts/python.sh and
# scripts/torch_python.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

maturin=1.16.0
root=$(dirname "$here")
base=$("$here/python.sh")
dir=$EXPCTL_CACHE/python-loaders
tools=$dir/maturin-$maturin

mkdir -p "$dir"
# Tests call this at the same time: one builds, the others wait.
exec 7>"$dir/lock"
flock 7
if [ ! -e "$tools/.complete" ]; then
  say "==> maturin $maturin into $tools"
  "$base" -m pip install --quiet --disable-pip-version-check --only-binary :all: --target "$tools" "maturin==$maturin" >&2 ||
    die "pip could not install maturin==$maturin" "a package index is needed once; PIP_INDEX_URL names another one"
  touch "$tools/.complete"
fi
export CMAKE=${CMAKE:-$("$here/cmake.sh")} CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$EXPCTL_CACHE/target}
rm -rf "$dir/wheels"
(cd "$root/python" && PATH="$tools/bin:$PATH" PYTHONPATH="$tools" \
  maturin build --release --locked --quiet --interpreter "$base" --out "$dir/wheels") >&2
"$base" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --upgrade --target "$dir/site.new" "$dir"/wheels/*.whl >&2
# Whoever runs with the old folder keeps its open files.
rm -rf "$dir/site.old"
[ ! -e "$dir/site" ] || mv "$dir/site" "$dir/site.old"
mv "$dir/site.new" "$dir/site"
rm -rf "$dir/site.old"
echo "$dir/site"
