#!/usr/bin/env python3
"""Cuts the power of a mount's staging folder: what fsync was asked for is there afterwards, and nothing else is made up.

    sudo scripts/power_loss.py FLATOUT LAZYFS [--rounds 20] [--seed 1]

The staging folder lies on LazyFS (github.com/dsrhaslab/lazyfs), a file system that forgets at a command all that was
not synchronized, names included. Each round: files are written at random while the origin is away, some synchronized,
some written again after that; the mount is killed; the folder forgets; another boot ID is shown to the next process;
the origin comes back; `flatout mount --recover` uploads what is left. Then each object holds

- where fsync was asked for: at each place the bytes of that moment, or what was written there since;
- else: the object as it was before, whole.

Runs as root, in a mount namespace of its own. Build LazyFS with Debian's libspdlog-dev, libtoml11-dev, libfuse3-dev.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

PORT = 9381
URL = f"http://127.0.0.1:{PORT}"
FILES = 6
BYTES = 3 << 20
INSIDE = "POWER_LOSS_INSIDE"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("lazyfs")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if INSIDE not in os.environ:
        # The boot ID that it shows, and its mounts, are of this process alone.
        inside = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execvpe("unshare", inside, {**os.environ, INSIDE: "1"})
    synced = lost = 0
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="power-loss.") as folder:
            one = Round(Path(folder), options, random.Random(options.seed * 1000 + number))
            try:
                found = one.run()
            finally:
                one.end()
            synced, lost = synced + found[0], lost + found[1]
            print(f"round {number + 1}: {found[0]} files were synchronized and are whole, {found[1]} were not", flush=True)
    if not synced or not lost:
        sys.exit("the rounds have shown nothing: more of them are needed")
    print(f"{synced} passed, 0 failed")


class Round:
    def __init__(self, folder, options, chance):
        self.folder, self.flatout, self.lazyfs, self.chance = folder, options.flatout, options.lazyfs, chance
        self.bucket = folder / "origin/bucket"
        self.mnt, self.disk, self.below = folder / "mnt", folder / "disk", folder / "below"
        for path in (self.bucket, self.mnt, self.disk, self.below):
            path.mkdir(parents=True)
        self.staging = self.disk / "staging"
        self.processes = []

    def run(self):
        before = {f"f{number}": self.chance.randbytes(BYTES) for number in range(FILES)}
        for name, content in before.items():
            (self.bucket / name).write_bytes(content)
        self.power_on()
        self.staging.mkdir()
        os.sync()
        origin = self.start_origin()
        mount = self.start([self.flatout, "mount", "s3://bucket", self.mnt, "--foreground", *self.settings()])
        self.wait_for(lambda: os.path.ismount(self.mnt))
        # What is staged of a file is brought while the origin is there.
        handles = {name: os.open(self.mnt / name, os.O_RDWR) for name in before}
        new = [f"n{number}" for number in range(FILES)]
        handles |= {name: os.open(self.mnt / name, os.O_RDWR | os.O_CREAT) for name in new}
        before |= {name: b"" for name in new}
        now = {name: bytearray(content) for name, content in before.items()}
        at_sync = {}
        for name, handle in handles.items():
            os.pread(handle, BYTES, 0)
            # Somewhere in the middle: from now on it is staged.
            self.write(handle, now[name], 100_000)
        stop(origin)
        since = {name: [] for name in handles}
        for _ in range(60):
            name = self.chance.choice(list(handles))
            if self.chance.random() < 0.2:
                try:
                    os.fsync(handles[name])
                    raise SystemExit(f"{name}: fsync says that it is at an origin that is away")
                except OSError:
                    at_sync[name], since[name] = bytes(now[name]), []
            else:
                since[name].append(self.write(handles[name], now[name]))
        mount.kill()
        mount.wait()
        subprocess.run(["umount", "--lazy", self.mnt], check=True)
        for handle in handles.values():
            with contextlib.suppress(OSError):
                os.close(handle)
        self.lose_power()
        self.start_origin()
        recover = [self.flatout, "mount", "s3://bucket", "--recover", *self.settings()]
        said = subprocess.run(recover, capture_output=True, text=True)
        if said.returncode:
            raise SystemExit(f"--recover: {said.stderr}{said.stdout}")
        for name, content in before.items():
            path = self.bucket / name
            found = path.read_bytes() if path.exists() else b""
            if name in at_sync:
                check(name, found, at_sync[name], bytes(now[name]), since[name])
            elif found != content:
                raise SystemExit(f"{name}: nobody synchronized it, and it is another than before")
        return len(at_sync), len(before) - len(at_sync)

    def write(self, handle, content, at=None):
        at = self.chance.randrange(BYTES) if at is None else at
        bytes_ = self.chance.randbytes(self.chance.randrange(1, 100_000))
        os.pwrite(handle, bytes_, at)
        end = at + len(bytes_)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[at:end] = bytes_
        return at, end

    def settings(self):
        patience = ["--retries", "0", "--outage-timeout", "0s", "--connect-timeout", "1s"]
        return ["--staging", self.staging, "--endpoint-url", URL, "--no-sign-request", *patience]

    def start(self, command):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def start_origin(self):
        address = URL.removeprefix("http://")
        origin = self.start([self.flatout, "serve", "--root", self.bucket.parent, "--no-auth", "--listen", address])
        ask = ["curl", "--silent", "--fail", "--output", "/dev/null", f"{URL}/bucket/f0"]
        self.wait_for(lambda: subprocess.run(ask).returncode == 0)
        return origin

    def power_on(self):
        config = self.folder / "lazyfs.toml"
        self.fifo, self.log = self.folder / "faults", self.folder / "lazyfs.log"
        config.write_text(
            f'[faults]\nfifo_path="{self.fifo}"\n[cache]\napply_eviction=false\n[cache.simple]\ncustom_size="512mb"\n'
            f'blocks_per_page=1\n[filesystem]\nlog_all_operations=false\nlogfile="{self.log}"\n'
        )
        options = ["-o", "allow_other", "-o", "modules=subdir", "-o", f"subdir={self.below}", "-f"]
        self.start([self.lazyfs, self.disk, "--config-path", config, *options])
        self.wait_for(lambda: os.path.ismount(self.disk) and self.fifo.exists())

    def lose_power(self):
        self.fifo.write_text("lazyfs::clear-cache\n")
        self.wait_for(lambda: "cache is cleared" in self.log.read_text(errors="replace"))
        boot = self.folder / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n")
        subprocess.run(["mount", "--bind", boot, "/proc/sys/kernel/random/boot_id"], check=True)

    def wait_for(self, is_so):
        for _ in range(600):
            if is_so():
                return
            time.sleep(0.05)
        raise SystemExit("it never came to that")

    def end(self):
        subprocess.run(["umount", "--lazy", "/proc/sys/kernel/random/boot_id"], stderr=subprocess.DEVNULL)
        for process in reversed(self.processes):
            stop(process)
        for path in (self.mnt, self.disk):
            subprocess.run(["umount", "--lazy", path], stderr=subprocess.DEVNULL)


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()


def check(name, found, at_sync, now, since):
    """At each place what was there at fsync, or what was written there since."""
    if not len(at_sync) <= len(found) <= len(now):
        raise SystemExit(f"{name}: {len(found)} bytes, {len(at_sync)} were synchronized, {len(now)} written")
    free = bytearray(len(now))
    for start, end in since:
        free[start:end] = b"\1" * (end - start)
    for at, (byte, is_free) in enumerate(zip(found, free, strict=False)):
        old = at_sync[at] if at < len(at_sync) else 0
        if byte != old and not (is_free and byte == now[at]):
            raise SystemExit(f"{name}: byte {at} is neither what was synchronized nor what was written since")


if __name__ == "__main__":
    main()
