"""What a person sees while the lab works: one line that changes on a terminal, else a line now and then. On standard error."""

import shutil
import sys
import time

PLAIN_EVERY_S = 10.0


class Progress:
    """How far it is, and how long the rest may take: each run as long as that client's last one."""

    def __init__(self, runs: int, stream=None):
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.runs, self.done = runs, 0
        self.started = time.monotonic()
        self.said_at = 0.0
        # By cell, what its last run took; of those that have runs ahead, how many.
        self.took: dict[object, float] = {}
        self.ahead: dict[object, int] = {}
        self.shown = False
        self.case = None

    def expect(self, cell, runs: int):
        self.ahead[cell] = runs

    def running(self, cell, words: str):
        line = f"[{self.done + 1}/{self.runs}] {words} · {clock(time.monotonic() - self.started)} gone{self.left()}"
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\x1b[K" + line[:width])
            self.stream.flush()
            self.shown = True
        elif time.monotonic() - self.said_at >= PLAIN_EVERY_S or cell.case is not self.case:
            self.said_at, self.case = time.monotonic(), cell.case
            self.say(line)

    def ran(self, cell, seconds: float):
        self.done += 1
        self.ahead[cell] -= 1
        self.took[cell] = seconds

    def dropped(self, cell):
        """A cell that failed is not run again."""
        self.runs -= self.ahead[cell]
        self.ahead[cell] = 0

    def left(self) -> str:
        if not self.took:
            return ""
        usual = sum(self.took.values()) / len(self.took)
        seconds = sum(runs * self.took.get(cell, usual) for cell, runs in self.ahead.items())
        return f", about {clock(seconds)} left"

    def say(self, line: str):
        """A line that stays."""
        self.wipe()
        say(line, self.stream)

    def wipe(self):
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.shown = False


def say(line: str, stream=None):
    print(f"lab: {line}", file=stream or sys.stderr, flush=True)


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
