#!/usr/bin/env bash
# Python tools that tests compare with and that the examples in tests/python/ need, in a virtual environment.
#
#   scripts/python.sh          set up, then print the interpreter on stdout
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

requirements=$here/requirements/tests.txt
venv=$EXPCTL_CACHE/python
mark="$venv/.complete"
wanted=$(sha256sum < "$requirements")

mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 9>"$EXPCTL_CACHE/python.lock"
flock 9
if [ "$(cat "$mark" 2>/dev/null)" != "$wanted" ]; then
  say "==> python: $(grep -c '^[a-zA-Z].*==' "$requirements") packages of scripts/requirements/tests.txt into $venv"
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages "the Python test environment" python3 python3-venv
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$requirements" >&2 ||
    die "pip could not install what $requirements names" "a package index is needed once; PIP_INDEX_URL names another one"
  printf '%s' "$wanted" > "$mark"
fi
echo "$venv/bin/python"
