"""The runs: first each cell once, with its bytes checked, which warms everything up; then rounds, in each of which every cell
has its turn, in an order of the round's own."""

import contextlib
import random
import time
from dataclasses import dataclass, field

from catalogue import Cell
from clients import Ground, check_amount, check_delivery, client
from errors import LabError
from install import Installed
from process import Measured, RunFailed, Surroundings, run
from progress import Progress


@dataclass(frozen=True)
class Round:
    """One run that counts."""

    round: int
    # In the order of its round, from 1.
    position: int
    measured: Measured


@dataclass
class Result:
    """What became of a cell."""

    cell: Cell
    reason: str | None = None
    rounds: list[Round] = field(default_factory=list)
    # As it was called in the rounds, or in the check when that failed.
    argv: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True)
class Bench:
    """What the runs of a case share."""

    ground: Ground
    around: Surroundings
    installed: dict[str, Installed | str]
    progress: Progress
    # Why there is no origin any more.
    lost: list[str] = field(default_factory=list)


def measure(cells: list[Cell], rounds: int, bench: Bench) -> list[Result]:
    """All runs of one case."""
    results = [Result(cell) for cell in cells]
    for result in results:
        check(result, bench)
    for number in range(1, rounds + 1):
        for position, result in enumerate(order(results, number), 1):
            if not result.failed:
                take_turn(result, number, rounds, position, bench)
    return results


def order(results: list[Result], number: int) -> list[Result]:
    """The same on every machine, another one in each round, so that no client always follows the same other one."""
    return random.Random(f"{results[0].cell.case.name}/{number}").sample(results, len(results))


def check(result: Result, bench: Bench):
    """The run in which every byte is looked at."""
    installed = bench.installed[result.cell.peer.name]
    if isinstance(installed, str):
        fail(result, installed, bench.progress)
        return

    def keep(measured: Measured):
        check_delivery(result.cell, measured, bench.ground)

    one_run(result, "check", True, keep, bench)


def take_turn(result: Result, number: int, rounds: int, position: int, bench: Bench):
    def keep(measured: Measured):
        check_amount(result.cell, measured, bench.ground)
        result.rounds.append(Round(number, position, measured))

    one_run(result, f"round {number} of {rounds}", False, keep, bench)


def one_run(result: Result, what: str, is_check: bool, keep, bench: Bench):
    """Runs the cell's client once, in an empty folder; a failure is the cell's, and the others go on."""
    cell, ground = result.cell, bench.ground
    if bench.lost:
        fail(result, bench.lost[0], bench.progress)
        return
    bench.progress.running(cell, f"{cell.case.name}, {what}, {cell.label}")
    started = time.monotonic()
    try:
        ground.clean()
        called = client(cell, bench.installed[cell.peer.name], ground, is_check)
        result.argv = called.argv
        keep(run(called, bench.around))
        bench.progress.ran(cell, time.monotonic() - started)
    except RunFailed as error:
        fail(result, with_origin(str(error), bench), bench.progress)
    except OSError as error:
        # It vanishes while it is looked at, cannot be read, or there is no space.
        fail(result, with_origin(f"the lab could not run it, or look at what it delivered: {error}", bench), bench.progress)
    finally:
        # What cannot be removed now fails the next run, by name.
        with contextlib.suppress(OSError, RunFailed):
            ground.clean()


def with_origin(reason: str, bench: Bench) -> str:
    """A failure's reason, with that of an origin that died. The others find it started again, or fail for want of it."""
    origin = bench.ground.origin
    died = origin.died()
    if died is None:
        return reason
    try:
        origin.again()
        bench.around.origin_pids[:] = origin.pids
    except (LabError, OSError) as error:
        bench.lost.append(f"{died}; and it did not start again: {error}")
    return f"{reason}; {died}"


def fail(result: Result, reason: str, progress: Progress):
    result.reason = reason
    progress.dropped(result.cell)
    progress.say(f"{result.cell.case.name}: {result.cell.label} failed: {reason}")
