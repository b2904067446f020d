#!/usr/bin/env python3
"""Changes within files, and folders of many attributes, through mounts side by side: flatout, and the peers that are
installed (s3fs, rclone, geesefs).

    ~/.cache/flatout/python/bin/python scripts/mount_staging.py FLATOUT [--rounds 3] [--peer NAME=PROGRAM]... [--only CASE]...
        with NAME s3fs, rclone or geesefs; --log FOLDER keeps what the mounts say

The origin is MinIO, whose store lies in memory; what the mounts stage lies on a disk (--disk). It needs boto3. Each round
mounts anew and runs a case for one tool, then for the next.

Cases: random4k, random128k (fio writes all of an object of 256 MiB in random order, buffered, fsync at its end), part (of an
object of 1 GiB 16 times 64 KiB are written at random places, fsync, close), list (`ls -l` of 10,000 objects that have mode,
owner and time in their metadata, as s3fs writes them; then once more).

Each line has seconds until the last call returned, seconds until the origin has the content (every byte is compared), CPU
seconds of the mount and its peak resident MiB. For `list` the second figure is the second `ls -l`; how many attributes it
showed as they are is said beside it.
"""

import argparse
import concurrent.futures
import functools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3
from botocore.client import Config
from mount_writes import cpu, peak_mib, wait_until_mounted

