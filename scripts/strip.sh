#!/usr/bin/env bash
# Splits a program or library into what ships and its line tables: scripts/strip.sh BINARY STRIPPED SYMBOLS
#
# STRIPPED keeps the names of functions, so that a backtrace has them without SYMBOLS; those of data and of drop glue, a
# third of all, go. SYMBOLS holds everything. STRIPPED names it by its file name and a CRC (.gnu_debuglink): gdb, perf, addr2line and Rust's own backtraces
# find it in the folder of STRIPPED, or in the folder .debug there. Not cargo's split-debuginfo = "packed": that leaves
# the line tables in the binary, and line tables are all that a release has.
set -euo pipefail

[ $# = 3 ] || { sed -n '2s/^# \{0,1\}//p' "$0" >&2; exit 4; }
command -v objcopy >/dev/null || { echo "strip: objcopy is missing: apt-get install binutils" >&2; exit 1; }
objcopy --only-keep-debug "$1" "$3"
chmod 644 "$3"
names=$(mktemp)
trap 'rm "$names"' EXIT
nm --defined-only "$1" | awk '$2 ~ /^[bBdDrR]$/ || $3 ~ /drop_in_place/ { print $3 }' >"$names"
objcopy --strip-debug --strip-symbols="$names" --add-gnu-debuglink="$3" "$1" "$2"
