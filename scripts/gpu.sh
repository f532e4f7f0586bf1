#!/usr/bin/env bash
# What needs a GPU: tests and benchmarks.
#
#   scripts/gpu.sh test            the tests; each that cannot run says that it is SKIPPED, and why
#   scripts/gpu.sh bench [NAME …]  conf/NAME.toml; without names conf/gpu_masks.toml and conf/gpu_ddp.toml; notes, and what ran where, into results/gpu/
#   scripts/gpu.sh bundle          all that the two need in .gpu.tar.gz, for a machine with PyTorch and without Rust: carry it with
#                                  the clone and run them there
#
# libtorch is the site's PyTorch where python3 has one for CUDA; EXPCTL_LIBTORCH names another.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
cd "$here/.."
bundle=.gpu
if [ -e $bundle.tar.gz ] && [ "${1:-}" != bundle ]; then rm -rf $bundle; tar -xzf $bundle.tar.gz; fi

# Prints the PyTorch folder of python3, if it is one for CUDA.
site_torch() {
  python3 - <<'P' 2>/dev/null
import importlib.util, pathlib
folder = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
if (folder / "lib/libtorch_cuda.so").exists():
    print(folder)
P
}

# Test executables: of the bundle, or built now. Prints NAME PATH.
executables() {
  if [ -d "$bundle" ]; then
    for file in "$bundle"/test-*; do echo "$(basename "$file" | cut -c6-) $file"; done
    return
  fi
  built -p expctl-dist --test cuda
  built -p expctl-worker --lib
  built -p expctl --test gpu
}

built() { # CARGO ARGUMENTS of one test executable
  cargo test --release --locked --no-run --message-format=json "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test"):
        print(message["target"]["name"], message["executable"])'
}

with_libraries() {
  local site
  site=${EXPCTL_LIBTORCH:-$(site_torch || true)}
  [ -z "$site" ] || export EXPCTL_LIBTORCH=$site LD_LIBRARY_PATH="$site/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export PATH="$PWD/$bundle:$PATH" EXPCTL_TEST_GPU=1
  [ ! -d "$bundle" ] || export EXPCTL_BIN="$PWD/$bundle"
}

machine() {
  echo "date: $(date -u +%Y-%m-%dT%H:%MZ)"
  echo "commit: $(git describe --always --dirty --abbrev=12 2>/dev/null || cat "$bundle/commit" 2>/dev/null || echo unknown)"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /' || true
  echo "cpu: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) processors"
  echo "libtorch: ${EXPCTL_LIBTORCH:-as built}"
}

run_tests() {
  local failed=0 name path
  with_libraries
  machine
  while read -r name path; do
    echo "==> $name"
    case $name in
      expctl_worker) set -- device::gpu_cases;;
      *) set --;;
    esac
    # One after another: they share the GPU, and the profiler is one a process.
    "$path" --test-threads=1 --nocapture "$@" 2>&1 || failed=1
  done < <(executables)
  return $failed
}

case ${1:-} in
  test)
    run_tests
    ;;
  bench)
    with_libraries
    command -v nvidia-smi >/dev/null || { say "==> SKIPPED: no nvidia-smi, so no GPU to measure on"; exit 0; }
    expctl=$([ -d "$bundle" ] && echo "$bundle/expctl" || echo bin/expctl)
    # Nothing but the notes is to stay in results/.
    export EXPCTL_RUNS=${EXPCTL_RUNS:-$(mktemp -d)} EXPCTL_PEER_PYTHON=${EXPCTL_PEER_PYTHON:-python3}
    mkdir -p results/gpu
    machine | tee results/gpu/machine.txt
    configs=("${@:2}")
    [ ${#configs[@]} -gt 0 ] || configs=(gpu_masks gpu_ddp)
    for config in "${configs[@]}"; do
      job=$("$expctl" submit "conf/$config.toml" --backend local --wait | tail -1) || say "==> $config: not all trials completed"
      note=$(ls -t results/"$config"_*.md | head -1)
      name=$(basename "$note" .md)
      sed "s/${name}_/${config}_/g" "$note" > "results/gpu/$config.md"
      mkdir -p results/gpu/assets/images
      for picture in rates stages times; do
        [ ! -e "results/assets/images/${name}_$picture.svg" ] ||
          mv "results/assets/images/${name}_$picture.svg" "results/gpu/assets/images/${config}_$picture.svg"
      done
      rm -f "$note"
      say "==> $config: job $job, results/gpu/$config.md"
    done
    ;;
  bundle)
    rm -rf "$bundle"; mkdir "$bundle"
    while read -r name path; do
      strip -o "$bundle/test-$name" "$path"
    done < <({ built -p expctl-dist --test cuda; built -p expctl-worker --lib; built -p expctl --test gpu; })
    for program in expctl expctl-worker; do strip -o "$bundle/$program" "${CARGO_TARGET_DIR:-target}/release/$program"; done
    git describe --always --dirty --abbrev=12 > "$bundle/commit"
    tar -czf "$bundle.tar.gz" "$bundle"; rm -rf "$bundle"
    say "==> $bundle.tar.gz: $(du -sh "$bundle.tar.gz" | cut -f1)"
    ;;
  *)
    die "usage: scripts/gpu.sh test | bench [CONFIG ...] | bundle"
    ;;
esac
