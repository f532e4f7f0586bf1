#!/usr/bin/env bash
# MLflow, TensorBoard, Weights & Biases, Prometheus' client and polars in Python, for the tests that open what `expctl export` writes.
#
#   scripts/exports_python.sh      set up, then print the interpreter on stdout
#
# They lie beside the packages of scripts/python.sh. The programs in wandb's wheel, which upload, are left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

requirements=$here/requirements/exports.txt

base=$("$here/python.sh")
dir=$EXPCTL_CACHE/python-exports
mark="$(sha256sum < "$requirements") $base"

mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 7>"$EXPCTL_CACHE/python-exports.lock"
flock 7
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$mark" ]; then
  say "==> MLflow, TensorBoard, wandb, Prometheus' client and polars in Python into $dir"
  rm -rf "$dir"; mkdir -p "$dir"
  "$base" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-compile --target "$dir/site" \
    -r "$requirements" >&2 ||
    die "pip could not install what $requirements names" "a package index is needed once; PIP_INDEX_URL names another one"
  rm -rf "$dir/site/wandb/bin" "$dir/site/bin"
  cat > "$dir/python" <<P
#!/bin/sh
# The file store of MLflow 3 has to be asked for. Nothing is to be sent anywhere.
export PYTHONPATH="$dir/site\${PYTHONPATH:+:\$PYTHONPATH}" MLFLOW_ALLOW_FILE_STORE=true MLFLOW_DISABLE_TELEMETRY=true WANDB_MODE=offline
exec "$base" "\$@"
P
  chmod +x "$dir/python"
  printf '%s' "$mark" > "$dir/.complete"
fi
echo "$dir/python"
