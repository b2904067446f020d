"""boto3: one object to a file (`download_file`) or into memory (`download_fileobj`); many by threads of `get_object`.

Its managed transfers ask for the size first (HEAD), then get parts by threads. Many small objects do without: one
client, which may be shared by threads, and one GET an object.
"""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

import talk


def get_file(job):
    s3, config = client(job, job.parallel), transfer_config(job)

    def transfer():
        s3.download_file(job.bucket, job.key, job.check or job.target, Config=config)
        return talk.landed(job.check or job.target)

    return transfer


def get_memory(job):
    # What it downloads to must seek and write, which memory that is mapped can.
    s3, config, memory = client(job, job.parallel), transfer_config(job), talk.memory(job)
    delivered = []

    def transfer():
        s3.download_fileobj(job.bucket, job.key, memory, Config=config, Callback=delivered.append)
        return sum(delivered)

    return transfer


def many_files(job):
    s3, keys = client(job, talk.IN_FLIGHT), talk.keys(job)
    paths = talk.files(job, job.target)

    def get(key, path):
        body = s3.get_object(Bucket=job.bucket, Key=key)["Body"].read()
        with open(path, "wb") as file:
            return file.write(body)

    return lambda: sum(talk.in_flight(get, keys, paths))


def many_nowhere(job):
    s3, keys = client(job, talk.IN_FLIGHT), talk.keys(job)
    return talk.many_to_nowhere(job, keys, lambda key: s3.get_object(Bucket=job.bucket, Key=key)["Body"].read())


def client(job, connections):
    # Its pool holds 10 connections; with more threads than that it would close what they open.
    config = Config(s3={"addressing_style": "path"}, max_pool_connections=max(10, connections or 0))
    return boto3.client("s3", endpoint_url=job.endpoint, verify=job.ca, config=config)


def transfer_config(job):
    given = {
        "max_concurrency": job.parallel,
        "multipart_chunksize": job.part_bytes,
        "multipart_threshold": job.part_bytes,
        "io_chunksize": job.io_bytes,
    }
    return TransferConfig(**{name: value for name, value in given.items() if value})


if __name__ == "__main__":
    talk.run(
        __doc__,
        {
            ("get", "file"): get_file,
            ("get", "memory"): get_memory,
            ("many", "files"): many_files,
            ("many", "nowhere"): many_nowhere,
        },
        options=[("--io-bytes", 0)],
    )
