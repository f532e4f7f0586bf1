#!/usr/bin/env bash
# The Python peers of the array loader, in a virtual environment of their own.
#
#   benches/arrayloader/setup.sh    set up, then print the interpreter on stdout
#
# PYTHON names the interpreter that the environment is made from; it must be 3.12. What cannot be installed is named on
# stderr and in the environment's file `missing`; the benchmark then has no line of it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/common.sh"

base=${PYTHON:-python3.12}
venv=$EXPCTL_CACHE/bench/arrayloader-venv
packages=("annbatch[zarrs]==0.3.1" anndata==0.13.2 zarrs==0.2.3 zarr==3.4.2 h5py==3.16.0 numpy==2.5.5 pandas==3.1.1
  pyarrow==22.0.0 scipy==1.18.1 psutil==7.2.2 pooch==1.9.0 "pydantic[email]==2.14.3")
# Without what they ask for: PyTorch, which comes without CUDA below.
alone=(scDataset==0.3.0 bionemo-scdl==0.1.3)
large=(lamindb==2.12.1)
mark="${packages[*]} ${alone[*]} ${large[*]}"

mkdir -p "$EXPCTL_CACHE/bench"
exec 7>"$EXPCTL_CACHE/bench/arrayloader-venv.lock"
flock 7
if [ "$(cat "$venv/.complete" 2>/dev/null)" != "$mark" ]; then
  "$base" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null ||
    die "$base is not Python 3.12, which the peers need" "PYTHON=/path/to/python3.12 names another one"
  say "==> peers of the array loader into $venv"
  rm -rf "$venv"
  "$base" -m venv "$venv"
  : > "$venv/missing"
  install() { # PIP OPTIONS AND PACKAGES
    "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@" >&2 && return
    for last in "$@"; do :; done
    say "    $last cannot be installed"
    printf '%s\n' "$last" >> "$venv/missing"
  }
  for package in "${packages[@]}" "${large[@]}"; do install "$package"; done
  for package in "${alone[@]}"; do install --no-deps "$package"; done
  printf '%s' "$mark" > "$venv/.complete"
fi
exec bash "$here/../../scripts/torch_python.sh" "$venv/bin/python"
