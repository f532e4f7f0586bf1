#!/usr/bin/env bash
# Array loaders side by side: ours and Python's, on the same files, in turn.
#
#   benches/arrayloader/run.sh DATA OUT [options of run.py]
#
# DATA/h5ad has the .h5ad files (`expctl data build`; 8 × 25,000 × 20,000 are drawn if there are none); the peers' own
# formats are made from them once. Set MAKE_DATA to other options of make_data.py, for example "--files 2 --rows 3000
# --genes 2000".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/common.sh"
[ $# -ge 2 ] || die "usage: run.sh DATA OUT [options of run.py]"
data=$1 out=$2; shift 2

python=$("$here/setup.sh")
cargo build --release --manifest-path "$here/../../Cargo.toml" -p expctl-pipeline --example array_rates --example array_floor >&2
target=$(cargo metadata --no-deps --format-version 1 --manifest-path "$here/../../Cargo.toml" |
  "$python" -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
read -ra make <<< "${MAKE_DATA:-}"
"$python" "$here/make_data.py" "$data" "${make[@]}" >&2
export ARRAY_RATES=$target/release/examples/array_rates ARRAY_FLOOR=$target/release/examples/array_floor
exec "$python" "$here/run.py" --data "$data" --out "$out" "$@"
