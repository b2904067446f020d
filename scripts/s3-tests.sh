#!/usr/bin/env bash
# `flatout serve` as boto3 sees it, in memory and over a folder: crates/server/tests/s3. scripts/deps.sh installs Python and boto3.
#
#   scripts/s3-tests.sh [ARGUMENT …]   all cases, or what pytest makes of the arguments: scripts/s3-tests.sh -k multipart
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
cache=${FLATOUT_CACHE:-$HOME/.cache/flatout}
python=$cache/package-python/bin/python
[ -x "$python" ] || { echo "s3-tests: $python is missing: sudo make deps" >&2; exit 1; }
if [ -z "${FLATOUT:-}" ]; then
    cd "$here"
    cargo build --quiet --profile unchecked -p flatout-cli
    FLATOUT=$here/target/unchecked/flatout
fi
cd "$here/crates/server/tests/s3"
FLATOUT=$FLATOUT PYTHONDONTWRITEBYTECODE=1 exec "$python" -m pytest -q -p no:cacheprovider "$@"
