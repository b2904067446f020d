#!/usr/bin/env bash
# What the tests need beyond Rust: lists what is missing, installs it. Run again, it finds everything there.
#
#   scripts/deps.sh list       what is missing, and how it would come
#   scripts/deps.sh install    installs it; Debian packages need root
#   scripts/deps.sh ensure     installs as root or with CI=true, else names the command and fails
#   scripts/deps.sh wheel      an environment with maturin, zig and auditwheel, and says where it is: all that a wheel needs
#   scripts/deps.sh demo       the same with what examples/demo.py uses
set -euo pipefail

# Pinned: the servers that nobody here wrote.
MINIO=github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
VERSITYGW=github.com/versity/versitygw/cmd/versitygw@v1.8.0
# And what stands before them and breaks the link on demand.
TOXIPROXY=github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0
# The specification of Kubernetes volumes, as tests.
# Exercises a file in random order (a rewrite of Apple's fsx).
FSX=0.3.2
CSI_SANITY=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0

# What the newest of them asks for in its go.mod: 1.25.
GO_MINOR=25

# Program, Debian package.
PACKAGES=("nginx nginx-light" "curl curl" "aria2c aria2" "chromium chromium" "python3 python3-venv"
    "zsh zsh" "fish fish" "mandoc mandoc" "man man-db"
    "fusermount3 fuse3" "tinyproxy tinyproxy-bin" "fio fio" "rsync rsync" "rclone rclone" "s3fs s3fs" "debootstrap debootstrap" "bwrap bubblewrap"
    "dpkg-shlibdeps dpkg-dev" "fsck.erofs erofs-utils")

# PyTorch 2 for the CPU: Debian 13 has it. PyPI's comes with gigabytes for GPUs, and Debian 12's is of before.
DEBIAN_13=python3,python3-venv,python3-torch,python3-yaml

# Debian's, for which there is that package; another one in the caller's PATH is not the one that sudo finds.
python3=/usr/bin/python3

# Clients of OSS and S3, pinned by the files there: Go modules by go.sum, Python packages by requirements.txt.
clients=$(cd "$(dirname "$0")/../crates/cli/tests/real/clients" && pwd)

# What tests of the Python package use beside it, pinned there: by the interpreter above, and by that of Debian 13 with torch.
package=$(cd "$(dirname "$0")/../crates/python" && pwd)

# Under sudo the tools belong to whoever called it, so that the tests find them.
owner=${SUDO_USER:-$(id -un)}
home=$(getent passwd "$owner" | cut -d: -f6)
# The tests look there by the same rule: FLATOUT_CACHE, else below HOME, which need not be the home of the password file. Under
# sudo HOME is root's, or nobody knows whose: `ensure` names the cache to it where that is another one.
usual=$home/.cache/flatout
if [ "$(id -u)" = 0 ] && [ "$owner" != root ]; then
    cache=${FLATOUT_CACHE:-$usual}
else
    cache=${FLATOUT_CACHE:-${HOME:-$home}/.cache/flatout}
fi
minio=$cache/minio-${MINIO##*@}/minio
versitygw=$cache/versitygw-${VERSITYGW##*@}/versitygw
toxiproxy=$cache/toxiproxy-${TOXIPROXY##*@}/server
fsx=$cache/fsx-$FSX/bin/fsx
csi_sanity=$cache/csi-sanity-${CSI_SANITY##*@}/csi-sanity
# Named after what they are made of, so that a change there makes them anew.
oss_clients=$cache/oss-clients-$(cat "$clients"/go.mod "$clients"/go.sum "$clients"/main.go | cksum | cut -d' ' -f1)
python=$cache/python-$({ cat "$clients/requirements.txt"; "$python3" -V || true; } 2>/dev/null | cksum | cut -d' ' -f1)
package_python=$cache/package-python-$({ cat "$package/requirements.txt"; "$python3" -V || true; } 2>/dev/null | cksum | cut -d' ' -f1)
debian_13=$cache/debian-13-$(echo "$DEBIAN_13" | cksum | cut -d' ' -f1)
package_torch=$cache/package-torch-$({ cat "$package/requirements-torch.txt"; echo "$debian_13 2"; } | cksum | cut -d' ' -f1)

# Neither sudo's PATH nor a plain user's holds them all.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin

main() {
    case ${1:-} in
        list) list ;;
        install) list && install_missing ;;
        ensure) ensure ;;
        wheel) small_python wheel auditwheel maturin packaging pyelftools ziglang ;;
        demo) small_python demo maturin numpy safetensors tqdm ;;
        *) say "write one of: list, install, ensure, wheel, demo"; exit 4 ;;
    esac
}

