"""How a cell's client is called in one run: its command line, its environment, its folder; and whether what it delivered is right."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import content
import scratch
import stored
import variables
from catalogue import Cell
from content import BUCKET, Content
from install import Installed
from origins import ACCESS_KEY, SECRET_KEY, Origin
from process import Client, Measured, RunFailed
from sizes import MIB

# Beside what a peer adds: no client sees the lab's own environment.
ENVIRONMENT = {
    # In the checks and the rounds of Python programs alike, nothing is left beside them.
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "OSS_ACCESS_KEY_ID": ACCESS_KEY,
    "OSS_ACCESS_KEY_SECRET": SECRET_KEY,
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class Ground:
    """Where the runs of a case take place: a folder that each of them finds empty, as the origin of what is sent, and what is
    fetched or sent."""

    work: Path
    content: Content
    origin: Origin
    disk: bool = False
    sends: bool = False

    def clean(self):
        if self.sends:
            stored.delete_all(self.origin)
        scratch.remove(self.work)
        if self.disk:
            # Nobody writes back what another one left.
            os.sync()
        (self.work / "home").mkdir(parents=True)

    @property
    def target(self) -> Path:
        return self.work / "target"

    @property
    def mount_point(self) -> Path:
        return self.work / "mounted"

    @property
    def dump(self) -> Path:
        return self.work / "check"


def client(cell: Cell, installed: Installed, ground: Ground, check: bool) -> Client:
    """The call of a cell. In the check its bytes are kept."""
    values = values_of(cell, ground)
    secure = cell.peer.tls if cell.case.tls else None
    spliced = {
        "program": installed.argv,
        "settings": variables.fill(cell.settings.args, values, {}),
        "tls": variables.fill(secure.args, values, {}) if secure else [],
    }
    argv = variables.fill(cell.call.run, values, spliced)
    if cell.case.work == "mount":
        argv = [*reader(cell, ground), "--", *argv]
    if check and dumps(cell):
        kept = ["--check", str(ground.dump)]
        argv = [*argv[:2], *kept, *argv[2:]] if cell.case.work == "mount" else argv + kept
    added = {**cell.peer.env, **cell.settings.env, **(secure.env if secure else {})}
    env = {name: variables.fill([value], values, {})[0] for name, value in added.items()}
    path = os.environ.get("PATH", os.defpath)
    base = {"PATH": path, "HOME": str(ground.work / "home"), **ENVIRONMENT}
    return Client(argv, {**base, **env}, str(ground.work), cell.call.talks, stdout(cell, check), stdin(cell, ground))


def dumps(cell: Cell) -> bool:
    """Whether the client itself writes down what it got."""
    return cell.call.talks and (cell.case.work in ("mount", "python") or cell.case.landing in ("nowhere", "memory"))


def reader(cell: Cell, ground: Ground) -> list[str]:
    """What stands around the command that mounts: it waits for the mount, reads in it, and unmounts."""
    return [
        *[sys.executable, str(Path(__file__).with_name("mounted.py")), "--at", str(ground.mount_point)],
        *["--reads", cell.case.landing, "--keys", str(keys_file(cell, ground)), "--bytes", str(cell.objects.delivered)],
        *cell.case.reader,
        *["--flatout", ground.origin.site.flatout, "--python", str(ground.origin.site.cache.parent / "python/bin/python")],
    ]


def stdout(cell: Cell, check: bool) -> str:
    if cell.call.drops_stdout:
        return "hash" if check else "drop"
    if cell.case.landing == "pipe" and cell.case.work != "put":
        return "hash" if check else "drain"
    return "keep"


def stdin(cell: Cell, ground: Ground) -> str | None:
    """The file that comes to the client as a stream, unless it talks: then it opens it."""
    if cell.case.work == "put" and cell.case.landing == "pipe" and not cell.call.talks:
        return str(stored.source(cell.objects, cell.case.form, ground.content))
    return None


def values_of(cell: Cell, ground: Ground) -> dict[str, str]:
    """The value of each variable that a command line of this cell may have."""
    origin, objects = ground.origin, cell.objects
    values = {
        "folder": str(cell.peer.folder),
        "endpoint": origin.endpoint,
        "bucket": BUCKET,
        "access_key": ACCESS_KEY,
        "secret_key": SECRET_KEY,
        "cores": str(os.cpu_count() or 1),
        "ca": str(origin.ca or ""),
        "work": str(ground.work),
        "target": str(ground.target),
        "parallel": str(cell.parallel or ""),
        "part_bytes": str(cell.part_bytes or ""),
        "part_mib": f"{(cell.part_bytes or 0) / MIB:g}",
    }
    if cell.case.work == "mount":
        return {**values, "mount_point": str(ground.mount_point)}
    if cell.case.work in ("get", "python"):
        key = content.keys(objects, cell.case.form)[0]
        return {**values, "key": key, "url": f"{origin.endpoint}/{BUCKET}/{key}", "bytes": str(objects.size)}
    if cell.case.work == "put":
        source = str(stored.source(objects, cell.case.form, ground.content))
        return {**values, "source": source, "key": stored.KEY, "url": f"{origin.endpoint}/{BUCKET}/{stored.KEY}", "prefix": stored.PREFIX}
    return {**values, "prefix": content.prefix(objects, cell.case.form), "keys": str(keys_file(cell, ground))}


def keys_file(cell: Cell, ground: Ground) -> Path:
    """One key a line."""
    # Beside the folder that each run finds empty.
    file = ground.work.parent / f"keys-{cell.case.form}-{cell.objects.size}-{cell.objects.count}"
    if not file.exists():
        file.write_text("".join(f"{key}\n" for key in content.keys(cell.objects, cell.case.form)))
    return file


def check_delivery(cell: Cell, measured: Measured, ground: Ground):
    """In the check: each byte of it, by its hash. Raises RunFailed."""
    check_amount(cell, measured, ground)
    if cell.case.work == "put":
        stored.check_bytes(ground.origin, cell.objects, cell.case.form, ground.content)
        return
    wanted = content.keys(cell.objects, cell.case.form)[0]
    if measured.stdout_sha256 is not None:
        compare(measured.stdout_bytes, measured.stdout_sha256, cell.objects.size, ground.content.sha256[wanted], "it wrote")
    elif cell.case.landing in ("list", "list-again"):
        pass  # Names and sizes were compared by who listed.
    elif wanted in ground.content.answers and cell.case.work == "python":
        compare_answer(ground.dump, wanted, cell.objects.delivered, ground.content)
    elif cell.case.form in ("one", "model"):
        compare_file(ground.dump if dumps(cell) else ground.target, wanted, ground.content)
    else:
        compare_folder(ground.dump if dumps(cell) else ground.target, cell, ground.content)


def check_amount(cell: Cell, measured: Measured, ground: Ground):
    """In each run: that nothing is missing, which costs nothing to see. Raises RunFailed."""
    if cell.case.landing in ("list", "list-again"):
        return
    total = cell.objects.delivered
    if measured.said_bytes is not None and measured.said_bytes != total:
        raise RunFailed(f"it said that it delivered {measured.said_bytes} bytes of {total}")
    if measured.fetched_bytes < total:
        verb = "send" if cell.case.work == "put" else "fetch"
        raise RunFailed(f"only {measured.fetched_bytes} bytes crossed loopback for {total}: it did not {verb} them all")
    if cell.case.work == "put":
        stored.check_sizes(ground.origin, cell.objects, cell.case.form)
        return
    if cell.case.landing == "file":
        size = ground.target.stat().st_size if ground.target.is_file() else None
        if size != total:
            raise RunFailed("it ended well and left no file" if size is None else f"its file has {size} bytes of {total}")
    if cell.case.landing == "files":
        files = files_below(ground.target)
        if len(files) != cell.objects.count:
            raise RunFailed(f"it left {len(files)} files of {cell.objects.count}")
        size = sum(file.stat().st_size for file in files)
        if size != total:
            raise RunFailed(f"its files have {size} bytes of {total}")


def compare(size: int, sha256: str, wanted_size: int, wanted_sha256: str, what: str):
    if size != wanted_size:
        raise RunFailed(f"wrong bytes: {what} {size} of {wanted_size}")
    if sha256 != wanted_sha256:
        raise RunFailed(f"wrong bytes: {what} {size}, as many as it should, but their SHA-256 is {sha256[:16]}…, not {wanted_sha256[:16]}…")


def compare_answer(path: Path, key: str, wanted_size: int, made: Content):
    """What a Python program got out of one object."""
    if not path.is_file():
        raise RunFailed(f"wrong bytes: it left no {path.name} for {key}")
    compare(path.stat().st_size, content.sha256(path), wanted_size, made.answers[key], f"out of {key} it read")


def compare_file(path: Path, key: str, made: Content):
    """One object in one file."""
    if not path.is_file():
        raise RunFailed(f"wrong bytes: it left no {path.name} for {key}")
    origin = made.bucket / key
    if content.sha256(path) != made.sha256[key]:
        size, at = path.stat().st_size, content.first_difference(path, origin)
        raise RunFailed(f"wrong bytes of {key}: {size} of {origin.stat().st_size}, different from offset {at}")


def compare_folder(folder: Path, cell: Cell, made: Content):
    """Each object in a file; clients differ in which part of the key they keep as folders."""
    files = {path.name: path for path in files_below(folder)}
    wanted = content.keys(cell.objects, cell.case.form)
    if len(files) != len(wanted):
        raise RunFailed(f"wrong bytes: it left {len(files)} files of {len(wanted)}")
    for key in wanted:
        name = key.rpartition("/")[2]
        if name not in files:
            raise RunFailed(f"wrong bytes: there is no file for {key}")
        compare_file(files[name], key, made)


def files_below(folder: Path) -> list[Path]:
    return [Path(where) / name for where, _, names in os.walk(folder) for name in names]
