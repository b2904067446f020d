#!/usr/bin/env python3
"""Peaks of resident memory, and seconds, under --memory: scripts/memory.py FLATOUT [plain] [shaped] [found] [many]

Starts the program's own origin; needs 5 GiB of /dev/shm. What is promised is --memory and 64 MiB (docs/decisions/memory.md).
"""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time


def peak_mib(pid):
    """`VmHWM` of a process; None once it has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line for line in status if line.startswith("VmHWM")]
    except OSError:
        return None
    return int(lines[0].split()[1]) >> 10 if lines else None


def measure(flatout, what, arguments, sleep_s=0):
    """Runs it to its end, its output read after a while, and says what it took."""
    start, peak, read = time.time(), 0, 0
    child = subprocess.Popen([flatout, *arguments, "--no-progress"], stdout=subprocess.PIPE)
    peaks = []

    def watch():
        while (seen := peak_mib(child.pid)) is not None:
            peaks.append(seen)
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    time.sleep(sleep_s)
    while chunk := child.stdout.read1(1 << 20):
        read += len(chunk)
    code = child.wait()
    watcher.join()
    peak = max(peaks, default=0)
    print(f"{what}: {time.time() - start:.2f} s, peak {peak} MiB, {read} bytes out, code {code}", flush=True)


class Origin:
    """`flatout serve` with these flags, for as long as the block lasts."""

    def __init__(self, flatout, *flags):
        self.command = [flatout, "serve", "--no-auth", "--listen", "127.0.0.1:0", *flags]

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.child.stdout:
            if "http://" in line:
                drain = threading.Thread(target=lambda: self.child.stdout.read(), daemon=True)
                drain.start()
                return ["--endpoint-url", "http://" + line.split("http://")[1].split()[0].rstrip("/.,")]
        sys.exit("flatout serve did not start")

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait()


def plain(flatout):
    with Origin(flatout, "--synthetic", "bkt/big=4GiB") as at:
        for memory in ["512MiB", "8GiB"] * 3:
            measure(flatout, f"cat 4GiB --memory {memory}", ["cat", "s3://bkt/big", "--memory", memory, *at])
        busy = ["--memory", "512MiB", "--parallel", "64", *at]
        measure(flatout, "cat 4GiB, 64 in flight, the reader sleeps 5 s", ["cat", "s3://bkt/big", *busy], sleep_s=5)
        folder = tempfile.mkdtemp(dir="/dev/shm")
        measure(flatout, "cp 4GiB, 64 in flight", ["cp", "s3://bkt/big", folder + "/file", *busy])
        shutil.rmtree(folder)


def found(flatout):
    """What the pace finds by itself, on a shape that takes 512 in flight."""
    with Origin(flatout, "--synthetic", "bkt/big=16GiB", "--per-connection", "4MiB/s", "--latency", "100ms") as at:
        for memory in ["512MiB", "8GiB"] * 3:
            measure(flatout, f"cat 16GiB --memory {memory}", ["cat", "s3://bkt/big", "--memory", memory, *at])


def shaped(flatout):
    with Origin(flatout, "--synthetic", "bkt/big=6GiB", "--per-connection", "4MiB/s", "--latency", "100ms") as at:
        for parallel in ["256", "512"]:
            for memory in ["512MiB", "8GiB"]:
                tuned = ["--part-size", "1MiB", "--parallel", parallel, "--memory", memory]
                measure(flatout, f"cat 6GiB {' '.join(tuned)}", ["cat", "s3://bkt/big", *tuned, *at])


def many(flatout):
    with Origin(flatout, "--synthetic", "bkt/p/%07d=1KiB*1000000") as at:
        folder = tempfile.mkdtemp(dir="/dev/shm")
        tuned = ["--memory", "512MiB", "--parallel", "32"]
        measure(flatout, "cp -r of 1,000,000 x 1 KiB", ["cp", "-r", "s3://bkt/p/", folder, *tuned, *at])
        print(sum(len(files) for _, _, files in os.walk(folder)), "files")
        shutil.rmtree(folder)


if __name__ == "__main__":
    cases = {"plain": plain, "shaped": shaped, "found": found, "many": many}
    if len(sys.argv) < 2 or any(case not in cases for case in sys.argv[2:]):
        sys.exit(__doc__)
    for name in sys.argv[2:] or cases:
        cases[name](sys.argv[1])
