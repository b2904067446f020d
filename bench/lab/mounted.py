"""Mounts with the command behind `--`, reads in the mount as `--reads` says, unmounts: a program that talks (process.py).

    mounted.py --at FOLDER --reads HOW --keys FILE --bytes N [--jobs N] [--block SIZE] [--depth N] --flatout PROGRAM
               --python PYTHON [--check PATH] -- COMMAND…

`ready PID` names the process that mounts: only that one is measured. With `--check` everything is read once more as HOW
says and written down, byte for byte where it was read. Each run is a mount of its own, so that the kernel has nothing of it.

HOW is one of: direct, buffered, random (fio, the seeds' own commands), small (each file by one of 128 threads, or of `--jobs`), mmap (each page
touched in order), safetensors and by-name (the package, each tensor in the order of the file, or of names that is not
that), list (`ls -lR`), list-again (the same for the second time).

LAB_READ_AHEAD_KIB raises the kernel's read-ahead of the mount, as its administrator could.
"""

import argparse
import ctypes
import json
import mmap
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from sizes import MIB, parse_size

MOUNT_S = 30.0
END_S = 10.0
THREADS = 128
DIRECT_BYTES = MIB
RANDOM_BYTES = 256 << 10
MNT_DETACH = 2


class Failed(Exception):
    """Said to the lab as it is."""