ensure() {
    list
    nothing_missing && return
    if [ "$(id -u)" != 0 ] && [ "${CI:-}" != true ]; then
        say "some of it is missing. Install it with:"
        say "    sudo $([ "$cache" = "$usual" ] || printf 'FLATOUT_CACHE=%q ' "$cache")make deps"
        exit 1
    fi
    install_missing
}

list() {
    say "the tests use (beside Rust):"
    local row
    for row in "${PACKAGES[@]}"; do
        line "${row% *}" "$(package_found "${row% *}" || echo "missing: apt-get install ${row#* }")"
    done
    line minio "$(found "$minio" || echo "missing: go install, about 6 minutes on two cores")"
    line versitygw "$(found "$versitygw" || echo "missing: go install, about 2 minutes on two cores")"
    line toxiproxy "$(found "$toxiproxy" || echo "missing: go install, less than a minute")"
    line csi-sanity "$(found "$csi_sanity" || echo "missing: go install, about a minute")"
    line fsx "$(found "$fsx" || echo "missing: cargo install, about a minute")"
    line ossutil "$(found "$oss_clients/ossutil" || echo "missing: go build, about a minute")"
    line oss-go "$(found "$oss_clients/oss-go" || echo "missing: go build, with ossutil")"
    line python "$(found "$python/whole" || echo "missing: pip install of OSS SDK, boto3, aws-cli, pyarrow, DuckDB and safetensors, about a minute")"
    line package "$(found "$package_python/whole" || echo "missing: pip install of maturin, pytest, pandas, fsspec and what else the package's tests use, about a minute")"
    line "" "$(found "$package_torch/whole" || echo "missing: debootstrap of Debian 13 with torch, pip install of Lightning and torchdata, about two minutes")"
}

# Debian has Python without what makes environments of it.
package_found() {
    case $1 in
        python3) "$python3" -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null ;;
        *) command -v "$1" ;;
    esac
}

found() { if [ -x "$1" ]; then echo "$1"; else false; fi; }

nothing_missing() {
    [ -z "$(missing_packages)" ] && leads bin/minio "$minio" && leads bin/versitygw "$versitygw" &&
        leads bin/toxiproxy "$toxiproxy" && leads bin/csi-sanity "$csi_sanity" && leads bin/fsx "$fsx" &&
        leads bin/ossutil "$oss_clients/ossutil" && leads bin/oss-go "$oss_clients/oss-go" &&
        [ -x "$python/whole" ] && leads python "$python" &&
        [ -x "$package_python/whole" ] && leads package-python "$package_python" &&
        [ -x "$package_torch/whole" ] && leads package-torch "$package_torch"
}

leads() { [ -e "$2" ] && [ "$(readlink -f "$cache/$1")" = "$(readlink -f "$2")" ]; }

