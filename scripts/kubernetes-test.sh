#!/usr/bin/env bash
# The Kubernetes driver under the real kubelet and API server (tests/kubernetes). The first build takes about ten minutes.
#
#   scripts/kubernetes-test.sh [--only CHECK,…] [--seed N] [--rounds N] [--keep]
#
# Needs root, /dev/fuse and Go. Variables: FLATOUT, a program to try instead of a build.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${FLATOUT_CACHE:-$HOME/.cache/flatout}
PATH=$PATH:/usr/local/go/bin
sources=(tests/kubernetes/go.mod tests/kubernetes/go.sum tests/kubernetes/main.go)
folder=$cache/kubernetes-$(cat "${sources[@]}" | cksum | cut -d ' ' -f 1)
if [ ! -x "$folder/kubernetes" ]; then
    echo "kubernetes-test: go build of Kubernetes (about ten minutes on two cores)" >&2
    mkdir -p "$folder"
    (cd tests/kubernetes && GOFLAGS=-trimpath nice go build -ldflags "-s -w" -o "$folder/kubernetes.new" .)
    mv "$folder/kubernetes.new" "$folder/kubernetes"
fi
built=${FLATOUT:-$PWD/target/debug/flatout}
[ -n "${FLATOUT:-}" ] || cargo build --quiet -p flatout-cli
exec python3 tests/kubernetes/try.py --program "$built" --kubernetes "$folder/kubernetes" "$@"
