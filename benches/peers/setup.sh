#!/usr/bin/env bash
# Virtual environments of the peers, each with the packages of requirements/NAME.txt and PyTorch without CUDA.
#
#   benches/peers/setup.sh [PEER|ENVIRONMENT|jemalloc|loaders…]    set up what is named, or everything
#   benches/peers/setup.sh --python PEER                           set up, then print its interpreter on stdout
#
# The environment graphbolt is set up only where it or its peer is named: it downloads 2.6 GB.
#
# PYTHON names the Python 3.12 that they are made from, PYTHON310 the 3.10 of Merlin. What cannot be set up is named with
# the reason, the others go on, and the exit code is then 1. About 3 GB, and 1.1 GB of wheels. "loaders" is the Python package with its
# native module (scripts/python_loaders.sh), which the peers named expctl_* need; it is built with cargo, and again where sources changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/common.sh"
. "$here/venvs.sh"

# Python of a version: the one that is named, or what is found under its usual names.
base_python() { # VERSION NAMED
  local python
  for python in ${2:-"python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python python3}; do
    if "$python" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      echo "$python"; return
    fi
  done
  return 1
}

# Packages that are compiled against PyTorch: against the headers of our libtorch, which the PyTorch in Python has the libraries of. About ten
# minutes of two processors (estimated).
compile_extensions() { # VENV FOLDER
  local python torch libtorch
  python=$(cat "$2/interpreter")
  torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  libtorch=$("$here/../../scripts/libtorch.sh")
  ln -sfn "$libtorch/include" "$torch/include"
  say "    compiling $(grep -o '^[a-z-]*==[0-9.]*' "$here/requirements/$1_extensions.txt" | paste -sd' ')"
  # ninja, which compiles two files at once, is found in the environment.
  PATH="$2/bin:$PATH" FORCE_ONLY_CPU=1 "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --no-cache-dir --require-hashes -r "$here/requirements/$1_extensions.txt" >&2
}

# Makes one environment; its last line on stderr is the reason where it fails.
make_venv() ( # VENV
  set -e
  folder=$(venv_folder "$1") version=3.12 variable=PYTHON
  if [ "$1" = merlin ]; then version=3.10 variable=PYTHON310; fi
  named=${!variable:-}
  base=$(base_python "$version" "$named") || die "no Python $version${named:+ in $named}: $variable names one"
  say "==> peers: $1 into $folder"
  rm -rf "$folder"
  "$base" -m venv "$folder"
  pip=("$folder/bin/pip" install --quiet --disable-pip-version-check)
  # What is there as source alone is built with these, not with what is newest.
  "${pip[@]}" --no-deps --require-hashes -r "$here/../../scripts/requirements/build.txt" >&2
  "${pip[@]}" --no-deps --no-build-isolation --require-hashes -r "$here/requirements/$1.txt" >&2
  if grep -q '^torch==' "$here/requirements/$1.txt"; then
    echo "$folder/bin/python" > "$folder/interpreter"
  else
    bash "$here/../../scripts/torch_python.sh" "$folder/bin/python" > "$folder/interpreter"
  fi
  if [ -e "$here/requirements/$1_extensions.txt" ]; then compile_extensions "$1" "$folder"; fi
  venv_mark "$1" > "$folder/.complete"
)

# jemalloc as Debian has it, unpacked beside the environments: that needs no root. Its reason is the last line too.
make_jemalloc() (
  set -e
  folder=$(venv_folder jemalloc)
  say "==> peers: jemalloc into $folder"
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "libjemalloc2 is a package of Debian, and there is no apt-get or dpkg-deb"
  rm -rf "$folder"; mkdir -p "$folder"; cd "$folder"
  apt-get download libjemalloc2 >&2 || die "apt-get could not download libjemalloc2: apt-get update, as root, fetches its lists"
  dpkg-deb -x libjemalloc2_*.deb .
  rm libjemalloc2_*.deb
  jemalloc_library >/dev/null || die "there is no libjemalloc.so.2 in libjemalloc2"
)

# Our own loaders in Python, for every environment: cargo knows whether they are up to date.
make_loaders() { "$here/../../scripts/python_loaders.sh" >/dev/null; }

print=
if [ "${1:-}" = --python ]; then print=1; shift; [ $# = 1 ] || die "usage: setup.sh --python PEER"; fi
wanted=()
[ $# -gt 0 ] || set -- "${VENVS[@]}" jemalloc loaders
for name; do
  if [ "$name" = jemalloc ] || [ "$name" = loaders ] || [ -e "$here/requirements/$name.txt" ]; then wanted+=("$name")
  else wanted+=("$(venv_of "$name")") || die "there is no peer $name" "peers are $(cd "$here" && echo *_peer.py | sed s/_peer.py//g)"; fi
  case $name in expctl_*) wanted+=(loaders);; esac
done

mkdir -p "$EXPCTL_CACHE/bench/peers"
failed=()
for name in $(printf '%s\n' "${wanted[@]}" | sort -u); do
  reason=$(venv_folder "$name").reason
  # Two set-ups of one environment go one after the other.
  exec 7>"$(venv_folder "$name").lock"
  flock 7
  make=make_venv
  if [ "$name" = jemalloc ]; then
    jemalloc_library >/dev/null && continue
    make=make_jemalloc
  elif [ "$name" = loaders ]; then
    make=make_loaders
  else
    venv_python "$name" >/dev/null && continue
  fi
  "$make" "$name" 2> >(tee "$reason" >&2) &
  if wait $!; then rm -f "$reason"; else
    failed+=("$name")
    sed -i '/^ *$/d; $!d' "$reason"
    say "    $name cannot be set up: $(cat "$reason")"
  fi
done
[ ${#failed[@]} = 0 ] || die "not set up: ${failed[*]}"
[ -z "$print" ] || venv_python "${wanted[0]}"
