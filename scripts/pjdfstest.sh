#!/usr/bin/env bash
# pjdfstest on a mount with --staging and --attributes metadata, by its version in Rust: what POSIX says of names, modes, owners
# and times. It comes from crates.io, with libacl1-dev: cargo install --locked --version 0.2.2 pjdfstest
#
#   scripts/pjdfstest.sh PJDFSTEST FLATOUT
#       PJDFSTEST   the program of that crate
#       FLATOUT     this one's
#   ON=DIR scripts/pjdfstest.sh PJDFSTEST FLATOUT
#       the same in a folder of this machine, where nothing is expected to fail
#
# What is left out, and why, stands in the list below. A test that fails and is not in it fails the run; so does a line of the
# list of which nothing fails any more. $ORIGIN may name an S3 service on this machine that has a bucket `bucket` (keys in
# AWS_…, SIGN=); without it the origin is `flatout serve`. Needs root and /dev/fuse. Takes two minutes.
set -uo pipefail

# Two users of every Debian.
USERS='[["nobody", "nogroup"], ["daemon", "daemon"]]'

# Why something is left out.
reason() {
    case $1 in
        links) echo "hard links: an object has one name (EOPNOTSUPP)" ;;
        special) echo "devices, pipes, sockets: no object is one (EOPNOTSUPP)" ;;
        key) echo "a path of 4,095 bytes: a key has 1,024 at most (ENAMETOOLONG)" ;;
        subfolders) echo "the link count of a folder: subfolders are not counted (docs/semantics.md, Attributes)" ;;
        *) echo "$1" ;;
    esac
}

# Names of tests, as patterns, and the reason. The first line that fits counts.
left_out() {
    cat <<'END'
link::*                             links
rename::preserve_metadata::regular  links
rename::to_multiply_linked::*       links
unlink::update_ctime_success::*     links
unlink::unchanged_ctime_failed::*   links
mkfifo::*                           special
mknod::*                            special
*::fifo                             special
*::block                            special
*::char                             special
*::socket                           special
open::fifo_nonblock_wronly          special
open::socket_error                  special
*::enametoolong_path                key
rename::updates_link_parent         subfolders
END
}

