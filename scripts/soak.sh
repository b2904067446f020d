#!/usr/bin/env bash
# What takes hours and finds what a run of `make test` finds by chance.
#
#   scripts/soak.sh all [SEEDS [FIRST]]
#       all that follows
#   scripts/soak.sh seeds [SEEDS [FIRST]]
#       what tests draw by chance, from so many fresh seeds (10); a seed that fails prints the command that runs it again
#   scripts/soak.sh outages
#       every outage on every road, and the tables of how soon transfers went on
#   scripts/soak.sh kills
#       a download and an upload of 4 GiB, each killed with -9 at 20 moments and run again (scripts/resume_kill.py)
#   scripts/soak.sh takeovers
#       50 kills each of the process that serves a supervised mount, its supervisor, writers and readers, under load; and of
#       the engine of Kubernetes volumes, of its plugin, and of both
#   scripts/soak.sh staging
#       files of a mount written in any order: a million operations of fsx, with a second client that reads, and 100,000 on a
#       long file; 50 kills each of a database and of its mount; where LAZYFS names that program, 100 cuts of the power
#       (scripts/power_loss.py); where PJDFSTEST names that one, what POSIX says of names and attributes (scripts/pjdfstest.sh)
#   scripts/soak.sh leaks
#       ten thousand transfers that go wrong: memory, descriptors and threads stay as they were
#   scripts/soak.sh environments [ROUNDS [ARGUMENT …]]
#       the tests of the workspace in surroundings that are not a developer's, so many rounds of each (1), and without a stop at
#       the first failure. ARGUMENTS go to `cargo test` in place of --workspace:
#       scripts/soak.sh environments 20 -p flatout-cli --test it
#   scripts/soak.sh load [ROUNDS [ARGUMENT …]]
#       all tests of `make test`, ROUNDS times (3), beside a load on processors, memory and disk (scripts/load.py). Tests that
#       failed, or passed only when they ran alone, are listed at the end. ARGUMENTS go to `cargo xtask test` instead:
#       scripts/soak.sh load 3 --packages flatout-wire,flatout-settings
#
# Variables: CARGO, the cargo to call; ENVIRONMENTS, the names of those to try, with blanks between.
set -uo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
logs=$PWD/target/soak

# What tests draw by chance: `make test` draws the same in every run, and what is found here is kept as a test with a name.
seeds() {
    local seeds=${1:-10} first seed failed=0
    first=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
    case "$seeds$first" in
        0* | *[!0-9]*) say "SEEDS and FIRST are numbers: scripts/soak.sh seeds [SEEDS [FIRST]]"; exit 4 ;;
    esac
    say "$seeds seeds from $first on; again: scripts/soak.sh seeds $seeds $first"
    for ((seed = first; seed < first + seeds; seed++)); do
        say "PROPTEST_RNG_SEED=$seed"
        try PROPTEST_RNG_SEED="$seed" $cargo test --quiet -p flatout-wire -p flatout-tree -p flatout-properties
        try PROPTEST_RNG_SEED="$seed" $cargo test --quiet -p flatout-engine --lib -- read:: journal:: connection::
    done
    # These count their own seeds: a scenario, a model of an origin, a course of faults each.
    try FLATOUT_FIRST_SEED="$first" FLATOUT_SEEDS=$((seeds * 1000)) $cargo test --quiet -p flatout-engine --lib sim::
    try FLATOUT_FIRST_SEED="$first" FLATOUT_SEEDS="$seeds" $cargo test --quiet -p flatout-engine --lib pace::
    try FLATOUT_FIRST_SEED="$first" FLATOUT_SEEDS="$seeds" $cargo test --quiet -p flatout-cli --test it faults::
    [ "$failed" = 0 ] && return
    say "$failed of $((2 * seeds + 3)) runs failed; keep what they found as a test with a name (CONTRIBUTING.md)"
    return 1
}

# The command line is shown where it fails: its variables, then what it runs.
try() {
    env "$@" || { failed=$((failed + 1)); say "failed; again: env $*"; }
}

outages() { FLATOUT_OUTAGES=all $cargo test -p flatout-cli --test real outages:: -- --nocapture; }

kills() {
    local direction code=0
    $cargo build --release -p flatout-cli || return 1
    for direction in down up; do
        unshare -rn sh -c "ip link set lo up && python3 scripts/resume_kill.py $direction target/release/flatout \
            /dev/shm/flatout-kill-$$" || code=1
    done
    return $code
}