install_missing() {
    install_packages
    install_go "$minio" "$MINIO" 6
    install_go "$versitygw" "$VERSITYGW" 2
    install_go "$toxiproxy" "$TOXIPROXY" 1
    install_go "$csi_sanity" "$CSI_SANITY" 1
    install_fsx
    install_oss_clients
    install_python
    install_package_python
    install_package_torch
    # The tests look here; the version stays in the folder that it points to.
    as_owner mkdir -p "$cache/bin"
    as_owner ln -sfn "../minio-${MINIO##*@}/minio" "$cache/bin/minio"
    as_owner ln -sfn "../versitygw-${VERSITYGW##*@}/versitygw" "$cache/bin/versitygw"
    as_owner ln -sfn "../toxiproxy-${TOXIPROXY##*@}/server" "$cache/bin/toxiproxy"
    as_owner ln -sfn "../csi-sanity-${CSI_SANITY##*@}/csi-sanity" "$cache/bin/csi-sanity"
    as_owner ln -sfn "../fsx-$FSX/bin/fsx" "$cache/bin/fsx"
    as_owner ln -sfn "../${oss_clients##*/}/ossutil" "$cache/bin/ossutil"
    as_owner ln -sfn "../${oss_clients##*/}/oss-go" "$cache/bin/oss-go"
    as_owner ln -sfn "${python##*/}" "$cache/python"
    as_owner ln -sfn "${package_python##*/}" "$cache/package-python"
    as_owner ln -sfn "${package_torch##*/}" "$cache/package-torch"
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

# Debian 12's own Go is too old, and fails with words that do not say so.
need_go() {
    local version
    version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true)
    [[ $version =~ go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge "$GO_MINOR" ] && return
    say "$1 is built with Go 1.$GO_MINOR or newer, here is ${version:-none}: install it first, from https://go.dev/dl"
    exit 1
}

# A program of one Go module: where it goes, what it is, how many minutes two cores take.
install_go() {
    [ -x "$1" ] && return
    need_go "${1##*/}"
    say "go install $2 (about $3 minutes on two cores)"
    # Built beside its place and moved there whole, so that a build that was broken off is not taken for one.
    as_owner mkdir -p "$1.building" "$(dirname "$1")"
    as_owner env PATH="$PATH" GOBIN="$1.building" GOFLAGS=-trimpath GOTOOLCHAIN=local \
        nice go install "$2"
    as_owner mv "$1.building/${1##*/}" "$1"
    as_owner rmdir "$1.building"
}

install_fsx() {
    [ -x "$fsx" ] && return
    say "cargo install fsx $FSX (about a minute on two cores)"
    as_owner rm -rf "$cache/fsx.building"
    # Sudo's PATH has no rustup.
    as_owner env PATH="$PATH:$home/.cargo/bin" nice \
        cargo install --quiet --locked --version "$FSX" --root "$cache/fsx.building" fsx
    as_owner rm -rf "$cache/fsx-$FSX"
    as_owner mv "$cache/fsx.building" "$cache/fsx-$FSX"
}

# ossutil, and a program of ours around the OSS Go SDK.
install_oss_clients() {
    [ -x "$oss_clients/ossutil" ] && [ -x "$oss_clients/oss-go" ] && return
    need_go ossutil
    say "go build of ossutil and the OSS Go SDK (about a minute on two cores)"
    as_owner mkdir -p "$oss_clients.building"
    as_owner env PATH="$PATH" GOFLAGS="-trimpath -mod=readonly" GOTOOLCHAIN=local nice \
        go build -C "$clients" -o "$oss_clients.building/ossutil" github.com/aliyun/ossutil
    as_owner env PATH="$PATH" GOFLAGS="-trimpath -mod=readonly" GOTOOLCHAIN=local nice \
        go build -C "$clients" -o "$oss_clients.building/oss-go" .
    as_owner rm -rf "$oss_clients"
    as_owner mv "$oss_clients.building" "$oss_clients"
}

# The OSS Python SDK, boto3, aws-cli and readers of files in an environment of their own. It cannot be moved once it is made: what says
# that it is whole is its Python under a second name.
install_python() {
    [ -x "$python/whole" ] && return
    say "pip install of the OSS Python SDK, boto3, aws-cli, pyarrow, DuckDB and safetensors (about a minute)"
    as_owner rm -rf "$python"
    as_owner "$python3" -m venv "$python"
    as_owner "$python/bin/pip" install -q --disable-pip-version-check --no-deps -r "$clients/requirements.txt"
    as_owner "$python/bin/pip" check >/dev/null
    as_owner ln -sfn bin/python "$python/whole"
}

# An environment with what users of the Python package use beside it.
install_package_python() {
    [ -x "$package_python/whole" ] && return
    say "pip install of what the Python package's tests use (about a minute)"
    as_owner rm -rf "$package_python"
    as_owner "$python3" -m venv "$package_python"
    as_owner "$package_python/bin/pip" install -q --disable-pip-version-check --no-deps -r "$package/requirements.txt"
    as_owner "$package_python/bin/pip" check >/dev/null
    as_owner ln -sfn bin/python "$package_python/whole"
}

# And one with PyTorch. Its `python` sees /usr of Debian 13 in place of this machine's, and everything else as it is here.
install_package_torch() {
    [ -x "$package_torch/whole" ] && return
    if ! [ -e "$debian_13/usr" ]; then
        if [ "$(id -u)" != 0 ]; then
            say "debootstrap needs root: sudo make deps"
            exit 1
        fi
        say "debootstrap of Debian 13 with torch (about a minute)"
        local mirror
        # shellcheck disable=SC2016 # apt-get's word
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 2>/dev/null | head -1 || true)
        rm -rf "$debian_13.building"
        as_owner mkdir -p "$cache"
        # shellcheck disable=SC2086 # none where it is not known: Debian's own
        debootstrap --force-check-gpg --variant=minbase --include="$DEBIAN_13" trixie "$debian_13.building" $mirror >"$debian_13.log" 2>&1 ||
            { tail -20 "$debian_13.log"; exit 1; }
        rm -rf "$debian_13.building/var/cache/apt" "$debian_13.building/var/lib/apt/lists" "$debian_13.log"
        mv "$debian_13.building" "$debian_13"
    fi
    say "pip install of Lightning and torchdata beside it (seconds)"
    as_owner rm -rf "$package_torch"
    as_owner mkdir -p "$package_torch/bin"
    printf '#!/bin/sh\nexec bwrap --dev-bind / / --ro-bind %q/usr /usr \\\n    --ro-bind %q/etc/alternatives /etc/alternatives --ro-bind %q/etc/ld.so.cache /etc/ld.so.cache \\\n    --die-with-parent "${DEBIAN_13_PYTHON:-%q/venv/bin/python}" "$@"\n' \
        "$debian_13" "$debian_13" "$debian_13" "$package_torch" | as_owner tee "$package_torch/bin/python" >/dev/null
    as_owner chmod +x "$package_torch/bin/python"
    as_owner env DEBIAN_13_PYTHON=/usr/bin/python3 "$package_torch/bin/python" -m venv --system-site-packages "$package_torch/venv"
    as_owner "$package_torch/bin/python" -m pip install -q --disable-pip-version-check --no-deps --ignore-installed \
        -r "$package/requirements-torch.txt"
    as_owner ln -sfn bin/python "$package_torch/whole"
}

