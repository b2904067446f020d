"""Where a run of the lab takes place: one folder in memory, one lab at a time, nothing left behind."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from cases import Case
from content import Objects
from errors import LabError
from machine import memory_bytes
from process import SHM_KEPT_BYTES
from sizes import GIB, rounded
from tree import Stuck, Tree, libc

SHM = Path("/dev/shm")
DISK = Path("/var/tmp")
NAME = "flatout-lab."
LOCK = Path("/tmp/flatout-lab.lock")
# For the clients, the origins and the lab itself, beside what is counted.
RESERVE_BYTES = GIB
MNT_DETACH = 2


@contextlib.contextmanager
def only_lab(wait_s: float, say):
    """Two labs would measure each other."""
    with open_lock() as lock:
        deadline = time.monotonic() + wait_s
        told = False
        while not locked(lock):
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            if time.monotonic() >= deadline:
                raise LabError(f"another lab runs on this machine ({holder}), and two would measure each other: wait for it, or --wait SECONDS")
            if not told:
                say(f"another lab runs on this machine ({holder}): waiting for it")
                told = True
            time.sleep(0.2)
        lock.seek(0)
        lock.truncate()
        lock.write(f"process {os.getpid()}\n")
        lock.flush()
        yield


def open_lock():
    """Another user's file may be locked, though not made, by us."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        os.chmod(LOCK, 0o666)
    return LOCK.open("r+")


def locked(lock) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


@contextlib.contextmanager
def folder(say, where: Path = SHM):
    """A new folder, in memory unless it is told otherwise. Whoever holds the lock may remove what a killed lab left."""
    for stale in where.glob(f"{NAME}*"):
        say(f"removing {stale}, which a lab left that was killed")
        shutil.rmtree(stale, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"{NAME}{os.getpid()}-", dir=where))
    try:
        # nginx may read as another user.
        made.chmod(0o755)
        yield made
    finally:
        remove(made)


def remove(made: Path):
    """Whole, even if a client made folders that may not be entered."""
    unmount_below(made)
    for where, folders, _ in os.walk(made):
        for path in (os.path.join(where, name) for name in folders):
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(made, ignore_errors=True)


def unmount_below(made: Path):
    """What a client mounted that was killed, or its reader: nobody waits for it any more."""
    with open("/proc/self/mounts") as mounts:
        points = [line.split()[1].replace("\\040", " ") for line in mounts]
    for point in reversed([each for each in points if each.startswith(f"{made}/")]):
        libc.umount2(os.fsencode(point), MNT_DETACH)


def check_room(cases: list[tuple[Case, Objects]]):
    """Before anything starts: what lies in memory at the same time must fit."""
    check_disk(max((each.bytes for case, each in cases if case.disk), default=0))
    needed, what = room(cases)
    tmpfs = os.statvfs(SHM)
    free = tmpfs.f_bavail * tmpfs.f_frsize
    if needed + SHM_KEPT_BYTES > free:
        raise LabError(f"{SHM} has {rounded(free)} free, and this needs {rounded(needed)} ({what}): choose fewer cases, or a smaller suite")
    available = memory_bytes("MemAvailable")
    if needed + RESERVE_BYTES > available:
        wanted = rounded(needed + RESERVE_BYTES)
        raise LabError(f"{rounded(available)} of memory are available, and this needs {wanted} ({what}, and 1 GiB to work in): choose fewer cases, or a smaller suite")


def check_disk(needed: int):
    free = shutil.disk_usage(DISK).free
    if needed > free:
        raise LabError(f"{DISK} has {rounded(free)} free, and files on disk need {rounded(needed)}: choose fewer cases, or a smaller suite")


def room(cases: list[tuple[Case, Objects]]) -> tuple[int, str]:
    """The most bytes that lie in memory at once, and what they are."""
    # What is sent lies in a folder of its own, which no origin serves.
    objects = {(each.size, each.count, case.form, case.work == "put"): each.bytes for case, each in cases}
    read = [(case, each) for case, each in cases if case.work != "put"]
    copies = {(each.size, each.count, case.form): each.bytes for case, each in read if case.origin.startswith("minio")}
    landing = max(landing_bytes(case, each) for case, each in cases)
    parts = {"the objects": sum(objects.values()), "MinIO's copy": sum(copies.values()), "the largest landing": landing}
    return sum(parts.values()), ", ".join(f"{name} {rounded(size)}" for name, size in parts.items() if size)


def landing_bytes(case: Case, objects: Objects) -> int:
    """In the check a program that talks writes down what it got, beside a memory landing. A sink keeps nothing."""
    if case.disk or case.landing == "list":
        return 0
    if case.work == "put":
        return objects.bytes if case.origin.startswith("minio") else 0
    if case.work == "python":
        return 2 * objects.delivered
    return {"pipe": 0, "memory": 2}.get(case.landing, 1) * objects.bytes


def end_everything():
    """The last resort, when a run was broken off between starting something and noting that it was started."""
    with contextlib.suppress(Stuck):
        Tree(set()).kill()
