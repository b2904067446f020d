#!/usr/bin/env python3
"""How near the pace comes to the best fixed number in flight: a release build against its own wind tunnel.

    scripts/pace.py FLATOUT [ROUNDS [SHAPE[=LEVEL]…]]

For each shape first a few seconds with 8, 16 … 512 in flight; the best fixed is the smallest of them within 2 % of the fastest.
Then, in turn, 20 s of data with that and with nothing configured and an empty cache folder. Told are the share of the best
fixed's rate, its connections (opened in all, and in flight on average, each over the best fixed's), when 90 % of its rate was
reached for half a second, and how busy the tunnel's threads were: with 1.0 one core of it is all at work. With =LEVEL that is the best
fixed, as an earlier run has found.
"""

import csv
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

MIB = 1 << 20
LEVELS = [8, 16, 32, 64, 128, 256, 512]
# MiB/s of one connection, ms to the first byte, MiB/s of all (None: what this machine carries), and what they become after 8 s.
SHAPES = {
    "4-30-400": (4, 30, 400, None),
    "4-100-all": (4, 100, None, None),
    "16-5-500": (16, 5, 500, None),
    "16-30-all": (16, 30, None, None),
    "16-100-1000": (16, 100, 1000, None),
    "64-5-1000": (64, 5, 1000, None),
    "64-30-all": (64, 30, None, None),
    "64-100-500": (64, 100, 500, None),
    "halves": (16, 30, 1000, 500),
    "doubles": (16, 30, 500, 1000),
    "unshaped": (None, 0, None, None),
}
# What two cores carry of a tunnel that counts each piece: for how much to fetch only.
MACHINE = 3500
CHANGES_AFTER_S = 8
SWEEP_S = 5
RUNS = itertools.count()


def serve(flatout, shape, port, size_mib):
    """Starts the origin with one object; returns when it listens."""
    rate, latency, total, then = SHAPES[shape]
    command = [flatout, "serve", "--synthetic", f"pace/object={size_mib}MiB", "--no-auth", "--listen", f"127.0.0.1:{port}"]
    command += ["--per-connection", f"{rate}MiB/s"] if rate else []
    command += ["--latency", f"{latency}ms"] if latency else []
    if total:
        command += ["--total", f"{total}MiB/s" + (f"@{CHANGES_AFTER_S}s:{then}MiB/s" if then else "")]
    origin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    origin.stdout.readline()
    return origin


def get(flatout, shape, size_mib, parallel=None):
    """One run, as its event tells it, against an origin of its own, whose clock begins with it."""
    port = 23000 + (os.getpid() * 97 + next(RUNS)) % 8000
    with tempfile.TemporaryDirectory(prefix="pace-") as folder:
        parts = os.path.join(folder, "parts")
        command = [flatout, "bench", "get", f"http://127.0.0.1:{port}/pace/object", "--repeat", "1", "--json", "--parts", parts]
        command += ["--parallel", str(parallel)] if parallel else []
        origin = serve(flatout, shape, port, size_mib)
        try:
            environment = {"PATH": os.environ["PATH"], "HOME": folder}
            ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        finally:
            origin.send_signal(signal.SIGTERM)
            origin.wait()
        if ran.returncode:
            sys.exit(f"{' '.join(command)}: {ran.stderr}")
        event = next(json.loads(line) for line in ran.stdout.splitlines() if '"op":"get"' in line)
        event["mib_per_s"] = size_mib / event["seconds"]
        with open(parts, newline="") as rows:
            event["parts"] = [
                tuple(float(row[name]) for name in ("start_s", "first_byte_s", "end_s", "bytes")) for row in csv.DictReader(rows)
            ]
    return event


def mean_in_flight(event):
    return sum(end - start for start, _, end, _ in event["parts"]) / event["seconds"]


def reaches(event, mib_per_s):
    """When it first carried that for half a second, where a part's bytes come evenly from its first to its last."""
    bins = [0.0] * (int(event["seconds"] * 10) + 12)
    for _, first, end, size in event["parts"]:
        each = size / MIB / max(end - first, 1e-6)
        for at in range(int(first * 10), int(end * 10) + 1):
            bins[at] += each * max(0.0, min(end, (at + 1) / 10) - max(first, at / 10))
    for at in range(len(bins) - 5):
        if sum(bins[at : at + 5]) >= mib_per_s / 2:
            return at / 10
    return float("inf")


def expected(shape, level=max(LEVELS)):
    """What that many in flight carry at most, MiB/s."""
    rate, _, total, then = SHAPES[shape]
    most = (total + then) // 2 if then else total or MACHINE
    return min(level * rate, most) if rate else most


def best_fixed(flatout, shape):
    """The smallest number in flight within 2 % of the fastest, and the fastest's MiB/s."""
    seconds = 20 if SHAPES[shape][3] else SWEEP_S
    # What is twice as slow as the fastest can be is not worth the time.
    worth = [level for level in LEVELS if expected(shape, level) * 2 >= expected(shape)]
    found = {level: get(flatout, shape, int(expected(shape, level) * seconds), level)["mib_per_s"] for level in worth}
    print(f"{shape}: " + ", ".join(f"{level}: {rate:.0f}" for level, rate in found.items()) + " MiB/s", flush=True)
    fastest = max(found.values())
    return min(level for level, rate in found.items() if rate >= 0.98 * fastest), fastest


def main(flatout, rounds="3", *shapes):
    for shape in shapes or SHAPES:
        shape, _, known = shape.partition("=")
        level, fastest = best_fixed(flatout, shape) if not known else (int(known), expected(shape, int(known)))
        size_mib = int(fastest * 20)
        told = {"rate": [], "opened": [], "flying": [], "reached": []}
        for _ in range(int(rounds)):
            fixed, own = get(flatout, shape, size_mib, level), get(flatout, shape, size_mib)
            told["rate"].append(fixed["seconds"] / own["seconds"])
            told["opened"].append(own["connections"] / level)
            told["flying"].append(mean_in_flight(own) / level)
            told["reached"].append(reaches(own, 0.9 * fixed["mib_per_s"]))
            print(
                f"{shape}: {level} fixed {fixed['mib_per_s']:.0f} MiB/s, by itself {own['mib_per_s']:.0f} with {own['connections']}"
                f" ({mean_in_flight(own):.0f} on average); 90 % after {told['reached'][-1]:.1f} s; tunnel busy"
                f" {fixed['origin_busy']:.2f} and {own['origin_busy']:.2f}; CPU s/GiB {fixed['cpu_s_per_gib']:.2f} and"
                f" {own['cpu_s_per_gib']:.2f}; {own['limited_by']['says']}",
                flush=True,
            )
        median = {name: statistics.median(values) for name, values in told.items()}
        print(
            f"{shape}: median rate {median['rate']:.2f} of {level} fixed, connections opened {median['opened']:.2f}, on average"
            f" {median['flying']:.2f}, 90 % after {median['reached']:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
