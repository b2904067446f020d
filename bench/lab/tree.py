"""The processes of one client: all that descends from the lab but what the lab itself runs.

The lab is their subreaper, so that nothing leaves the tree: who loses its parent becomes the lab's child.
"""

import ctypes
import os
import resource
import signal
import time
from dataclasses import dataclass

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")
# How long killed processes may take to be gone; only those stuck in the kernel take long.
GONE_S = 10.0


class Stuck(Exception):
    """A process that no signal ends."""


# Such processes, with when they started: of no later run, neither counted nor killed again.
stuck: dict[int, str] = {}


libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper():
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent():
    """For a child between fork and exec, so that even a killed lab leaves no origin behind."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass(frozen=True)
class Memory:
    """Resident bytes over the tree: now, and each process at its largest."""

    now: int
    peak: int


@dataclass(frozen=True)
class Reaped:
    """What the dead used."""

    cpu_seconds: float = 0.0
    peak_rss: int = 0

    def plus(self, usage: resource.struct_rusage) -> "Reaped":
        seconds = self.cpu_seconds + usage.ru_utime + usage.ru_stime
        return Reaped(seconds, max(self.peak_rss, usage.ru_maxrss * 1024))


class Tree:
    """Finds the processes anew each time; who was seen once need not be looked at again, since nobody changes sides."""

    def __init__(self, ours: set[int]):
        self.lab = os.getpid()
        # Of the lab's own children: origins and drains, and whatever they start.
        self.ours = ours
        self.inside: dict[int, bool] = {}
        self.newest = 0
        # Whose memory and CPU are the client's, with what it starts; None: all of the tree's.
        self.client: int | None = None
        self.of_client: dict[int, bool] = {}

    def known(self) -> list[int]:
        """As `pids`, without looking for new ones when no process or thread was made on this machine since; may name the dead."""
        if newest_pid() != self.newest:
            return self.pids()
        return [pid for pid, inside in self.inside.items() if inside]

    def pids(self) -> list[int]:
        newest, before = newest_pid(), self.newest
        self.newest = newest
        if newest < before:
            # The numbers began anew, and one that was seen may be another process now.
            self.inside.clear()
        there = {int(name) for name in os.listdir("/proc") if name[0].isdigit()}
        for gone in self.inside.keys() - there:
            del self.inside[gone]
        for pid in there:
            self.classify(pid)
        return [pid for pid in there if self.inside.get(pid) and not is_stuck(pid)]

    def classify(self, pid: int) -> bool | None:
        """Whether it is the client's. None for who vanishes meanwhile: its children have another parent the next time."""
        if pid in (0, 1, self.lab) or pid in self.ours or is_stuck(pid):
            return False
        if pid not in self.inside:
            parent = parent_of(pid)
            if parent is None:
                return None
            verdict = True if parent == self.lab else self.classify(parent)
            if verdict is None:
                return None
            self.inside[pid] = verdict
        return self.inside[pid]

    def memory(self) -> Memory:
        return Memory(*map(sum, zip((0, 0), *(memory_of(pid) for pid in self.known() if self.is_clients(pid)))))

    def cpu(self, clients: bool = True) -> dict[int, tuple[float, float]]:
        """By process, of the client or of who reads in its mount: its own CPU seconds by its clock, and those of its children
        that it waited for (in ticks)."""
        return {pid: (clock_of(pid), waited_cpu(pid)) for pid in self.pids() if self.is_clients(pid) == clients}

    def is_clients(self, pid: int) -> bool:
        if self.client is None or pid == self.client:
            return True
        if pid not in self.of_client:
            parent = parent_of(pid)
            self.of_client[pid] = parent is not None and parent not in (0, 1, self.lab) and self.is_clients(parent)
        return self.of_client[pid]

    def kill(self) -> Reaped:
        """Ends and reaps all of it. Who lives has an end; who starts more meanwhile is found the next time around."""
        reaped = Reaped()
        deadline = time.monotonic() + GONE_S
        while pids := self.pids():
            for pid in pids:
                send(pid, signal.SIGKILL)
            reaped = self.reap(pids, reaped)
            if time.monotonic() > deadline:
                stuck.update({pid: started for pid in pids if (started := start_of(pid))})
                raise Stuck(f"process {pids[0]} does not end, even by SIGKILL")
            time.sleep(0.001)
        return reaped

    def reap(self, pids: list[int], reaped: Reaped) -> Reaped:
        for pid in pids:
            try:
                found, _, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                # Its parent is dying beside it: then it is ours.
                continue
            if found:
                reaped = reaped.plus(usage)
                self.inside.pop(pid, None)
        return reaped


def cpu_since(before: dict[int, tuple[float, float]], after: dict[int, tuple[float, float]]) -> float:
    """CPU seconds of a tree between two readings. Who died meanwhile is in what its parent waited for, with its whole life:
    what it had used by the first reading goes off with the sum. (A parent that ignores SIGCHLD keeps no count: never below 0.)"""
    return max(0.0, sum(map(sum, after.values())) - sum(map(sum, before.values())))


def clock_of(pid: int) -> float:
    """CPU seconds of a process with all its threads, by the nanosecond; 0 when it is gone."""
    try:
        # CPUCLOCK_SCHED of a process: linux/posix-timers_types.h, and clock_getcpuclockid(3).
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def waited_cpu(pid: int) -> float:
    fields = stat(pid)
    return (int(fields[13]) + int(fields[14])) / TICKS if fields else 0.0


def newest_pid() -> int:
    """The number that was given to a process or thread last: they rise, and begin anew at the end."""
    with open("/proc/loadavg", "rb", 0) as file:
        return int(file.read().split()[-1])


def parent_of(pid: int) -> int | None:
    fields = stat(pid)
    return int(fields[1]) if fields else None


def start_of(pid: int) -> str | None:
    """In ticks since the machine started: with it the number of a process is its own for ever."""
    fields = stat(pid)
    return fields[19] if fields else None


def is_stuck(pid: int) -> bool:
    return pid in stuck and stuck[pid] == start_of(pid)


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat behind the name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def memory_of(pid: int) -> tuple[int, int]:
    """Resident bytes now and at most, since the program was started; 0 for who is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb", 0) as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    return kib(text, b"VmRSS:"), kib(text, b"VmHWM:")


def kib(text: bytes, field: bytes) -> int:
    start = text.find(field)
    return int(text[start + len(field) : text.index(b"kB", start)]) * 1024 if start >= 0 else 0


def send(pid: int, number: int):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
