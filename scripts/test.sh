#!/usr/bin/env bash
# All checks, in the order in which they fail fastest. Run through `make test`, which sets the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

say "==> shell scripts"
for s in scripts/*.sh slurm/dev-cluster/*.sh .ci/run; do bash -n "$s"; done
say "==> cargo fmt"
cargo fmt --all --check
say "==> cargo clippy"
cargo clippy --release --workspace --all-targets --locked -- -D warnings
say "==> cargo doc"
RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps --locked --document-private-items --quiet
say "==> Python test tools"
scripts/python.sh >/dev/null
say "==> cargo test"
cargo test --release --workspace --locked
say "==> all checks passed"
