#!/usr/bin/env bash
# The Python package of python/ with its native module, for the tests of expctl.data.
#
#   scripts/python_loaders.sh     build, then print the folder for PYTHONPATH on stdout
#
# The module is built with all crates and tests, so that what cargo has built for the tests is not built again with other features; the wheel
# that `pip install ./python` makes has the same files. It is for every Python from 3.10 on: one folder serves all interpreters.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

root=$(dirname "$here")
dir=$EXPCTL_CACHE/python-loaders
target=${CARGO_TARGET_DIR:-$EXPCTL_CACHE/target}
# Cargo sets CARGO_PKG_NAME and the like for a test that runs this. Build scripts that depend on them (ring's) would run again, and with
# them all that stands on them would be built again.
for name in "${!CARGO_@}"; do
  [ "$name" = CARGO_HOME ] || unset "$name"
done
export CMAKE=${CMAKE:-$("$here/cmake.sh")} LIBTORCH=${LIBTORCH:-$("$here/libtorch.sh")} LIBTORCH_CXX11_ABI=1
export CARGO_TARGET_DIR=$target

mkdir -p "$dir"
# Tests call this at the same time: one builds, the others wait.
exec 7>"$dir/lock"
flock 7
(cd "$root" && cargo build --release --workspace --locked --lib --bins --tests --quiet) >&2
rm -rf "$dir/site.new" "$dir/site.old"
mkdir "$dir/site.new"
cp -r "$root/python/src/expctl" "$dir/site.new/expctl"
cp "$target/release/libpython_loaders.so" "$dir/site.new/expctl/_native.abi3.so"
# Whoever runs with the old folder keeps its open files.
[ ! -e "$dir/site" ] || mv "$dir/site" "$dir/site.old"
mv "$dir/site.new" "$dir/site"
rm -rf "$dir/site.old"
echo "$dir/site"
