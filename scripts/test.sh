#!/usr/bin/env bash
# Every check and test, one stage after the other whatever becomes of it: one run tells of all that fails.
#
#   scripts/test.sh         all of it; scripts/deps.sh installs what it needs
#   scripts/test.sh check   format, clippy, tidy, licences
#   scripts/test.sh tests   all but these
#   scripts/test.sh lab     the lab's smoke run and tests
#
# Variables: PYTHON, the interpreter of the lab; LONGEST_MINUTES, after which a program of tests hangs.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=()
trap 'exit 130' INT

main() {
    case ${1:-all} in
        check) checks ;;
        tests) tests ;;
        all) checks && tests ;;
        lab) lab ;;
        *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 4 ;;
    esac
    [ ${#failed[@]} = 0 ] && return
    printf '\ntest: failed: %s\n' "$(IFS=,; echo "${failed[*]}" | sed 's/,/, /g')" >&2
    exit 1
}

checks() {
    stage format cargo fmt --all --check
    stage clippy cargo clippy --workspace --all-targets -- -D warnings
    stage "clippy of real (cli)" cargo clippy -p flatout-cli --test real -- -D warnings
    stage "clippy of real (mount)" cargo clippy -p flatout-mount --test real -- -D warnings
    stage tidy cargo xtask tidy
    stage licences cargo xtask licences
}

tests() {
    sed -n 's/^PROPTEST_RNG_SEED = "\(.*\)"/test: chance draws from seed \1; make soak draws from others/p' .cargo/config.toml
    # They all wait most of the time; cargo builds for one at a time.
    stage wheel scripts/python.sh prepare
    stage tests cargo xtask test ${LONGEST_MINUTES:+--longest "$LONGEST_MINUTES"} \
        --also "python a-f=scripts/python.sh part a-f" \
        --also "python g-z=scripts/python.sh part g-z" \
        --also "python torch=scripts/python.sh part torch" \
        --also lab="scripts/test.sh lab" \
        --also s3-tests="scripts/s3-tests.sh" \
        --also install="scripts/install-test.sh" \
        --also chart="scripts/chart-test.sh"
}

# The lab's smoke run, and its own tests, which open the page that the smoke run made.
lab() {
    rm -rf target/lab-smoke
    stage build cargo build --quiet --profile unchecked -p flatout-cli
    stage "smoke run" python bench/lab run --suite smoke --flatout target/unchecked/flatout --out target/lab-smoke --wait 600
    stage "its tests" python -m unittest discover --buffer --start-directory bench/tests
}

python() {
    "${PYTHON:-python3}" "$@"
}

# A stage's name, and its command.
stage() {
    "${@:2}"
    local code=$?
    [ $code = 0 ] && return
    # Ended by ctrl-C: so are we.
    [ $code = 130 ] && exit 130
    printf 'test: %s failed (%d); going on\n' "$1" $code >&2
    failed+=("$1")
}

main "$@"
