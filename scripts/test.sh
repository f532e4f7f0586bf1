#!/usr/bin/env bash
# All checks, in the order in which they fail fastest. Run through `make test`, which sets the environment.
#
#   scripts/test.sh         everything
#   scripts/test.sh check   format, lints, unit tests and those integration tests that are not in a module called `slow`
#
# EXPCTL_REQUIRE=slurm,python,chromium,ssh (any of them) makes a test fail that would be skipped for want of it.
#
# A check that fails does not keep the later ones from running: the last lines say how long each check took, name every check and
# every test that failed, and count what was skipped.
#
# The *numeric tests* are all tests of the packages that compute with libtorch or with kernels of their own (numeric_packages
# below). `cargo test` runs them with the best instructions that the processor has; then they run again with each slower set, but for a few,
# because a sum that is computed in another order is rounded differently.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

numeric_packages=(torch-dist rounding worker)
# Numeric tests of minutes that slower sets do without: two are about the order in which a GPU works and about numbers of threads; the kernels of
# the third also run in tests of layers and in norms_and_aggregations_are_one_function.
best_set_only=(--skip gpu::slow:: --skip sizes_are_one_function_with_two_threads --skip norms_and_aggregations_agree)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=() seconds=()

# check NAME COMMAND... : run it, and go on if it fails.
check() {
  local name=$1 status begun=$SECONDS; shift
  say "==> $name"
  # Both streams, in the order in which they come, for the summary.
  "$@" 2>&1 | tee "$log.part" >&2
  status=${PIPESTATUS[0]}
  sed "s/^/$name: /" "$log.part" >> "$log"
  rm -f "$log.part"
  seconds+=("$((SECONDS - begun)) $name")
  [ "$status" = 0 ] || failed+=("$name")
}

skip() { say "$*"; printf 'check: %s\n' "$*" >> "$log"; }

shell_scripts() {
  local s status=0
  for s in scripts/*.sh scripts/wheels/{*.sh,hdf5-cmake,older-gcc,relink} slurm/dev-cluster/*.sh .ci/run; do bash -n "$s" || status=1; done
  return $status
}

# The best instructions that libtorch and the row kernels take on this processor. libtorch itself does not ask the processor
# where ATEN_CPU_CAPABILITY names some: what is missing ends the process with SIGILL.
best_instructions() {
  local flags; flags=" $(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -1) "
  has() { local f; for f; do [[ $flags == *" $f "* ]] || return 1; done; }
  if has avx512f avx512vl avx512bw avx512dq avx512cd avx2 fma; then echo avx512
  elif has avx2 fma bmi1 bmi2; then echo avx2
  else echo base; fi
}

# tests all|alone ARGUMENT... : cargo's tests of all packages, or of the numeric ones alone. All packages are selected in both cases, so that cargo
# takes what it has built.
tests() {
  local which=$1; shift
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/scripts/numeric_test.sh $which ${numeric_packages[*]} --" \
    cargo test --release --workspace --locked --no-fail-fast "$@"
}

# numeric_tests ARGUMENT... : the numeric tests of slower sets, with arguments for the test harness.
numeric_tests() { tests alone --lib --bins --tests -- "${best_set_only[@]}" "$@"; }

# MKL and oneDNN compute libtorch's matrix products, and choose instructions of their own.
with_instructions() {
  local set=$1; shift
  case $set in
    base) ATEN_CPU_CAPABILITY=default EXPCTL_ROW_INSTRUCTIONS=base MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 "$@";;
    avx2) ATEN_CPU_CAPABILITY=avx2 EXPCTL_ROW_INSTRUCTIONS=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 "$@";;
    avx512) ATEN_CPU_CAPABILITY=avx512 EXPCTL_ROW_INSTRUCTIONS=avx512 "$@";;
  esac
}

numeric_tests_under_each_set() {
  local best set state=slower count
  local -A names=([avx2]=AVX2 [avx512]=AVX-512)
  best=$(best_instructions)
  for set in base avx2 avx512; do
    if [ "$set" = "$best" ]; then
      say "==> numeric tests under $set: the best that this processor has, so cargo test ran them so"
      state=faster
    elif [ $state = slower ]; then
      check "numeric tests under $set" with_instructions "$set" numeric_tests
    else
      # Ignored ones are entries of processes that other tests start.
      count=$(($(numeric_tests --list 2>/dev/null | grep -c ': test$') - $(numeric_tests --list --ignored 2>/dev/null | grep -c ': test$')))
      skip "SKIPPED $count numeric tests under $set: this processor has no ${names[$set]}"
    fi
  done
}

# why CHECK TEST : what a test that failed printed, from its first panic on, forty lines of it.
why() {
  awk -v begin="$1: ---- $2 stdout ----" -v prefix="$1: " '
    $0 == begin { inside = 1; next }
    inside && (index($0, prefix "---- ") == 1 || $0 == prefix "failures:") { exit }
    inside && / panicked at / { panicked = 1 }
    panicked && ++lines <= 40 { print "            " substr($0, length(prefix) + 1, 400) }' "$log"
}

summary() {
  local name
  say "==> seconds: $SECONDS"
  for name in "${seconds[@]}"; do printf '    %6d  %s\n' "${name%% *}" "${name#* }" >&2; done
  # One test may be left out under several sets of instructions: it counts each time.
  skipped=$(sed -nE 's/^[^:]*: SKIPPED ([0-9]+) numeric tests .*/\1/p; s/^[^:]*: SKIPPED.*/1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
  [ "$skipped" = 0 ] || say "==> skipped: $skipped"
  sed -nE 's/^[^:]*: (SKIPPED.*)/    \1/p' "$log" | sort | uniq -c | sed -E 's/^ *1 //; s/^ *([0-9]+) +/    \1 × /' >&2
  [ ${#failed[@]} -gt 0 ] || return 0
  say "==> failed: ${#failed[@]} checks"
  for name in "${failed[@]}"; do
    say "    $name"
    sed -nE "s/^$name: test (.*) \.\.\. FAILED\$/\1/p" "$log" | sort -u | while read -r test; do
      printf '        %s\n' "$test" >&2
      why "$name" "$test" >&2
    done
  done
  return 1
}

# Many tests wait: for clusters, for processes that end, for other ranks. Six at a time keep two processors busy.
threads=$(nproc)
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((threads < 6 ? 6 : threads))}

# A setting of the caller's would be that of the first run of the tests as well.
unset ATEN_CPU_CAPABILITY EXPCTL_ROW_INSTRUCTIONS MKL_CBWR ONEDNN_MAX_CPU_ISA

check "shell scripts" shell_scripts
check "cargo fmt" cargo fmt --all --check
check "cargo clippy" cargo clippy --release --workspace --all-targets --locked -- -D warnings
if [ "${1:-}" = check ]; then
  check "cargo test" tests all --lib --bins --tests -- --skip slow::
  summary || exit 1
  say "==> quick checks passed, $skipped tests skipped; make test has the others"
  exit
fi
RUSTDOCFLAGS="-D warnings" check "cargo doc" cargo doc --release --workspace --no-deps --locked --document-private-items --quiet
check "Python test tools" scripts/python.sh
# Builds all tests as well: `cargo test` finds them built.
check "wheels" scripts/wheels.sh tested "$CARGO_TARGET_DIR/older/dist"
check "cargo test" tests all
check "readers with overflow checks" cargo test --profile checked --locked --no-fail-fast -p anndata-io -p graph-loader --lib --tests
numeric_tests_under_each_set
summary || exit 1
say "==> all checks passed, $skipped tests skipped"
