#!/usr/bin/env python3
"""Writes of one large array from Python, side by side: flatout.write, a flatout writer, boto3, obstore, s3torchconnector, and
`flatout bench put`.

    scripts/python_writes.py FLATOUT NATIVE PYTHON [--mib 2048] [--rounds 3] [--only TOOL]...

FLATOUT is the program, NATIVE the native half of the package (target/release/lib_native.so), PYTHON an interpreter that has the
peers (pip install numpy boto3 obstore s3torchconnectorclient). The origin is `flatout serve --sink`, which forgets what it takes.
Each run is a process of its own, the tools in turn. Prints GiB a second and CPU seconds per GiB of each run, the peak resident MiB
beside the array, and the medians.
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

PORT = 9378
URL = f"http://127.0.0.1:{PORT}"
TOOLS = ["write", "writer", "boto3", "obstore", "s3torch", "bench"]

RUN = """
import json, os, resource, sys, time
tool, mib, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
import numpy
array = numpy.full(mib << 20, 7, numpy.uint8)
array[:: 4096] = numpy.arange(len(array[:: 4096]), dtype=numpy.uint8)
os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
if tool in ("write", "writer"):
    import flatout
    client = flatout.Client(endpoint_url=url, no_sign_request=True)
    def write():
        if tool == "write":
            return client.write("s3://bench/key", array)
        with client.open("s3://bench/key", "wb") as file:
            for at in range(0, len(array), 16 << 20):
                file.write(array[at : at + (16 << 20)])
elif tool == "boto3":
    import boto3, io
    from boto3.s3.transfer import TransferConfig
    from botocore import UNSIGNED
    from botocore.config import Config
    s3 = boto3.client("s3", endpoint_url=url, config=Config(signature_version=UNSIGNED))
    class Bytes(io.RawIOBase):
        at = 0
        def readable(self): return True
        def seekable(self): return True
        def tell(self): return self.at
        def seek(self, to, whence=0):
            self.at = (0, self.at, len(array))[whence] + to
            return self.at
        def read(self, size=-1):
            end = len(array) if size < 0 else min(self.at + size, len(array))
            data, self.at = array[self.at : end].tobytes(), end
            return data
    def write():
        s3.upload_fileobj(Bytes(), "bench", "key", Config=TransferConfig(max_concurrency=16, multipart_chunksize=16 << 20))
elif tool == "obstore":
    import obstore
    from obstore.store import S3Store
    store = S3Store("bench", endpoint=url, client_options={"allow_http": True}, skip_signature=True, virtual_hosted_style_request=False)
    def write():
        obstore.put(store, "key", memoryview(array), chunk_size=16 << 20, max_concurrency=16)
elif tool == "s3torch":
    from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client
    s3 = MountpointS3Client(region="us-east-1", endpoint=url, unsigned=True, force_path_style=True, throughput_target_gbps=100.0, part_size=16 << 20)
    def write():
        stream = s3.put_object("bench", "key")
        for at in range(0, len(array), 16 << 20):
            stream.write(array[at : at + (16 << 20)].tobytes())
        stream.close()
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
before, since = cpu(), time.monotonic()
write()
took, used = time.monotonic() - since, cpu() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - mib
print(json.dumps([mib / 1024 / took, used / (mib / 1024), peak]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("native")
    parser.add_argument("python")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        half = Path(__file__).resolve().parents[1] / "crates/python/python/flatout"
        package = Path(folder) / "flatout"
        package.mkdir()
        for each in half.iterdir():
            if each.name != "_native.abi3.so":
                (package / each.name).symlink_to(each)
        (package / "_native.abi3.so").symlink_to(Path(options.native).resolve())
        origin = subprocess.Popen(
            [options.flatout, "serve", "--memory", "--sink", "--no-auth", "--listen", f"127.0.0.1:{PORT}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(0.5)
            subprocess.run([options.flatout, "mb", "s3://bench", "--endpoint-url", URL, "--no-sign-request"], check=False)
            compare(options, {**os.environ, "PYTHONPATH": folder})
        finally:
            origin.kill()


def compare(options, env):
    found: dict[str, list[list[float]]] = {}
    for number in range(options.rounds):
        for tool in options.only or TOOLS:
            run = bench(options) if tool == "bench" else python(options, tool, env)
            if run is not None:
                found.setdefault(tool, []).append(run)
                print(f"round {number + 1} {tool:8} {run[0]:6.2f} GiB/s {run[1]:6.3f} CPU s/GiB {run[2]:6.0f} MiB", flush=True)
    print("\nmedian   tool      GiB/s   CPU s/GiB   peak MiB beside the array")
    for tool, runs in found.items():
        rate, cpu, peak = (statistics.median(column) for column in zip(*runs))
        print(f"         {tool:8} {rate:6.2f}   {cpu:8.3f}   {peak:7.0f}")


def python(options, tool, env):
    command = [options.python, "-c", RUN, tool, str(options.mib), URL]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        print(f"{tool}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def bench(options):
    command = [options.flatout, "bench", "put", "s3://bench/bench", "--size", f"{options.mib}MiB", "--repeat", "1", "--endpoint-url", URL, "--no-sign-request", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"bench: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    event = json.loads(done.stdout.splitlines()[-1])
    return [event["gib_per_s"], event["cpu_s_per_gib"], event["peak_rss_mib"]]


if __name__ == "__main__":
    main()