# An environment with some of what is pinned for the Python package's tests; where it is goes to stdout, all else to
# stderr. Any Python with venv makes it.
small_python() {
    local made with pins
    pins=$(cat "$package"/requirements{,-wheel}.txt | grep -if <(printf '^%s==\n' "${@:2}"))
    for with in "$python3" python3; do
        "$with" -c 'import ensurepip, venv' 2>/dev/null && break
        with=
    done
    [ -n "$with" ] || { say "needs Python 3.11 or newer with venv: apt-get install python3-venv" >&2; exit 1; }
    made=$cache/$1-python-$({ echo "$pins"; "$with" -V; } | cksum | cut -d' ' -f1)
    [ -x "$made/whole" ] || {
        say "pip install of ${pins//$'\n'/, } (seconds)" >&2
        {
            as_owner mkdir -p "$cache"
            as_owner rm -rf "$made"
            as_owner "$with" -m venv "$made"
            # shellcheck disable=SC2086 # one word for each
            as_owner "$made/bin/pip" install -q --disable-pip-version-check --no-deps $pins
            as_owner ln -sfn bin/python "$made/whole"
        } >&2
    }
    echo "$made"
}

missing_packages() {
    local row
    for row in "${PACKAGES[@]}"; do
        package_found "${row% *}" >/dev/null || printf '%s ' "${row#* }"
    done
}

as_owner() {
    if [ "$(id -u)" = 0 ] && [ "$owner" != root ]; then sudo -H -u "$owner" "$@"; else "$@"; fi
}

line() { printf '    %-9s %s\n' "$1" "$2"; }
say() { printf 'deps: %s\n' "$*"; }

main "$@"
