#!/usr/bin/env bash
# libtorch: a folder with lib/ and include/ that torch-sys links against and the worker runs with.
#
#   scripts/libtorch.sh          set up, then print the folder on stdout
#
# Source: EXPCTL_LIBTORCH or LIBTORCH, if set: a libtorch or a PyTorch package folder of the site (with lib/ and
# include/), of the version this project pairs with. Otherwise wheels from the Python package index, of which only
# the CPU libraries and headers are unpacked. libtorch_cuda.so is deliberately not linked: CUDA is loaded at run time.
# include-cuda/ has what the process group over NCCL is compiled against: headers of the CUDA runtime and nccl.h, and no library.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

wheels=(
  "torch torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"
  "nvidia-cuda-runtime nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-crt nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"
  "nvidia-cuda-cupti nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)

# Of this one the header alone is fetched: the wheel has 196 MB.
nccl=(nvidia-nccl-cu13 nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_x86_64.whl nvidia/nccl/include/nccl.h
  06b934792a70f08cafabd96b8f94015b143a182fbb3bc56ac71c4c6de7deb971)

# torch-sys links -ltorch. The wheel's own libtorch.so pulls in CUDA; this one names the CPU libraries only.
make_stub() { # LIBDIR
  echo 'int expctl_libtorch_stub;' |
    g++ -x c - -shared -o "$1/libtorch.so" -Wl,-soname,libtorch.so -Wl,--no-as-needed -L"$1" -ltorch_cpu -lc10 \
      -Wl,-rpath-link,"$1" -Wl,--allow-shlib-undefined
}

# Links to the headers of CUDA and NCCL of a site, into an empty folder where it has none: NCCL is left out of the build then.
link_cuda_headers() { # SITE TARGET
  local packages cuda nccl
  mkdir -p "$2"
  packages=$(cd "$1/.." && pwd)/nvidia
  for cuda in "$packages/cu13/include" "$packages/cuda_runtime/include" "${CUDA_HOME:-/usr/local/cuda}/include"; do
    for nccl in "$packages/nccl/include" "$cuda" /usr/include; do
      if [ -e "$cuda/cuda_runtime_api.h" ] && [ -e "$cuda/crt/host_defines.h" ] && [ -e "$nccl/nccl.h" ]; then
        ln -sf "$cuda"/* "$2/"; ln -sf "$nccl"/nccl*.h "$2/"; return
      fi
    done
  done
  say "    no headers of CUDA and NCCL near $1: ranks will do without NCCL"
}

# Version that the headers in FOLDER/include name (the macro's value may stand on the next line), or nothing.
header_version() { # FOLDER
  cat "$1/include/torch/headeronly/version.h" "$1/include/torch/csrc/api/include/torch/version.h" 2>/dev/null |
    grep -A1 '^#define TORCH_VERSION\b' | grep -m1 -o '[0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*' || true
}

is_complete() { # FOLDER, one that this script has made
  [ -e "$1/.complete" ] && [ -e "$1/lib/libtorch_cpu.so" ] && [ -e "$1/include-cuda" ] && [ "$(cat "$1/build-version" 2>/dev/null)" = "$TORCH_VERSION" ]
}

# Give FOLDER.partial its name. One that is there already is incomplete or has lost what it links to: it is moved aside
# first, so that nobody ever sees half of a folder.
publish() { # FOLDER
  touch "$1.partial/.complete"
  if [ -e "$1" ]; then
    rm -rf "$1.old"; mv -T "$1" "$1.old"
  fi
  mv -T "$1.partial" "$1"
  rm -rf "$1.old"
}

# Set-ups that share a cache, also from several machines, go one after the other.
take_turns() {
  mkdir -p "$EXPCTL_CACHE"
  exec 9>"$EXPCTL_CACHE/.lock"
  flock -n 9 && return
  say "==> libtorch: waiting for another set-up in $EXPCTL_CACHE"
  flock 9 || say "    $EXPCTL_CACHE cannot be locked; do not run two set-ups at once"
}

if [ -n "${EXPCTL_LIBTORCH:-}" ]; then variable=EXPCTL_LIBTORCH site=$EXPCTL_LIBTORCH
else variable=LIBTORCH site=${LIBTORCH:-}; fi
case $site in "$EXPCTL_CACHE"/libtorch*)
  if is_complete "$site"; then echo "$site"; exit 0; fi
  # LIBTORCH as an earlier set-up printed it, whose folder is gone or out of date
  [ $variable = EXPCTL_LIBTORCH ] || site=;;
esac

if [ -n "$site" ]; then
  fetched="unset $variable to have libtorch $TORCH_VERSION fetched"
  [ -e "$site/lib/libtorch_cpu.so" ] ||
    die "no libtorch in $site (from the variable $variable): lib/libtorch_cpu.so is missing" \
        "$variable names a folder with lib/ and include/, for example .../site-packages/torch" "$fetched"
  [ -e "$site/include/torch/csrc/distributed/c10d/reducer.hpp" ] ||
    die "no c10d headers in $site/include (from the variable $variable)" "$fetched"
  found=$(header_version "$site")
  [ -z "$found" ] || [ "$found" = "$TORCH_VERSION" ] ||
    die "$site (from the variable $variable) is PyTorch $found; this version of expctl pairs with $TORCH_VERSION" "$fetched"
  dir=$EXPCTL_CACHE/libtorch-site-$(printf %s "$site" | sha256sum | cut -c1-12)
  if ! is_complete "$dir"; then take_turns; fi
  if ! is_complete "$dir"; then
    say "==> libtorch: linking $site into $dir"
    new=$dir.partial
    rm -rf "$new"; mkdir -p "$new/lib"
    ln -s "$(cd "$site/include" && pwd)" "$new/include"
    # every library that libtorch_cpu.so resolves beside itself or in the packages next to it
    ldd "$site/lib/libtorch_cpu.so" | awk '$3 ~ /^\// { print $1, $3 }' | while read -r name path; do
      case $path in /lib/*|/lib64/*|/usr/lib/*) ;; *) ln -sf "$path" "$new/lib/$name";; esac
    done
    ln -sf "$(cd "$site/lib" && pwd)/libtorch_cpu.so" "$new/lib/libtorch_cpu.so"
    ln -sf "$(cd "$site/lib" && pwd)/libc10.so" "$new/lib/libc10.so"
    link_cuda_headers "$site" "$new/include-cuda"
    make_stub "$new/lib"
    echo "$TORCH_VERSION" > "$new/build-version"
    publish "$dir"
  fi
  echo "$dir"; exit 0
fi

dir=$EXPCTL_CACHE/libtorch-$TORCH_VERSION
if ! is_complete "$dir"; then
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    die "the wheels are for Linux x86-64, this is $(uname -sm)" "set EXPCTL_LIBTORCH to a PyTorch $TORCH_VERSION of this machine"
  take_turns
fi
if ! is_complete "$dir"; then
  say "==> libtorch $TORCH_VERSION: four wheels, 545 MB, into $EXPCTL_CACHE/wheels (once)"
  for w in "${wheels[@]}"; do
    read -r project file sha <<< "$w"
    say "    $file"
    python3 "$here/fetch_wheel.py" "$project" "$file" "$sha" "$EXPCTL_CACHE/wheels"
  done
  say "==> libtorch $TORCH_VERSION: unpacking the CPU part into $dir"
  rm -rf "$dir.partial"; mkdir -p "$dir.partial/lib"
  python3 - "$dir.partial" "$EXPCTL_CACHE"/wheels/{torch-2.11.0,nvidia_cuda_runtime-13.0.96,nvidia_cuda_crt-13.0.88,nvidia_cuda_cupti-13.0.85}-*.whl <<'P'
import pathlib, shutil, sys, zipfile
target = pathlib.Path(sys.argv[1])
libs = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libshm.so", "libcudart.so.13", "libcupti.so.13"}
for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if name.endswith("/"):
                continue
            if name.startswith("torch/include/"):
                out = target / name.removeprefix("torch/")
            elif name.startswith("nvidia/cu13/include/"):
                out = target / name.replace("nvidia/cu13/include", "include-cuda", 1)
            elif pathlib.PurePath(name).name in libs and "/lib/" in name:
                out = target / "lib" / pathlib.PurePath(name).name
            else:
                continue
            out.parent.mkdir(parents=True, exist_ok=True)
            with z.open(name) as src, open(out, "wb") as dst:
                shutil.copyfileobj(src, dst, 1 << 20)
P
  say "    nccl.h of ${nccl[1]}"
  python3 "$here/fetch_member.py" "${nccl[@]}" "$dir.partial/include-cuda/nccl.h"
  make_stub "$dir.partial/lib"
  echo "$TORCH_VERSION" > "$dir.partial/build-version"
  publish "$dir"
fi
echo "$dir"
