"""`compare A.json B.json`: per cell whether B is better, worse or the same, and how surely.

Where both runs have a working floor, what is compared is the ratio to the floor of the same round: a machine that was
slower on one day was slower for the floor too.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import results
from errors import UsageError
from sizes import GIB
from estimates import CONFIDENCE, median, ratios, shift
from summary import aligned

# By measure: what a ratio over 1 means.
MEASURES = {"throughput": "better", "cpu": "worse"}


@dataclass(frozen=True)
class Verdict:
    """B against A in one cell and one measure."""

    case: str
    peer: str
    settings: str
    measure: str
    # better, worse, same, or unsure: too few rounds.
    verdict: str
    ratio: float
    low: float | None
    high: float | None
    # The floor's settings that both were divided by, None for plain figures.
    of_floor: str | None
    # The floor itself: it shows how the machine differed, and is nothing that could have got worse.
    is_floor: bool

    @property
    def counts_as_worse(self) -> bool:
        return self.verdict == "worse" and not self.is_floor


@dataclass(frozen=True)
class Comparison:
    machines_differ: bool
    verdicts: list[Verdict]
    # What could not be compared, and why.
    left_out: list[dict]


class Run:
    """Results, looked up by cell."""

    def __init__(self, path: Path):
        self.path, self.data = path, results.read(path)
        self.cases = {case["name"]: case for case in self.data["cases"]}
        self.cells = {(cell["case"], cell["peer"], cell["settings"]): cell for cell in self.data["cells"]}

    @property
    def machine(self) -> dict:
        return self.data["machine"]

    def values(self, cell: dict, measure: str) -> list[float]:
        case = self.cases[cell["case"]]
        gib = case["objects"] * case["object_bytes"] / GIB
        if measure == "throughput":
            return [gib / turn["seconds"] for turn in cell["rounds"]]
        return [max(turn["cpu_seconds"], 1e-6) / gib for turn in cell["rounds"]]

    def floors(self, case: str) -> dict[str, dict]:
        """The floor's cells in a case that worked, the fastest first."""
        floor = self.cases[case].get("floor")
        cells = [cell for (of, peer, _), cell in self.cells.items() if of == case and peer == floor and cell["state"] == "ok"]
        cells.sort(key=lambda cell: median(self.values(cell, "throughput")), reverse=True)
        return {cell["settings"]: cell for cell in cells}


def compare(a: Run, b: Run, tolerance: float) -> Comparison:
    verdicts, left_out = [], []
    for key in {**a.cells, **b.cells}:
        reason = incomparable(a, b, key)
        if reason:
            left_out.append({"case": key[0], "peer": key[1], "settings": key[2], "reason": reason})
        else:
            verdicts += [judge(a, b, key, measure, tolerance) for measure in MEASURES]
    return Comparison(a.machine["id"] != b.machine["id"], verdicts, left_out)


def incomparable(a: Run, b: Run, key: tuple) -> str | None:
    for run, name in ((a, "A"), (b, "B")):
        if key not in run.cells:
            return f"not in {name}"
    for run, name in ((a, "A"), (b, "B")):
        cell = run.cells[key]
        if cell["state"] != "ok":
            return f"failed in {name}: {cell.get('reason')}"
    one, other = a.cases[key[0]], b.cases[key[0]]
    for field in ("objects", "object_bytes", "origin", "landing"):
        if one[field] != other[field]:
            return f"another case in B: {field} {other[field]} instead of {one[field]}"
    return None


def judge(a: Run, b: Run, key: tuple, measure: str, tolerance: float) -> Verdict:
    floor = shared_floor(a, b, key)
    one, other = (figures(run, run.cells[key], measure, floor) for run in (a, b))
    found = shift(one, other)
    is_floor = key[1] == a.cases[key[0]].get("floor")
    return Verdict(*key, measure, verdict(found, measure, tolerance), found.ratio, found.low, found.high, floor, is_floor)


def shared_floor(a: Run, b: Run, key: tuple) -> str | None:
    """The floor's settings that are the best in A of those that both have; None for the floor itself."""
    case, peer, _ = key
    if peer == a.cases[case].get("floor"):
        return None
    there = b.floors(case)
    return next((settings for settings in a.floors(case) if settings in there), None)


