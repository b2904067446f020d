"""obstore: one object by 16 threads of `get_range` into slices of warm memory, or by its stream to nowhere; many.

Not by `get_ranges`: it merges neighbours, so that the ranges of one object become one GET.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import numpy
import obstore
from obstore.store import S3Store

import talk


def get_memory(job):
    s3, memory = store(job), numpy.frombuffer(talk.memory(job), dtype=numpy.uint8)
    ranges = talk.parts(job.bytes, job.part_bytes or 8 << 20)

    def get(part):
        start, end = part
        bytes_of_part = numpy.frombuffer(obstore.get_range(s3, job.key, start=start, end=end), dtype=numpy.uint8)
        memory[start:end] = bytes_of_part
        return bytes_of_part.nbytes

    def transfer():
        with ThreadPoolExecutor(job.parallel or 16) as threads:
            return sum(threads.map(get, ranges))

    return transfer


def get_nowhere(job):
    s3 = store(job)

    def transfer():
        with open(job.check or os.devnull, "wb") as file:
            keep = file.write if job.check else len
            return sum(keep(chunk) for chunk in obstore.get(s3, job.key).stream())

    return transfer


def many_files(job):
    s3, keys = store(job), talk.keys(job)
    paths = talk.files(job, job.target)

    def get(key, path):
        with open(path, "wb") as file:
            return file.write(obstore.get(s3, key).bytes())

    return lambda: sum(talk.in_flight(get, keys, paths))


def many_nowhere(job):
    if job.check:
        job.prefix, job.target = "", job.check
        return many_files(job)
    s3, keys = store(job), talk.keys(job)
    return lambda: sum(talk.in_flight(lambda key: len(obstore.get(s3, key).bytes()), keys))


def store(job):
    # A TLS origin's authority comes by SSL_CERT_FILE: it has no option for one.
    return S3Store(
        job.bucket,
        endpoint=job.endpoint,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "10min"},
    )


if __name__ == "__main__":
    talk.run(
        __doc__,
        {
            ("get", "memory"): get_memory,
            ("get", "nowhere"): get_nowhere,
            ("many", "files"): many_files,
            ("many", "nowhere"): many_nowhere,
        },
    )
