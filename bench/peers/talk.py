"""What the Python peers share: the arguments that the lab gives to programs that talk, and how they talk.

A peer hands `run` one function for each work and landing that its library has a way for. The function prepares what a
process makes once (its client; the landing in memory, touched) and returns another one that transfers and returns how
many bytes were delivered. In between stand the words of the lab: `ready`, `go`, `done BYTES`.
"""

import argparse
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor

# Of many objects: what those cases are about.
IN_FLIGHT = 128


def run(about, transfers, options=()):
    """Speaks for one process: `transfers` by (work, landing), `options` the peer's own as (flag, default)."""
    job = arguments(about, options)
    try:
        transfer = transfers[job.work, job.landing](job)
        say("ready")
        if sys.stdin.readline() != "go\n":
            return
        delivered = transfer()
        if job.check and job.landing == "memory":
            with open(job.check, "wb") as file:
                file.write(job.memory)
        say(f"done {delivered}")
        sys.stdin.read()  # The lab reads the clocks of this process before it lets go.
    except Exception as error:
        say(f"failed {type(error).__name__}: {error}".replace("\n", " "))
        sys.exit(1)


def arguments(about, options):
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, choices=["get", "many", "put", "python"])
    parser.add_argument("--landing", required=True)
    parser.add_argument("--endpoint", required=True, metavar="URL")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--key")
    parser.add_argument("--bytes", type=int, help="size of the object")
    parser.add_argument("--keys", metavar="FILE", help="one key a line")
    parser.add_argument("--prefix", default="", help="what of a key is no part of its file's name")
    parser.add_argument("--target", help="a file, or a folder for many")
    parser.add_argument("--source", metavar="FILE", help="what is sent")
    parser.add_argument("--ca", metavar="FILE", help="the authority of a TLS origin")
    parser.add_argument("--parallel", type=int, help="requests at a time")
    parser.add_argument("--part-bytes", type=int)
    parser.add_argument("--check", metavar="FILE", help="where the delivered bytes are kept")
    for flag, default in options:
        parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


def say(words):
    print(words, flush=True)


def memory(job):
    """The landing in memory, of the object's size: each page of it was touched before `ready`. As NumPy makes its arrays, of
    huge pages where the machine has them."""
    job.memory = mmap.mmap(-1, job.bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    job.memory.madvise(mmap.MADV_HUGEPAGE)
    for start, end in parts(job.bytes, 1 << 20):
        job.memory[start:end] = b"\1" * (end - start)
    return job.memory


class Delivered:
    """What a Python program read: counted, and under --check kept, each piece at its place or behind the one before."""

    def __init__(self, job):
        self.bytes = 0
        self.file = os.open(job.check, os.O_WRONLY | os.O_CREAT, 0o644) if job.check else None

    def take(self, piece, at=None):
        view = memoryview(piece).cast("B")
        start = self.bytes if at is None else at
        self.bytes += len(view)
        if self.file is not None:
            # A call writes no more than 2 GiB.
            for begin, end in parts(len(view), 1 << 30):
                os.pwrite(self.file, view[begin:end], start + begin)

    def all(self, pieces):
        for piece in pieces:
            self.take(piece)
        return self.bytes


def keys(job):
    with open(job.keys, encoding="utf-8") as file:
        return file.read().split()


def files(job, folder):
    """The file of each key below `folder`, the folders between made; outside the clock, as for every peer."""
    paths = [os.path.join(folder, key.removeprefix(job.prefix)) for key in keys(job)]
    for parent in {os.path.dirname(path) for path in paths}:
        os.makedirs(parent, exist_ok=True)
    return paths


def in_flight(get, *arguments):
    """What `get` returns for each of the arguments, by as many threads as objects are to be in flight."""
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        yield from threads.map(get, *arguments)


def many_to_nowhere(job, keys, read):
    """The transfer of many objects that drops what `read` returns for a key; under --check it is kept in files."""
    if not job.check:
        return lambda: sum(in_flight(lambda key: len(read(key)), keys))

    def keep(key, path):
        with open(path, "wb") as file:
            return file.write(read(key))

    paths = files(job, job.check)
    return lambda: sum(in_flight(keep, keys, paths))


def landed(*paths):
    """Bytes that stand in files now."""
    return sum(os.stat(path).st_size for path in paths)


def parts(size, part_bytes):
    """(start, end) of each part, the end not included."""
    return [(start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]
