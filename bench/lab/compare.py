"""`compare A.json B.json`: per cell whether B is better, worse or the same, and how surely.

Plain figures are compared, and beside them it is shown how the floor itself moved. Ratios to the floor (`by_floor`) take out
what the machine did to both, and put in how the floor scatters: measured, that is mostly more.
"""

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import results
from errors import UsageError
from estimates import CONFIDENCE, Shift, holm, median, rounds_for_holm, shift
from summary import aligned

# By measure: what a ratio over 1 means.
MEASURES = {"throughput": "better", "cpu": "worse"}
# What is tested; the other peers are there to be seen.
TESTED = "flatout"


@dataclass(frozen=True)
class Verdict:
    """B against A in one cell and one measure."""

    case: str
    peer: str
    settings: str
    measure: str
    # better, worse, same, or unsure: too few rounds, or an interval that reaches into the tolerance.
    verdict: str
    ratio: float
    low: float | None
    high: float | None
    # How often chance alone would show as much.
    p: float
    # The floor's settings that both were divided by, None for plain figures.
    of_floor: str | None
    # The floor itself: it shows how the machine differed, and is nothing that could have got worse.
    is_floor: bool
    # What else differs: the peer's version, the origin.
    note: str
    # Worse, of what is tested, and no chance: all comparisons of it taken together.
    counts_as_worse: bool = False

    @property
    def is_tested(self) -> bool:
        return self.peer == TESTED and not self.is_floor


@dataclass(frozen=True)
class Comparison:
    machines_differ: bool
    verdicts: list[Verdict]
    # What could not be compared, and why; `broke`: it worked in A and fails in B.
    left_out: list[dict]


class Run:
    """Results, looked up by cell."""

    def __init__(self, path: Path):
        self.path, self.data = path, results.read(path)
        self.cases = {case["name"]: case for case in self.data["cases"]}
        self.cells = {(cell["case"], cell["peer"], cell["settings"]): cell for cell in self.data["cells"]}
        self.peers = {peer["name"]: peer for peer in self.data.get("peers", [])}
        self.origins = {origin["name"]: origin for origin in self.data.get("origins", [])}

    @property
    def machine(self) -> dict:
        return self.data["machine"]

    def values(self, cell: dict, measure: str) -> dict[int, float]:
        """By round."""
        case = self.cases[cell["case"]]
        of = {"throughput": results.throughput, "cpu": results.cost}[measure]
        size = case["objects"] * case["object_bytes"] + case.get("large_bytes", 0)
        return {turn["round"]: of(size, turn[SECONDS[measure]]) for turn in cell["rounds"]}

    def floors(self, case: str) -> dict[str, dict]:
        """The floor's cells in a case that worked, by settings."""
        floor = self.cases[case].get("floor")
        return {key[2]: cell for key, cell in self.cells.items() if key[:2] == (case, floor) and cell["state"] == "ok"}

    def args(self, peer: str, settings: str) -> list[str] | None:
        there = self.peers.get(peer, {}).get("settings", [])
        return next((each.get("args") for each in there if each.get("name") == settings), None)


SECONDS = {"throughput": "seconds", "cpu": "cpu_seconds"}


def compare(a: Run, b: Run, tolerance: float, by_floor: bool = False) -> Comparison:
    verdicts, left_out = [], []
    for key in {**a.cells, **b.cells}:
        reason = incomparable(a, b, key)
        floor = shared_floor(a, b, key) if by_floor and not reason else None
        if floor and not reason:
            reason = without_pairs(a, b, key, floor)
        if reason:
            left_out.append({"case": key[0], "peer": key[1], "settings": key[2], "reason": reason, "broke": broke(a, b, key)})
        else:
            verdicts += [judge(a, b, key, measure, tolerance, floor) for measure in MEASURES]
    return Comparison(a.machine["id"] != b.machine["id"], counted(verdicts), left_out)


def counted(verdicts: list[Verdict]) -> list[Verdict]:
    """With those marked that are worse beyond chance, however many comparisons there were."""
    tested = [at for at, each in enumerate(verdicts) if each.is_tested]
    for at, sure in zip(tested, holm([verdicts[at].p for at in tested])):
        verdicts[at] = replace(verdicts[at], counts_as_worse=sure and verdicts[at].verdict == "worse")
    return verdicts


def incomparable(a: Run, b: Run, key: tuple) -> str | None:
    for run, name in ((a, "A"), (b, "B")):
        if key not in run.cells:
            return f"not in {name}"
    for run, name in ((a, "A"), (b, "B")):
        cell = run.cells[key]
        if cell["state"] != "ok":
            return f"failed in {name}: {cell.get('reason')}"
    one, other = a.cases[key[0]], b.cases[key[0]]
    for field in ("objects", "object_bytes", "large_bytes", "origin", "work", "landing", "disk"):
        if (one.get(field) or 0) != (other.get(field) or 0):
            return f"another case in B: {field} {other.get(field)} instead of {one.get(field)}"
    return called_differently(a, b, key)


