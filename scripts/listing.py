#!/usr/bin/env python3
"""How long a recursive listing takes, in what memory, and how many requests it costs.

    scripts/listing.py FLATOUT [KEYS [LATENCY… [-- PEER…]]]

A release build against its own origin with KEYS numbered keys (1,000,000), each answer of which comes LATENCY later (0ms 20ms 100ms).
`--parallel 1` is the listing page after page. A PEER is a command that lists `s3://bucket/` of the origin at {url}, such as
`s5cmd --endpoint-url {url} --no-sign-request ls s3://bucket/*`. Told are seconds, keys, peak RSS, CPU seconds and requests.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time


def main(flatout, *words):
    words = list(words)
    peers = words[words.index("--") + 1 :] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    keys, latencies = int(words[0]) if words else 1_000_000, words[1:] or ["0ms", "20ms", "100ms"]
    ours = f"{shlex.quote(flatout)} ls -r s3://bucket/ --endpoint-url {{url}} --no-sign-request"
    for latency in latencies:
        for command in [ours, f"{ours} --parallel 1", *peers]:
            measure(flatout, keys, latency, command)


def measure(flatout, keys, latency, command):
    port = 32000 + os.getpid() * 7 % 1500
    with tempfile.TemporaryDirectory(prefix="listing-") as folder:
        log = os.path.join(folder, "log")
        synthetic = f"bucket/p/%0{len(str(keys))}d=1KiB*{keys}"
        origin = subprocess.Popen(
            [flatout, "serve", "--synthetic", synthetic, "--no-auth", "--listen", f"127.0.0.1:{port}", "--latency", latency, "--log", log],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        origin.stdout.readline()
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "AWS_EC2_METADATA_DISABLED": "true"}
        words = shlex.split(command.format(url=f"http://127.0.0.1:{port}"))
        start = time.monotonic()
        try:
            with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as ran:
                lines = sum(chunk.count(b"\n") for chunk in iter(lambda: ran.stdout.read(1 << 16), b""))
                _, status, usage = os.wait4(ran.pid, 0)
                ran.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - start
        finally:
            origin.send_signal(signal.SIGTERM)
            origin.wait()
        requests = sum(1 for _ in open(log, encoding="utf-8"))
        print(
            f"{latency}: {seconds:.1f} s, {lines} keys, {usage.ru_maxrss / 1024:.0f} MiB, {usage.ru_utime + usage.ru_stime:.1f} CPU s,"
            f" {requests} requests, exit {ran.returncode}: {os.path.basename(words[0])} {' '.join(words[-1:])}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
