#!/usr/bin/env bash
# The tests of every crate that holds `unsafe`, built with AddressSanitizer, whose LeakSanitizer looks at the end of each program.
#
#   scripts/sanitize.sh            the engine's and the program's tests (and what both link: settings, wire)
#   scripts/sanitize.sh FILTER     those whose names hold FILTER
#
# A stable compiler has the runtimes but not the flag: RUSTC_BOOTSTRAP=1 lets it be given. An explicit --target keeps build
# scripts and macros from being instrumented; a folder of its own keeps the usual builds.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address -Cdebuginfo=line-tables-only"
export CARGO_TARGET_DIR=${SANITIZE_TARGET_DIR:-target/asan}
# The first finding ends a program, and its test with it.
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=1"

cargo test --target "$target" -p flatout-engine --lib --bins --tests -- "$@"
cargo test --target "$target" -p flatout-cli --bins --test it -- "$@"