takeovers() { FLATOUT_KILLS=50 $cargo test -p flatout-cli --test it -- mounts::takeovers:: csi::deaths:: --nocapture; }

staging() {
    local code=0
    FLATOUT_FSX=1000000 $cargo test -p flatout-cli --test real -- staging:: --nocapture || code=1
    FLATOUT_KILLS=50 $cargo test -p flatout-cli --test it -- mounts::staging:: || code=1
    $cargo build -p flatout-cli || return 1
    [ -z "${LAZYFS:-}" ] || scripts/power_loss.py target/debug/flatout "$LAZYFS" --rounds 100 || code=1
    [ -z "${PJDFSTEST:-}" ] || scripts/pjdfstest.sh "$PJDFSTEST" target/debug/flatout || code=1
    return $code
}

leaks() { FLATOUT_LEAKS=10000 $cargo test -p flatout-engine --test leaks -- --nocapture; }

# The names, in the order in which they are tried.
ALL="plain blank link short deep home variables language busy"

environments() {
    local rounds=${1:-1} name round failed=()
    local what=("${@:2}")
    [ ${#what[@]} -gt 0 ] || what=(--workspace)
    scratch=$(mktemp -d) || exit 1
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$logs"
    # Those that look elsewhere for home are to find what is there: cargo's own, and the parts of the test lab.
    export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
    export FLATOUT_CACHE=${FLATOUT_CACHE:-$HOME/.cache/flatout}
    $cargo test "${what[@]}" --no-run || exit 1
    for name in ${ENVIRONMENTS:-$ALL}; do
        for ((round = 1; round <= rounds; round++)); do
            local log=$logs/$name-$round.log
            if (surround "$name" "$scratch" && $cargo test --offline --no-fail-fast "${what[@]}") >"$log" 2>&1; then
                say "$name, round $round of $rounds: ok"
            else
                say "$name, round $round of $rounds: FAILED, $log:"
                grep -E '^test .*FAILED$|^error: .*target' "$log" | sed 's/^/    /'
                failed+=("$name")
            fi
        done
    done
    [ ${#failed[@]} = 0 ] && return
    say "${#failed[@]} failed: ${failed[*]}"
    exit 1
}

# Makes what surrounds the tests, in a subshell that ends with them. `$2` is a folder for it.
surround() {
    local folder=$2/$1
    mkdir -p "$folder"
    case $1 in
        plain) ;;
        blank) folder="$folder/with blank and ümlaut" ;;
        # The folder is elsewhere.
        link) mkdir "$folder/real" && ln -s real "$folder/link" && folder=$folder/link ;;
        # Words that an answer must not hold, in the name of every file.
        short) folder=$2/pw ;;
        deep) folder=$folder/$(printf 'folder%.0s/' {1..8}) ;;
        home) export HOME=$folder/home && mkdir "$HOME" && unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR XDG_STATE_HOME ;;
        variables)
            export AWS_ACCESS_KEY_ID=AKIDOFSOMEBODYELSE AWS_SECRET_ACCESS_KEY=secretofsomebodyelse AWS_SESSION_TOKEN=tokenofsomebodyelse
            export AWS_PROFILE=nobodys AWS_REGION=xx-nowhere-1 AWS_ENDPOINT_URL=http://127.0.0.1:1 AWS_CA_BUNDLE=/nonexistent
            export OSS_ACCESS_KEY_ID=LTAIOFSOMEBODY OSS_ACCESS_KEY_SECRET=secretofsomebody OSS_ENDPOINT=http://127.0.0.1:1
            export HTTP_PROXY=http://127.0.0.1:1 HTTPS_PROXY=http://127.0.0.1:1 http_proxy=http://127.0.0.1:1 https_proxy=http://127.0.0.1:1
            export SSL_CERT_FILE=/nonexistent SSL_CERT_DIR=/nonexistent FLATOUT_PARALLEL=3 FLATOUT_RETRIES=0 NO_COLOR=1
            ;;
        language) export LC_ALL=tr_TR.UTF-8 LANG=de_DE.UTF-8 LANGUAGE=de TZ=Asia/Kathmandu COLUMNS=40 ;;
        busy)
            scripts/load.py "$folder" &
            # The number is to be read now: $! is another one later.
            # shellcheck disable=SC2064
            trap "kill $! 2>/dev/null" EXIT
            ;;
        *) say "there is no environment '$1'"; exit 4 ;;
    esac
    mkdir -p "$folder"
    export TMPDIR=$folder
}

