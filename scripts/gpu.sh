#!/usr/bin/env bash
# What needs a GPU: tests and benchmarks.
#
#   scripts/gpu.sh test             the tests; each that cannot run says that it is SKIPPED, and why
#   scripts/gpu.sh bench [NAME …]   the parts of scripts/gpu.tsv with these names, without names all of them, in the order of that list;
#                                   a part that is complete on such a GPU is skipped: rm results/gpu/NAME.txt has it measured again
#   scripts/gpu.sh list             the parts
#   scripts/gpu.sh bundle           all that tests and benchmarks need in .gpu.tar.xz, for a machine with PyTorch and without Rust: carry
#                                   it with the clone and run them there
#
# When a part ends it leaves its note (results/gpu/NAME.md), its pictures, its record (records/NAME.json) and NAME.txt, which says on which
# machine it ran and how it ended. A part that reaches its time limit is stopped and leaves the same of what it has.
#
#   OUT=DIR                  after each part, DIR/gpu.tar.gz has the results so far and the tables of the jobs
#   EXPCTL_GPU_SECONDS=N     begins no part that might end later than N seconds after the start
#   EXPCTL_GPU_DIR=DIR       results go there in place of results/gpu
#   EXPCTL_GPU_SET="key=value …", EXPCTL_GPU_PARTS=FILE
#                            further --set of jobs, and another list of parts, to try the script with small ones
#   EXPCTL_PEER_PYTHON=FILE  the Python that PyTorch's side runs in [default: python3]
#   EXPCTL_BUNDLE=1          takes what is in .gpu.tar.xz also where there is cargo
#
# libtorch is the PyTorch of python3 where that is the right one for CUDA; EXPCTL_LIBTORCH names another.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
cd "$here/.."
bundle=.gpu
list=${EXPCTL_GPU_PARTS:-scripts/gpu.tsv}
dir=${EXPCTL_GPU_DIR:-results/gpu}
# Folder of the programs; those of a bundle where nothing can be built.
bundled=
if [ "${1:-}" != bundle ] && [ -e $bundle.tar.xz ]; then
  if [ -n "${EXPCTL_BUNDLE:-}" ] || ! command -v cargo >/dev/null; then
    bundled=1
    rm -rf $bundle; tar -xf $bundle.tar.xz 2>/dev/null || python3 -m tarfile -e $bundle.tar.xz . # where there is no xz
  else
    say "note: $bundle.tar.xz is not used, because there is cargo; EXPCTL_BUNDLE=1 uses it"
  fi
fi
programs=${EXPCTL_BIN:-$PWD/bin}
[ -z "$bundled" ] || programs=$PWD/$bundle

# Prints the PyTorch folder of python3, if it is the version that expctl is built against, for CUDA.
site_torch() {
  python3 - "$TORCH_VERSION" <<'P' 2>/dev/null
import importlib.util, pathlib, re, sys
folder = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
version = re.search(r"__version__\s*=\s*'([^'+]+)", (folder / "version.py").read_text())[1]
if version == sys.argv[1] and (folder / "lib/libtorch_cuda.so").exists():
    print(folder)
P
}

with_libraries() {
  local site
  site=${EXPCTL_LIBTORCH:-$(site_torch || true)}
  [ -z "$site" ] || export EXPCTL_LIBTORCH=$site LD_LIBRARY_PATH="$site/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export EXPCTL_TEST_GPU=1
  [ -n "$bundled" ] || return 0
  export PATH="$programs:$PATH" EXPCTL_BIN=$programs
  # A copy of the clone without its history: with the commit of the bundle, records say which code measured, and whether it was changed.
  # It may belong to another user than the files beside it, which git is told to put up with.
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$PWD
  if [ ! -e .git ] && [ -e $bundle/git ] && command -v git >/dev/null; then
    cp -r $bundle/git .git
    git config core.bare false && git reset -q || { rm -rf .git; say "note: git does not take the history of the bundle"; }
  fi
}

