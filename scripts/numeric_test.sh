#!/usr/bin/env bash
# Cargo's runner for scripts/test.sh: runs a test executable. Those of some packages, the numeric ones, run as many tests at a time as there are
# processors: their tests compute rather than wait, and threads of libtorch that wait for each other spin.
#
#   scripts/numeric_test.sh all|alone PACKAGE... -- EXECUTABLE [ARGUMENT...]
#
# With `alone`, executables of other packages do nothing.
set -euo pipefail
others=$1 packages=()
shift
while [ "$1" != -- ]; do packages+=("$1"); shift; done
shift
# Cargo runs the tests of a package in its folder.
for package in "${packages[@]}"; do
  case $PWD in */crates/"$package") RUST_TEST_THREADS=$(nproc) exec "$@";; esac
done
[ "$others" = alone ] || exec "$@"