main() {
    [ $# = 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | grep -v '^set'; exit 4; }
    local pjdfstest flatout here other=()
    pjdfstest=$(readlink -f "$1") flatout=$(readlink -f "$2")
    [ "$(id -u)" = 0 ] || { say "needs root: other users are part of the tests"; exit 1; }
    work=$(mktemp -d /tmp/pjdfstest.XXXXXX)
    chmod 755 "$work"
    mkdir "$work"/{mnt,run,state,staging,root,root/bucket,other}
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    if [ -n "${ON:-}" ]; then
        plain=$(mktemp -d "$ON/pjdfstest.XXXXXX")
        chmod 755 "$plain"
        here=$plain
    else
        start "$flatout"
        here=$work/mnt
        # Another file system, onto which nothing can be renamed.
        other=(-s "$work/other")
    fi
    # Times are told in whole seconds.
    cat >"$work/config.toml" <<END
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 1.1
[dummy_auth]
entries = $USERS
END
    timeout -k 10 "${LIMIT:-600}" "$pjdfstest" -c "$work/config.toml" -p "$here" "${other[@]}" >"$work/told" 2>&1
    [ $? -lt 124 ] || { say "no end within ${LIMIT:-600} s; the last words:"; tail -5 "$work/told"; exit 1; }
    judge
}

start() {
    local url=${ORIGIN:-}
    export XDG_RUNTIME_DIR=$work/run XDG_STATE_HOME=$work/state
    if [ -z "$url" ]; then
        "$1" serve --root "$work/root" --no-auth --listen 127.0.0.1:0 >"$work/serve.out" 2>"$work/serve.log" &
        origin=$!
        wait_for "the origin" grep -q 'http://' "$work/serve.out"
        url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$work/serve.out" | head -1)
    fi
    # Below a prefix: its marker object has the attributes of the root.
    # shellcheck disable=SC2086 # flags
    "$1" mount s3://bucket/root "$work/mnt" --endpoint-url "$url" ${SIGN---no-sign-request} --staging "$work/staging" \
        --attributes metadata --allow-other --foreground >"$work/mount.out" 2>"$work/mount.log" &
    mount=$!
    wait_for "the mount" mountpoint -q "$work/mnt"
}

wait_for() {
    local what=$1 tries
    shift
    for ((tries = 0; tries < 200; tries++)); do
        "$@" && return
        sleep 0.1
    done
    say "$what does not stand; its log:"
    cat "$work"/*.log
    exit 1
}

clean_up() {
    if [ -n "${mount:-}" ]; then
        umount "$work/mnt" 2>/dev/null || umount -l "$work/mnt" 2>/dev/null
        ended "$mount"
    fi
    [ -z "${origin:-}" ] || ended "$origin"
    [ -z "${plain:-}" ] || rm -rf "$plain"
    mountpoint -q "$work/mnt" || rm -rf --one-file-system "$work"
}

# Ten seconds to end by itself.
ended() {
    local tries
    kill "$1" 2>/dev/null
    for ((tries = 0; tries < 100; tries++)); do
        kill -0 "$1" 2>/dev/null || return
        sleep 0.1
    done
    kill -9 "$1" 2>/dev/null
}

judge() {
    local name told pattern why group failed=0 passed=0 skipped=0
    declare -A counts fails groups reasons
    while read -r name told; do
        group=${name%%::*} groups[${name%%::*}]=1
        pattern=
        if [ -z "${ON:-}" ]; then
            while read -r pattern why; do
                # shellcheck disable=SC2053 # a pattern
                [[ $name == $pattern ]] && break
                pattern=
            done < <(left_out)
        fi
        if [ -n "$pattern" ]; then
            [ "$told" != FAILED ] || fails[$pattern]=1
            reasons[$why]=$((${reasons[$why]:-0} + 1))
            told=left-out
        fi
        case $told in
            ok) passed=$((passed + 1)) ;;
            FAILED) failed=$((failed + 1)) ;;
            *) skipped=$((skipped + 1)) ;;
        esac
        counts[$group,$told]=$((${counts[$group,$told]:-0} + 1))
    done < <(sed 's/\x1b\[[0-9;]*m//g' "$work/told" | grep -E '^[a-z_0-9]+(::[a-z_0-9]+)+ +(ok|FAILED|skipped)$' | sort)
    printf '%-16s %7s %7s %9s %9s\n' group passed failed "left out" skipped
    for group in $(printf '%s\n' "${!groups[@]}" | sort); do
        printf '%-16s %7d %7d %9d %9d\n' "$group" "${counts[$group,ok]:-0}" "${counts[$group,FAILED]:-0}" \
            "${counts[$group,left-out]:-0}" "${counts[$group,skipped]:-0}"
    done
    echo
    for why in "${!reasons[@]}"; do
        printf '%4d left out: %s\n' "${reasons[$why]}" "$(reason "$why")"
    done | sort -rn
    echo
    # Each with its message.
    if [ -z "${ON:-}" ]; then
        while read -r pattern why; do
            [ -n "${fails[$pattern]:-}" ] && continue
            echo "    $pattern is left out, and nothing of it fails"
            failed=$((failed + 1))
        done < <(left_out)
    fi
    sed 's/\x1b\[[0-9;]*m//g' "$work/told" | awk -v left_out="$([ -n "${ON:-}" ] || left_out)" '
        BEGIN {
            count = split(left_out, rows, "\n")
            for (i = 1; i <= count; i++) {
                split(rows[i], row, " +")
                gsub(/\*/, ".*", row[1])
                patterns[i] = "^" row[1] "$"
            }
        }
        / FAILED$/ {
            for (i = 1; i <= count; i++) if ($1 ~ patterns[i]) next
            print "    " $1; more = 3
            next
        }
        more > 0 && !/^Backtrace/ { print "        " $0; more--; next }
        { more = 0 }'
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

say() { printf 'pjdfstest: %s\n' "$*" >&2; }

main "$@"
