"""What the rounds come to, in the form that the page and `compare` read (schema 1), and how it is kept."""

import contextlib
import json
import math
import os
from dataclasses import asdict
from pathlib import Path

import estimates
from cases import Case
from catalogue import Cell
from errors import LabError, UsageError
from peers import Peer
from rounds import Result, Round
from sizes import GIB, MIB
from estimates import Estimate, estimate, median, ratios

SCHEMA = 1
# Where how many counts, and not how much.
BY_OBJECTS = ("files", "small", "list", "list-again")
# From here on the origin, or the machine, is what was measured.
ORIGIN_BOUND = 0.9
MACHINE_BOUND = 0.95


def peers_of(results: list[Result], versions: dict[str, str]) -> list[dict]:
    """The peers that took part, with the settings that there are cells of."""
    used: dict[str, tuple[Peer, dict[str, dict]]] = {}
    for result in results:
        cell = result.cell
        settings = used.setdefault(cell.peer.name, (cell.peer, {}))[1]
        if cell.parallel is None:
            settings[cell.settings.name] = {"name": cell.settings.name, "why": cell.settings.why, "args": cell.settings.args}
    return [
        {
            "name": peer.name,
            "version": versions.get(peer.name) or peer.version or "unknown",
            "about": peer.about,
            "default": peer.default,
            "settings": list(settings.values()),
        }
        for peer, settings in used.values()
    ]


def case_of(case: Case, suite: str) -> dict:
    objects = case.suites[suite]
    sweep = case.sweep and {"parallel": case.sweep.parallel, "part_bytes": case.sweep.part_bytes}
    return {
        "name": case.name,
        "title": case.title,
        "why": case.why,
        "origin": case.origin,
        "work": case.work,
        "landing": case.landing,
        "objects": objects.count,
        "object_bytes": objects.size,
        "large_bytes": objects.large,
        "floor": case.floor,
        "sweep": sweep,
        "disk": case.disk,
        "left_out": case.without[suite],
    }


def cells_of(results: list[Result], origin_cores: dict[str, int]) -> list[dict]:
    """Every cell, the failed ones too."""
    cases = {each.cell.case.name: each.cell.case for each in results}
    floors = {name: floor_of(case, results) for name, case in cases.items()}
    return [cell_of(each, origin_cores[each.cell.case.origin], floors[each.cell.case.name]) for each in results]


def floor_of(case: Case, results: list[Result]) -> Result | None:
    """The best of the floor's settings: what a peer is compared with."""
    there = [each for each in results if each.cell.case is case and each.cell.peer.name == case.floor and not each.failed]
    return max(there, key=lambda each: median(throughputs(each)), default=None)


def cell_of(result: Result, cores: int, floor: Result | None) -> dict:
    cell = result.cell
    return {
        "case": cell.case.name,
        "peer": cell.peer.name,
        "settings": cell.settings.name,
        "parallel": cell.parallel,
        "part_bytes": cell.part_bytes,
        "state": "failed" if result.failed else "ok",
        "reason": result.reason,
        "command": result.argv,
        "talks": cell.call.talks,
        "rounds": [round_of(each) for each in result.rounds],
        "summary": None if result.failed else summary(result, cores, floor),
    }


def round_of(turn: Round) -> dict:
    measured = turn.measured
    return {
        "round": turn.round,
        "position": turn.position,
        "seconds": round(measured.seconds, 6),
        "cpu_seconds": round(measured.cpu_seconds, 6),
        "peak_rss_mib": round(measured.peak_rss / MIB, 2),
        "origin_cpu_seconds": round(measured.origin_cpu_seconds, 6),
        "drain_cpu_seconds": round(measured.drain_cpu_seconds, 6),
        "foreign_cpu_seconds": round(measured.foreign_cpu_seconds, 3),
        "fetched_bytes": measured.fetched_bytes,
        "requests": measured.requests,
        "peak_gib_per_s": round(measured.peak_bytes_per_s / GIB, 4),
    }