load() {
    local rounds=${1:-3} round code clean=0 log
    local tests=(scripts/test.sh tests)
    # CARGO may be several words.
    # shellcheck disable=SC2206
    [ $# -le 1 ] || tests=($cargo xtask test --longest $LONGEST_MINUTES "${@:2}")
    case $rounds in 0* | *[!0-9]*) say "ROUNDS is a number: scripts/soak.sh load [ROUNDS]"; exit 4 ;; esac
    mkdir -p "$logs"
    # Short: names of sockets below it have 107 bytes.
    scratch=$(mktemp -d /tmp/soak.XXXXXX) || exit 1
    # Some tests are those of another user.
    chmod 755 "$scratch"
    trap end_load EXIT
    trap 'exit 130' INT TERM
    export TMPDIR=$scratch LONGEST_MINUTES
    # Built before the load begins: what is to be slow are the tests. Of all tests, xtask builds what is left.
    [ $# -gt 1 ] || $cargo test --quiet --workspace --no-run || exit 1
    # Not in the folder of the tests, some of which look at what is left there.
    scripts/load.py "$logs" &
    loader=$!
    for ((round = 1; round <= rounds; round++)); do
        log=$logs/load-$round.log
        # In a session of its own, so that all of it can be ended, and awaited so that a signal is taken at once.
        setsid "${tests[@]}" >"$log" 2>&1 &
        wait $!
        code=$?
        unsteady "$log" >"$logs/load-$round.unsteady"
        [ $code = 0 ] || [ -s "$logs/load-$round.unsteady" ] || echo "no test: see $log" >"$logs/load-$round.unsteady"
        if [ ! -s "$logs/load-$round.unsteady" ]; then
            say "load, round $round of $rounds: ok"
            clean=$((clean + 1))
        else
            say "load, round $round of $rounds: not ok, $log"
        fi
        kill -0 $loader 2>/dev/null || { say "the load ended by itself: its last words are above"; exit 1; }
    done
    say "$clean of $rounds rounds were clean beside the load"
    for ((round = 1; round <= rounds; round++)); do
        sed "s/^/soak: round $round: /" "$logs/load-$round.unsteady"
    done
    [ "$clean" = "$rounds" ] || exit 1
}

# A program of tests that takes longer hangs: beside the load they take twice as long.
LONGEST_MINUTES=60

# Tests that failed in a run, or passed only alone: the lines in which xtask lists them.
unsteady() {
    sed -n 's/^test: unsteady, to be mended: \(.*\) failed beside.*/\1 (passed alone)/p; s/^test: failed: //p' "$1"
}

# Ends the load and all that a round left: processes that have its folder for temporary files, mounts below that, the folder.
end_load() {
    local process mount
    trap '' INT TERM
    [ -z "${loader:-}" ] || { kill "$loader" && wait "$loader"; } 2>/dev/null
    for _ in 1 2 3 4 5; do
        for process in $(grep -lzsxF "TMPDIR=$scratch" /proc/[0-9]*/environ); do
            process=${process#/proc/}
            kill -KILL "${process%/environ}" 2>/dev/null
        done
        sleep 0.2
    done
    awk -v folder="$scratch/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r mount; do
        umount -l "$mount" 2>/dev/null || fusermount3 -uzq "$mount"
    done
    rm -rf "$scratch"
}

say() { printf 'soak: %s\n' "$*"; }

all() {
    local code=0
    seeds "$@" || code=1
    outages || code=1
    kills || code=1
    takeovers || code=1
    staging || code=1
    leaks || code=1
    (environments) || code=1
    (load) || code=1
    # What makes it is not built for anything else.
    scripts/kubernetes-test.sh || code=1
    $cargo run --quiet -p xtask --features proto -- proto --check || code=1
    scripts/install-test.sh release || code=1
    scripts/dist-test.sh target/release/flatout || code=1
    exit $code
}

case ${1:-} in
    all | seeds | outages | kills | takeovers | staging | leaks | environments | load) "$@" ;;
    *) sed -n '2,28s/^# \{0,1\}//p' "$0" >&2; exit 4 ;;
esac
