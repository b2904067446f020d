#!/usr/bin/env python3
"""A busy machine, until it is ended or its parent is: scripts/load.py FOLDER

One process for each core that computes, one that fills and frees memory, one that writes, syncs and reads a file in
FOLDER. The file has no name, so nothing is left however this ends.
"""

import ctypes
import mmap
import os
import signal
import sys
import tempfile

MIB = 1 << 20
# A quarter of what is free, and no more than this: the tests are to be slow, not killed.
MEMORY_MOST = 2048 * MIB
FILE_BYTES = 256 * MIB
PR_SET_PDEATHSIG = 1


def compute() -> None:
    number = 1
    while True:
        number = number * 6364136223846793005 % (1 << 64)


def fill_memory() -> None:
    while True:
        size = min(MEMORY_MOST, free_bytes() // 4)
        with mmap.mmap(-1, size) as memory:
            for _ in range(4):
                for at in range(0, size, MIB):
                    memory[at : at + MIB] = b"x" * MIB


def free_bytes() -> int:
    with open("/proc/meminfo") as lines:
        [kib] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kib) * 1024


def write_disk(folder: str) -> None:
    block = os.urandom(MIB)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        while True:
            file.seek(0)
            for _ in range(FILE_BYTES // MIB):
                file.write(block)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            while file.read(MIB):
                pass


def die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()


def main(folder: str) -> None:
    die_with(os.getppid())
    own = os.getpid()
    work = [compute] * len(os.sched_getaffinity(0)) + [fill_memory, lambda: write_disk(folder)]
    for one in work:
        if os.fork() == 0:
            die_with(own)
            one()
    # A worker ends only when it fails: the disk is full.
    os.wait()
    sys.exit("load: a worker ended")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
