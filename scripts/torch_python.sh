#!/usr/bin/env bash
# PyTorch in Python, for the tests that rebuild the models' layers with it: from the wheel that scripts/libtorch.sh takes
# its libraries from, on the same libraries, without the 3 GB of CUDA libraries that the wheel asks for.
#
#   scripts/torch_python.sh [PYTHON]    set up, then print the interpreter on stdout; exit with 3 if there is no wheel for it
#
# PYTHON (an interpreter with pip, of a virtual environment of its own) is scripts/python.sh's, if none is given.
#
# The wheel's Python module is linked with CUDA. What it takes from there is stood in for by functions that do nothing and
# answer 0 (no devices), and by empty classes; nothing here computes on a device.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

requirements=$here/requirements/torch.txt

base=${1:-$("$here/python.sh")}
version=$("$base" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
case $version in
  cp310) sha=1b32ceda909818a03b112006709b02be1877240c31750a8d9c6b7bf5f2d8a6e5 requirements=$here/requirements/torch_cp310.txt;;
  cp311) sha=7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a;;
  cp312) sha=0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756;;
  *) say "torch_python: no PyTorch wheel is known for Python $version"; exit 3;;
esac
wheel=torch-2.11.0-$version-$version-manylinux_2_28_x86_64.whl
lib=$("$here/libtorch.sh")/lib
dir=$EXPCTL_CACHE/python-torch-$TORCH_VERSION${1:+-$(printf %s "$1" | sha256sum | cut -c1-12)}
mark="$wheel $(sha256sum < "$requirements") $lib"

# Everything that libtorch_python.so takes from libraries that are not there.
make_stand_in() { # LIBDIR
  local defined=("$1"/*.so* "$(g++ -print-file-name=libstdc++.so.6)") function
  for system in libc.so.6 libm.so.6 libgcc_s.so.1 ld-linux-x86-64.so.2; do
    defined+=("$(g++ -print-file-name=$system)")
  done
  cat > "$1/stand_in.cpp" <<'CPP'
#include <atomic>
#define EMPTY(space, name) namespace space { struct name { virtual ~name(); }; name::~name() {} }
EMPTY(c10d, ProcessGroupNCCL)
EMPTY(torch::cuda::CUDAPluggableAllocator, CUDAPluggableAllocator)
EMPTY(torch::inductor, AOTIModelContainerRunnerCuda)
EMPTY(torch::jit::tensorexpr, CudaCodeGen)
namespace c10::cuda::CUDACachingAllocator { std::atomic<void *> allocator; }
namespace c10d { void *&get_gil_checker() { static void *checker = nullptr; return checker; } }
CPP
  g++ -O1 -fPIC -c -o "$1/stand_in.o" "$1/stand_in.cpp"
  {
    echo .text
    comm -23 \
      <(nm -D --undefined-only "$1/libtorch_python.so" | awk '$1 == "U" { sub(/@.*/, "", $2); print $2 }' | LC_ALL=C sort -u) \
      <(nm -D --defined-only "${defined[@]}" 2>/dev/null | awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }
                                                               END { print "stand_in" }' | LC_ALL=C sort -u) |
      grep -E '^(_ZN|_ZNK|cuFile|cudnn)' |
      LC_ALL=C comm -23 - <(nm --defined-only "$1/stand_in.o" | awk '{ print $NF }' | LC_ALL=C sort -u) |
      while read -r function; do printf '.globl %s\n.type %s,@function\n%s:\n' "$function" "$function" "$function"; done
    printf ' xorl %%eax,%%eax\n ret\n.section .note.GNU-stack,"",@progbits\n'
  } > "$1/stand_in.s"
  g++ -shared -o "$1/libtorch_cuda.so" -Wl,-soname,libtorch_cuda.so "$1/stand_in.o" "$1/stand_in.s"
  for function in libc10_cuda.so libcudnn.so.9 libcufile.so.0; do
    echo 'int expctl_stand_in;' | g++ -x c - -shared -o "$1/$function" -Wl,-soname,"$function"
  done
}

mkdir -p "$EXPCTL_CACHE"
# Tests call this at the same time: one sets up, the others wait.
exec 8>"$EXPCTL_CACHE/python-torch.lock"
flock 8
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$mark" ]; then
  say "==> PyTorch $TORCH_VERSION in Python, on the CPU, into $dir"
  python3 "$here/fetch_wheel.py" torch "$wheel" "$sha" "$EXPCTL_CACHE/wheels"
  rm -rf "$dir"; mkdir -p "$dir"
  "$base" -m pip install --quiet --disable-pip-version-check --require-hashes --target "$dir/site" -r "$requirements" >&2 ||
    die "pip could not install what $requirements names" "a package index is needed once; PIP_INDEX_URL names another one"
  "$base" - "$EXPCTL_CACHE/wheels/$wheel" "$dir/site" <<'P'
import pathlib, sys, zipfile
wanted = {"torch/lib/libtorch_python.so", "torch/bin/torch_shm_manager"}
with zipfile.ZipFile(sys.argv[1]) as z:
    for name in z.namelist():
        top = pathlib.PurePath(name).parts[:2]
        binary = len(top) == 2 and top[0] == "torch" and top[1] in ("lib", "bin", "include", "share")
        if name in wanted or (top[0] in ("torch", "torchgen", "functorch") and not binary):
            z.extract(name, sys.argv[2])
P
  # beside it, so that $ORIGIN leads to them
  for f in "$lib"/*; do ln -sf "$f" "$dir/site/torch/lib/"; done
  make_stand_in "$dir/site/torch/lib"
  cat > "$dir/python" <<P
#!/bin/sh
# Functions are looked up when they are called: those of CUDA never are.
export TORCH_USE_RTLD_GLOBAL=1 PYTHONPATH="$dir/site" LD_LIBRARY_PATH="$dir/site/torch/lib"
exec "$base" "\$@"
P
  chmod +x "$dir/python"
  "$dir/python" -c 'import torch; assert float(torch.ones(2, 2).sum()) == 4' >&2 || die "PyTorch in $dir cannot be imported"
  printf '%s' "$mark" > "$dir/.complete"
fi
echo "$dir/python"
