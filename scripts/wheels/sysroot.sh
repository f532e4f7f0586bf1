#!/usr/bin/env bash
# What a link for glibc 2.28 takes in place of this system's libraries: stubs of glibc 2.28 (from Zig, which has those of every version), and
# stubs of libstdc++ and libgcc_s that have only the symbols that GCC 8 had. Programs that are linked with them ask for no newer ones. Also what
# it takes in place of a part of HDF5.
#
#   scripts/wheels/sysroot.sh DIR PYTHON     PYTHON has the package ziglang; LIBTORCH names the folder of libtorch
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd) python=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Zig makes the stubs in its cache when it links.
echo 'int main(void) { return 0; }' > "$scratch/main.c"
ZIG_GLOBAL_CACHE_DIR=$scratch/cache ZIG_LOCAL_CACHE_DIR=$scratch/cache \
  "$python" -m ziglang cc -target x86_64-linux-gnu.2.28 -pie -fPIE "$scratch/main.c" -o "$scratch/main" -lm -lpthread -ldl -lrt -lutil
made() { find "$scratch/cache" -name "$1" | head -1; }
cp "$(dirname "$(made libpthread.so.0)")"/*.so.* "$dir/"
# Its start file too: with this system's, no constructor would run on an older one.
cp "$(made libc_nonshared.a)" "$(made Scrt1.o)" "$dir/"
for library in m.6 pthread.0 dl.2 rt.1 util.1 resolv.2; do
  ln -sf "lib${library%.*}.so.${library##*.}" "$dir/lib${library%.*}.so"
done
mv "$dir/libld.so.2" "$dir/ld-linux-x86-64.so.2"
echo "GROUP ( $dir/libc.so.6 $dir/libc_nonshared.a AS_NEEDED ( $dir/ld-linux-x86-64.so.2 ) )" > "$dir/libc.so"

g++ -O2 -fPIC -c "$here/older_libstdcxx.cpp" -o "$scratch/older.o"
rm -f "$dir/libolder.a"
ar rcs "$dir/libolder.a" "$scratch/older.o"
gcc -O2 -fPIC -c "$here/hdf5_settings.c" -o "$dir/hdf5_settings.o"
"$python" "$here/stub_library.py" "$(g++ -print-file-name=libstdc++.so.6)" "$dir/libstdc++.so" GLIBCXX=3.4.22 CXXABI=1.3.11
"$python" "$here/stub_library.py" "$(gcc -print-file-name=libgcc_s.so.1)" "$dir/libgcc_s.so.1" GCC=4.8.0
echo "GROUP ( $dir/libgcc_s.so.1 -lgcc )" > "$dir/libgcc_s.so"
# torch-sys asks for the OpenMP library that libtorch was linked with; the system's wants a newer glibc.
ln -sf "$LIBTORCH/lib/libgomp.so.1" "$dir/libgomp.so"
