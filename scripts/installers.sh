#!/usr/bin/env bash
# uv and pipx, with which docs/guide/install.md installs as well as with pip, and a folder of wheels in place of a package index.
#
#   scripts/installers.sh    set up, then print a folder on stdout; exit with 3 where Python is too old for pipx
#
# bin/ has uv and pipx. index/ has their wheels, among them the pip that pipx takes from the index, and a wheel that stands in for PyTorch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

requirements=$here/requirements/installers.txt
dir=$EXPCTL_CACHE/installers
wanted=$(cat "$requirements" "$here/wheels/stand_in_torch.py" | sha256sum)

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "installers: pipx needs Python 3.11 or newer"; exit 3; }
mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 7>"$EXPCTL_CACHE/installers.lock"
flock 7
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$wanted" ]; then
  say "==> installers: uv and pipx into $dir"
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages "uv and pipx" python3-venv
  rm -rf "$dir"
  python3 -m venv "$dir"
  pip=("$dir/bin/pip" --quiet --disable-pip-version-check)
  "${pip[@]}" download --no-deps --require-hashes --dest "$dir/index" -r "$requirements" >&2 ||
    die "pip could not fetch what $requirements names" "a package index is needed once; PIP_INDEX_URL names another one"
  "${pip[@]}" install --no-index --find-links "$dir/index" pipx uv >&2 || die "pip could not install uv and pipx of $dir/index"
  # As on the index of PyTorch for CPUs.
  "$dir/bin/python" "$here/wheels/stand_in_torch.py" "$dir/index" "$TORCH_VERSION+cpu"
  printf '%s' "$wanted" > "$dir/.complete"
fi
echo "$dir"
