#!/usr/bin/env bash
# System packages: a C++ compiler, make, Python with pip and venv. Installs nothing that is there.
set -euo pipefail
. "$(dirname "$0")/common.sh"

rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
command -v cargo >/dev/null || die "cargo was not found" "install Rust $rust or newer with rustup"
found=$(cargo --version | cut -d' ' -f2)
[ "$(printf '%s\n' "$rust" "$found" | sort -V | head -n 1)" = "$rust" ] ||
  die "cargo is $found; this project needs Rust $rust or newer" "install it with rustup (Debian's own package is older)"
need=()
command -v g++ >/dev/null || need+=(g++)
command -v make >/dev/null || need+=(make)
command -v python3 >/dev/null || need+=(python3)
python3 -c 'import pip' 2>/dev/null || need+=(python3-pip)
python3 -c 'import ensurepip' 2>/dev/null || need+=(python3-venv)
[ -e /etc/ssl/certs/ca-certificates.crt ] || need+=(ca-certificates)
if [ ${#need[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "these tools are missing: ${need[*]}" "install them with this system's package manager"
  need_packages "build tools" "${need[@]}"
fi
say "==> system: cargo $(cargo --version | cut -d' ' -f2), g++ $(g++ -dumpfullversion), python $(python3 -c 'import platform; print(platform.python_version())')"
