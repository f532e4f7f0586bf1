#!/usr/bin/env bash
# The demo: two real jobs on this machine, and what their notes say. Run through `make demo`.
set -euo pipefail
# A build that fails ends the script: programs of an earlier one may be there.
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
. scripts/common.sh

# Prints the folder of the programs: those of the wheels, where `make wheels` made them of these sources, else what cargo builds.
programs() {
  local wheels=(dist/expctl_hpc-*.whl dist/expctl_worker-*.whl) env=$EXPCTL_CACHE/demo newer=none packages
  if [ -e "${wheels[0]}" ] && [ -e "${wheels[1]}" ]; then
    newer=$(find Cargo.lock Cargo.toml crates src python -type f -newer "${wheels[0]}" ! -path '*/__pycache__/*' -print -quit)
  fi
  if [ -n "$newer" ]; then
    make -s build >&2
    echo "$PWD/bin"
    return
  fi
  say "==> demo: the programs of dist/*.whl, in $env"
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages "an environment for the wheels" python3-venv
  rm -rf "$env"
  python3 -m venv "$env"
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "${wheels[@]}" >&2
  # The libtorch that is here already, in the place of PyTorch's wheel, of which it is a part.
  packages=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  ln -s "$LIBTORCH" "$packages/torch"
  echo "$env/bin"
}

folder=$(programs)
export PATH=$folder:$PATH EXPCTL_BACKEND=local

run() { # CONFIG [OPTION...]
  say "==> expctl submit $*"
  local job
  job=$(expctl submit --wait "$@")
  note=$(expctl report "$job")
}

run conf/demo.toml
first=$note
# The published way of loading keeps batches of 1.2 GB ahead; on a small machine fewer of them.
available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
small=()
if [ "$available" -lt 16384 ]; then
  say "==> $available MiB of memory are free: batches may take half of them"
  small=(--set "loader.buffer_mib=$((available / 2))")
fi
run conf/086_dataloader.toml "${small[@]}"
second=$note

# Of a note, the summary and the first table of its results.
short() { # NOTE
  awk '/^<!-- expctl:begin (summary|results) /{ on = 1; table = 0; next }
       /^<!-- expctl:end / || (table && !/^\|/) { on = 0 }
       on { print }
       /^\|/ { table = 1 }' "$1"
}

for n in "$first" "$second"; do
  say ""; say "==> $n"; say ""
  short "$n"
done
say ""
say "Published results in the same form: expctl compare 392 447 456"
say "The whole notes of this run:"
printf '%s\n' "$first" "$second"
