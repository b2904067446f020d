"""Everything that can be measured: the peers, the cases, and the cells that come of them."""

from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import variables
from cases import Case, load_case, resized
from content import Objects
from errors import UsageError, nearest
from peers import Call, Peer, Settings, load_peer
from sizes import MIB, format_size


@dataclass(frozen=True, eq=False)
class Cell:
    """One bar of the page: a case, a peer and how it is called."""

    case: Case
    objects: Objects
    peer: Peer
    settings: Settings
    parallel: int | None = None
    part_bytes: int | None = None

    @property
    def call(self) -> Call:
        return self.peer.calls[self.case.work, self.case.landing]

    @property
    def label(self) -> str:
        return f"{self.peer.name}:{self.settings.name}"


# Nothing beside what a case tells.
PLAIN = Settings("", None, [], {})


@dataclass(frozen=True)
class Catalogue:
    peers: dict[str, Peer]
    cases: dict[str, Case]

    def resized(self, size: int, suite: str, case_globs: list[str]) -> "Catalogue":
        """With objects of that size in the chosen cases of the suite, which must have one object each, read once."""
        cases = dict(self.cases)
        for name, case in self.cases.items():
            if suite not in case.suites or not matches(name, case_globs):
                continue
            objects = case.suites[suite]
            if objects.count != 1 or (objects.read is not None and case.work != "python"):
                raise UsageError(f"--size is for cases of one object, and {name} is none: choose others by --case")
            cases[name] = replace(case, suites={**case.suites, suite: resized(objects, case.work, case.landing, size)})
        return replace(self, cases=cases)

    def cells(self, suite: str, case_globs: list[str] = [], peer_globs: list[str] = []) -> list[Cell]:
        """The cells of a suite, those of a case together; none at all is an error."""
        check_globs("case", case_globs, self.cases)
        cases = [case for case in self.cases.values() if suite in case.suites and matches(case.name, case_globs)]
        if not cases:
            there = [case.name for case in self.cases.values() if suite in case.suites]
            raise UsageError(f"no case of suite {suite} matches {' '.join(case_globs) or '*'}; there are: {', '.join(there) or 'none'}")
        check_globs("peer", peer_globs, self.peers)
        found = [cell for case in cases for cell in self.cells_of(case, suite) if matches(cell.peer.name, peer_globs)]
        if not found:
            raise UsageError(f"no peer of the chosen cases matches {' '.join(peer_globs)}; there are: {', '.join(self.peers)}")
        return found

    def cells_of(self, case: Case, suite: str) -> list[Cell]:
        found, objects = [], case.suites[suite]
        for entry in case.peers:
            name, _, settings = entry.partition(":")
            if name in case.without[suite]:
                continue
            peer = self.peers[name]
            chosen = [peer.settings[settings]] if settings else settings_for(case, peer)
            if case.sweep and name != case.floor:
                base = chosen[0] if settings else PLAIN
                pairs = [(parallel, size) for parallel in case.sweep.parallel for size in case.sweep.part_bytes]
                found += [told(case, objects, peer, base, *pair, "one of the sweep") for pair in pairs]
            else:
                found += [Cell(case, objects, peer, each) for each in chosen]
        if case.alike:
            # Once a peer, however many of its settings the case names.
            peers = {cell.peer.name: cell.peer for cell in found if cell.peer.sweep and cell.peer.name != case.floor}
            why = "the same for every peer that can be told"
            found += [told(case, objects, peer, PLAIN, *pair, why) for peer in peers.values() for pair in case.alike]
        return found


def settings_for(case: Case, peer: Peer) -> list[Settings]:
    """All that fit its kind of work."""
    return [each for each in peer.settings.values() if each.work in (None, case.work)]


def told(case: Case, objects: Objects, peer: Peer, base: Settings, parallel: int, part_bytes: int, why: str) -> Cell:
    """A peer that is told how many parts to have in flight, and of which size."""
    values = {"parallel": str(parallel), "part_bytes": str(part_bytes), "part_mib": f"{part_bytes / MIB:g}"}
    args = base.args + variables.fill(peer.sweep, values, {})
    settings = Settings(f"{parallel} x {format_size(part_bytes)}", why, args, base.env)
    return Cell(case, objects, peer, settings, parallel, part_bytes)


def labels_of(entry: str, case: Case, peers: dict[str, Peer]) -> list[str]:
    """What an entry of a case stands for."""
    name, _, settings = entry.partition(":")
    return [entry] if settings else [f"{name}:{each.name}" for each in settings_for(case, peers[name])]


def check_globs(what: str, globs: list[str], names):
    """Each matches something: what matches nothing is a mistake, whatever the others match."""
    for glob in globs:
        if not any(fnmatch(name, glob) for name in names):
            raise UsageError(f"no {what} matches {glob}{nearest(glob, names)}")


def matches(name: str, globs: list[str]) -> bool:
    return not globs or any(fnmatch(name, glob) for glob in globs)


def load(bench: Path) -> Catalogue:
    """Reads and checks all of it."""
    peers = [load_peer(file) for file in sorted((bench / "peers").glob("*/peer.toml"))]
    cases = [load_case(file) for file in sorted((bench / "cases").glob("*.toml"))]
    catalogue = Catalogue({peer.name: peer for peer in peers}, {case.name: case for case in cases})
    for case in cases:
        check(case, catalogue.peers)
    return catalogue


def check(case: Case, peers: dict[str, Peer]):
    """That the case can be run with the peers that there are."""

    def error(key: str, reason: str) -> UsageError:
        return UsageError(f"{case.file}: {key}: {reason}")

    for entry in case.peers:
        name, _, settings = entry.partition(":")
        if name not in peers:
            raise error("peers", f"{name!r} is no peer{nearest(name, peers)}")
        peer = peers[name]
        if settings and settings not in peer.settings:
            raise error("peers", f"{name} has no settings {settings!r}{nearest(settings, peer.settings)}")
        if settings and peer.settings[settings].work not in (None, case.work):
            raise error("peers", f"{name}'s settings {settings!r} are for {peer.settings[settings].work}, and the work is {case.work}")
        if (case.work, case.landing) not in peer.calls:
            there = ", ".join(f"[{work}.{landing}]" for work, landing in peer.calls)
            raise error("peers", f"{name} has no [{case.work}.{case.landing}] in its peer.toml, only {there}")
        if case.tls and peer.tls is None:
            raise error("peers", f"{name} has no [tls] in its peer.toml, and {case.origin} speaks TLS")
        if case.sweep and name != case.floor and peer.sweep is None:
            raise error("peers", f"{name} has no [sweep] in its peer.toml")
    labels = [label for entry in case.peers for label in labels_of(entry, case, peers)]
    if len(set(labels)) != len(labels):
        raise error("peers", f"names {next(label for label in labels if labels.count(label) > 1)} twice")
    names = {entry.partition(":")[0] for entry in case.peers}
    if case.floor is not None and case.floor not in names:
        raise error("floor", f"{case.floor!r} is none of its peers{nearest(case.floor, names)}")
    for name in (name for left_out in case.without.values() for name in left_out):
        if name not in names or name == case.floor:
            raise error("without", f"{name!r} is none of its peers that can be left out{nearest(name, names)}")