def main():
    options = arguments()
    options.at.mkdir()
    mounts = subprocess.Popen(options.command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        wait_until_mounted(mounts, options.at)
        raise_read_ahead(options.at)
        talk(mounts, options)
    except Failed as error:
        print("failed", error, flush=True)
    finally:
        end(mounts, options.at)


def talk(mounts: subprocess.Popen, options):
    reads = Reads(options)
    reads.before()
    print("ready", mounts.pid, flush=True)
    if sys.stdin.readline() != "go\n":
        return
    seconds = reads.run()
    if options.check:
        # Beside the clock, which counts for nothing in a check.
        reads.keep(Path(options.check))
    print("done", options.bytes, *([f"{seconds:.6f}"] if seconds else []), flush=True)
    sys.stdin.read()


def arguments():
    parser = argparse.ArgumentParser()
    for flag in ("--at", "--keys"):
        parser.add_argument(flag, type=Path, required=True)
    for flag in ("--reads", "--flatout", "--python"):
        parser.add_argument(flag, required=True)
    for flag in ("--bytes", "--jobs", "--depth"):
        parser.add_argument(flag, type=int, default=1)
    parser.add_argument("--block", default="1MiB")
    parser.add_argument("--check")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


# ---- the mount


def wait_until_mounted(mounts: subprocess.Popen, at: Path):
    deadline = time.monotonic() + MOUNT_S
    while device_of(at) is None:
        if mounts.poll() is not None:
            raise Failed(f"{mounts.args[0]} ended with status {mounts.returncode} and mounted nothing")
        if time.monotonic() > deadline:
            raise Failed(f"{mounts.args[0]} mounted nothing in {MOUNT_S:g} s")
        time.sleep(0.02)


def device_of(at: Path) -> str | None:
    """Its number as in /sys/class/bdi, where something is mounted there."""
    with open("/proc/self/mountinfo") as rows:
        return next((row.split()[2] for row in rows if row.split()[4] == str(at)), None)


def raise_read_ahead(at: Path):
    wanted = os.environ.get("LAB_READ_AHEAD_KIB")
    if wanted:
        Path(f"/sys/class/bdi/{device_of(at)}/read_ahead_kb").write_text(wanted)


def end(mounts: subprocess.Popen, at: Path):
    libc = ctypes.CDLL(None, use_errno=True)
    deadline = time.monotonic() + END_S
    while device_of(at) and libc.umount2(os.fsencode(at), 0) != 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    if device_of(at):
        libc.umount2(os.fsencode(at), MNT_DETACH)
    try:
        mounts.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        mounts.kill()
        mounts.wait()


# ---- who reads


class Reads:
    """One way of reading."""

    def __init__(self, options):
        self.options, self.how = options, options.reads
        self.keys = options.keys.read_text().split("\n")[:-1]
        self.paths = [options.at / key for key in self.keys]

    def before(self):
        """What is not to be measured."""
        if self.how == "list-again":
            self.list_all()

    def run(self) -> float | None:
        """Seconds by the clock of who read, where it has one."""
        if self.how in ("direct", "buffered", "random"):
            return self.fio()
        if self.how in ("list", "list-again"):
            return self.list_all()
        if self.how == "small":
            # Nobody has read the names yet either: the first open asks for them.
            readers = self.options.jobs if self.options.jobs > 1 else THREADS
            reader = [self.options.flatout, "__read", str(self.options.at), str(self.options.keys), str(readers)]
            return float(self.must(reader))
        code = {"mmap": WALK, "safetensors": LOAD, "by-name": LOAD}[self.how]
        return float(self.must([self.options.python, "-c", code, str(self.paths[0]), self.how]))

    def fio(self) -> float:
        options = self.options
        size = self.paths[0].stat().st_size
        each = options.bytes // options.jobs
        words = {
            "name": "lab",
            "ioengine": "libaio" if options.depth > 1 or self.how == "direct" else "psync",
            "rw": "randread" if self.how == "random" else "read",
            "direct": 0 if self.how == "buffered" else 1,
            "bs": options.block.replace("iB", ""),
            "iodepth": options.depth,
            "size": size,
            "io_size": each,
            "numjobs": options.jobs,
            "randrepeat": 1,
            # fio's own would wait for everybody's caches.
            "invalidate": 0,
            "output-format": "json",
        }
        named = [f"--filename={path}" for path in self.paths] if options.jobs == 1 else []
        if options.jobs > 1:
            # A file for each job.
            named = ["--filename_format=$jobnum", f"--directory={self.folder_of_jobs()}"]
        said = json.loads(self.must(["fio", "--thread", "--group_reporting", *(f"--{key}={value}" for key, value in words.items()), *named]))
        (job,) = said["jobs"]
        if job["error"] or job["read"]["io_bytes"] != options.bytes:
            raise Failed(f"fio read {job['read']['io_bytes']} bytes of {options.bytes}, error {job['error']}")
        return job["read"]["runtime"] / 1000

    def folder_of_jobs(self) -> Path:
        """fio numbers the files of its jobs; links outside of the mount lead to ours."""
        folder = self.options.at.with_name("jobs")
        folder.mkdir(exist_ok=True)
        for number, path in enumerate(self.paths):
            link = folder / str(number)
            if not link.is_symlink():
                link.symlink_to(path)
        return folder

    def list_all(self) -> float:
        started = time.perf_counter()
        said = self.must(["ls", "-lR", str(self.options.at)])
        seconds = time.perf_counter() - started
        rows = [line.split() for line in said.splitlines() if line.startswith("-")]
        names = {row[-1] for row in rows}
        missing = next((key for key in self.keys if key.rpartition("/")[2] not in names), None)
        if missing or len(rows) < len(self.keys):
            raise Failed(f"ls found {len(rows)} files of {len(self.keys)}, and not {missing}")
        if any(row[4] == "0" for row in rows):
            raise Failed("ls found files without a size")
        return seconds

    def must(self, command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"})
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
            raise Failed(f"{Path(command[0]).name} ended with status {done.returncode}: {last}")
        return done.stdout

    # ---- the check

    def keep(self, dump: Path):
        if self.how in ("list", "list-again"):
            return
        if len(self.keys) == 1:
            self.copy(self.paths[0], dump)
            return
        dump.mkdir()
        work = list(zip(self.keys, self.paths))
        wrong: list[BaseException] = []

        def some():
            while work and not wrong:
                try:
                    key, path = work.pop()
                except IndexError:
                    return
                try:
                    self.copy(path, dump / key.replace("/", "_").rpartition("_")[2])
                except OSError as error:
                    wrong.append(error)

        threads = [threading.Thread(target=some) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise Failed(f"the check: {wrong[0]}")

    def copy(self, path: Path, to: Path):
        """As it is read when it is measured, each piece to its place."""
        size = path.stat().st_size
        is_direct = self.how in ("direct", "random")
        step = RANDOM_BYTES if self.how == "random" else DIRECT_BYTES
        places = list(range(0, size, step))
        if self.how == "random":
            random.Random(0).shuffle(places)
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if is_direct else 0))
        try:
            with to.open("wb") as out:
                if self.how in ("mmap", "safetensors", "by-name"):
                    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
                        for at in places:
                            out.write(mapped[at : at + step])
                    return
                aligned = mmap.mmap(-1, step)
                for at in places:
                    got = 0
                    while got < min(step, size - at):
                        read = os.preadv(fd, [memoryview(aligned)[got:]], at + got)
                        if read == 0:
                            raise OSError(f"{path}: ends at {at + got} of {size}")
                        got += read
                    out.seek(at)
                    out.write(memoryview(aligned)[:got])
        finally:
            os.close(fd)


# Each page of the file, once, in order.
WALK = """
import mmap, os, sys, time
import numpy
fd = os.open(sys.argv[1], os.O_RDONLY)
started = time.perf_counter()
mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
found = 0
step = 64 << 20
pages = numpy.frombuffer(mapped, dtype=numpy.uint8)
for at in range(0, len(pages), step):
    found += int(pages[at : at + step : 4096].sum(dtype=numpy.uint64))
print(time.perf_counter() - started)
"""

# Each tensor into memory of its own, as a loader does before it hands it on.
LOAD = """
import sys, time
from safetensors import safe_open
started = time.perf_counter()
with safe_open(sys.argv[1], framework="numpy") as model:
    names = list(model.keys())
    order = sorted(names, key=lambda name: name[::-1]) if sys.argv[2] == "by-name" else sorted(names)
    for name in order:
        model.get_tensor(name)
print(time.perf_counter() - started)
"""


if __name__ == "__main__":
    main()
