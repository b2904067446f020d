"""Flatout's Python package: an object into warm memory, the recipe of seed 000, safetensors to tensors, and files."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import flatout
import numpy

import reads
import talk


def get_memory(job):
    s3, array = client(job), numpy.frombuffer(talk.memory(job), dtype=numpy.uint8)
    return lambda: s3.readinto(url(job), array)


def loop(job):
    os.environ["OSS_BUCKET_NAME"], os.environ["OSS_BUCKET_ENDPOINT"] = job.bucket, job.endpoint
    # Its signatures name a region, which no name of an endpoint on this machine has.
    os.environ["FLATOUT_OSS_REGION"] = "cn-hangzhou"
    from flatout.compat.oss import read_remote_model

    return lambda: talk.Delivered(job).all([read_remote_model(job.key).getbuffer()])


def safetensors(job):
    import flatout.safetensors
    import torch  # What it does at the first call is no part of reading.

    s3 = client(job)

    def transfer():
        tensors = flatout.safetensors.load_file(url(job), framework="pt", client=s3)
        return talk.Delivered(job).all(tensors[name].numpy() for name in sorted(tensors))

    return transfer


def opened(job):
    s3 = client(job)
    return lambda: s3.open(url(job))


def client(job):
    given = {"parallel": job.parallel, "part_size": job.part_bytes}
    return flatout.Client(endpoint_url=job.endpoint, **{name: value for name, value in given.items() if value})


def url(job):
    return f"s3://{job.bucket}/{job.key}"


if __name__ == "__main__":
    talk.run(
        __doc__,
        {
            ("get", "memory"): get_memory,
            ("python", "loop"): loop,
            ("python", "safetensors"): safetensors,
            **reads.files(opened),
        },
    )
