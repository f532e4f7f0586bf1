#!/usr/bin/env bash
# Makes the peers' own formats from the .h5ad files of a data set, beside them: DATASET/peers/FORMAT, complete or not there. Then reads all
# files of the data set and of these formats once, so that each loader finds its files in the page cache.
#
#   benches/peers/prepare.sh DATASET [FORMAT…]    annbatch.zarr, scdl, tiledbsoma, mds, slaf, lance; the first four, if none is named
#   benches/peers/prepare.sh DATASET warm         reads the files alone
#   benches/peers/prepare.sh --cold DATASET FORMAT…    makes formats, and reads nothing at the end
#
# DATASET is what `expctl data build` prints. Environments that a format needs are set up first. What cannot be made is
# named, the others go on, and the exit code is then 1. Of 2 GB of .h5ad files they are 4.5 GB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/common.sh"
cold=
if [ "${1:-}" = --cold ]; then cold=1; shift; fi
[ $# -ge 1 ] || die "usage: prepare.sh [--cold] DATASET [FORMAT…|warm]"
data=$1; shift
files=("$data"/files/part-*.h5ad)
[ -e "${files[0]}" ] || die "no files/part-*.h5ad in $data" "expctl data build prints the folder of a data set"
formats=("$@")
[ $# -gt 0 ] || formats=(annbatch.zarr scdl tiledbsoma mds)

# Reads every file that a loader reads. It is an error if they do not fit into memory together: then what is read last pushes out what
# was read first, and whichever peer comes next is measured cold.
warm() {
  local folders=() folder size available
  for folder in files stores/parquet stores/zarr peers; do
    [ ! -e "$data/$folder" ] || folders+=("$data/$folder")
  done
  size=$(du -Lsc -m "${folders[@]}" | tail -n 1 | cut -f1)
  available=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
  say "==> reading $size MiB of $data into the page cache"
  [ "$size" -lt "$available" ] || die "$size MiB of files do not fit into $available MiB of memory that is available" \
    "free memory, or use a data set with fewer samples; peers would be measured cold, each as its turn happens to come"
  find -L "${folders[@]}" -type f -exec cat {} + > /dev/null
}
if [ "${formats[*]}" = warm ]; then
  warm
  exit
fi

failed=()
for format in "${formats[@]}"; do
  case $format in
    annbatch.zarr) peer=annbatch;;
    scdl) peer=scdl;;
    tiledbsoma) peer=tiledbsoma;;
    mds) peer=streaming;;
    slaf) peer=slaf;;
    lance) peer=lance;;
    *) die "there is no format $format" "formats are annbatch.zarr, scdl, tiledbsoma, mds, slaf and lance; warm stands alone";;
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
[ -n "$cold" ] || warm
[ ${#failed[@]} = 0 ] || die "not made: ${failed[*]}"