def broke(a: Run, b: Run, key: tuple) -> bool:
    """Whether it worked in A and fails in B; a cell that B never ran, as with --case, did not fail."""
    states = [run.cells.get(key, {}).get("state") for run in (a, b)]
    return states[0] == "ok" and states[1] not in ("ok", None)


def called_differently(a: Run, b: Run, key: tuple) -> str | None:
    _, peer, settings = key
    args = [run.args(peer, settings) for run in (a, b)]
    if args[0] != args[1]:
        return f"other settings in B: {args[1]} instead of {args[0]}"
    commands = [general(run.cells[key].get("command") or []) for run in (a, b)]
    if commands[0] != commands[1]:
        return f"another command in B: {' '.join(commands[1])} instead of {' '.join(commands[0])}"
    return None


def general(command: list[str]) -> list[str]:
    """A command without what differs from run to run: ports, and the folders of paths."""
    return [re.sub(r"(?<![\w./])(/[^/\s]+)+/", "/", re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", word)) for word in command]


def note(a: Run, b: Run, key: tuple) -> str:
    """What changed beside the program that is tested."""
    case, peer, _ = key
    notes = []
    if peer not in (TESTED, a.cases[case].get("floor")):
        notes += [changed("version", [run.peers.get(peer, {}).get("version") for run in (a, b)])]
    notes += [changed("origin", [run.origins.get(run.cases[case]["origin"], {}).get("about") for run in (a, b)])]
    return "; ".join(filter(None, notes))


def changed(what: str, values: list) -> str:
    return "" if values[0] == values[1] else f"{what} {values[0]} became {values[1]}"


def shared_floor(a: Run, b: Run, key: tuple) -> str | None:
    """The floor's settings that are the best of those that both have, over A and B together: the best in one of them was
    lucky in that one. None for the floor itself."""
    case, peer, _ = key
    if peer == a.cases[case].get("floor"):
        return None
    one, other = a.floors(case), b.floors(case)
    pooled = {
        settings: [*a.values(one[settings], "throughput").values(), *b.values(other[settings], "throughput").values()]
        for settings in one
        if settings in other
    }
    return max(pooled, key=lambda settings: median(pooled[settings]), default=None)


def without_pairs(a: Run, b: Run, key: tuple, floor: str) -> str | None:
    for run, name in ((a, "A"), (b, "B")):
        if not figures(run, run.cells[key], "throughput", floor):
            return f"shares no round with the floor in {name}"
    return None


def judge(a: Run, b: Run, key: tuple, measure: str, tolerance: float, floor: str | None) -> Verdict:
    found = shift(*(figures(run, run.cells[key], measure, floor) for run in (a, b)))
    is_floor = key[1] == a.cases[key[0]].get("floor")
    said = verdict(found, measure, tolerance)
    return Verdict(*key, measure, said, found.ratio, found.low, found.high, found.p, floor, is_floor, note(a, b, key))


def figures(run: Run, cell: dict, measure: str, floor: str | None) -> list[float]:
    """Plain, or as ratios to the floor of the same round, where that has it."""
    values = run.values(cell, measure)
    if floor is None:
        return list(values.values())
    of = run.values(run.floors(cell["case"])[floor], measure)
    return [value / of[number] for number, value in values.items() if number in of]


def verdict(found: Shift, measure: str, tolerance: float) -> str:
    """Not the same only when the whole interval is beyond the tolerance."""
    if found.low is None:
        return "unsure"
    most = 1 + tolerance
    if found.low <= 1 <= found.high or 1 / most < found.ratio < most:
        return "same"
    if 1 / most <= found.high and found.low <= most:
        return "unsure"
    over = MEASURES[measure]
    return over if found.ratio > 1 else {"better": "worse", "worse": "better"}[over]


def main(a: Path, b: Path, as_json: bool, across_machines: bool, tolerance: float, by_floor: bool = False) -> int:
    """Exit code: 1 when flatout is worse, when what worked fails, and when there was nothing to compare."""
    one, other = Run(a), Run(b)
    found = compare(one, other, tolerance, by_floor)
    if found.machines_differ and not across_machines:
        raise UsageError(
            f"DIFFERENT MACHINES: {a} is of {named(one.machine)}, {b} of {named(other.machine)}. What differs between them "
            "is not what changed in the program. Measure both on one machine; to compare nevertheless: --across-machines"
        )
    print(in_json(found, one, other, tolerance) if as_json else in_text(found, one, other, tolerance))
    return 1 if counting(found, one) else 0


def counting(found: Comparison, a: Run) -> list[str]:
    """All that makes the exit code 1, in words."""
    worse = sum(each.counts_as_worse for each in found.verdicts)
    words = [f"{TESTED} is worse beyond chance (comparisons: {worse})"] * bool(worse)
    words += [f"worked in A and fails in B: {named_cell(each)}" for each in found.left_out if each["broke"]]
    if not found.verdicts:
        words.append("no cell of A could be compared with one of B")
    elif not any(each.is_tested for each in found.verdicts) and any(peer == TESTED for _, peer, _ in a.cells):
        words.append(f"no cell of {TESTED} could be compared")
    return words


def named_cell(each: dict) -> str:
    return f"{each['case']}, {each['peer']} {each['settings']}"


def in_json(found: Comparison, a: Run, b: Run, tolerance: float) -> str:
    return json.dumps(
        {
            "a": str(a.path),
            "b": str(b.path),
            "machines_differ": found.machines_differ,
            "machines": [a.machine, b.machine],
            "confidence": CONFIDENCE,
            "tolerance": tolerance,
            "differences": differences(a, b),
            "cells": [asdict(each) for each in found.verdicts],
            "left_out": found.left_out,
            "counts": counting(found, a),
        },
        indent=1,
    )


def in_text(found: Comparison, a: Run, b: Run, tolerance: float) -> str:
    lines = [f"A: {described(a)}", f"B: {described(b)}", *differences(a, b)]
    if found.machines_differ:
        lines.insert(0, f"DIFFERENT MACHINES: A is of {named(a.machine)}, B of {named(b.machine)}: what differs may be theirs.")
    lines += table("", [each for each in found.verdicts if not each.is_floor])
    lines += table("How the floor itself moved:", [each for each in found.verdicts if each.is_floor])
    lines += [""] * bool(found.left_out)
    lines += [f"not compared: {named_cell(each)}: {each['reason']}" for each in found.left_out]
    ends = [f"Exit code 1: {words}." for words in counting(found, a)]
    return "\n".join([*lines, "", *legend(found, tolerance), *ends])


def differences(a: Run, b: Run) -> list[str]:
    """Of the whole runs, beside the machine."""
    values = {"suite": [run.data.get("suite") for run in (a, b)], "kernel": [run.machine.get("kernel") for run in (a, b)]}
    return [f"DIFFERENT: {said}" for what, pair in values.items() if (said := changed(what, pair))]


def table(title: str, verdicts: list[Verdict]) -> list[str]:
    if not verdicts:
        return []
    return ["", *filter(None, [title]), *aligned([["", "measure", "B is", "B/A", "interval", "compared by", ""], *map(row, verdicts)])]


def row(each: Verdict) -> list[str]:
    interval = "too few rounds" if each.low is None else f"{each.low:.3f}..{each.high:.3f}"
    by = f"ratio to floor {each.of_floor}" if each.of_floor else "plain figures"
    counts = ["counts"] * each.counts_as_worse
    words = "; ".join([*counts, *filter(None, [each.note])])
    return [f"{each.case}, {each.peer} {each.settings}", each.measure, each.verdict, f"{each.ratio:.3f}", interval, by, words]


def legend(found: Comparison, tolerance: float) -> list[str]:
    judged = [each for each in found.verdicts if not each.is_floor]
    tested = [each for each in judged if each.is_tested]
    counts = {word: sum(each.verdict == word for each in judged) for word in ("better", "worse", "same", "unsure")}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "worse")
    lines = [f"{told}; {len(found.left_out)} cells not compared."]
    lines.append(f"Better or worse: the {CONFIDENCE:.0%} interval lies wholly beyond {tolerance:.0%}; unsure: it leaves out 1 and reaches into that, or there is none.")
    if judged:
        chance = (1 - CONFIDENCE) * len(judged)
        lines.append(f"Of {len(judged)} comparisons up to {chance:.0f} would leave out 1 by chance, were everything the same.")
    if not tested:
        return [*lines, f"{TESTED} is in none of them."]
    worse, sure = (sum(each) for each in ([v.verdict == "worse" for v in tested], [v.counts_as_worse for v in tested]))
    holms = f"Holm over the {len(tested)}, which takes {rounds_for_holm(len(tested))} rounds or more"
    lines.append(f"{TESTED}: {worse} of {len(tested)} worse, {sure} of them beyond chance ({holms}).")
    return lines


def described(run: Run) -> str:
    flatout = run.data.get("flatout") or {}
    commit = f" {flatout['commit']}" if flatout.get("commit") else ""
    dirty = " with changes" if flatout.get("dirty") else ""
    return f"{run.path}, {run.data.get('started')}, suite {run.data.get('suite')}, flatout {flatout.get('version')}{commit}{dirty}"


def named(machine: dict) -> str:
    return f"{machine['id']} ({machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, Linux {machine.get('kernel')})"
