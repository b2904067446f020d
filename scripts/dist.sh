#!/usr/bin/env bash
# Packs a built program for a release: scripts/dist.sh PROGRAM [FOLDER], target/dist unless named
#
#   flatout-VERSION-ARCH-linux-gnu.tar.gz   what `make install` installs, and documents, to be unpacked over a prefix
#   flatout_VERSION_ARCH.deb                the same for Debian and Ubuntu, and the unit of systemd
#   flatout-VERSION-ARCH-image.tar          a container image (scripts/image.py)
#   flatout-VERSION-ARCH.debug.gz           the line tables of the program in all three (scripts/strip.sh)
#   SHA256SUMS
#
# It packs for the architecture of this machine. The same program, machine and commit give the same bytes.
# Variables: SOURCE_DATE_EPOCH, the date of every file (that of the commit); IMAGE, the image's name.
set -euo pipefail
cd "$(dirname "$0")/.."

MAINTAINER='The maintainers of Flatout <flatout@localhost>'

main() {
    [ $# = 1 ] || [ $# = 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 4; }
    command -v dpkg-shlibdeps >/dev/null || { echo "dist: dpkg-shlibdeps is missing: apt-get install dpkg-dev" >&2; exit 1; }
    umask 022
    mkdir -p "${2:-target/dist}"
    out=$(realpath "${2:-target/dist}")
    rm -f "$out"/flatout[-_]*.{tar.gz,tar,deb,debug.gz} "$out/SHA256SUMS"
    work=$(mktemp -d)
    trap 'rm -r "$work"' EXIT
    # The program names its line tables by the file that it was stripped as.
    program=$work/flatout
    cp "$1" "$program"
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    version=$("$program" --version | cut -d ' ' -f 2)
    arch=$(uname -m)

    pack_tar
    pack_deb
    scripts/image.py "$program" "$out" >/dev/null
    gzip -n <"$program.debug" >"$out/flatout-$version-$arch.debug.gz"
    (cd "$out" && sha256sum flatout[-_]* >SHA256SUMS)
    (cd "$out" && stat -c "dist: $out/%n, %s bytes" flatout[-_]*)
}

pack_tar() {
    local name=flatout-$version-$arch-linux-gnu
    place "$work/$name" ""
    ln -sfn ../bin/flatout "$work/$name/sbin/mount.flatout"
    tar --create --directory "$work" --format gnu --sort name --mtime "@$SOURCE_DATE_EPOCH" --owner 0 --group 0 --numeric-owner "$name" |
        gzip -9n >"$out/$name.tar.gz"
}

pack_deb() {
    local root=$work/deb debs_version=${version//-/\~} debs_arch
    debs_arch=$(dpkg --print-architecture)
    place "$root" /usr
    gzip -9n "$root"/usr/share/man/man1/*.1
    # Where Debian's zsh looks.
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    mkdir -p "$root/usr/lib/systemd/system" "$root/DEBIAN"
    sed 's:/usr/local/bin/:/usr/bin/:' deploy/flatout@.service >"$root/usr/lib/systemd/system/flatout@.service"
    (
        cd "$root/usr/share/doc/flatout"
        rm deploy/flatout@.service
        {
            printf 'Flatout is licensed under MIT or Apache-2.0, as you choose.\n'
            printf 'Apache-2.0 is /usr/share/common-licenses/Apache-2.0; MIT is this:\n\n'
            cat LICENSE-MIT
        } >copyright
        rm LICENSE-*
    )
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    cat >"$root/DEBIAN/control" <<END
Package: flatout
Version: $debs_version
Architecture: $debs_arch
Maintainer: $MAINTAINER
Installed-Size: $(find "$root/usr" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
Depends: $(needed_by "$root/usr/bin/flatout")
Recommends: ca-certificates, fuse3
Section: net
Priority: optional
Description: moves bytes between object storage and compute
 Flatout copies data between S3, Alibaba Cloud OSS or web servers and this
 machine as fast as machine and network allow, and mounts buckets as folders.
 It is a command line, a mount helper and a driver for Kubernetes (CSI).
END
    # dpkg-deb leaves times before SOURCE_DATE_EPOCH alone.
    find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$root" "$out/flatout_${debs_version}_$debs_arch.deb" >/dev/null
}

# What `make install` puts below a prefix, without the line tables, and the documents.
place() {
    make --silent install-built BUILT="$program" DESTDIR="$1" PREFIX="$2" >/dev/null
    rm -r "$1$2/bin/.debug"
    local doc=$1$2/share/doc/flatout
    mkdir -p "$doc/docs"
    cp README.md CHANGELOG.md LICENSE-* "$doc"
    cp docs/*.md "$doc/docs"
    cp -r deploy "$doc"
    chmod -R u=rwX,go=rX "$doc"
}

# The packages whose libraries a program needs, with versions.
needed_by() {
    mkdir -p "$work/debian"
    printf 'Source: flatout\n\nPackage: flatout\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O "$1") | sed 's/^shlibs:Depends=//'
}

main "$@"