gpus() { nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /' || true; }

# The commit that measures, with -dirty where anything but results differs from it.
commit() {
  local commit
  commit=$(git describe --always --abbrev=12 --exclude='*' 2>/dev/null) || { cat $bundle/commit 2>/dev/null || echo unknown; return; }
  git diff --quiet HEAD -- . ':(exclude)results' 2>/dev/null || commit+=-dirty
  echo "$commit"
}

machine() {
  echo "date: $(date -u +%Y-%m-%dT%H:%MZ)"
  echo "commit: $(commit)"
  gpus
  echo "cpu: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) processors"
  echo "libtorch: ${EXPCTL_LIBTORCH:-as built}"
}

# Test programs, NAME PATH: of the bundle, or built now.
executables() {
  local file
  if [ -n "$bundled" ]; then
    for file in $bundle/test-*; do [ ! -e "$file" ] || echo "${file#"$bundle"/test-} $file"; done
    return
  fi
  # All packages are selected, so that cargo takes what `make build` has built.
  cargo test --release --locked --workspace --no-run --lib --test integration --message-format=json | python3 -c '
import json, pathlib, sys
names = {("crates/torch-dist", "integration"): "torch_dist", ("crates/worker", "expctl_worker"): "expctl_worker", (".", "integration"): "expctl"}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test"):
        folder = pathlib.Path(message["manifest_path"]).parent.relative_to(pathlib.Path.cwd())
        name = names.get((str(folder), message["target"]["name"]))
        if name:
            print(name, message["executable"])'
}

# An example of crates/worker, by path: of the bundle, or built now.
example() { # NAME
  if [ -x "$programs/$1" ]; then echo "$programs/$1"; return; fi
  cargo build --release --locked --workspace --example "$1" >&2 && echo "${CARGO_TARGET_DIR:-target}/release/examples/$1"
}

run_tests() {
  local failed=0 count=0 tests name path filter
  with_libraries
  machine
  tests=$(executables) || die "the tests cannot be built"
  [ -n "$tests" ] || die "there is no test to run" "scripts/gpu.sh bundle makes the bundle anew"
  while read -r name path; do
    echo "==> $name"
    filter=()
    case $name in
      torch_dist) filter=(cuda::);;
      expctl_worker) filter=(tests::gpu);;
      expctl) filter=(gpu::);;
    esac
    # One after another: they share the GPU, and the profiler is one a process. The list is on this loop's standard input.
    "$path" --test-threads=1 --nocapture "${filter[@]}" < /dev/null 2>&1 || failed=1
    count=$((count + 1))
  done <<< "$tests"
  echo "==> $count test programs ran"
  return $failed
}

make_bundle() {
  local tests name path program
  command -v xz >/dev/null || need_packages "the bundle" xz-utils
  tests=$(executables) || die "the tests cannot be built"
  rm -rf $bundle; mkdir $bundle
  while read -r name path; do strip -o "$bundle/test-$name" "$path"; done <<< "$tests"
  path=$(example gpu_timing_cost) || die "the example gpu_timing_cost cannot be built"
  strip -o $bundle/gpu_timing_cost "$path"
  for program in expctl expctl-worker; do strip -o "$bundle/$program" "${CARGO_TARGET_DIR:-target}/release/$program"; done
  git describe --always --dirty --abbrev=12 --exclude='*' > $bundle/commit
  # The last commit and its folders; git tells by checksums whether a file has changed, so the files themselves are left out.
  git clone -q --bare --depth 1 --filter=blob:none --upload-pack 'git -c uploadpack.allowFilter=true upload-pack' "file://$PWD" $bundle/git
  XZ_OPT="-6e -T0" tar -cJf $bundle.tar.xz $bundle; rm -rf $bundle
  say "==> $bundle.tar.xz: $(du -sh $bundle.tar.xz | cut -f1)"
}

# Whether the part was measured to its end on such a GPU: results of another machine may lie in the clone.
is_complete() { # NAME
  grep -qx "ended: complete" "$dir/$1.txt" 2>/dev/null && [ "$(grep '^gpu: ' "$dir/$1.txt")" = "$(gpus)" ]
}

# The rows as annbatch reads them, and all files read once, so that each loader finds them in the page cache.
prepare_gpu_rows() {
  local data; data=$("$programs/expctl" data build arrayloader --samples 20000) || return 1
  if "$EXPCTL_PEER_PYTHON" -c 'import annbatch' 2>/dev/null; then
    PYTHONPATH=benches/peers "$EXPCTL_PEER_PYTHON" benches/peers/formats.py annbatch.zarr "$data/peers" "$data"/files/part-*.h5ad >&2 || return 1
  fi
  find -L "$data" -type f -exec cat {} + > /dev/null
}

# Runs a job and writes what is known of it; the exit code is that of the job, 124 where it was stopped. Sets `job`.
measure_job() { # NAME KIND LIMIT ARGUMENTS…
  local name=$1 kind=$2 limit=$3 config status=0 report set; shift 3
  local arguments=("$@")
  for set in ${EXPCTL_GPU_SET:-}; do arguments+=(--set "$set"); done
  # expctl alone is told to stop: it ends the ranks, and a second signal would end it before it has written the note.
  job=$(timeout --foreground -k 60 "$limit" "$programs/expctl" submit "${arguments[@]}" --backend local --wait) || status=$?
  [ -n "$job" ] || return "$status"
  config=$(basename "$1" .toml)
  # The note that a job writes by itself is written again under the part's name.
  forget_note results "${config}_$job"
  report=("$programs/expctl" report "$job" --notes "$dir" --name "$name" --record "$dir/records/$name.json")
  # What documents may not cite has a record that says why.
  "${report[@]}" >&2 || "${report[@]}" --force >&2 || true
  [ -e "$dir/$name.md" ] && [ -e "$dir/records/$name.json" ] || [ "$status" != 0 ] || status=70
  if [ "$kind" = trace ]; then
    "$programs/expctl" trace "$job" > "$dir/$name.trace.md" || [ "$status" != 0 ] || status=6
  fi
  return "$status"
}

