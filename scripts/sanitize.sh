#!/usr/bin/env bash
# The tests of the crates that hold `unsafe`, built with AddressSanitizer; its LeakSanitizer looks at the end of each program,
# those that the tests start too.
#
#   scripts/sanitize.sh            the engine's and the program's tests, with all that both link
#   scripts/sanitize.sh FILTER     those whose names hold FILTER
#
# A stable compiler has the runtimes but not the flag: RUSTC_BOOTSTRAP=1 lets it be given. An explicit --target keeps build
# scripts and macros from being instrumented; a folder of its own keeps the usual builds.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address -Cdebuginfo=line-tables-only"
export CARGO_TARGET_DIR=$PWD/target/asan
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"
# What is never given back on purpose.
export LSAN_OPTIONS="suppressions=$PWD/scripts/leaks-meant.txt:print_suppressions=0"

cargo test --no-fail-fast --target "$target" -p flatout-engine --lib --tests -- "$@"
cargo test --no-fail-fast --target "$target" -p flatout-cli --bins --test it -- "$@"
