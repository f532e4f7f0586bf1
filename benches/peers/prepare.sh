#!/usr/bin/env bash
# Makes the peers' own formats from the .h5ad files of a data set, beside them: DATASET/peers/FORMAT, complete or not there.
#
#   benches/peers/prepare.sh DATASET [FORMAT…]    annbatch.zarr, scdl, tiledbsoma, mds; all of them, if none is named
#
# DATASET is what `expctl data build` prints. Environments that a format needs are set up first. What cannot be made is
# named, the others go on, and the exit code is then 1. Of 2 GB of .h5ad files they are 4.5 GB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/common.sh"
[ $# -ge 1 ] || die "usage: prepare.sh DATASET [FORMAT…]"
data=$1; shift
files=("$data"/files/part-*.h5ad)
[ -e "${files[0]}" ] || die "no files/part-*.h5ad in $data" "expctl data build prints the folder of a data set"
formats=("$@")
[ $# -gt 0 ] || formats=(annbatch.zarr scdl tiledbsoma mds)

failed=()
for format in "${formats[@]}"; do
  case $format in
    annbatch.zarr) peer=annbatch;;
    scdl) peer=scdl;;
    tiledbsoma) peer=tiledbsoma;;
    mds) peer=streaming;;
    *) die "there is no format $format" "formats are annbatch.zarr, scdl, tiledbsoma and mds";;
  esac
  [ ! -e "$data/peers/$format" ] || continue
  mkdir -p "$data/peers"
  exec 7>"$data/peers/$format.lock"
  flock 7
  say "==> $format in $data/peers"
  if python=$("$here/setup.sh" --python "$peer") && "$python" "$here/formats.py" "$format" "$data/peers" "${files[@]}" >&2; then
    du -sh "$data/peers/$format" >&2
  else
    failed+=("$format")
  fi
done
[ ${#failed[@]} = 0 ] || die "not made: ${failed[*]}"
