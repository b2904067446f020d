"""What a few runs say: medians, and intervals that assume nothing of how the runs are distributed."""

import math
from dataclasses import dataclass
from functools import lru_cache

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that it lies in with at least the confidence asked for, where that many runs can say so."""

    median: float
    low: float
    high: float


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def estimate(values: list[float]) -> Estimate:
    """The median with its interval by order statistics."""
    ordered = sorted(values)
    rank = interval_rank(len(ordered))
    return Estimate(median(ordered), ordered[rank - 1], ordered[-rank])


def interval_rank(count: int, confidence: float = CONFIDENCE) -> int:
    """The interval for a median goes from this rank to this rank from the end: the narrowest with the confidence, else the range."""
    rank = 1
    while interval_confidence(count, rank + 1) >= confidence:
        rank += 1
    return rank


def interval_confidence(count: int, rank: int) -> float:
    """How surely the median lies from that rank to that rank from the end: it does not when fewer than `rank` of `count`
    fair coins fall on one side."""
    return 1 - 2 * sum(math.comb(count, below) for below in range(rank)) / 2**count


def ratios(values: list[float], of: list[float]) -> list[float]:
    """Round by round."""
    return [value / base for value, base in zip(values, of, strict=True)]


@dataclass(frozen=True)
class Shift:
    """How much larger B is than A, as a ratio, with the interval; no interval where there are too few runs for one."""

    ratio: float
    low: float | None
    high: float | None
    # How often chance alone would show as much (two-sided, exact but for ties).
    p: float = 1.0


def shift(a: list[float], b: list[float], confidence: float = CONFIDENCE) -> Shift:
    """Hodges and Lehmann's median of all ratios B/A, with the exact interval of Moses, which inverts Mann and Whitney's
    test; on logarithms, since speeds differ by factors."""
    differences = sorted(math.log(y) - math.log(x) for x in a for y in b)
    ratio = math.exp(median(differences))
    rank = shift_rank(len(a), len(b), confidence)
    p = p_value(differences, len(a), len(b))
    if rank is None:
        return Shift(ratio, None, None, p)
    return Shift(ratio, math.exp(differences[rank - 1]), math.exp(differences[-rank]), p)


def p_value(differences: list[float], a: int, b: int) -> float:
    """Mann and Whitney's, two-sided; ties count half, and what is half counts against a difference."""
    ties = differences.count(0.0)
    below = sum(each < 0 for each in differences)
    u = min(below, len(differences) - ties - below) + ties / 2
    ways = u_distribution(a, b)
    return min(1.0, 2 * sum(ways[: math.ceil(u) + 1]) / math.comb(a + b, a))


def holm(values: list[float], alpha: float = 1 - CONFIDENCE) -> list[bool]:
    """Which of them still count, so that in all of them together chance shows one at most that often."""
    kept = [False] * len(values)
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        # Floats, as above: a bound that is met counts.
        if values[at] * (len(values) - rank) > alpha * (1 + 1e-9):
            break
        kept[at] = True
    return kept


def shift_rank(a: int, b: int, confidence: float = CONFIDENCE) -> int | None:
    """The rank of the difference where the interval begins; None when not even the range of differences will do."""
    critical = mann_whitney_critical(a, b, 1 - confidence)
    return None if critical is None else critical + 1


def mann_whitney_critical(a: int, b: int, alpha: float = 0.05) -> int | None:
    """The largest U at which the two-sided test still says that A and B differ."""
    ways = u_distribution(a, b)
    most, below, critical = alpha / 2 * math.comb(a + b, a), 0, None
    for u, count in enumerate(ways):
        below += count
        # Floats: 0.05 is not exact, and a bound that is met counts.
        if below > most * (1 + 1e-9):
            break
        critical = u
    return critical


def rounds_for_holm(comparisons: int, alpha: float = 1 - CONFIDENCE) -> int:
    """How many runs on each side it takes until the clearest of differences can count among so many comparisons."""
    rounds = 1
    while 2 * comparisons / math.comb(2 * rounds, rounds) > alpha * (1 + 1e-9):
        rounds += 1
    return rounds


@lru_cache(maxsize=None)
def u_distribution(a: int, b: int) -> tuple[int, ...]:
    """In how many orders of a A's and b B's an A stands behind a B exactly u times, for each u."""
    if a == 0 or b == 0:
        return (1,)
    # The last one is an A, behind all B's, or a B.
    with_a, with_b = u_distribution(a - 1, b), u_distribution(a, b - 1)
    ways = [0] * (a * b + 1)
    for u, count in enumerate(with_a):
        ways[u + b] += count
    for u, count in enumerate(with_b):
        ways[u] += count
    return tuple(ways)