KIB, MIB = 1 << 10, 1 << 20
PORT = 9378
URL = f"http://127.0.0.1:{PORT}"
KEYS = {"AWS_ACCESS_KEY_ID": "staging", "AWS_SECRET_ACCESS_KEY": "staging-secret", "AWS_REGION": "us-east-1"}
MINIO = Path(os.environ.get("FLATOUT_CACHE") or Path.home() / ".cache/flatout") / "bin/minio"
FILES = 10_000
# What s3fs writes for a file of mode 640 of 2001.
ATTRIBUTES = {"mode": "33184", "uid": "1234", "gid": "567", "mtime": "1000000000", "atime": "1000000000", "ctime": "1000000000"}
PATIENCE = 180


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", default=[], help="s3fs=PROGRAM, rclone=PROGRAM, geesefs=PROGRAM")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--disk", default="/var/tmp", help="where the mounts keep what they stage")
    parser.add_argument("--log", help="a folder for the logs of the mounts")
    options = parser.parse_args()
    tools = {"flatout": options.flatout, **dict(peer.split("=", 1) for peer in options.peer)}
    cases = options.only or list(CASES)
    found: dict[tuple[str, str], list[tuple]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as store, tempfile.TemporaryDirectory(dir=options.disk) as disk:
        origin = Origin(Path(store))
        try:
            for case in cases:
                CASES[case](origin, "prepare", None, None)
                for number in range(options.rounds):
                    for tool, program in tools.items():
                        run = once(options, origin, Path(disk), tool, program, case)
                        found.setdefault((case, tool), []).append(run)
                        load = os.getloadavg()[0]
                        print(f"round {number + 1} {case:10} {tool:8}", line(run[:4]), f"{run[4]}  load {load:.1f}", flush=True)
        finally:
            origin.end()
    print("\nmedian  case       tool     returned    origin     CPU s  peak MiB   flatout's share of the first two")
    medians = {key: [statistics.median(column) for column in zip(*[run[:4] for run in runs])] for key, runs in found.items()}
    for (case, tool), columns in medians.items():
        ours = medians.get((case, "flatout"), columns)
        print(f"        {case:10} {tool:8}", line(columns), f"   {ours[0] / columns[0]:.2f} {ours[1] / columns[1]:.2f}")


def line(columns) -> str:
    return " ".join(f"{column:9.2f}" for column in columns[:3]) + f" {columns[3]:9.0f}"


class Origin:
    """MinIO in memory, with one bucket."""

    def __init__(self, store: Path):
        environment = {**os.environ, "MINIO_ROOT_USER": KEYS["AWS_ACCESS_KEY_ID"], "MINIO_ROOT_PASSWORD": KEYS["AWS_SECRET_ACCESS_KEY"]}
        environment |= {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
        address = ["--address", f"127.0.0.1:{PORT}", "--console-address", f"127.0.0.1:{PORT + 1}"]
        self.process = subprocess.Popen([MINIO, "server", *address, store], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = boto3.client(
            "s3", endpoint_url=URL, region_name="us-east-1", aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"], config=Config(s3={"addressing_style": "path"}, max_pool_connections=32),
        )
        for _ in range(200):
            try:
                self.client.create_bucket(Bucket="bucket")
                return
            except Exception:  # noqa: BLE001 until it serves
                time.sleep(0.1)
        raise SystemExit("MinIO does not serve")

    def end(self):
        self.process.terminate()
        self.process.wait()

    def copy(self, source: str, key: str):
        self.client.copy_object(Bucket="bucket", Key=key, CopySource={"Bucket": "bucket", "Key": source})

    def etag(self, key: str) -> str:
        return self.client.head_object(Bucket="bucket", Key=key)["ETag"]

    def read(self, key: str, at: int, length: int) -> bytes:
        return self.client.get_object(Bucket="bucket", Key=key, Range=f"bytes={at}-{at + length - 1}")["Body"].read()

    def wait_for(self, key: str, before: str, is_there) -> float:
        """The moment at which the origin had it: no older than the request that found it."""
        start = time.perf_counter()
        while time.perf_counter() - start < PATIENCE:
            asked, now = time.perf_counter(), self.etag(key)
            if now != before:
                if is_there():
                    return asked
                before = now
            time.sleep(0.02)
        raise SystemExit(f"{key} has not come to the origin within {PATIENCE} s")


def once(options, origin: Origin, disk: Path, tool: str, program: str, case: str) -> tuple:
    CASES[case](origin, "reset", None, None)
    at, cache = disk / "m", disk / "cache"
    for folder in (at, cache, disk / "run", disk / "state"):
        folder.mkdir(exist_ok=True)
    os.sync()
    # rclone cannot do with a bundle of certificates beside its own transport.
    environment = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    environment |= {**KEYS, "AWS_EC2_METADATA_DISABLED": "true"}
    environment |= {"AWSACCESSKEYID": KEYS["AWS_ACCESS_KEY_ID"], "AWSSECRETACCESSKEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    # Beside the mounts of others.
    environment |= {"XDG_RUNTIME_DIR": str(disk / "run"), "XDG_STATE_HOME": str(disk / "state")}
    log = open(Path(options.log) / f"{case}-{tool}", "a") if options.log else subprocess.DEVNULL
    mounts = subprocess.Popen(command(tool, program, at, cache), env=environment, stdout=log, stderr=log)
    try:
        wait_until_mounted(at, mounts)
        began = cpu(mounts.pid)
        figures, said = CASES[case](origin, "measure", at, tool)
        return (*figures, cpu(mounts.pid) - began, peak_mib(mounts.pid), said)
    finally:
        subprocess.run(["umount", at], stderr=subprocess.DEVNULL)
        try:
            mounts.wait(20)
        except subprocess.TimeoutExpired:
            mounts.kill()
        subprocess.run(["umount", "-l", at], stderr=subprocess.DEVNULL)
        shutil.rmtree(cache, ignore_errors=True)


def command(tool: str, program: str, at: Path, cache: Path) -> list[str]:
    if tool.startswith("flatout"):
        line = ["mount", "s3://bucket", str(at), "--foreground", "--endpoint-url", URL]
        return [program, *line, "--staging", str(cache), "--attributes", "metadata"]
    if tool == "s3fs":
        return [program, "bucket", str(at), "-f", "-o", f"url={URL},use_path_request_style,endpoint=us-east-1,tmpdir={cache}"]
    if tool == "rclone":
        remote = f":s3,provider=Minio,env_auth=true,endpoint='{URL}',region=us-east-1:bucket"
        # Else it waits five seconds before it uploads.
        return [program, "mount", remote, str(at), "--vfs-cache-mode", "full", "--vfs-write-back", "0s", "--cache-dir", str(cache)]
    if tool == "geesefs":
        attributes = ["--enable-perms", "--enable-specials", "--enable-mtime"]
        attributes += [f"--{name}-attr={name}" for name in ("uid", "gid", "mode", "mtime")]
        return [program, "-f", "--endpoint", URL, "--region", "us-east-1", "--fsync-on-close", *attributes, "bucket", str(at)]
    raise SystemExit(f"{tool} is no mount that this knows")


def written_at_random(block: int):
    """All of an object, block by block in random order, by a pattern."""
    length, pattern = 256 * MIB, b"\xd1\xfe\x0b\x42"

    def case(origin: Origin, step: str, at, tool):
        if step == "prepare":
            origin.client.put_object(Bucket="bucket", Key="before", Body=bytes(length))
            return None
        if step == "reset":
            origin.copy("before", "file")
            return None
        before = origin.etag("file")
        fio = ["fio", "--name=w", f"--filename={at}/file", "--rw=randwrite", f"--bs={block}", f"--size={length}", "--end_fsync=1"]
        fio += ["--ioengine=psync", "--fallocate=none", "--overwrite=0", "--invalidate=0", "--randseed=7", "--thread", "--output=/dev/null"]
        start = time.perf_counter()
        subprocess.run([*fio, "--buffer_pattern=0xd1fe0b42"], check=True)
        returned = time.perf_counter() - start
        there = origin.wait_for("file", before, lambda: origin.read("file", 0, length) == pattern * (length // 4)) - start
        return (returned, max(returned, there)), ""

    return case


@functools.cache
def large(length: int) -> memoryview:
    rng = random.Random(1)
    return memoryview(b"".join(rng.randbytes(MIB) for _ in range(length // MIB)))


def part(origin: Origin, step: str, at, tool):
    length, places, piece = 1024 * MIB, 16, 64 * KIB
    if step == "prepare":
        origin.client.put_object(Bucket="bucket", Key="large-before", Body=bytes(large(length)))
        return None
    if step == "reset":
        origin.copy("large-before", "large")
        return None
    rng = random.Random(f"{tool} {time.time()}")
    offsets = rng.sample(range(length // piece), places)
    written = {offset * piece: rng.randbytes(piece) for offset in offsets}
    before, start = origin.etag("large"), time.perf_counter()
    with open(at / "large", "r+b", buffering=0) as file:
        for offset, content in written.items():
            file.seek(offset)
            file.write(content)
        os.fsync(file.fileno())
    returned = time.perf_counter() - start
    is_there = lambda: all(origin.read("large", offset, piece) == content for offset, content in written.items())  # noqa: E731
    there = origin.wait_for("large", before, is_there) - start
    for begin in range(0, length, 64 * MIB):
        expected = bytearray(large(length)[begin : begin + 64 * MIB])
        for offset, content in written.items():
            if begin <= offset < begin + len(expected):
                expected[offset - begin : offset - begin + piece] = content
        if origin.read("large", begin, len(expected)) != expected:
            raise SystemExit(f"{tool}: other bytes behind {begin}")
    return (returned, max(returned, there)), ""


def listed(origin: Origin, step: str, at, tool):
    if step == "prepare":
        def put(number):
            origin.client.put_object(Bucket="bucket", Key=f"many/{number:05}", Body=b"content", Metadata=ATTRIBUTES)

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(put, range(FILES)))
        return None
    if step == "reset":
        return None
    seconds, shown = [], []
    for _ in range(2):
        start = time.perf_counter()
        out = subprocess.run(["ls", "-ln", "--time-style=+%s", at / "many"], check=True, capture_output=True, text=True).stdout
        seconds.append(time.perf_counter() - start)
        rows = [row.split() for row in out.splitlines()[1:]]
        if len(rows) != FILES:
            raise SystemExit(f"{tool}: {len(rows)} of {FILES} names")
        shown.append([sum(row[column] == value for row in rows) for column, value in [(0, "-rw-r-----"), (2, "1234"), (3, "567"), (5, "1000000000")]])
    return tuple(seconds), f"modes, owners, groups, times: {shown[0]} {'' if shown[0] == shown[1] else shown[1]}"


CASES = {"random4k": written_at_random(4 * KIB), "random128k": written_at_random(128 * KIB), "part": part, "list": listed}


if __name__ == "__main__":
    sys.exit(main())
