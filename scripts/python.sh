#!/usr/bin/env bash
# Python tools that tests compare with and that the examples in tests/python/ need, in a virtual environment.
#
#   scripts/python.sh          set up, then print the interpreter on stdout
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

packages=(anndata==0.12.6 h5py==3.15.1 hdf5plugin==6.0.0 lmdb==1.7.5 numpy==2.3.5 pandas==2.3.3 pyarrow==22.0.0 safetensors==0.7.0 scipy==1.16.3 tqdm==4.67.1 zarr==3.1.6 numcodecs==0.16.5)
venv=$EXPCTL_CACHE/python
mark="$venv/.complete"

mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 9>"$EXPCTL_CACHE/python.lock"
flock 9
if [ "$(cat "$mark" 2>/dev/null)" != "${packages[*]}" ]; then
  say "==> python: ${packages[*]} into $venv"
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages "the Python test environment" python3 python3-venv
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${packages[@]}" >&2 ||
    die "pip could not install ${packages[*]}" "a package index is needed once; PIP_INDEX_URL names another one"
  printf '%s' "${packages[*]}" > "$mark"
fi
echo "$venv/bin/python"
