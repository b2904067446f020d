#!/usr/bin/env bash
# libFuzzer over one target or all: scripts/fuzz.sh [SECONDS [TARGET...]]. docs/fuzzing.md says what each asserts.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

CARGO_FUZZ=0.13.2
seconds=${1:-600}
shift || true
if [ $# -gt 0 ]; then
    targets=("$@")
else
    mapfile -t targets < <(cd fuzz_targets && ls | sed 's/\.rs$//')
fi

missing() {
    printf 'fuzz: %s is missing: %s\n' "$1" "$2" >&2
    exit 1
}
command -v cargo >/dev/null || missing cargo 'https://rustup.rs'
command -v c++ >/dev/null || missing 'a C++ compiler' 'sudo apt-get install g++'
cargo fuzz --version 2>/dev/null | grep -q " $CARGO_FUZZ\$" ||
    missing "cargo-fuzz $CARGO_FUZZ" "cargo install cargo-fuzz --version $CARGO_FUZZ --locked"
for target in "${targets[@]}"; do
    [ -f "fuzz_targets/$target.rs" ] ||
        { echo "fuzz: no target $target: there are $(cd fuzz_targets && ls | sed 's/\.rs$//' | tr '\n' ' ')" >&2; exit 4; }
done

# AddressSanitizer is a flag of nightly's; stable has it too, with its runtime, and this lets it be asked for.
export RUSTC_BOOTSTRAP=1
host=$(rustc -vV | sed -n 's/^host: //p')
if [ ${#targets[@]} -eq 1 ]; then
    cargo fuzz build --release "${targets[0]}"
else
    cargo fuzz build --release
fi

# Targets that read files write them into memory, and what a crash leaves of them goes with the folder.
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)" flatout-fuzz.XXXXXX)
trap 'rm -rf "$folder"' EXIT
failed=()
for target in "${targets[@]}"; do
    # Of documents also large ones: whatever takes 20 s over 64 KiB is a finding.
    longest=4096
    [ "$target" = documents ] && longest=65536
    # An index of a few folders, without its zeros.
    [ "$target" = indexes ] && longest=16384
    # What is learnt stays out of the committed corpus: cargo fuzz cmin brings in what is worth it.
    mkdir -p "target/grown/$target" "artifacts/$target"
    echo "fuzz: $target for $seconds s"
    TMPDIR=$folder "target/$host/release/$target" -max_total_time="$seconds" -max_len=$longest -timeout=20 \
        -rss_limit_mb=2048 -artifact_prefix="artifacts/$target/" "target/grown/$target" "corpus/$target" \
        >"target/$target.log" 2>&1 || failed+=("$target")
    grep -a 'DONE\|^Done\|panicked at\|ERROR: libFuzzer' "target/$target.log" || tail -5 "target/$target.log"
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: ${failed[*]}: the inputs are in fuzz/artifacts, the logs in fuzz/target" >&2
    exit 1
fi
