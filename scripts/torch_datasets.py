#!/usr/bin/env python3
"""Samples of many small objects in DataLoader, side by side: flatout.torch, s3torchconnector, obstore and fsspec (s3fs).

    scripts/torch_datasets.py FLATOUT NATIVE PYTHON [--objects 20000] [--samples 8000] [--kib 100] [--rounds 3] [--only TOOL]...
    scripts/torch_datasets.py FLATOUT NATIVE PYTHON --first-batch 1000000

FLATOUT is the program, NATIVE the native half of the package (target/release/lib_native.so), PYTHON an interpreter with torch 2 and
the peers (pip install s3torchconnector obstore s3fs). The origin is `flatout serve` in memory. Each run is a process of its own, the
tools in turn; samples come in random order, in batches of 64. Prints objects a second and CPU milliseconds an object of each run,
workers included, and the medians. With --first-batch: seconds from a table of so many keys to the first batch, with two workers.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

PORT = 9380
URL = f"http://127.0.0.1:{PORT}"
TOOLS = ["flatout", "s3torchconnector", "obstore", "fsspec"]

RUN = """
import json, os, resource, sys, time, warnings
warnings.simplefilter("ignore")
tool, workers, objects, samples, url, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6])
os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
keys = [f"images/{number:08}" for number in range(objects)]
def size_of(sample):
    return len(sample.data)
class Each(torch.utils.data.Dataset):
    def __len__(self):
        return len(keys)
    store = None
    def __getitem__(self, index):
        if self.store is None:
            self.store = self.opened()
        return len(self.get(keys[index]))
def cpu():
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
torch.manual_seed(7)
if tool == "flatout":
    import flatout
    from flatout.torch import KeyTable, MapDataset, ReadAhead
    client = flatout.Client(endpoint_url=url)
    since, before = time.monotonic(), cpu()
    if first:
        keys = (f"images/{number % 1000:08}" for number in range(first))
    dataset = MapDataset(KeyTable.of(((key, None) for key in keys), "s3://bench/"), transform=size_of, client=client)
    if first:
        table = time.monotonic() - since
        since = time.monotonic()
    sampler = RandomSampler(dataset, num_samples=samples)
    ahead = ReadAhead(BatchSampler(sampler, 64, False), num_workers=workers)
    loader = DataLoader(dataset, batch_sampler=ahead, num_workers=workers)
elif tool == "s3torchconnector":
    from s3torchconnector import S3ClientConfig, S3MapDataset
    config = S3ClientConfig(force_path_style=True, throughput_target_gbps=100.0)
    dataset = S3MapDataset.from_objects([f"s3://bench/{key}" for key in keys], region="us-east-1", endpoint=url, s3client_config=config, transform=lambda found: len(found.read()))
elif tool == "obstore":
    import obstore
    from obstore.store import S3Store
    class Dataset(Each):
        def opened(self):
            return S3Store("bench", endpoint=url, client_options={"allow_http": True}, skip_signature=True, virtual_hosted_style_request=False)
        def get(self, key):
            return obstore.get(self.store, key).bytes()
    dataset = Dataset()
else:
    import s3fs
    class Dataset(Each):
        def opened(self):
            return s3fs.S3FileSystem(endpoint_url=url, key="a", secret="b", skip_instance_cache=True)
        def get(self, key):
            return self.store.cat_file("bench/" + key)
    dataset = Dataset()
if tool != "flatout":
    since, before = time.monotonic(), cpu()
    loader = DataLoader(dataset, batch_size=64, sampler=RandomSampler(dataset, num_samples=samples), num_workers=workers)
found = 0
for batch in loader:
    if first:
        print(json.dumps({"table": table, "first": time.monotonic() - since}))
        sys.stdout.flush()
        os._exit(0)
    found += len(batch)
    assert int(batch[0]) == int(os.environ["BYTES"])
seconds = time.monotonic() - since
del loader
assert found == samples
print(json.dumps({"rate": found / seconds, "cpu": (cpu() - before) / found * 1000}))
"""


def run(arguments, tool, workers, folder):
    command = [arguments.python, "-c", RUN, tool, str(workers), str(arguments.objects), str(arguments.samples), URL, str(arguments.first_batch)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(folder), "BYTES": str(arguments.kib << 10)})
    if done.returncode:
        raise SystemExit(f"{tool}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def fill(arguments, folder):
    """Puts the objects there."""
    made = Path(folder) / "object"
    made.write_bytes(os.urandom(arguments.kib << 10))
    code = "import flatout, sys; flatout.Client(endpoint_url=sys.argv[1]).upload_many((sys.argv[2], f's3://bench/images/{number:08}') for number in range(int(sys.argv[3])))"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    subprocess.run([arguments.python, "-c", code, URL, made, str(arguments.objects)], check=True, env={**os.environ, **keys, "PYTHONPATH": str(folder)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("native", type=Path)
    parser.add_argument("python")
    parser.add_argument("--objects", type=int, default=20000)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--kib", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, action="append")
    parser.add_argument("--only", action="append", choices=TOOLS)
    parser.add_argument("--first-batch", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "flatout"
        package.mkdir()
        for each in (Path(__file__).resolve().parents[1] / "crates/python/python/flatout").iterdir():
            if each.suffix != ".so":
                (package / each.name).symlink_to(each)
        (package / "_native.abi3.so").symlink_to(arguments.native.resolve())
        origin = subprocess.Popen([arguments.flatout, "serve", "--memory", "--no-auth", "--listen", f"127.0.0.1:{PORT}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            subprocess.run([arguments.flatout, "mb", "s3://bench", "--endpoint-url", URL, "--no-sign-request"], check=False)
            fill(arguments, folder)
            compare(arguments, folder)
        finally:
            origin.kill()
            origin.wait()


def compare(arguments, folder):
    if arguments.first_batch:
        for _ in range(arguments.rounds):
            told = run(arguments, "flatout", 2, folder)
            print(f"{arguments.first_batch} keys: table {told['table']:.2f} s, first batch {told['first']:.2f} s behind it", flush=True)
        return
    found = {}
    for _ in range(arguments.rounds):
        for workers in arguments.workers or (0, 2, 4):
            for tool in arguments.only or TOOLS:
                told = run(arguments, tool, workers, folder)
                found.setdefault((workers, tool), []).append((told["rate"], told["cpu"]))
                print(f"{workers} workers {tool:<17} {told['rate']:7.0f} objects/s {told['cpu']:.3f} CPU ms", flush=True)
    for (workers, tool), runs in found.items():
        rate, used = (statistics.median(column) for column in zip(*runs))
        print(f"median {workers} workers {tool:<17} {rate:7.0f} objects/s {used:.3f} CPU ms an object")


if __name__ == "__main__":
    main()
