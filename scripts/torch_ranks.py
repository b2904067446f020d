#!/usr/bin/env python3
"""One model loaded by several ranks: load_sharded, where each byte is fetched once, beside ranks that each fetch all of it.

    scripts/torch_ranks.py FLATOUT NATIVE PYTHON [--mib 4096] [--ranks 4] [--rounds 3] [--rate 1GiB/s]

FLATOUT is the program, NATIVE the native half of the package (target/release/lib_native.so), PYTHON an interpreter with torch 2. The
origin is `flatout serve` in memory; with --rate it sends no more than that. Half of the model's weights are cut along their first
dimension, half along their second. Prints how many times the model's bytes were sent, and the seconds until all ranks had theirs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PORT = 9382
URL = f"http://127.0.0.1:{PORT}"

RANK = """
import json, os, sys, time
import torch, torch.distributed as dist
import flatout
from flatout.torch import stream_sharded
how, store, rank, ranks, url = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", LOCAL_WORLD_SIZE=str(ranks))
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
client = flatout.Client(endpoint_url=url)
dist.barrier()
since = time.monotonic()
if how == "sharded":
    mine = dict(stream_sharded("s3://bench/model/", {"*.rows": 0, "*.columns": 1}, client=client))
else:
    from flatout.safetensors import stream_tensors
    cut = {"rows": 0, "columns": 1}
    mine = {name: torch.tensor_split(tensor, ranks, cut[name.split(".")[1]])[rank].clone() for name, tensor in stream_tensors("s3://bench/model/", framework="pt", client=client)}
dist.barrier()
if rank == 0:
    print(json.dumps(time.monotonic() - since))
assert all(tensor[0, 0] == int(name.split(".")[0]) for name, tensor in mine.items())
sys.stdout.flush()
# Gloo of Debian 13 sometimes waits for ever, or aborts, where threads of it are to end.
os._exit(0)
"""

MAKE = """
import os, sys
os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
import torch, flatout, flatout.safetensors
count = int(sys.argv[1]) // 32
weights = {f"{number}.{'rows' if number % 2 else 'columns'}": torch.full((4096, 4096), float(number), dtype=torch.bfloat16) for number in range(count)}
flatout.safetensors.save_model(weights, "s3://bench/model", max_shard_size=1 << 30, client=flatout.Client(endpoint_url=sys.argv[2]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("native", type=Path)
    parser.add_argument("python")
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package, log = Path(folder) / "flatout", Path(folder) / "log"
        package.mkdir()
        for each in (Path(__file__).resolve().parents[1] / "crates/python/python/flatout").iterdir():
            if each.suffix != ".so":
                (package / each.name).symlink_to(each)
        (package / "_native.abi3.so").symlink_to(arguments.native.resolve())
        env = {**os.environ, "PYTHONPATH": folder, "GLOO_SOCKET_IFNAME": "lo"}
        rate = ["--total", arguments.rate] if arguments.rate else []
        origin = subprocess.Popen([arguments.flatout, "serve", "--memory", "--no-auth", "--listen", f"127.0.0.1:{PORT}", "--log", str(log), *rate], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            subprocess.run([arguments.flatout, "mb", "s3://bench", "--endpoint-url", URL, "--no-sign-request"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([arguments.python, "-c", MAKE, str(arguments.mib), URL], env=env, check=True)
            compare(arguments, Path(folder), log, env)
        finally:
            origin.kill()
            origin.wait()


def compare(arguments, folder, log, env):
    found = {}
    for number in range(arguments.rounds):
        for how in ("sharded", "each all"):
            time.sleep(0.5)
            before = sent(log)
            command = [arguments.python, "-c", RANK, how, str(folder / f"store-{number}-{how[:4]}")]
            running = [subprocess.Popen([*command, str(rank), str(arguments.ranks), URL], env=env, stdout=subprocess.PIPE, text=True) for rank in range(arguments.ranks)]
            told = [each.communicate()[0] for each in running]
            if any(each.returncode for each in running):
                sys.exit(f"{how}: a rank failed")
            time.sleep(0.5)
            times = (sent(log) - before) / (arguments.mib << 20)
            found.setdefault(how, []).append((times, json.loads(told[0])))
            print(f"{how:<8} {times:.3f} times its bytes, {found[how][-1][1]:.2f} s", flush=True)
    for how, runs in found.items():
        times, seconds = (statistics.median(column) for column in zip(*runs))
        print(f"median {how:<8} {times:.3f} times its bytes, {seconds:.2f} s")


def sent(log):
    """Bytes that the origin has sent as objects."""
    return sum(line["bytes"] for line in map(json.loads, log.read_text().splitlines()) if line["method"] == "GET")


if __name__ == "__main__":
    main()
