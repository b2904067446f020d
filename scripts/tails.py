#!/usr/bin/env python3
"""What tails cost: a release build against its own wind tunnel, each case in turn with a clean run.

    scripts/tails.py FLATOUT [ROUNDS [CASE…]]        cases: clean stall slow dead broad

Prints each run and, at the end, medians as shares of the clean ones. 1 GiB, 16 in flight, 16 MiB/s a connection after 30 ms,
four addresses. "sent twice" is what left the origin beyond the object's size, by the tunnel's log.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

SIZE = 1 << 30
ADDRESSES = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]
SHAPE = ["--per-connection", "16MiB/s", "--latency", "30ms"]
# Flags of the origin, and what is said of its third address.
CASES = {
    "clean": (SHAPE, ""),
    "stall": ([*SHAPE, "--stall", "1%:10s"], ""),
    "slow": (SHAPE, ",rate=6710886/s"),
    "dead": (SHAPE, ",dead"),
    "broad": ([*SHAPE, "--stall", "100%:2s"], ""),
}
ENVIRONMENT = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true"}


def serve(flatout, case, seed, port, log):
    """Starts the origin; returns when it listens."""
    flags, third = CASES[case]
    listens = [f"{address}:{port}{third if at == 2 else ''}" for at, address in enumerate(ADDRESSES)]
    command = [flatout, "serve", "--synthetic", "bad/object=1GiB", "--no-auth", "--log", log, "--seed", str(seed), *flags]
    for listen in listens:
        command += ["--listen", listen]
    origin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for listen in listens:
        if not listen.endswith("dead"):
            origin.stdout.readline()
    return origin


def get(flatout, port):
    """One measured run, as its event tells it."""
    command = [
        flatout, "bench", "get", "s3://bad/object", "--endpoint-url", f"http://origin.test:{port}", "--addressing", "path",
        "--no-sign-request", "--resolve", f"origin.test:{port}:{','.join(ADDRESSES)}", "--parallel", "16", "--repeat", "1", "--json",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if ran.returncode:
        sys.exit(f"{' '.join(command)}: {ran.stderr}")
    return next(json.loads(line) for line in ran.stdout.splitlines() if '"op":"get"' in line)


def sent(log):
    """Bytes of the object that left the origin, and answers that met with a fault."""
    asks = [json.loads(line) for line in open(log, encoding="utf-8")]
    parts = [ask for ask in asks if ask["method"] == "GET" and ask["range"]]
    return sum(part["bytes"] for part in parts), sum(part["fault"] is not None for part in parts)


def main(flatout, rounds="5", *cases):
    seconds = {}
    port = 21000 + os.getpid() % 2000
    for seed in range(1, int(rounds) + 1):
        for case in cases or CASES:
            port += 1
            with tempfile.TemporaryDirectory(prefix="tails-") as folder:
                log = os.path.join(folder, "log")
                origin = serve(flatout, case, seed, port, log)
                try:
                    event = get(flatout, port)
                finally:
                    origin.send_signal(signal.SIGTERM)
                    origin.wait()
                left, faults = sent(log)
            seconds.setdefault(case, []).append(event["seconds"])
            told = {name: event.get(name) for name in ("retries", "hedged", "moved", "shared", "duplicated", "connections")}
            print(f"{case} {event['seconds']:.3f} s, sent twice {left / SIZE - 1:.2%}, {faults} faults, {told}", flush=True)
    for case, found in seconds.items():
        median, clean = statistics.median(found), statistics.median(seconds.get("clean", found))
        print(f"{case}: median {median:.3f} s, {median / clean:.3f} of clean")


if __name__ == "__main__":
    main(*sys.argv[1:])
