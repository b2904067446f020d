#!/usr/bin/env python3
"""What becomes of many small objects where an origin refuses more than so many requests a second.

    scripts/throttled.py FLATOUT [ROUNDS [LIMIT [FLAGS…]]]

A release build against its own wind tunnel: 20,000 objects of 16 KiB to nowhere, no configuration, an empty cache folder. Told are
what was let in a second from the third second on, as a share of the limit, and the refused among all requests, by the tunnel's log.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

OBJECTS = 20_000


def main(flatout, rounds="3", limit="500", *flags):
    for run in range(int(rounds)):
        port = 31000 + (os.getpid() * 7 + run) % 1500
        with tempfile.TemporaryDirectory(prefix="throttled-") as folder:
            log = os.path.join(folder, "log")
            origin = subprocess.Popen(
                [flatout, "serve", "--synthetic", f"bad/o-%05d=16KiB*{OBJECTS}", "--no-auth", "--listen", f"127.0.0.1:{port}",
                 "--latency", "20ms", "--throttle", f"{limit}/s", "--log", log, "--seed", str(run)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            origin.stdout.readline()
            command = [flatout, "bench", "get", "-r", "s3://bad/", "--endpoint-url", f"http://127.0.0.1:{port}", "--no-sign-request",
                       "--repeat", "1", "--json", *flags]  # fmt: skip
            environment = {"PATH": os.environ["PATH"], "HOME": folder, "AWS_EC2_METADATA_DISABLED": "true"}
            try:
                ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            finally:
                origin.send_signal(signal.SIGTERM)
                origin.wait()
            asks = [json.loads(line) for line in open(log, encoding="utf-8")]
        event = next((json.loads(line) for line in ran.stdout.splitlines() if '"op":"get' in line), {})
        gets = [ask for ask in asks if ask["method"] == "GET" and "o-" in ask["key"]]
        refused = sum(ask["status"] == 503 for ask in gets)
        told = {name: event.get(name) for name in ("seconds", "ok", "failed", "retries", "connections", "limited_by")}
        start, end = gets[0]["t_s"], gets[-1]["t_s"]
        settled = sum(ask["status"] == 200 and ask["t_s"] >= start + 3 for ask in gets) / max(end - start - 3, 1)
        late = [ask["status"] == 503 for ask in gets if ask["t_s"] >= start + 3]
        print(
            f"exit {ran.returncode}, {settled / float(limit):.3f} of the limit, refused {refused / len(gets):.2%} of {len(gets)}"
            f" ({sum(late) / max(1, len(late)):.2%} from the third second on), {told}",
            flush=True,
        )
        if ran.returncode:
            print(ran.stderr[-600:])


if __name__ == "__main__":
    main(*sys.argv[1:])
