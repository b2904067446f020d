"""oss2: read_remote_model of Alibaba's guide to 100 Gbit/s, which loads a model into a BytesIO by threads of ranges.

There the threads seek and write in one BytesIO, of which another may run in between. Here they do that under a lock, or
write each where its part belongs (`--landing-as slices`). As there, each thread makes a bucket, and with it a connection,
of its own.
"""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import oss2

import talk

# The guide's.
PART_BYTES = 256 << 20
READ_BYTES = 2 << 20


def loop(job):
    land = {"locked": locked, "slices": slices}[job.landing_as]
    return lambda: talk.Delivered(job).all([read_remote_model(job, land).getbuffer()])


def read_remote_model(job, land):
    size = int(bucket(job).get_object_meta(job.key).headers["Content-Length"])
    parts = talk.parts(size, job.part_bytes or PART_BYTES)
    loaded, write = land(size)

    def get(part):
        start, end = part
        with bucket(job).get_object(job.key, byte_range=(start, end - 1)) as body:
            while piece := body.read(READ_BYTES):
                write(start, piece)
                start += len(piece)

    with ThreadPoolExecutor(job.parallel or len(parts)) as threads:
        # Theirs drops what a thread raises.
        list(threads.map(get, parts))
    loaded.seek(0)
    return loaded


def locked(_):
    loaded, lock = BytesIO(), threading.Lock()

    def write(at, piece):
        with lock:
            loaded.seek(at)
            loaded.write(piece)

    return loaded, write


def slices(size):
    loaded = BytesIO(bytes(size))
    memory = loaded.getbuffer()

    def write(at, piece):
        memory[at : at + len(piece)] = piece

    return loaded, write


def bucket(job):
    auth = oss2.Auth(os.environ["OSS_ACCESS_KEY_ID"], os.environ["OSS_ACCESS_KEY_SECRET"])
    return oss2.Bucket(auth, job.endpoint, job.bucket, enable_crc=False)


if __name__ == "__main__":
    talk.run(__doc__, {("python", "loop"): loop}, options=[("--landing-as", "locked")])
