#!/usr/bin/env bash
# MosaicML's streaming in Python, which writes and reads MDS shards, for the tests that compare with it.
#
#   scripts/streaming_python.sh    set up, then print the interpreter on stdout; exit with 3 if there is no PyTorch for it
#
# The package is installed without what it asks for, which is SDKs of five clouds, transformers and torchvision: none of it
# is needed to read and write local shards. PyTorch, which it imports, is that of scripts/torch_python.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

requirements=$here/requirements/streaming.txt

torch=$("$here/torch_python.sh")
dir=$EXPCTL_CACHE/python-streaming
mark="$(sha256sum < "$requirements") $torch"

mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 7>"$EXPCTL_CACHE/python-streaming.lock"
flock 7
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$mark" ]; then
  say "==> MosaicML streaming in Python into $dir"
  rm -rf "$dir"; mkdir -p "$dir"
  "$torch" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --target "$dir/site" \
    -r "$requirements" >&2 ||
    die "pip could not install what $requirements names" "a package index is needed once; PIP_INDEX_URL names another one"
  cat > "$dir/python" <<P
#!/bin/sh
export EXPCTL_STREAMING="$dir/site"
exec "$torch" "\$@"
P
  chmod +x "$dir/python"
  printf '%s' "$mark" > "$dir/.complete"
fi
echo "$dir/python"
