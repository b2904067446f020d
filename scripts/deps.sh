#!/usr/bin/env bash
# What the tests need beyond Rust: lists what is missing, installs it. Run again, it finds everything there.
#
#   scripts/deps.sh list       what is missing, and how it would come
#   scripts/deps.sh install    installs it; Debian packages need root
#   scripts/deps.sh ensure     installs as root or with CI=true, else names the command and fails
set -euo pipefail

# Pinned: the server that nobody here wrote.
MINIO=github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

# Program, Debian package.
PACKAGES=("nginx nginx-light" "curl curl")

# Under sudo the tools belong to whoever called it, so that the tests find them.
owner=${SUDO_USER:-$(id -un)}
home=$(getent passwd "$owner" | cut -d: -f6)
cache=${FLATOUT_CACHE:-${home:-$HOME}/.cache/flatout}
minio=$cache/minio-${MINIO##*@}/minio

# Neither sudo's PATH nor a plain user's holds them all.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin

main() {
    case ${1:-} in
        list) list ;;
        install) list && install_missing ;;
        ensure) ensure ;;
        *) say "write one of: list, install, ensure"; exit 4 ;;
    esac
}

ensure() {
    list
    nothing_missing && return
    if [ "$(id -u)" != 0 ] && [ "${CI:-}" != true ]; then
        say "some of it is missing. Install it with:"
        say "    sudo make deps"
        exit 1
    fi
    install_missing
}

list() {
    say "the tests use (beside Rust):"
    local row
    for row in "${PACKAGES[@]}"; do
        line "${row% *}" "$(command -v "${row% *}" || echo "missing: apt-get install ${row#* }")"
    done
    if [ -x "$minio" ]; then line minio "$minio"; else line minio "missing: go install, about 6 minutes on two cores"; fi
}

nothing_missing() {
    [ -z "$(missing_packages)" ] && [ -x "$minio" ] && [ -e "$cache/bin/minio" ]
}

install_missing() {
    install_packages
    install_minio
    # The tests look here; the version stays in the folder that it points to.
    as_owner mkdir -p "$cache/bin"
    as_owner ln -sfn "../minio-${MINIO##*@}/minio" "$cache/bin/minio"
    nothing_missing || { say "something is still missing"; exit 1; }
}

install_packages() {
    local packages
    read -ra packages <<<"$(missing_packages)"
    [ ${#packages[@]} = 0 ] && return
    if [ "$(id -u)" != 0 ]; then
        say "Debian packages need root: sudo make deps"
        exit 1
    fi
    say "apt-get install ${packages[*]}"
    apt-get update -q >/dev/null
    # Runlevel 1: the package must not start a server of its own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
}

install_minio() {
    [ -x "$minio" ] && return
    command -v go >/dev/null || { say "MinIO is built with Go: install Go 1.24 or newer first"; exit 1; }
    say "go install $MINIO (about 6 minutes on two cores)"
    # Built beside its place and moved there whole, so that a build that was broken off is not taken for one.
    as_owner mkdir -p "$minio.building" "$(dirname "$minio")"
    as_owner env PATH="$PATH" GOBIN="$minio.building" GOFLAGS=-trimpath GOTOOLCHAIN=local \
        nice go install "$MINIO"
    as_owner mv "$minio.building/minio" "$minio"
    as_owner rmdir "$minio.building"
}

missing_packages() {
    local row
    for row in "${PACKAGES[@]}"; do
        command -v "${row% *}" >/dev/null || printf '%s ' "${row#* }"
    done
}

as_owner() {
    if [ "$(id -u)" = 0 ] && [ "$owner" != root ]; then sudo -H -u "$owner" "$@"; else "$@"; fi
}

line() { printf '    %-6s %s\n' "$1" "$2"; }
say() { printf 'deps: %s\n' "$*"; }

main "$@"
