"""obstore: one object by threads of `get_range` into slices of warm memory or to nowhere, or by its stream; many; files.

Not by `get_ranges`: it merges neighbours, so that the ranges of one object become one GET.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import numpy
import obstore
from obstore.store import S3Store

import reads
import talk


def get_memory(job):
    memory = numpy.frombuffer(talk.memory(job), dtype=numpy.uint8)

    def keep(start, part):
        memory[start : start + part.nbytes] = part

    return by_ranges(job, keep)


def by_ranges(job, keep):
    """A thread for each range in flight; `keep` gets where a part starts, and its bytes."""
    s3 = store(job)

    def get(part):
        start, end = part
        got = numpy.frombuffer(obstore.get_range(s3, job.key, start=start, end=end), dtype=numpy.uint8)
        keep(start, got)
        return got.nbytes

    def transfer():
        with ThreadPoolExecutor(job.parallel or 16) as threads:
            return sum(threads.map(get, talk.parts(job.bytes, job.part_bytes or 8 << 20)))

    return transfer


def get_nowhere(job):
    return ranges_to_nowhere(job) if job.parallel else stream_to_nowhere(job)


def ranges_to_nowhere(job):
    if not job.check:
        return by_ranges(job, lambda start, part: None)
    file = os.open(job.check, os.O_WRONLY | os.O_CREAT, 0o644)
    return by_ranges(job, lambda start, part: os.pwrite(file, part, start))


def stream_to_nowhere(job):
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
    s3, keys = store(job), talk.keys(job)
    return talk.many_to_nowhere(job, keys, lambda key: obstore.get(s3, key).bytes())


def opened(job):
    if job.opens == "fsspec":
        from obstore.fsspec import FsspecStore

        options = {"allow_http": True, "timeout": "10min"}
        fs = FsspecStore("s3", endpoint=job.endpoint, virtual_hosted_style_request=False, client_options=options)
        return lambda: fs.open(f"{job.bucket}/{job.key}", "rb")
    s3 = store(job)
    return lambda: File(obstore.open_reader(s3, job.key))


class File:
    """Its reader as programs want a file: with `with`, with `closed`, and with bytes, which its own are not."""

    closed = False

    def __init__(self, reader):
        self.reader = reader

    def read(self, size=-1):
        return bytes(self.reader.read(size)) if size >= 0 else bytes(self.reader.read())

    def __getattr__(self, name):
        return getattr(self.reader, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


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
            **reads.files(opened),
        },
        options=[("--opens", "reader")],
    )