def summary(result: Result, cores: int, floor: Result | None) -> dict:
    cell, turns = result.cell, [each.measured for each in result.rounds]
    seconds = [each.seconds for each in turns]
    origin_busy = median([each.origin_cpu_seconds / each.seconds / cores for each in turns])
    all_cores = os.cpu_count() or 1
    ours = [each.cpu_seconds + each.origin_cpu_seconds + each.drain_cpu_seconds for each in turns]
    machine_busy = median([used / each.seconds / all_cores for used, each in zip(ours, turns)])
    foreign_busy = median([each.foreign_cpu_seconds / each.seconds / all_cores for each in turns])
    asked = [each.requests for each in turns if each.requests is not None]
    many = cell.case.work == "many" or cell.case.landing in BY_OBJECTS
    return {
        "gib_per_s": rounded(estimate(throughputs(result))),
        "cpu_s_per_gib": rounded(estimate(costs(result))),
        "peak_rss_mib": round(max(each.peak_rss for each in turns) / MIB, 1),
        "peak_gib_per_s": round(median([each.peak_bytes_per_s for each in turns]) / GIB, 4),
        "objects_per_s": rounded(estimate([cell.objects.number / each for each in seconds])) if many else None,
        "fetched_over_delivered": round(median([each.fetched_bytes / cell.objects.delivered for each in turns]), 4),
        "requests": round(median(asked)) if asked else None,
        "origin_busy": round(origin_busy, 3),
        "machine_busy": round(machine_busy, 3),
        "foreign_busy": round(foreign_busy, 3),
        "bound": bound(origin_busy, machine_busy),
        "of_floor": of_floor(result, floor),
    }


def bound(origin_busy: float, machine_busy: float) -> str | None:
    """What was as busy as can be, so that the client could not have been faster."""
    if origin_busy >= ORIGIN_BOUND:
        return "origin"
    return "machine" if machine_busy >= MACHINE_BOUND else None


def of_floor(result: Result, floor: Result | None) -> dict | None:
    """Round by round, so that what changes from round to round is in both."""
    if floor is None:
        return None
    return {
        "throughput": rounded(estimate(ratios(throughputs(result), throughputs(floor)))),
        "cpu": rounded(estimate(ratios(costs(result), costs(floor)))),
    }


def throughputs(result: Result) -> list[float]:
    return [throughput(result.cell.objects.delivered, turn.measured.seconds) for turn in result.rounds]


def costs(result: Result) -> list[float]:
    return [cost(result.cell.objects.delivered, turn.measured.cpu_seconds) for turn in result.rounds]


def throughput(size: int, seconds: float) -> float:
    """GiB a second."""
    return size / GIB / seconds


def cost(size: int, cpu_seconds: float) -> float:
    """CPU seconds a GiB; never nothing, since ratios are made of them."""
    return max(cpu_seconds, 1e-6) / (size / GIB)


def rounded(found: Estimate) -> dict:
    return {name: float(f"{value:.5g}") for name, value in asdict(found).items()}


def method(rounds: int, limit_s: float, memory_limit_bytes: int) -> dict:
    rank = estimates.interval_rank(rounds)
    return {
        "rounds": rounds,
        "warmups": 1,
        "confidence": estimates.CONFIDENCE,
        # What that many rounds come to: the narrowest interval above, or less, where even their range is less sure.
        "confidence_reached": round(estimates.interval_confidence(rounds, rank), 4),
        "interval_ranks": [rank, rounds + 1 - rank],
        "limit_s": limit_s,
        "memory_limit_mib": memory_limit_bytes // MIB,
    }


def write(path: Path, text: str):
    """All of it or nothing: a reader never sees a half. Behind a link stands the file that is meant."""
    target = path.resolve()
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is no file: name one to write to")
    whole = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        whole.replace(target)
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            whole.unlink(missing_ok=True)


def read(path: Path) -> dict:
    """Results of the lab, and nothing else."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no JSON: {error}") from None
    check(path, data)
    return data


def check(path: Path, data):
    """That it is what `make lab` writes, as far as anybody here reads it."""
    if not isinstance(data, dict) or data.get("kind") != "lab":
        kind = data.get("kind") if isinstance(data, dict) else type(data).__name__
        raise UsageError(f"{path}: these are no results of the lab (kind {kind!r}); make lab writes bench/results/latest.json")
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path}: schema {data.get('schema')!r} is not the one read here, {SCHEMA}: measure again")
    try:
        data["machine"]["id"]
        cases = {case["name"]: case for case in data["cases"]}
        for each in [*data.get("peers", []), *data.get("origins", [])]:
            each["name"], each.get("settings")
        for name, case in cases.items():
            case["origin"]
            if not case["object_bytes"] * case["objects"] > 0:
                raise ValueError(f"case {name}: its size must be over 0")
        for cell in data["cells"]:
            cases[cell["case"]]
            check_rounds(cell)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: is broken: {type(error).__name__}: {error}") from None


def check_rounds(cell: dict):
    """Raises what `check` turns into words."""
    where = f"{cell['case']}, {cell['peer']} {cell['settings']}"
    numbers = [turn["round"] for turn in cell["rounds"]]
    if cell["state"] == "ok" and not numbers:
        raise ValueError(f"{where}: is ok and has no rounds")
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"{where}: has a round twice")
    for turn in cell["rounds"]:
        if not (0 < turn["seconds"] < math.inf and 0 <= turn["cpu_seconds"] < math.inf):
            raise ValueError(f"{where}: round {turn['round']}: {turn['seconds']} s and {turn['cpu_seconds']} CPU s cannot be")