def figures(run: Run, cell: dict, measure: str, floor: str | None) -> list[float]:
    values = run.values(cell, measure)
    return values if floor is None else ratios(values, run.values(run.floors(cell["case"])[floor], measure))


def verdict(found, measure: str, tolerance: float) -> str:
    """Not the same only when the interval leaves out 1, and the difference is one that matters."""
    if found.low is None:
        return "unsure"
    if found.low <= 1 <= found.high or max(found.ratio, 1 / found.ratio) < 1 + tolerance:
        return "same"
    over = MEASURES[measure]
    return over if found.ratio > 1 else {"better": "worse", "worse": "better"}[over]


def main(a: Path, b: Path, as_json: bool, across_machines: bool, tolerance: float) -> int:
    """Exit code: 1 when something is worse, the machine aside."""
    one, other = Run(a), Run(b)
    found = compare(one, other, tolerance)
    if found.machines_differ and not across_machines:
        raise UsageError(
            f"DIFFERENT MACHINES: {a} is of {named(one.machine)}, {b} of {named(other.machine)}. What differs between them "
            "is not what changed in the program. Measure both on one machine; to compare nevertheless: --across-machines"
        )
    print(in_json(found, one, other, tolerance) if as_json else in_text(found, one, other, tolerance))
    return 1 if any(each.counts_as_worse for each in found.verdicts) else 0


def in_json(found: Comparison, a: Run, b: Run, tolerance: float) -> str:
    return json.dumps(
        {
            "a": str(a.path),
            "b": str(b.path),
            "machines_differ": found.machines_differ,
            "machines": [a.machine, b.machine],
            "confidence": CONFIDENCE,
            "tolerance": tolerance,
            "cells": [asdict(each) for each in found.verdicts],
            "left_out": found.left_out,
        },
        indent=1,
    )


def in_text(found: Comparison, a: Run, b: Run, tolerance: float) -> str:
    lines = [f"A: {described(a)}", f"B: {described(b)}"]
    if found.machines_differ:
        lines.insert(0, f"DIFFERENT MACHINES: A is of {named(a.machine)}, B of {named(b.machine)}: what differs may be theirs.")
    lines += ["", *aligned([["", "measure", "B is", "B/A", "interval", "compared by"], *map(row, found.verdicts)])]
    lines += [""] * bool(found.left_out)
    lines += [f"not compared: {each['case']}, {each['peer']} {each['settings']}: {each['reason']}" for each in found.left_out]
    return "\n".join([*lines, "", *legend(found, tolerance)])


def row(each: Verdict) -> list[str]:
    interval = "too few rounds" if each.low is None else f"{each.low:.3f}..{each.high:.3f}"
    by = f"ratio to floor {each.of_floor}" if each.of_floor else "the machine" if each.is_floor else "plain figures"
    return [f"{each.case}, {each.peer} {each.settings}", each.measure, each.verdict, f"{each.ratio:.3f}", interval, by]


def legend(found: Comparison, tolerance: float) -> list[str]:
    judged = [each for each in found.verdicts if not each.is_floor]
    counts = {word: sum(each.verdict == word for each in judged) for word in ("better", "worse", "same", "unsure")}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "worse")
    lines = [f"{told}; {len(found.left_out)} cells not compared."]
    lines.append(f"Not the same: the {CONFIDENCE:.0%} interval leaves out 1, and the difference is {tolerance:.0%} or more.")
    if len(judged) < len(found.verdicts):
        lines.append("The floor's own rows show how the machine differed; they do not count. Ratios to the floor leave that out.")
    if any(each.of_floor is None for each in judged):
        lines.append("Plain figures (no floor in both) hold what the machine did as well.")
    chance = (1 - CONFIDENCE) * len(judged)
    lines.append(f"Of {len(judged)} comparisons about {chance:.0f} would look different by chance, were everything the same.")
    return lines


def described(run: Run) -> str:
    flatout = run.data.get("flatout") or {}
    commit = f" {flatout['commit']}" if flatout.get("commit") else ""
    dirty = " with changes" if flatout.get("dirty") else ""
    return f"{run.path}, {run.data.get('started')}, suite {run.data.get('suite')}, flatout {flatout.get('version')}{commit}{dirty}"


def named(machine: dict) -> str:
    return f"{machine['id']} ({machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, Linux {machine.get('kernel')})"
