#!/usr/bin/env python3
"""Checkpoints of PyTorch side by side: torch.distributed.checkpoint and torch.save by flatout.torch and by s3torchconnector.

    scripts/torch_checkpoints.py FLATOUT NATIVE PYTHON [--mib 2048] [--tensors 64] [--rounds 3] [--only TOOL]... [--sink]

FLATOUT is the program, NATIVE the native half of the package (target/release/lib_native.so), PYTHON an interpreter with torch 2 and
the peer (pip install s3torchconnector). The origin is `flatout serve` in memory, which spends most of the machine on a save's MD5;
with --sink it forgets what it takes, and saves alone are measured. Each run is a process of its own, the tools in
turn. Prints GiB a second and CPU seconds per GiB of each run, the peak resident MiB beside the state dict, and the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

PORT = 9379
URL = f"http://127.0.0.1:{PORT}"
TOOLS = ["flatout", "s3torchconnector"]
JOBS = ["dcp.save", "dcp.load", "torch.save", "torch.load"]

RUN = """
import json, os, resource, sys, time, warnings
warnings.simplefilter("ignore")
tool, job, mib, count, url = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
import torch
import torch.distributed.checkpoint as dcp
elements = (mib << 20) // count // 4
state = {f"layer.{number}": torch.full((elements,), float(number + 1 if "save" in job else 0)) for number in range(count)}
at = f"s3://bench/{tool}"
if tool == "flatout":
    import flatout
    from flatout.torch import Checkpoint
    from flatout.torch.dcp import Reader, Writer
    client = flatout.Client(endpoint_url=url)
    writer, reader = (lambda: Writer(at, client=client)), (lambda: Reader(at, client=client))
    checkpoint = Checkpoint(at, client=client)
    whole_writer, whole_reader = (lambda: checkpoint.writer("whole.pt")), (lambda: checkpoint.reader("whole.pt"))
else:
    from s3torchconnector import S3Checkpoint, S3ClientConfig
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    config = S3ClientConfig(force_path_style=True, throughput_target_gbps=100.0)
    named = {"region": "us-east-1", "s3client_config": config}
    import s3torchconnector._s3client as s3client
    make = s3client.S3Client.__init__
    def init(self, region, *, endpoint=None, **more):
        make(self, region, endpoint=url, **more)
    s3client.S3Client.__init__ = init
    if os.environ.get("SINK"):
        # Its .metadata is copied to its name, which a sink cannot.
        from s3torchconnector.dcp import S3FileSystem
        S3FileSystem.rename = lambda *_: None
    writer = lambda: S3StorageWriter(path=at, overwrite=True, **named)
    reader = lambda: S3StorageReader(path=at, **named)
    checkpoint = S3Checkpoint("us-east-1", endpoint=url, s3client_config=config)
    whole_writer, whole_reader = (lambda: checkpoint.writer(at + "/whole.pt")), (lambda: checkpoint.reader(at + "/whole.pt"))
def run():
    global state
    if job == "dcp.save":
        dcp.save(state, storage_writer=writer())
    elif job == "dcp.load":
        dcp.load(state, storage_reader=reader())
    elif job == "torch.save":
        with whole_writer() as file:
            torch.save(state, file)
    else:
        with whole_reader() as file:
            state = torch.load(file, weights_only=True)
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
before, since = cpu(), time.monotonic()
run()
seconds, used = time.monotonic() - since, cpu() - before
assert all(state[f"layer.{number}"][-1] == number + 1 for number in range(count)), "it is not what was saved"
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - mib
print(json.dumps({"seconds": seconds, "cpu": used, "peak": peak}))
"""


def run(arguments, tool, job, folder):
    command = [arguments.python, "-c", RUN, tool, job, str(arguments.mib), str(arguments.tensors), URL]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(folder), "SINK": "1" if arguments.sink else ""})
    if done.returncode:
        raise SystemExit(f"{tool} {job}: {done.stderr[-2000:]}")
    told, gib = json.loads(done.stdout), arguments.mib / 1024
    return gib / told["seconds"], told["cpu"] / gib, told["peak"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("native", type=Path)
    parser.add_argument("python")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--tensors", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=TOOLS)
    parser.add_argument("--job", action="append", choices=JOBS)
    parser.add_argument("--sink", action="store_true")
    arguments = parser.parse_args()
    tools, jobs = arguments.only or TOOLS, arguments.job or (JOBS[::2] if arguments.sink else JOBS)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "flatout"
        package.mkdir()
        for each in (Path(__file__).parents[1] / "crates/python/python/flatout").iterdir():
            if each.suffix != ".so":
                (package / each.name).symlink_to(each)
        (package / "_native.abi3.so").symlink_to(arguments.native.resolve())
        origin = subprocess.Popen([arguments.flatout, "serve", "--memory", "--no-auth", *(["--sink"] if arguments.sink else []), "--listen", f"127.0.0.1:{PORT}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            subprocess.run([arguments.flatout, "mb", "s3://bench", "--endpoint-url", URL, "--no-sign-request"], check=False)
            found = {(tool, job): [] for job in jobs for tool in tools}
            for _ in range(arguments.rounds):
                for tool, job in ((tool, job) for job in jobs for tool in tools):
                    found[tool, job].append(run(arguments, tool, job, folder))
                    print(f"{job:<10} {tool:<17} {found[tool, job][-1][0]:.2f} GiB/s {found[tool, job][-1][1]:.2f} CPU s/GiB {found[tool, job][-1][2]} MiB", flush=True)
        finally:
            origin.kill()
            origin.wait()
    for (tool, job), runs in found.items():
        rate, used, peak = (statistics.median(column) for column in zip(*runs))
        print(f"median {job:<10} {tool:<17} {rate:.2f} GiB/s {used:.2f} CPU s/GiB {peak:.0f} MiB")


if __name__ == "__main__":
    main()
