#!/usr/bin/env python3
"""Makes a container image of a built program, from files of this machine alone: image.py PROGRAM FOLDER

Writes FOLDER/flatout-VERSION-ARCH-image.tar, for the architecture of this machine. It is an OCI layout (oci-archive)
and what `docker save` writes (docker-archive) at once: docker, podman, ctr, kind and skopeo load it. The same program,
machine and commit give the same bytes.

Variables: IMAGE, its name (flatout); SOURCE_DATE_EPOCH, its date (that of the commit).
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_BYTES = 60 << 20
USER = 65532
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DOC = "usr/share/doc"
# `flatout` has a home for keys that are mounted there: ~/.aws, ~/.aliyun.
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nflatout:x:{USER}:{USER}:flatout:/home/flatout:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nflatout:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# From this version on, the C library looks up names without opening libraries of its own by name.
RESOLVER_IS_BUILT_IN = (2, 34)


def main(program: pathlib.Path, folder: pathlib.Path) -> None:
    version = output(program, "--version").split()[1]
    machine = platform.machine()
    name = f"{os.environ.get('IMAGE') or 'flatout'}:{version}"
    mtime = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "-C", ROOT, "log", "-1", "--format=%ct"))

    layer = tar(files(program), mtime)
    packed = gzip.compress(layer, mtime=0)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(mtime))
    config = {
        "created": created,
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/flatout"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/",
            "Labels": labels(program, version),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": created, "created_by": "scripts/image.py"}],
    }

    image = tar(layout(name, packed, as_json(config)), mtime)
    path = folder / f"flatout-{version}-{machine}-image.tar"
    if len(image) > MOST_BYTES:
        sys.exit(f"image: {name} would have {mib(len(image))}, at most {mib(MOST_BYTES)} are allowed")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image)
    print(f"image: {path}, {mib(len(image))} of {mib(len(layer))} unpacked: {name}, linux/{ARCHITECTURES[machine]}")


def files(program: pathlib.Path) -> dict:
    """What the image holds: a path without its leading slash, and a file of this machine, the bytes or no content."""
    libraries = shared_libraries(program)
    system = {path.lstrip("/"): pathlib.Path(path) for path in libraries}
    licences = {f"{DOC}/flatout/{path.name}": path for path in ROOT.glob("LICENSE-*")}
    accounts = {path: text.encode() for path, text in ACCOUNTS.items()}
    folders = dict.fromkeys(["tmp", "home/flatout"])
    ours = {"usr/bin/flatout": stripped(program)} | accounts | licences | folders
    return ours | system | roots() | notices(libraries)


def stripped(program: pathlib.Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder, "flatout")
        subprocess.run([ROOT / "scripts/strip.sh", program, result, f"{result}.debug"], check=True)
        return result.read_bytes()


def shared_libraries(program: pathlib.Path) -> list[str]:
    """Where this machine's loader finds them, itself among them: there it finds them in the image, too."""
    found = output("ldd", program)
    if "not found" in found:
        sys.exit(f"image: {program} needs libraries that this machine lacks:\n{found}")
    libraries = re.findall(r"(/\S+) \(0x", found)
    libc = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    if libc < RESOLVER_IS_BUILT_IN:
        beside = next(pathlib.Path(path).parent for path in libraries if "/libc.so" in path)
        libraries += [str(beside / name) for name in ["libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"]]
    return libraries


def roots() -> dict:
    """Mozilla's certificates as Debian packs them. /etc/ssl/certs also has those that this machine's administrator
    trusts, which are nobody else's business. Without any, the program uses those built in."""
    certificates = sorted(pathlib.Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in certificates)
    return {"etc/ssl/certs/ca-certificates.crt": bundle} if bundle else {}


def notices(libraries: list[str]) -> dict:
    """The copyright notices of Debian's packages whose files are in the image, and the licences they name."""
    try:
        # A package lists a file where it lay before /lib became a link to /usr/lib, or where it is.
        paths = [path for library in libraries for path in (library, f"/usr{library}")]
        search = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True)
    except FileNotFoundError:
        return {}
    packages = {line.split(":")[0] for line in search.stdout.splitlines()} | ({"ca-certificates"} if roots() else set())
    found = {f"{DOC}/{package}/copyright": pathlib.Path(f"/{DOC}/{package}/copyright") for package in packages}
    text = "".join(path.read_text() for path in found.values())
    named = {name: pathlib.Path("/", name) for name in re.findall(r"/(usr/share/common-licenses/[\w.+-]*\w)", text)}
    return found | {name: path for name, path in named.items() if path.is_file()}


def labels(program: pathlib.Path, version: str) -> dict:
    labels = {"title": "flatout", "version": version, "licenses": "MIT OR Apache-2.0"}
    commit = re.search(r"^commit +([0-9a-f]{40})$", output(program, "version", "--verbose"), re.MULTILINE)
    if commit:
        labels["revision"] = commit[1]
    return {f"org.opencontainers.image.{key}": value for key, value in sorted(labels.items())}


def layout(name: str, layer: bytes, config: bytes) -> dict:
    manifest = as_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar+gzip", layer)],
    })
    annotations = {
        "io.containerd.image.name": full(name),
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor("manifest.v1+json", manifest) | {"annotations": annotations}],
    }
    dockers = [{"Config": blob(config), "RepoTags": [name], "Layers": [blob(layer)]}]
    return {
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": as_json(index),
        "manifest.json": as_json(dockers),
        **{blob(content): content for content in (layer, config, manifest)},
    }


def full(name: str) -> str:
    """A name with its registry, as containerd wants it."""
    first, slash, _ = name.partition("/")
    if slash and re.search(r"[.:]|^localhost$", first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def descriptor(kind: str, content: bytes) -> dict:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(content), "size": len(content)}


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob(content: bytes) -> str:
    return f"blobs/{digest(content).replace(':', '/')}"


def tar(contents: dict, mtime: int) -> bytes:
    """Root's, sorted, of one time, with every folder before what lies in it."""
    folders = {str(parent): None for path in contents for parent in pathlib.PurePath(path).parents if parent.name}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in sorted((folders | contents).items()):
            entry = tarfile.TarInfo(path)
            entry.mtime = mtime
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            else:
                content = content if isinstance(content, bytes) else content.read_bytes()
                runs = content.startswith(b"\x7fELF")
                entry.size, entry.mode = len(content), 0o755 if runs else 0o644
            if path == "home/flatout":
                entry.uid = entry.gid = USER
            archive.addfile(entry, io.BytesIO(content or b""))
    return packed.getvalue()


def as_json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


def mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def output(*command: object) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(4)
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
