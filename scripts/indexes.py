#!/usr/bin/env python3
"""What an index costs, and what it saves: `flatout volume build`, then `find` and `ls -lR` in each sort of mount.

    scripts/indexes.py FLATOUT [FOLDERS FILES [ROUNDS]]

A release build, against listings of FOLDERS folders of FILES files (1,000 of 1,000) that this script computes. Each command
has a mount of its own, in turns, ROUNDS times (3). Needs root. Told are seconds, CPU seconds of the program, its peak RSS,
bytes of the index a file, and resident memory while it is mounted.
"""

import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PAGE = 1000
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
OBJECT = (
    "<Contents><Key>%s</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><Size>100000</Size></Contents>"
)


class Keys:
    """`train/c0000/0000000.jpg` and so on, in their order."""

    def __init__(self, folders: int, files: int):
        self.folders, self.files, self.count = folders, files, folders * files

    def key(self, at: int) -> str:
        return "train/c%04d/%07d.jpg" % divmod(at, self.files)

    def first_after(self, text: str) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.key(middle) <= text else (low, middle)
        return low

    def page(self, prefix: str, delimiter: str, after: str, most: int) -> tuple[list[str], list[str], bool]:
        """Keys, folders, and whether there are more."""
        if delimiter and prefix.count("/") < 2:
            names = [f"train/c{at:04}/" for at in range(self.folders)] if prefix else ["train/"]
            names = [name for name in names if name.startswith(prefix) and name > after]
            return [], names[:most], len(names) > most
        at = self.first_after(after)
        # The last text before those that begin with the prefix.
        at = max(at, self.first_after(prefix[:-1] + chr(ord(prefix[-1]) - 1) + "\uffff") if prefix else 0)
        keys = []
        while at < self.count and len(keys) < most and self.key(at).startswith(prefix):
            keys.append(self.key(at))
            at += 1
        return keys, [], at < self.count and self.key(at).startswith(prefix)


def serve(keys: Keys, ready):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            after = asked.get("continuation-token") or asked.get("start-after") or ""
            most = min(int(asked.get("max-keys", PAGE)), PAGE)
            found, folders, more = keys.page(asked.get("prefix", ""), asked.get("delimiter", ""), after, most)
            rows = "".join(OBJECT % key for key in found)
            rows += "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders)
            token = f"<NextContinuationToken>{(found or folders)[-1]}</NextContinuationToken>" if more else ""
            body = (
                f'<?xml version="1.0"?><ListBucketResult xmlns="{NAMESPACE}"><Name>many</Name>'
                f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

    server = Server(("127.0.0.1", 0), Handler)
    ready.put(server.server_address[1])
    server.serve_forever()


def main(flatout, folders="1000", files="1000", rounds="3"):
    keys = Keys(int(folders), int(files))
    ready = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(keys, ready), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory(prefix="flatout-indexes-") as work:
        run = Run(Path(flatout).absolute(), f"http://127.0.0.1:{ready.get()}", Path(work), keys.count)
        try:
            run.build(int(rounds))
            run.list_all(int(rounds))
        finally:
            subprocess.run(["umount", "-l", run.mount_point], stderr=subprocess.DEVNULL)
            server.kill()


class Run:
    def __init__(self, flatout: Path, url: str, work: Path, count: int):
        self.flatout, self.work, self.count = flatout, work, count
        self.index, self.mount_point = work / "train.flat", work / "mnt"
        self.mount_point.mkdir()
        self.more = ["--endpoint-url", url, "--no-sign-request"]
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = str(work)

    def build(self, rounds: int):
        seconds, cpu = [], []
        for _ in range(rounds):
            started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [self.flatout, "volume", "build", "s3://many/train/", self.index, "--quiet", *self.more]
            subprocess.run(command, check=True)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(time.perf_counter() - started)
            cpu.append(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        wall, cpu = statistics.median(seconds), statistics.median(cpu)
        each = 1e6 / self.count
        print(
            f"build: {self.count:,} keys in {wall:.1f} s, {wall * each:.2f} us a key, {cpu * each:.2f} us of its CPU; "
            f"peak {peak >> 20} MiB, {peak / self.count:.1f} B a key; {self.index.stat().st_size / self.count:.1f} B a file"
        )

    def list_all(self, rounds: int):
        mounts = {
            "index, by EROFS": ["volume", "mount", self.index, self.mount_point],
            "index, by FUSE": ["volume", "mount", self.index, self.mount_point, "--fuse"],
            "flatout mount": ["mount", "s3://many/train/", self.mount_point, "--read-only"],
        }
        looks = [["find", self.mount_point, "-type", "f"], ["ls", "-lR", self.mount_point]]
        seen: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        for _ in range(rounds):
            for name, mount in mounts.items():
                for look in looks:
                    seen.setdefault((name, look[0]), []).append(self.look(mount, look))
        for (name, look), rows in seen.items():
            mounted, took, cpu, resident = (statistics.median(column) for column in zip(*rows))
            print(
                f"{name:16} mounted in {mounted:.2f} s, {look:4} {took:.2f} s, "
                f"CPU of its process {cpu:.2f} s, resident {resident / 2**20:.0f} MiB"
            )

    def look(self, mount: list, look: list) -> tuple[float, ...]:
        started = time.perf_counter()
        child = subprocess.Popen([self.flatout, *mount, "--foreground", *self.more], stdout=subprocess.PIPE)
        child.stdout.readline()
        mounted = time.perf_counter() - started
        started = time.perf_counter()
        subprocess.run(look, check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - started
        ticks = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        status = Path(f"/proc/{child.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) << 10
        subprocess.run([self.flatout, "umount", self.mount_point], check=True, stdout=subprocess.DEVNULL)
        child.wait()
        return mounted, took, cpu, resident


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
