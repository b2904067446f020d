"""A peer: a client that is measured, as its peer.toml describes it."""

from dataclasses import dataclass
from pathlib import Path

import variables
from install import InstallError, check_keys, the_way
from errors import UsageError, nearest
from table import Table

LANDINGS = {
    "get": ("nowhere", "memory", "file", "pipe"),
    "many": ("nowhere", "files"),
    # Where what is sent comes from: a file, standard input, a folder of many files.
    "put": ("file", "pipe", "files"),
    # Who reads in a mount, and how: see lab/mounted.py.
    "mount": ("direct", "buffered", "random", "small", "mmap", "safetensors", "by-name", "list", "list-again"),
    # What a Python program does with what it reads: see peers/reads.py.
    "python": ("loop", "safetensors", "parquet", "zip", "torch", "readers", "interleaved"),
}
# Here the machine says which version is installed.
VERSION_OF_MACHINE = ("apt", "flatout")


@dataclass(frozen=True)
class Settings:
    """A named way to call a peer; `why` is the place in its documentation that advises it."""

    name: str
    why: str | None
    args: list[str]
    env: dict[str, str]
    # The only kind of work that they are for; None: any.
    work: str | None = None


@dataclass(frozen=True)
class Call:
    """The command line for one kind of work into one landing, or from one source."""

    run: list[str]
    # Speaks ready, go and done; else the whole process is measured.
    talks: bool
    # Writes the object to standard output, which goes nowhere.
    drops_stdout: bool


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    about: str
    default: str | None
    folder: Path
    # Read by install.py.
    install: dict
    env: dict[str, str]
    # None: it cannot be told whom to trust.
    tls: Settings | None
    settings: dict[str, Settings]
    calls: dict[tuple[str, str], Call]
    sweep: list[str] | None


def installation(table: Table) -> dict:
    found = table.take("install", dict)
    try:
        check_keys(f"{table.file}: [install]", found)
        the_way(f"{table.file}: [install]", found)
    except InstallError as error:
        raise UsageError(str(error)) from None
    return found


def load_peer(file: Path) -> Peer:
    table = Table.load(file)
    name = table.text("name")
    if name != file.parent.name:
        raise table.error("name", f"must be that of its folder, {file.parent.name!r}, not {name!r}")
    install = installation(table)
    by_machine = any(way in install for way in VERSION_OF_MACHINE)
    peer = Peer(
        name=name,
        version=table.text("version", "") if by_machine else table.text("version"),
        about=table.text("about"),
        default=table.text("default", None),
        folder=file.parent,
        install=install,
        env=table.environment("env"),
        tls=tls(table.table("tls")),
        settings=settings(table),
        calls=calls(table),
        sweep=sweep(table.table("sweep")),
    )
    table.finish()
    return peer


def tls(table: Table | None) -> Settings | None:
    if table is None:
        return None
    found = Settings("tls", None, checked(table, "args", variables.ALWAYS, []), environment(table, variables.ALWAYS))
    table.finish()
    return found


def settings(table: Table) -> dict[str, Settings]:
    """Its defaults and what its documentation advises."""
    group = table.table("settings") or Table(table.file, "settings.", {"default": {}})
    found = {}
    for name, each in group.tables():
        why = each.text("why", None)
        if why is None and name != "default":
            raise each.error("why", "is missing: name the place in the peer's documentation that advises it")
        known = variables.ALWAYS - {"settings", "tls", "program"}
        work = each.choice("work", LANDINGS, None)
        found[name] = Settings(name, why, checked(each, "args", known, []), environment(each, known), work)
        each.finish()
    if not found:
        raise table.error("settings", "has no settings; leave it out for the default alone")
    return found


def calls(table: Table) -> dict[tuple[str, str], Call]:
    found = {}
    for work, landings in LANDINGS.items():
        group = table.table(work)
        if group and work == "mount":
            # One command, whoever reads there; it stays in the foreground.
            mounted = Call(checked(group, "run", variables.ALWAYS | {"mount_point"}), talks=True, drops_stdout=False)
            found |= {(work, landing): mounted for landing in landings}
        for landing in landings if group and work != "mount" else ():
            each = group.table(landing)
            if each is not None:
                found[work, landing] = call(each, work, landing)
        if group:
            group.finish()
    if not found:
        raise UsageError(f"{table.file}: there is no [get.LANDING], no [many.LANDING], no [put.SOURCE] and no [python.LANDING]: nothing could be measured")
    return found


def call(table: Table, work: str, landing: str) -> Call:
    found = Call(
        run=checked(table, "run", variables.of(work, landing)),
        talks=table.flag("talks"),
        drops_stdout=table.choice("stdout", ("drop",), None) == "drop",
    )
    table.finish()
    if not found.run:
        raise table.error("run", "is empty; it begins with {program}")
    if landing in ("nowhere", "memory") and not found.talks and not found.drops_stdout:
        raise table.error("run", 'what it delivers cannot be checked: needs talks = true or stdout = "drop"')
    if work == "python" and not found.talks:
        raise table.error("run", "is a part of a Python program, and only what talks can say where it begins: needs talks = true")
    if work == "put":
        check_source(table, landing, found)
    elif found.talks and (landing == "pipe" or found.drops_stdout):
        raise table.error("talks", "speaks on standard output, so the object cannot go there")
    if found.drops_stdout and landing != "nowhere":
        raise table.error("stdout", "can be dropped only where the landing is nowhere")
    return found


def check_source(table: Table, landing: str, found: Call):
    """That what is sent is named once: as {source}, or by nobody where it comes on standard input."""
    named = any("{source}" in argument for argument in found.run)
    if landing == "pipe" and not found.talks and named:
        raise table.error("run", "gets what it sends on standard input: without {source}")
    if (landing != "pipe" or found.talks) and not named:
        reason = "is spoken to on standard input, so what it sends cannot come there" if landing == "pipe" else "does not say what is sent"
        raise table.error("run", f"{reason}: needs {{source}}")


def sweep(table: Table | None) -> list[str] | None:
    if table is None:
        return None
    args = checked(table, "args", variables.OF_SWEEP)
    table.finish()
    return args


def checked(table: Table, key: str, known: set[str], *default) -> list[str]:
    """Arguments whose variables there are."""
    arguments = table.texts(key, *default)
    for argument in arguments:
        wrong = variables.unknown(argument, known)
        if wrong:
            raise table.error(key, wrong)
    return arguments


def environment(table: Table, known: set[str]) -> dict[str, str]:
    found = table.environment("env")
    for name, value in found.items():
        wrong = variables.unknown(value, known - variables.SPLICED)
        if wrong:
            raise table.error(f"env.{name}", wrong)
    return found