# The figures that an example prints, and its record.
measure_program() { # NAME LIMIT PROGRAM ARGUMENTS…
  local name=$1 limit=$2 path status=0; shift 2
  path=$(example "$1") || return 1
  shift
  {
    printf '# %s\n\n```\n' "$name"
    EXPCTL_BENCH_RECORD=$(realpath "$dir/records")/$name.json timeout --foreground -k 60 "$limit" "$path" "$@" || status=$?
    printf '```\n'
  } > "$dir/$name.md"
  return "$status"
}

# Notes, pictures and records, and the tables of the jobs. Traces and checkpoints stay here: they are large, and summaries of traces are in the notes.
pack() {
  local name job
  [ -n "${OUT:-}" ] || return 0
  {
    find "$dir" -type f
    sed -n 's/^job: //p' "$dir"/*.txt | while read -r job; do
      [ ! -d "${EXPCTL_RUNS:-results/runs}/$job" ] || find "${EXPCTL_RUNS:-results/runs}/$job" -type f ! -name '*trace*' ! -path '*/checkpoint/*'
    done
  } | tar -czf "$OUT/gpu.tar.gz.partial" --no-recursion -T - && mv "$OUT/gpu.tar.gz.partial" "$OUT/gpu.tar.gz" ||
    { say "note: the results could not be packed into $OUT"; return 0; }
  say "==> $OUT/gpu.tar.gz: $(du -h "$OUT/gpu.tar.gz" | cut -f1)"
}

# Measures a part and says how it ended; 0 if it is complete.
part() { # NAME KIND LIMIT ARGUMENTS MODULE ARGUMENTS
  local name=$1 kind=$2 limit=$3 module=$5 arguments=() more=() status=0 ended
  read -r -a arguments <<< "$4"
  if [ -n "$module" ]; then
    if "$EXPCTL_PEER_PYTHON" -c "import $module" 2>/dev/null; then
      read -r -a more <<< "$6"
      arguments+=("${more[@]}")
    else
      say "SKIPPED $name, $6: $EXPCTL_PEER_PYTHON has no $module"
    fi
  fi
  say "==> $name: ${arguments[*]}, at most $limit s"
  job=
  forget_note "$dir" "$name"
  rm -f "$dir/$name.txt" "$dir/$name.trace.md" "$dir/records/$name.json"
  if declare -F "prepare_$name" >/dev/null && ! "prepare_$name"; then
    status=1
  elif [ "$kind" = program ]; then
    measure_program "$name" "$limit" "${arguments[@]}" || status=$?
  else
    measure_job "$name" "$kind" "$limit" "${arguments[@]}" || status=$?
  fi
  case $status in
    0) ended=complete;;
    124) ended="stopped after $limit s";;
    *) ended="failed with exit code $status";;
  esac
  { machine; [ -z "$job" ] || echo "job: $job"; echo "ended: $ended"; } > "$dir/$name.txt"
  say "==> $name: $ended"
  pack
  [ "$status" = 0 ]
}

bench() { # NAME…
  local wanted=" $* " line name kind limit arguments extra module failed=0 begun=$SECONDS
  local lines left=()
  export EXPCTL_PEER_PYTHON=${EXPCTL_PEER_PYTHON:-python3}
  mapfile -t lines < <(grep -v '^#' "$list")
  for name; do grep -q -P "^\Q$name\E\t" "$list" || die "there is no part $name in $list" "scripts/gpu.sh list names them"; done
  with_libraries
  nvidia-smi -L >/dev/null 2>&1 || { say "==> SKIPPED: nvidia-smi shows no GPU to measure on"; return 0; }
  mkdir -p "$dir/records"
  # A GPU that no process uses is set up anew for each trial. This process keeps it set up until the script ends and closes its input.
  exec {keeper}> >("$EXPCTL_PEER_PYTHON" -c 'import sys, torch; torch.zeros(1, device="cuda"); sys.stdin.read()' >/dev/null 2>&1)
  for line in "${lines[@]}"; do
    IFS=$'\t' read -r name kind limit _ arguments extra <<< "$line"
    [ $# = 0 ] || [[ $wanted == *" $name "* ]] || continue
    if is_complete "$name"; then say "==> $name: complete already"; continue; fi
    if [ $((SECONDS - begun + limit + 60)) -gt "${EXPCTL_GPU_SECONDS:-$((1 << 30))}" ]; then
      left+=("$name")
      continue
    fi
    module=${extra%% *}
    part "$name" "$kind" "$limit" "$arguments" "$module" "${extra#* }" || failed=1
  done
  exec {keeper}>&-
  [ ${#left[@]} = 0 ] || say "==> not begun, for want of time: ${left[*]}"
  return $failed
}

case ${1:-} in
  test) run_tests;;
  bench) bench "${@:2}";;
  list) grep -v '^#' "$list" | cut -f1,3,5- | column -t -s "$(printf '\t')";;
  bundle) make_bundle;;
  *) die "usage: scripts/gpu.sh test | bench [NAME ...] | list | bundle";;
esac
