"""s3fs: its file objects, and for a column of a table what fsspec has for that."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import s3fs

import reads
import talk


def opened(job):
    given = {"cache_type": job.cache, "block_size": job.part_bytes}
    options = {name: value for name, value in given.items() if value}
    # A listing that it keeps would answer for what is asked again; each run is a process of its own.
    fs = s3fs.S3FileSystem(endpoint_url=job.endpoint, config_kwargs={"s3": {"addressing_style": "path"}})
    return lambda: fs.open(f"{job.bucket}/{job.key}", "rb", **options)


if __name__ == "__main__":
    talk.run(__doc__, reads.files(opened), options=[("--cache", "")])
