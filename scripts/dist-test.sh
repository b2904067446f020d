#!/usr/bin/env bash
# A release of a built program (scripts/dist.sh) installs and runs: scripts/dist-test.sh PROGRAM
#
# Each package goes into a folder of its own. The image fetches over TLS, by names of /etc/hosts and of DNS, as the
# user it states. Needs root and Debian's dpkg-dev, binutils, dpkg-dev and python3; no network.
set -euo pipefail
cd "$(dirname "$0")/.."

# Where no nameserver of this machine is.
NAMESERVER=127.53.53.53
ENGINE_LINE='crates/engine/src/.*\.rs:[0-9]'

main() {
    [ $# = 1 ] || { sed -n '2s/^# \{0,1\}//p' "$0" >&2; exit 4; }
    [ "$(id -u)" = 0 ] || fail "needs root, for chroot"
    built=$(realpath "$1")
    version=$("$built" --version | cut -d ' ' -f 2)
    work=$(mktemp -d)
    started=()
    unset IMAGE
    trap 'kill "${started[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
    out=$work/out

    scripts/dist.sh "$built" "$out" >/dev/null
    check_sums
    check_tar
    check_deb
    check_image
    check_again
    echo "dist: ok, $(stat -c %s "$work/tar/bin/flatout") bytes the program, $(stat -c %s "$out"/*-image.tar) the image"
}

check_sums() {
    (cd "$out" && sha256sum --check --strict --quiet SHA256SUMS) || fail "SHA256SUMS is wrong"
    [ "$(wc -l <"$out/SHA256SUMS")" = 4 ] && [ "$(find "$out" -type f | wc -l)" = 5 ] || fail "$out has other files than SHA256SUMS"
}

check_tar() {
    local root=$work/tar addresses
    mkdir "$root"
    tar -xzf "$out"/flatout-*-linux-gnu.tar.gz -C "$root" --strip-components 1
    runs "$root/bin/flatout"
    [ "$root/sbin/mount.flatout" -ef "$root/bin/flatout" ] || fail "the tar's mount.flatout leads elsewhere"
    holds "$root" share/man/man1/flatout{,-cp}.1 share/bash-completion/completions/flatout share/zsh/site-functions/_flatout \
        share/fish/vendor_completions.d/flatout.fish share/doc/flatout/{README.md,LICENSE-MIT,LICENSE-APACHE,docs/mount.md} \
        share/doc/flatout/deploy/{README.md,flatout@.service,flatout.env,fstab}

    mkdir "$root/bin/.debug"
    gunzip <"$(echo "$out"/*.debug.gz)" >"$root/bin/.debug/flatout.debug"
    addresses=$(nm "$root/bin/flatout" | awk '/ [tT] .*flatout_engine/ && n++ < 50 { print $1 }')
    # The words are addresses.
    # shellcheck disable=SC2086
    addr2line -e "$root/bin/flatout" $addresses | grep "$ENGINE_LINE" >/dev/null || fail "the line tables are of another program"
}

# A root with nothing but dpkg's own files, and /sbin as Debian has it.
check_deb() {
    local root=$work/deb
    mkdir -p "$root"/var/lib/dpkg/{info,updates} "$root/usr/sbin"
    ln -s usr/sbin "$root/sbin"
    touch "$root"/var/lib/dpkg/status
    dpkg_in "$root" --force-depends --install "$out"/flatout_*.deb
    runs "$root/usr/bin/flatout"
    cmp "$root/usr/bin/flatout" "$work/tar/bin/flatout"
    [ "$(readlink "$root/sbin/mount.flatout")" = /usr/bin/flatout ] || fail "the package's mount.flatout leads elsewhere"
    holds "$root/usr/share" man/man1/flatout{,-cp}.1.gz bash-completion/completions/flatout zsh/vendor-completions/_flatout \
        fish/vendor_completions.d/flatout.fish doc/flatout/{copyright,README.md,deploy/flatout.env,deploy/fstab}
    grep -q '^ExecStart=/usr/bin/flatout mount ' "$root/usr/lib/systemd/system/flatout@.service" || fail "the unit starts another program"
    dpkg-deb --field "$out"/flatout_*.deb Depends | grep -q '^libc6 (>= ' || fail "the package states no version of libc6"
    (cd "$root" && md5sum --check --quiet var/lib/dpkg/info/flatout.md5sums) || fail "the package's md5sums are wrong"

    dpkg_in "$root" --remove flatout
    left=$(find "$root" -name '*flatout*')
    [ -z "$left" ] || fail "removing the package leaves $left"
}

dpkg_in() {
    dpkg --root="$1" --log="$work/dpkg.log" "${@:2}" >"$work/dpkg.out" 2>&1 || { cat "$work/dpkg.out" >&2; fail "dpkg failed"; }
}

check_image() {
    local root=$work/image port
    unpack_image "$out"/*-image.tar "$root"
    cmp "$root/usr/bin/flatout" "$work/tar/bin/flatout"
    holds "$root" usr/share/doc/flatout/LICENSE-{MIT,APACHE}
    [ "$(stat -c %a "$root/tmp")" = 1777 ] || fail "the image's /tmp is not everyone's"
    [ "$(in_image --version)" = "flatout $version" ] || fail "the image's program does not run"

    # These files come from the container's runtime.
    echo "127.0.0.1 localhost" >"$root/etc/hosts"
    echo "nameserver $NAMESERVER" >"$root/etc/resolv.conf"
    serve
    ! fetch 2>"$work/refused" || fail "the image trusts an unknown certificate"
    grep -qi certificate "$work/refused" || fail "another failure than that of the certificate: $(cat "$work/refused")"
    cat "$work/ca.pem" >>"$root/etc/ssl/certs/ca-certificates.crt"
    fetch || fail "a fetch by a name in /etc/hosts failed"
    [ "$(wc -l <"$work/asked")" = 1 ] || fail "the nameserver was asked for a name in /etc/hosts"
    rm "$root/etc/hosts"
    fetch || fail "a fetch by a name in DNS failed"
    [ "$(wc -l <"$work/asked")" -gt 1 ] || fail "the nameserver was not asked"
}

# Unpacks the image's layer, once both of its indexes agree and digests are right, and checks how it starts.
unpack_image() {
    mkdir "$2"
    python3 - "$1" "$version" "$work/layer" <<'END'
import hashlib, json, sys, tarfile
with tarfile.open(sys.argv[1]) as image:
    read = lambda name: image.extractfile(name).read()
    blob = lambda described: read("blobs/" + described["digest"].replace(":", "/"))
    for name in image.getnames():
        if name.startswith("blobs/sha256/"):
            assert name.endswith(hashlib.sha256(read(name)).hexdigest()), name
    manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
    [layer], config = manifest["layers"], json.loads(blob(manifest["config"]))
    [docker] = json.loads(read("manifest.json"))
    assert docker["Layers"] == ["blobs/" + layer["digest"].replace(":", "/")], docker
    assert docker["RepoTags"] == ["flatout:" + sys.argv[2]], docker
    starts = config["config"]
    assert (starts["Entrypoint"], starts["User"]) == (["/usr/bin/flatout"], "65532:65532"), starts
    assert starts["Labels"]["org.opencontainers.image.version"] == sys.argv[2], starts
    open(sys.argv[3], "wb").write(blob(layer))
END
    tar -xzpf "$work/layer" --numeric-owner -C "$2"
}

# An origin with a certificate for localhost, and a nameserver that knows every name as 127.0.0.1. File `asked` has a
# line when it listens, and one for each question.
serve() {
    "$built" serve --synthetic bucket/key=4MiB --no-auth --listen 127.0.0.1:0 --tls "$work/ca.pem" --json >"$work/listening" &
    started+=($!)
    python3 -c '
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
print("listening", flush=True)
while True:
    query, client = server.recvfrom(512)
    print("asked", flush=True)
    end = query.index(0, 12) + 5
    known = query[end - 4:end - 2] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if known else b""
    server.sendto(query[:2] + b"\x81\x80\0\1\0" + bytes([known]) + bytes(4) + query[12:end] + answer, client)
' "$NAMESERVER" >"$work/asked" &
    started+=($!)
    for _ in $(seq 100); do
        port=$(sed -n 's/.*"https:[^"]*:\([0-9]*\)".*/\1/p' "$work/listening")
        [ -z "$port" ] || [ ! -s "$work/asked" ] || return 0
        sleep 0.1
    done
    fail "the origin or the nameserver does not start"
}

# The image's program fetches from the origin, as the image's user, what the built one fetches.
fetch() {
    local fetched=$work/image/tmp/key from=(--no-sign-request --outage-timeout 2s --endpoint-url "https://localhost:$port")
    in_image cp "${from[@]}" --quiet s3://bucket/key /tmp/key &&
        env -i "$built" cat "${from[@]}" --ca-bundle "$work/ca.pem" s3://bucket/key | cmp - "$fetched" &&
        [ "$(stat -c %u "$fetched")" = 65532 ] &&
        rm "$fetched"
}

in_image() {
    env -i PATH=/usr/bin HOME=/home/flatout "$(command -v chroot)" --userspec 65532:65532 --groups '' "$work/image" /usr/bin/flatout "$@"
}

check_again() {
    scripts/dist.sh "$built" "$work/again" >/dev/null
    diff -r "$out" "$work/again" || fail "two builds differ"
}

runs() {
    [ "$("$1" --version)" = "flatout $version" ] || fail "$1 does not run"
}

# A folder, and paths below it.
holds() {
    local path
    for path in "${@:2}"; do
        [ -s "$1/$path" ] || fail "$path is missing"
    done
}

fail() {
    echo "dist: $1" >&2
    exit 1
}

main "$@"
