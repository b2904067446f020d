#!/usr/bin/env bash
# The Python package, built and tried from here. scripts/deps.sh installs what the tests need; what the demo and the wheel
# need is installed by themselves: Rust, and a Python with venv.
#
#   scripts/python.sh                 the native half beside the Python half: PYTHONPATH=crates/python/python python3
#   scripts/python.sh run COMMAND …   the same, and the command with that path
#   scripts/python.sh test [ARGUMENT …]  the package as it is installed, without debug assertions, by pytest and both interpreters
#   scripts/python.sh prepare         what the tests need, for:
#   scripts/python.sh part a-f|g-z|torch  a part of the tests, beside others
#   scripts/python.sh demo            examples/demo.py, in release
#   scripts/python.sh wheel           the wheel for everybody else, its line tables, and the sdist, in dist/
set -euo pipefail
shopt -s nullglob

here=$(cd "$(dirname "$0")/.." && pwd)
cache=${FLATOUT_CACHE:-${HOME:-~}/.cache/flatout}
package=$here/crates/python
site=$here/target/python
cd "$here"

build() {
    cargo build --quiet -p flatout-python
    ln -sfn "$here/target/debug/lib_native.so" "$package/python/flatout/_native.abi3.so"
}

# What is to be tried is what is shipped: a wheel, with its metadata and entry points. By an environment, of a profile.
install() {
    rm -rf "$site"
    "$1/bin/maturin" build --quiet --profile "$2" --interpreter "$1/bin/python" \
        --manifest-path "$package/Cargo.toml" --compatibility linux --out "$site/wheel"
    "$1/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$site/site" "$site"/wheel/*.whl
}

# What is beside a test that it may not see, such as another pytest.ini, is not in the way from its own folder.
try() {
    (cd "$package" && PYTHONPATH=$site/site exec "$cache/$1/bin/python" -m pytest "${@:2}")
}

# The package as it is installed, for the tests.
prepare() {
    cargo build --quiet --profile unchecked -p flatout-cli
    install "$cache/package-python" unchecked
}

# A part of the tests, once it is prepared: by the first letters of their files, about as long each, and what shares memory with
# Debian 13's torch.
part() {
    cd "$package"
    case $1 in
        a-f) try package-python --environment package tests/test_[a-f]*.py ;;
        g-z) try package-python --environment package tests/test_[g-z]*.py ;;
        torch) try package-torch --environment torch tests/test_{buffers,dcp,files,*torch*,safetensor*}.py ;;
        *) echo "python.sh: no part '$1': a-f, g-z, torch" >&2; exit 4 ;;
    esac
}

case ${1:-build} in
    build) build ;;
    run) build && PYTHONPATH=$package/python exec "${@:2}" ;;
    test)
        prepare
        if [ $# != 1 ]; then
            try package-python --environment package "${@:2}"
        else
            for part in a-f g-z torch; do part "$part"; done
        fi
        ;;
    prepare) prepare ;;
    part) part "$2" ;;
    demo)
        python=$(scripts/deps.sh demo)
        cargo build --quiet --release -p flatout-cli
        install "$python" release
        PYTHONPATH=$site/site exec "$python/bin/python" "$package/examples/demo.py" target/release/flatout
        ;;
    wheel)
        python=$(scripts/deps.sh wheel)
        rm -rf target/wheel
        # zig links against the symbols of an old glibc, so that the wheel runs on every distribution since 2014.
        PATH=$python/bin:$PATH "$python/bin/maturin" build --release --zig --compatibility manylinux2014 \
            --interpreter "$python/bin/python" --manifest-path "$package/Cargo.toml" --strip false --out target/wheel
        "$python/bin/python" scripts/strip_wheel.py target/wheel/*.whl
        told=$("$python/bin/auditwheel" show target/wheel/*.whl)
        [[ $told == *'tag: "manylinux_2_17_'* || $told == *$'tag:\n"manylinux_2_17_'* ]] || { echo "$told"; exit 1; }
        "$python/bin/maturin" sdist --manifest-path "$package/Cargo.toml" --out target/wheel
        mkdir -p dist
        mv target/wheel/* dist/
        ls -l dist
        ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 4 ;;
esac
