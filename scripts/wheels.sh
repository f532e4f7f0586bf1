#!/usr/bin/env bash
# Wheels for every Linux on x86-64 with glibc 2.28 or newer and Python 3.10 or newer, into dist/:
#
#   expctl_hpc      the program expctl, the Python package with the loaders; without libtorch
#   expctl_worker   the program expctl-worker, for the libtorch of PyTorch 2.11's own wheel
#
#   scripts/wheels.sh              build, pack and check both
#   scripts/wheels.sh tested DIR   the same of what `make test` builds and runs, into DIR: larger programs (profile release); half a minute once
#                                  that is built, which it is here if need be, so that `cargo test` builds nothing again
#
# The compiler is this system's; what is linked with are stubs of older libraries (scripts/wheels/sysroot.sh). The check at the end fails if a
# program asks for a newer symbol than manylinux_2_28 has, looks for libraries where they were built or, of the first kind, names files of the one
# who built it, which would make it another program for each who builds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
root=$(dirname "$here")
tools=$EXPCTL_CACHE/wheel-tools
triple=x86_64-unknown-linux-gnu

setup_tools() {
  local requirements=$here/requirements/wheels.txt wanted
  wanted=$(cat "$requirements" "$here"/wheels/{sysroot.sh,stub_library.py,older_libstdcxx.cpp,hdf5_settings.c,older-gcc} | sha256sum)
  [ "$(cat "$tools/.complete" 2>/dev/null)" != "$wanted" ] || return 0
  say "==> wheels: tools and stubs of glibc 2.28 into $tools"
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages "making wheels" python3-venv
  rm -rf "$tools"
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --no-compile --disable-pip-version-check --require-hashes -r "$requirements" >&2 ||
    die "pip could not install what $requirements names" "a package index is needed once; PIP_INDEX_URL names another one"
  "$here/wheels/sysroot.sh" "$tools/sysroot" "$tools/bin/python" >&2
  # Cargo builds everything anew for another path of the linker, and rustc tells by the name that its arguments are those of gcc.
  cp "$here/wheels/older-gcc" "$tools/older-gcc"
  printf '%s' "$wanted" > "$tools/.complete"
}

# Programs that pip installs into a folder `bin` look for libtorch in the packages of the same environment, whichever Python it has.
runpath() {
  local minor paths=()
  for minor in 10 11 12 13 14; do paths+=("\$ORIGIN/../lib/python3.$minor/site-packages/torch/lib"); done
  local IFS=:
  echo "${paths[*]}"
}

export CMAKE=${CMAKE:-$("$here/cmake.sh")} LIBTORCH=${LIBTORCH:-$("$here/libtorch.sh")} LIBTORCH_CXX11_ABI=1
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$EXPCTL_CACHE/target}
mkdir -p "$EXPCTL_CACHE"
exec 9>"$EXPCTL_CACHE/wheels.lock"
flock 9
setup_tools

export EXPCTL_SYSROOT=$tools/sysroot OLDER_GCC=$tools/older-gcc
EXPCTL_LLD=$(rustc --print sysroot)/lib/rustlib/$triple/bin/gcc-ld EXPCTL_RUNPATH=$(runpath)
export EXPCTL_LLD EXPCTL_RUNPATH
cd "$root"
builders=() # folders that no program may name
if [ "${1:-}" = tested ]; then
  out=${2:?the folder of the wheels} built=$CARGO_TARGET_DIR/older
  say "==> wheels: what the release profile built, linked for glibc 2.28"
  rm -rf "$built"
  mkdir -p "$built"
  touch src/main.rs crates/worker/src/main.rs crates/python-loaders/src/lib.rs # what is linked once more
  EXPCTL_RELINKED=$built RUSTC_WRAPPER=$here/wheels/relink cargo build --release --workspace --locked --lib --bins --tests >&2
  mv "$built/expctl_worker" "$built/expctl-worker" # rustc's name and cargo's
else
  out=$root/dist built=$CARGO_TARGET_DIR/$triple/dist
  say "==> wheels: cargo, profile dist, into $built"
  cargo_home=${CARGO_HOME:-$HOME/.cargo}
  builders=(--without "$root" --without "$cargo_home" --without "$LIBTORCH" --without "$CARGO_TARGET_DIR")
  (
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=$OLDER_GCC
    # Messages name files of the project, not of the one who built it; those of C and C++ too. Of two folders one of which is in the other, the
    # last one counts.
    RUSTFLAGS='' prefixes=''
    for folder in "$root=expctl" "$cargo_home=cargo" "$LIBTORCH=libtorch" "$CARGO_TARGET_DIR=target"; do
      RUSTFLAGS+=" --remap-path-prefix=$folder" prefixes+=" -ffile-prefix-map=$folder"
    done
    export RUSTFLAGS CFLAGS="${CFLAGS:-}$prefixes" CXXFLAGS="${CXXFLAGS:-}$prefixes"
    export EXPCTL_CMAKE=$CMAKE CMAKE=$here/wheels/hdf5-cmake
    # For __DATE__ and the like, one day for all.
    export SOURCE_DATE_EPOCH=315532800 TZ=UTC
    # Without --workspace: what only tests need of a library is left out.
    cargo build --profile dist --locked -p expctl -p expctl-worker -p python-loaders --lib --bin expctl --bin expctl-worker --target $triple
  ) >&2
fi
"$tools/bin/python" "$here/wheels/pack.py" "$built" "$out"
"$tools/bin/python" "$here/wheels/check.py" "${builders[@]}" "$out"/*.whl ||
  die "the wheels in $out are for this machine alone" "where files of the builder are named, an older build may be in them: rm -r $CARGO_TARGET_DIR/$triple, and again"
