#!/usr/bin/env bash
# Makes the build folder ($CARGO_TARGET_DIR) fit for this clone.
#
# Clones share one build folder. Cargo knows a crate of a workspace by its path inside the clone, and compares times of files, not what they
# contain: what was built from another clone would pass for up to date here, with that clone's code and paths. If another clone built last,
# the times of all files that builds of this one read are set to now, so that its own crates are built again; crates of others are not.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
owner=$target/.clone
[ "$(cat "$owner" 2>/dev/null)" != "$PWD" ] || exit 0
if [ -e "$target/release" ]; then
  say "==> build folder: another clone built last, the crates of this one are built again"
  find Cargo.toml crates docs slurm src tests -type f -exec touch -c {} +
fi
printf '%s\n' "$PWD" > "$owner"
