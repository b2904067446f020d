#!/usr/bin/env bash
# The Python package as it stands here, for whoever works on it: builds the native half and puts it beside the Python half.
#
#   scripts/python.sh                builds; then: PYTHONPATH=crates/python/python python3 -c 'import flatout'
#   scripts/python.sh COMMAND …      builds, and runs the command with that path
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
cargo build --quiet -p flatout-python
# A new file each time: a process that has the old one loaded keeps it.
ln -sfn "$here/target/debug/lib_native.so" crates/python/python/flatout/_native.abi3.so
[ $# = 0 ] || PYTHONPATH=$here/crates/python/python exec "$@"
