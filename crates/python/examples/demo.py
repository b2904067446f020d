"""A safetensors model from an origin on this machine into memory, with a bar: `make demo-python`."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy
import safetensors.numpy

import flatout
import flatout.safetensors

TENSORS, ROWS, COLUMNS = 256, 1024, 1024


def main(program):
    with tempfile.TemporaryDirectory(prefix="flatout-demo-") as folder:
        make(pathlib.Path(folder) / "models" / "model.safetensors")
        command = [program, "serve", "--root", folder, "--no-auth", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as origin:
            try:
                load(re.search(r"http://\S+", origin.stdout.readline()).group())
            finally:
                origin.terminate()


def make(path):
    path.parent.mkdir()
    some = numpy.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=numpy.float32)
    tensors = {f"layers.{number}.weight": some + number for number in range(TENSORS)}
    safetensors.numpy.save_file(tensors, path)
    print(f"generated {path.name}: {TENSORS} tensors, {path.stat().st_size / 2**30:.1f} GiB")


def load(endpoint):
    with flatout.Client(endpoint_url=endpoint, no_sign_request=True) as client:
        begun = time.monotonic()
        model = flatout.safetensors.load_file(
            "s3://models/model.safetensors", framework="np", client=client, progress=True
        )
        took = time.monotonic() - begun
    loaded = sum(tensor.nbytes for tensor in model.values())
    print(f"{len(model)} tensors in {took:.2f} s: {loaded / took / 2**30:.2f} GiB/s, in memory that numpy shares")
    assert model["layers.7.weight"].shape == (ROWS, COLUMNS)


if __name__ == "__main__":
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    main(sys.argv[1])
