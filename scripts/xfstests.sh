#!/usr/bin/env bash
# xfstests' generic tests, through a mount of a bucket with --staging and --attributes metadata.
#
#   scripts/xfstests.sh XFSTESTS FLATOUT [TEST]...
#       XFSTESTS is a built tree of xfstests (git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git), FLATOUT the program, a TEST the
#       number of one of generic/; without any, the group `quick`. Run it as root, and where about 30 GB of disk are free.
#
# The origin is MinIO. A line for each test: passed, failed, not run, or over LIMIT seconds (300). What a test has said is in
# XFSTESTS/results. While it runs there is a /sbin/mount.fuse.flatout, by which mount(8) finds the program.
#
# xfstests takes the type of a mount from df, which says fuse.flatout: its common/rc is told that this is `fuse`.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 4; }
xfstests=$(realpath "$1") flatout=$(realpath "$2")
shift 2
helper=/sbin/mount.fuse.flatout
work=$(mktemp -d /tmp/flatout-xfstests.XXXXXX)
port=9555
# Other users look into it.
chmod 755 "$work"
mkdir "$work"/{data,test,scratch}
export MINIO_ROOT_USER=minioadmin MINIO_ROOT_PASSWORD=minioadmin
export AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin AWS_REGION=us-east-1

cleared() {
    umount -l "$work/test" "$work/scratch" 2>/dev/null
    kill $(jobs -p) 2>/dev/null
    rm -rf "$work" "$helper"
}
trap cleared EXIT

"${FLATOUT_CACHE:-$HOME/.cache/flatout}/bin/minio" server --quiet --address 127.0.0.1:$port "$work/data" >"$work/minio.log" 2>&1 &
# MinIO empties its trash too late for tests that write gigabytes again and again.
(while sleep 3; do rm -rf "$work"/data/.minio.sys/tmp/.trash/*; done) &
for ((tries = 0; tries < 100; tries++)); do
    curl -sf -o /dev/null "http://127.0.0.1:$port/minio/health/live" && break
    sleep 0.1
done
for bucket in test scratch; do
    "$flatout" mb "s3://xfstests-$bucket" --endpoint-url "http://127.0.0.1:$port" || exit 1
done

cat >"$helper" <<HELPER
#!/usr/bin/env bash
source=\$1 at=\$2
shift 2
readonly=
case ",\$*," in *[,\ ]ro,*) readonly=--read-only ;; esac
# Variables of xfstests are none of the program's.
exec env -i PATH="\$PATH" HOME="\$HOME" AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin AWS_REGION=us-east-1 \\
    "$flatout" mount "\$source" "\$at" --endpoint-url http://127.0.0.1:$port --allow-other --attributes metadata \\
    --staging "$work/staging-\${source##*-}" \$readonly >>"$work/mount.log" 2>&1
HELPER
chmod +x "$helper"
grep -q "fuse.flatout" "$xfstests/common/rc" ||
    sed -i "s#-e 's/fuse.glusterfs/glusterfs/'#-e 's/fuse.flatout/fuse/' &#" "$xfstests/common/rc"
cat >"$xfstests/local.config" <<CONFIG
export TEST_DEV=s3://xfstests-test TEST_DIR=$work/test SCRATCH_DEV=s3://xfstests-scratch SCRATCH_MNT=$work/scratch
export FSTYP=fuse FUSE_SUBTYP=.flatout MOUNT_OPTIONS= TEST_FS_MOUNT_OPTS=
CONFIG

cd "$xfstests" || exit 1
[ $# -gt 0 ] || mapfile -t quick < <(grep -lE '^_begin_fstest .*\bquick\b' tests/generic/[0-9][0-9][0-9] | sort)
declare -A count
for test in ${*:-"${quick[@]##*/}"}; do
    began=$SECONDS
    timeout -k 10 "${LIMIT:-300}" ./check "generic/$test" >"$work/said" 2>&1
    case $? in
        124 | 137) end="over the limit" ;;
        *)
            if grep -q "not run" "$work/said"; then end="not run"
            elif grep -q "^Passed all" "$work/said"; then end=passed
            else end=failed
            fi
            ;;
    esac
    count[$end]=$((${count[$end]:-0} + 1))
    echo "generic/$test $end, $((SECONDS - began)) s$(grep -A1 'not run' "$work/said" | grep -oP 'not run\] \K.*' | head -1 | sed 's/^/: /')"
    umount -l "$work/test" "$work/scratch" 2>/dev/null
done
for end in "${!count[@]}"; do echo "$end: ${count[$end]}"; done
[ "${count[failed]:-0}" = 0 ] && [ "${count[over the limit]:-0}" = 0 ]
