"""A case: what is fetched or sent, from where, to where and by whom, as its file in cases/ describes it."""

from dataclasses import dataclass, replace
from pathlib import Path

from content import FORMS, FORM_OF_READING, Objects, useful_bytes
from peers import LANDINGS
from table import Table

READ = ("nginx", "nginx-tls", "minio", "minio-tls", "serve", "serve-tls", "shaped", "shaped-tls", "afar", "afar-tls")
# They forget the bytes, so nothing can be read there.
SINKS = ("sink", "sink-tls", "sink-afar")
ORIGINS = (*READ, *SINKS)
# To which clients send; the others serve the lab's own files.
WRITTEN = ("minio", "minio-tls", *SINKS)


@dataclass(frozen=True)
class Suite:
    """How long is measured."""

    about: str
    rounds: int
    # The most that one run of one client may take.
    limit_s: float


SUITES = {
    "smoke": Suite("seconds, in make test: shows that the lab works, measures nothing", 2, 30),
    "quick": Suite("under a quarter of an hour on two cores", 7, 60),
    "full": Suite("everything, at sizes that hide what starting costs: an hour or more", 7, 300),
}


# What reads in a mount, beside how: jobs at a time, blocks of so much, so many asked for ahead (fio's names).
READER = {"jobs": 1, "block": "1MiB", "depth": 1}


@dataclass(frozen=True)
class Sweep:
    """Instead of a peer's settings: each number in flight with each size of a part."""

    parallel: list[int]
    part_bytes: list[int]


@dataclass(frozen=True)
class Case:
    name: str
    file: Path
    title: str
    why: str
    origin: str
    work: str
    landing: str
    # `NAME` with all its settings, or `NAME:SETTINGS`.
    peers: list[str]
    floor: str | None
    # Whether files land on a disk, and not in memory as everything else does.
    disk: bool
    suites: dict[str, Objects]
    # By suite: which of the peers it has no time for.
    without: dict[str, list[str]]
    sweep: Sweep | None
    # Beside the settings of the peers, given to each peer that can be told: numbers in flight with sizes of a part.
    alike: list[tuple[int, int]]
    # How objects are named: see content.FORMS.
    form: str
    # Of a mount: what its reader is told.
    reader: list[str]

    @property
    def tls(self) -> bool:
        return self.origin.endswith("-tls")


def load_case(file: Path) -> Case:
    table = Table.load(file)
    work = table.choice("work", LANDINGS)
    landing = table.choice("landing", LANDINGS[work])
    origin = table.choice("origin", ORIGINS)
    check_origin(table, origin, work)
    suites = {name: part for name in SUITES if (part := table.table(name))}
    case = Case(
        name=file.stem,
        file=file,
        title=table.text("title"),
        why=table.text("why"),
        origin=origin,
        work=work,
        landing=landing,
        peers=table.texts("peers"),
        floor=table.text("floor", None),
        disk=table.flag("disk"),
        without={name: part.texts("without", []) for name, part in suites.items()},
        suites={name: scale(part, work, landing) for name, part in suites.items()},
        form=form(table, work, landing),
        reader=reader(table.table("reader")) if work == "mount" else [],
        sweep=sweep(table.table("sweep")),
        alike=alike(table.table("alike")),
    )
    table.finish()
    if case.disk and work == "put":
        raise table.error("disk", "is for files that a client writes, and this one sends")
    if case.disk and case.landing not in ("file", "files"):
        raise table.error("disk", f"is for files, and the landing is {case.landing}")
    if not case.suites:
        raise table.error("quick", f"no suite runs this case: write a table {', '.join(SUITES)} with its size")
    return case


def check_origin(table: Table, origin: str, work: str):
    if work == "put" and origin not in WRITTEN:
        raise table.error("origin", f"{origin} serves the lab's own files, and nothing is sent there: {', '.join(WRITTEN)} take what is sent")
    if work != "put" and origin not in READ:
        raise table.error("origin", f'{origin} forgets the bytes that it takes, so nothing can be read there: is for work = "put"')


def scale(table: Table, work: str, landing: str) -> Objects:
    read, large = (table.size(name) if name in table.data else None for name in ("read", "large"))
    objects = Objects(table.size("size"), table.count("count", 1), read, large or 0)
    table.finish()
    one = work in ("get", "python") or (work == "put" and landing != "files")
    if one and objects.count != 1:
        raise table.error("count", 'is for work = "many" and "mount", and to put "files"')
    if objects.read is not None and work != "mount":
        raise table.error("read", 'is for work = "mount": what its reader reads of the objects')
    if large is not None and (work, landing) != ("put", "files"):
        raise table.error("large", 'is for work = "put" and "files": one file beside many small ones')
    if objects.size == 0:
        raise table.error("size", "must be 1 or more")
    return resized(objects, work, landing, objects.size)


def resized(objects: Objects, work: str, landing: str, size: int) -> Objects:
    """Of another size; what a Python program reads of it follows."""
    return replace(objects, size=size, read=useful_bytes(size, landing) if work == "python" else objects.read)


def form(table: Table, work: str, landing: str) -> str:
    if work == "python":
        return FORM_OF_READING[landing]
    if work == "mount":
        return table.choice("objects", FORMS, "one")
    return "many" if work == "many" or (work == "put" and landing == "files") else "one"


def reader(table: Table | None) -> list[str]:
    """Flags of lab/mounted.py."""
    values = dict(READER)
    if table is not None:
        values |= {"jobs": table.count("jobs", 1), "block": table.text("block", "1MiB"), "depth": table.count("depth", 1)}
        table.size("block") if "block" in table.data else None
        table.finish()
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def alike(table: Table | None) -> list[tuple[int, int]]:
    """One number and one size, or lists of both: then each number with each size."""
    if table is None:
        return []
    if type(table.data.get("parallel")) is list:
        pairs = sweep(table)
        return [(parallel, size) for parallel in pairs.parallel for size in pairs.part_bytes]
    found = table.count("parallel"), table.size("part_size")
    table.finish()
    return [found]


def sweep(table: Table | None) -> Sweep | None:
    if table is None:
        return None
    found = Sweep(table.list_of("parallel", int), table.sizes("part_size"))
    table.finish()
    if not found.parallel or not found.part_bytes:
        raise table.error("parallel", "a sweep needs at least one number in flight and one size of a part")
    if min(found.parallel) < 1 or min(found.part_bytes) < 1:
        raise table.error("parallel", "a sweep's numbers and sizes must be 1 or more")
    return found
