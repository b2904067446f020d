"""`run`: from the choice of cells to the results on disk."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import install
import machine
import origins
import page
import results
import scratch
import tree
from cases import ORIGINS, SUITES, Case
from catalogue import Catalogue, Cell
from clients import Ground
from content import Content
from errors import LabError
from install import Installed, InstallError
from peers import Peer
from process import Limits, Surroundings
from progress import Progress, say
from rounds import Bench, Result, fail, measure
from sampler import Loopback
from sizes import GIB, MIB, format_size
from summary import summary

ROOT = Path(__file__).resolve().parents[2]
MEMORY_LIMIT_BYTES = 8 * GIB
# What a client's file may be larger than twice the object: logs, and what it keeps for itself.
FILE_MARGIN_BYTES = 256 * MIB


@dataclass(frozen=True)
class Options:
    """What the command line of `run` says."""

    suite: str
    cases: list[str]
    peers: list[str]
    rounds: int | None
    size: int | None
    out: Path | None
    flatout: Path | None
    no_install: bool
    wait_s: float


def run(catalogue: Catalogue, options: Options) -> int:
    """Exit code: 1 when a cell failed."""
    if options.size:
        catalogue = catalogue.resized(options.size, options.suite, options.cases)
    cells = catalogue.cells(options.suite, options.cases, options.peers)
    check_place(options)
    with scratch.only_lab(options.wait_s, say):
        done = Session(cells, options).run()
    print(summary(done), flush=True)
    for path in write(done, options):
        print(path)
    return 1 if any(cell["state"] == "failed" for cell in done["cells"]) else 0


class Session:
    """One run of the lab."""

    def __init__(self, cells: list[Cell], options: Options):
        self.cells, self.options = cells, options
        self.cases = {cell.case.name: cell.case for cell in cells}
        self.suite = SUITES[options.suite]
        self.rounds = options.rounds or self.suite.rounds
        self.progress = Progress(len(cells) * (self.rounds + 1))
        self.origins: dict[str, dict] = {}

    def run(self) -> dict:
        started, clock_started = datetime.now(timezone.utc), time.monotonic()
        scratch.check_room([(cell.case, cell.objects) for cell in self.cells])
        described = machine.describe()
        self.install()
        # Not before: building a peer is a load of our own.
        described["load_before"] = machine.load()
        self.say_what_comes(described)
        measured = self.measure()
        return self.described(measured, described, started, time.monotonic() - clock_started)

    def install(self):
        """Each peer, and flatout, which also serves and drains."""
        self.flatout = flatout(self.options)
        self.installed: dict[str, Installed | str] = {}
        for peer in {cell.peer.name: cell.peer for cell in self.cells}.values():
            self.installed[peer.name] = self.flatout if "flatout" in peer.install else installed(peer, self.options)

    def say_what_comes(self, described: dict):
        cells, cases = len(self.cells), len(self.cases)
        say(f"suite {self.options.suite}: {cases} cases, {cells} cells, {self.rounds} rounds and a check: {self.progress.runs} runs")
        if described["load_before"] > 0.25 * described["cores"]:
            say(f"the machine is busy (load {described['load_before']:g} on {described['cores']} cores): the figures will scatter")

    def measure(self) -> list[Result]:
        """Origin by origin, so that one runs at a time."""
        for cell in self.cells:
            self.progress.expect(cell, self.rounds + 1)
        tree.become_subreaper()
        found: dict[str, list[Result]] = {}
        try:
            with scratch.folder(say) as folder:
                site = origins.Site(folder, *self.contents(folder), self.flatout.argv[0], install.default_cache())
                for name in [each for each in ORIGINS if any(case.origin == each for case in self.cases.values())]:
                    found.update(self.measure_at(name, site))
                scratch.end_everything()
        except BaseException:
            scratch.end_everything()
            raise
        finally:
            self.progress.wipe()
        return [result for name in self.cases for result in found[name]]

    def contents(self, folder: Path) -> tuple[Content, Content]:
        """What origins serve, and what clients send."""
        served = Content(folder / "www", python=str(install.default_cache().parent / "python/bin/python"))
        sources = Content(folder / "sources")
        for cell in self.cells:
            content = sources if cell.case.work == "put" else served
            if not content.has(cell.objects, cell.case.form):
                self.progress.say(f"making {cell.objects.count} x {format_size(cell.objects.size)}")
                content.make(cell.objects, cell.case.form)
        return served, sources

    def measure_at(self, name: str, site: origins.Site) -> dict[str, list[Result]]:
        """All cases of one origin. One that does not come up fails its cells, and theirs alone."""
        cases = [case for case in self.cases.values() if case.origin == name]
        origin = origins.origin(name, site, counts=any(case.work == "python" for case in cases))
        self.origins[name] = {"name": name, "about": "did not start", "cores": origin.cores}
        found: dict[str, list[Result]] = {}
        try:
            with origin:
                self.origins[name]["about"] = origin.about()
                for case in cases:
                    found[case.name] = self.measure_case(case, origin, site)
        except (LabError, OSError) as error:
            # What was measured before stays.
            for case in cases:
                if case.name not in found:
                    found[case.name] = [self.failed(cell, str(error)) for cell in self.cells_of(case)]
        return found

    def measure_case(self, case: Case, origin: origins.Origin, site: origins.Site) -> list[Result]:
        if origin.process is None:
            raise LabError(f"origin {origin.name}: it ended, and did not start again")
        loopback, content = Loopback(), site.sources if case.work == "put" else site.content
        try:
            largest = max(cell.objects.bytes for cell in self.cells_of(case))
            limits = Limits(self.suite.limit_s, MEMORY_LIMIT_BYTES, 2 * largest + FILE_MARGIN_BYTES)
            requests = origin.requests if case.work == "python" else Surroundings.requests
            around = Surroundings(limits, origin.pids, loopback, [*self.flatout.argv, "__drain"], requests)
            with scratch.folder(say, scratch.DISK) if case.disk else contextlib.nullcontext(site.scratch) as folder:
                ground = Ground(folder / "work", content, origin, case.disk, case.work == "put")
                return measure(self.cells_of(case), self.rounds, Bench(ground, around, self.installed, self.progress))
        finally:
            loopback.close()

    def cells_of(self, case: Case) -> list[Cell]:
        return [cell for cell in self.cells if cell.case is case]

    def failed(self, cell: Cell, reason: str) -> Result:
        result = Result(cell)
        fail(result, reason, self.progress)
        return result

    def described(self, measured: list[Result], described: dict, started: datetime, seconds: float) -> dict:
        # Of a program that was given, nobody knows.
        commit, dirty = (None, False) if self.options.flatout else machine.commit(ROOT)
        versions = {name: each.version for name, each in self.installed.items() if isinstance(each, Installed)}
        return {
            "schema": results.SCHEMA,
            "kind": "lab",
            "suite": self.options.suite,
            "started": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round(seconds, 1),
            "command": shlex.join(["python3", os.path.relpath(sys.argv[0], ROOT) if sys.argv[0] else "bench/lab", *sys.argv[1:]]),
            "flatout": {"version": self.flatout.version, "commit": commit, "dirty": dirty},
            "machine": described,
            "method": results.method(self.rounds, self.suite.limit_s, MEMORY_LIMIT_BYTES),
            "peers": results.peers_of(measured, versions),
            "origins": list(self.origins.values()),
            "cases": [results.case_of(case, self.options.suite) for case in self.cases.values()],
            "cells": results.cells_of(measured, {name: each["cores"] for name, each in self.origins.items()}),
        }


def flatout(options: Options) -> Installed:
    """The program under test: the one that was named, else the sources' own, built for release."""
    if options.flatout is None:
        try:
            return install.install(ROOT / "bench/peers/flatout", {"flatout": True}, install.default_cache())
        except InstallError as error:
            raise LabError(str(error)) from None
    program = options.flatout.resolve()
    try:
        told = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=10).stdout.split()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"--flatout {program}: {error}") from None
    if not told or told[0] != "flatout":
        raise LabError(f"--flatout {program}: says no version of flatout")
    return Installed([str(program)], told[1], program.parent)


