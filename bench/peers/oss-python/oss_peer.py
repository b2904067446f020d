"""The OSS Python SDK v2: one object into memory by threads of range GETs, or to a file by its downloader; many.

Into memory it is the program of Alibaba's guide to 100 Gbit/s ("Python SDK"): parts of 256 MB, a thread for each, which
reads it in pieces of 2 MB and puts them where they belong; here into memory that was touched before.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import alibabacloud_oss_v2 as oss
from alibabacloud_oss_v2.transport import RequestsHttpClient

import talk

# The guide's.
PART_BYTES = 256 << 20
READ_BYTES = 2 << 20


def get_memory(job):
    client, memory = connect(job, in_flight(job)), memoryview(talk.memory(job))
    return lambda: fill(job, client, memory)


def loop(job):
    """As a model is loaded: its size is asked for, then there is memory, and a BytesIO shows it."""

    def transfer():
        client = connect(job, in_flight(job))
        job.bytes = client.head_object(oss.HeadObjectRequest(job.bucket, job.key)).content_length
        loaded = BytesIO(bytes(job.bytes))
        fill(job, client, loaded.getbuffer())
        return talk.Delivered(job).all([loaded.getbuffer()])

    return transfer


def in_flight(job):
    return job.parallel or len(talk.parts(job.bytes, job.part_bytes or PART_BYTES))


def fill(job, client, memory):
    def get(part):
        start, end = part
        asked = oss.GetObjectRequest(job.bucket, job.key, range_header=f"bytes={start}-{end - 1}")
        at = start
        with client.get_object(asked).body as body:
            for read in body.iter_bytes(block_size=job.block_bytes or READ_BYTES):
                memory[at : at + len(read)] = read
                at += len(read)
        return at - start

    with ThreadPoolExecutor(in_flight(job)) as threads:
        return sum(threads.map(get, talk.parts(job.bytes, job.part_bytes or PART_BYTES)))


def get_file(job):
    given = {"parallel_num": job.parallel, "part_size": job.part_bytes, "block_size": job.block_bytes}
    downloader = connect(job, job.parallel or 0).downloader(**{name: value for name, value in given.items() if value})
    target = job.check or job.target
    return lambda: downloader.download_file(oss.GetObjectRequest(job.bucket, job.key), target).written


def many_files(job):
    client, keys = connect(job, talk.IN_FLIGHT), talk.keys(job)
    paths = talk.files(job, job.target)

    def get(key, path):
        client.get_object_to_file(oss.GetObjectRequest(job.bucket, key), path)
        return talk.landed(path)

    return lambda: sum(talk.in_flight(get, keys, paths))


def many_nowhere(job):
    client, keys = connect(job, talk.IN_FLIGHT), talk.keys(job)

    def read(key):
        with client.get_object(oss.GetObjectRequest(job.bucket, key)).body as body:
            return body.read()

    return talk.many_to_nowhere(job, keys, read)


def connect(job, connections):
    config = oss.config.load_default()
    config.credentials_provider = oss.credentials.EnvironmentVariableCredentialsProvider()
    config.region, config.endpoint, config.use_path_style = "cn-hangzhou", job.endpoint, True
    # Files are checked against the origin's CRC-64, computed even where the origin has none; the guide switches it off.
    config.disable_download_crc64_check = job.crc64 == "off"
    # Its pool keeps 20 connections. A TLS origin's authority comes by REQUESTS_CA_BUNDLE: it has no option for one.
    config.http_client = RequestsHttpClient(max_connections=max(20, connections))
    return oss.Client(config)


if __name__ == "__main__":
    talk.run(
        __doc__,
        {
            ("get", "memory"): get_memory,
            ("get", "file"): get_file,
            ("many", "files"): many_files,
            ("many", "nowhere"): many_nowhere,
            ("python", "loop"): loop,
        },
        options=[("--block-bytes", 0), ("--crc64", "on")],
    )
