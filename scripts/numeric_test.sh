#!/usr/bin/env bash
# Cargo's runner for scripts/test.sh: runs a test executable if it belongs to one of some packages, else does nothing.
#
#   scripts/numeric_test.sh PACKAGE... -- EXECUTABLE [ARGUMENT...]
set -euo pipefail
packages=()
while [ "$1" != -- ]; do packages+=("$1"); shift; done
shift
# Cargo runs the tests of a package in its folder.
for package in "${packages[@]}"; do
  case $PWD in */crates/"$package") exec "$@";; esac
done