def installed(peer: Peer, options: Options) -> Installed | str:
    """The peer, or why there is none: then its cells fail, and the others go on."""
    cache = install.default_cache()
    try:
        if options.no_install and (reason := install.missing(peer.folder, peer.install, cache)):
            return reason
        return install.install(peer.folder, peer.install, cache)
    except InstallError as error:
        say(str(error))
        return str(error).splitlines()[0]


def check_place(options: Options):
    """That results can be written, before hours go into them."""
    folder = place(options)
    made = not folder.exists()
    trial = folder / f".trial.{os.getpid()}"
    results.write(trial, "")
    trial.unlink()
    if made:
        # A run that is broken off leaves nothing.
        folder.rmdir()


def place(options: Options) -> Path:
    return options.out or ROOT / "bench/results"


def write(done: dict, options: Options) -> list[Path]:
    """In its place; where that cannot be written any more, in another one that can."""
    try:
        return write_into(place(options), done, options)
    except LabError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="flatout-lab-results."))
        say(f"{error}; the results are in {elsewhere}")
        return write_into(elsewhere, done, options)


def write_into(folder: Path, done: dict, options: Options) -> list[Path]:
    """The results and their page. A part of a suite does not take the place of a whole one, unless it was told where to."""
    whole = not options.cases and not options.peers and not options.size
    name = "latest" if whole or options.out else "partial"
    data, html = folder / f"{name}.json", folder / f"{name}.html"
    results.write(data, json.dumps(done, indent=1, ensure_ascii=False) + "\n")
    try:
        results.write(html, page.render(done))
    except LabError as error:
        say(f"no page: {error}")
        return [data]
    return [data, html]
