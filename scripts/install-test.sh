#!/usr/bin/env bash
# `make install` into a folder of its own: the program runs, is small, and finds its line tables; `make uninstall` leaves
# nothing. And a wheel's library is as small, and its line tables lie beside the wheel.
#
#   scripts/install-test.sh            of the build that the tests use
#   scripts/install-test.sh release    of a release build, which has at most 20 MB
#
# Variables: FLATOUT, a program to install instead of a build.
set -euo pipefail
cd "$(dirname "$0")/.."

MOST_BYTES=32000000
ENGINE_LINE='crates/engine/src/.*\.rs:[0-9]'
python=${PYTHON:-python3}

main() {
    profile=${1:-unchecked}
    built=${FLATOUT:-target/$profile/flatout}
    [ -n "${FLATOUT:-}" ] || cargo build --quiet --profile "$profile" -p flatout-cli
    prefix=$(mktemp -d)
    trap 'rm -rf "$prefix"' EXIT
    # What is installed over an earlier one is as good as the first.
    for round in first second; do
        make --silent install-built BUILT="$built" PREFIX="$prefix" >/dev/null
        check_program
        check_symbols
    done
    make --silent uninstall PREFIX="$prefix" >/dev/null
    check_wheel
    left=$(find "$prefix" ! -type d)
    [ -z "$left" ] || fail "make uninstall leaves $left"
    echo "install: ok, $bytes bytes and line tables of $(stat -c %s "$built.debug")"
}

check_program() {
    program=$prefix/bin/flatout
    bytes=$(stat -c %s "$program")
    "$program" --version | grep '^flatout ' >/dev/null || fail "$program does not run"
    [ -x "$prefix/sbin/mount.flatout" ] || fail "mount.flatout leads nowhere"
    [ "$profile" != release ] || [ "$bytes" -le $MOST_BYTES ] || fail "$program has $bytes bytes, $MOST_BYTES at most"
    [ "$bytes" -lt "$(stat -c %s "$built")" ] || fail "$program has its line tables inside"
}

# Some function of the engine is found by its line, through the file beside the program and by nothing else.
check_symbols() {
    local addresses
    addresses=$(engine)
    lines_of "$addresses" | grep "$ENGINE_LINE" >/dev/null || fail "addr2line finds no line in $prefix/bin/.debug"
    mv "$prefix/bin/.debug" "$prefix/elsewhere"
    ! lines_of "$addresses" | grep '\.rs:[0-9]' >/dev/null || fail "the program has its line tables inside"
    mv "$prefix/elsewhere" "$prefix/bin/.debug"
}

# A wheel with the program in place of a library: what is done to it is the same.
check_wheel() {
    local folder=$prefix/wheel
    mkdir "$folder"
    "$python" - "$built" "$folder/flatout-1-none-any.whl" <<'EOF'
import sys, zipfile
with zipfile.ZipFile(sys.argv[2], "w") as wheel:
    wheel.write(sys.argv[1], "flatout/_native.abi3.so")
    wheel.writestr("flatout/__init__.py", "")
    wheel.writestr("flatout-1.dist-info/RECORD", "flatout/_native.abi3.so,sha256=x,1\nflatout/__init__.py,,\nflatout-1.dist-info/RECORD,,\n")
EOF
    "$python" scripts/strip_wheel.py "$folder/flatout-1-none-any.whl"
    "$python" - "$folder/flatout-1-none-any.whl" "$folder/flatout.so" <<'EOF' || fail "a wheel is not as its table of files says"
import base64, csv, hashlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    rows = {name: (digest, size) for name, digest, size in csv.reader(wheel.read("flatout-1.dist-info/RECORD").decode().splitlines())}
    library = wheel.read("flatout/_native.abi3.so")
    assert wheel.namelist() == ["flatout/_native.abi3.so", "flatout/__init__.py", "flatout-1.dist-info/RECORD"]
    assert wheel.getinfo("flatout/_native.abi3.so").external_attr >> 16 & 0o777 == 0o755
digest = base64.urlsafe_b64encode(hashlib.sha256(library).digest()).decode().rstrip("=")
assert rows["flatout/_native.abi3.so"] == (f"sha256={digest}", str(len(library))) and len(rows) == 3, rows
open(sys.argv[2], "wb").write(library)
EOF
    program=$folder/flatout.so
    bytes=$(stat -c %s "$program")
    [ "$bytes" -lt "$(stat -c %s "$built")" ] || fail "a wheel's library has its line tables inside"
    lines_of "$(engine)" | grep "$ENGINE_LINE" >/dev/null || fail "the line tables beside a wheel are not found"
    rm -r "$folder"
}

# Addresses of some functions of the engine.
engine() { nm "$program" | awk '/ [tT] .*flatout_engine/ && n++ < 50 { print "0x" $1 }'; }

lines_of() {
    # The words are addresses.
    # shellcheck disable=SC2086
    addr2line -e "$program" $1
}

fail() {
    echo "install: $1, round $round" >&2
    exit 1
}

main "$@"
