#!/usr/bin/env python3
"""Peaks of resident memory, and seconds, under --memory: scripts/memory.py FLATOUT [CASE...]

Cases: plain shaped found many, and of mounts, as root: streams names slow. Starts the program's own origin; needs 5 GiB of
/dev/shm. What is promised is --memory and 64 MiB (docs/decisions/memory.md); of names that the kernel knows, what they weigh.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time


def peak_mib(pid, field="VmHWM"):
    """`VmHWM` of a process, or `VmRSS`; None once it has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line for line in status if line.startswith(field)]
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


class Mount:
    """A mount of the bucket `bkt` under this much memory, for as long as the block lasts."""

    def __init__(self, flatout, memory, at, *more):
        self.flatout, self.folder = flatout, tempfile.mkdtemp()
        self.command = [flatout, "mount", "s3://bkt", self.folder, "--foreground", "--json", "--no-sign-request"]
        self.command += ["--memory", memory, *at, *more]

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdout=subprocess.PIPE)
        if not self.child.stdout.readline():
            sys.exit("flatout mount did not start")
        return self

    def __exit__(self, *_):
        subprocess.run([self.flatout, "umount", "--lazy", self.folder], stdout=subprocess.DEVNULL, check=False)
        self.child.wait()
        os.rmdir(self.folder)

    def stats(self):
        line = [self.flatout, "top", "--once", "--json", str(self.child.pid)]
        return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)

    def say(self, what, start):
        now, names = peak_mib(self.child.pid, "VmRSS"), self.stats()["names"]
        told = f"now {now} MiB, {names['inodes_now']} inodes, names {names['held_bytes_now'] >> 20} MiB"
        print(f"{what}: {time.time() - start:.2f} s, peak {peak_mib(self.child.pid)} MiB, {told}", flush=True)


def together(count, what):
    """Runs `what(n)` in so many threads at once."""
    threads = [threading.Thread(target=what, args=(n,)) for n in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def stream(folder, n, direct=False):
    more = ["iflag=direct"] if direct else []
    subprocess.run(["dd", f"if={folder}/big-{n}", "of=/dev/null", "bs=1M", "status=none", *more], check=True)


def streams(flatout):
    with Origin(flatout, "--synthetic", "bkt/big-%d=1GiB*8", "--latency", "30ms") as at:
        for memory in ["64MiB", "256MiB"]:
            for direct in [True, False]:
                with Mount(flatout, memory, at) as mount:
                    start = time.time()
                    together(8, lambda n: stream(mount.folder, n, direct))
                    how = "O_DIRECT" if direct else "buffered"
                    mount.say(f"eight streams of 1 GiB, {how}, --memory {memory}", start)


def names(flatout):
    """A million names that the kernel knows, what is left when it has forgotten them, and streams beside."""
    flags = [flag for n in range(10) for flag in ("--synthetic", f"bkt/d{n}/sample-%05d=1KiB*100000")]
    with Origin(flatout, *flags, "--synthetic", "bkt/big-%d=1GiB*8") as at:
        for memory in ["64MiB", "256MiB"]:
            with Mount(flatout, memory, at) as mount:
                mount.say(f"mounted, --memory {memory}", time.time())
                for what in ["ls -lR", "ls -lR again"]:
                    start = time.time()
                    subprocess.run(["ls", "-lR", mount.folder], stdout=subprocess.DEVNULL, check=True)
                    mount.say(what, start)
                start = time.time()
                together(8, lambda n: stream(mount.folder, n))
                mount.say("eight streams beside them", start)
                # The kernel lets go of names and inodes, and tells so.
                start = time.time()
                for _ in range(50):
                    with open("/proc/sys/vm/drop_caches", "w") as caches:
                        caches.write("2")
                    if mount.stats()["names"]["inodes_now"] < 100_000:
                        break
                mount.say("forgotten by the kernel", start)
                start = time.time()
                together(8, lambda n: stream(mount.folder, n))
                mount.say("eight streams after that", start)


def slow(flatout):
    """Eight who read a little and sleep, a thousand open files, and eight who go on."""
    with Origin(flatout, "--synthetic", "bkt/big-%d=1GiB*8", "--synthetic", "bkt/slow-%04d=64MiB*1000") as at:
        with Mount(flatout, "256MiB", at) as mount:
            start = time.time()
            held = [open(f"{mount.folder}/slow-{n:04}", "rb", buffering=0) for n in range(1000)]
            for turn in range(3):
                for file in held:
                    file.read(1 << 20)
                mount.say(f"a thousand that read a MiB each, turn {turn}", start)
            together(8, lambda n: stream(mount.folder, n))
            mount.say("eight streams beside them", start)
            for file in held:
                file.close()


if __name__ == "__main__":
    cases = {"plain": plain, "shaped": shaped, "found": found, "many": many}
    cases |= {"streams": streams, "names": names, "slow": slow}
    if len(sys.argv) < 2 or any(case not in cases for case in sys.argv[2:]):
        sys.exit(__doc__)
    # What was started ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    for name in sys.argv[2:] or cases:
        cases[name](sys.argv[1])
