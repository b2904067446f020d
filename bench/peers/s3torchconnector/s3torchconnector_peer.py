"""s3torchconnector: one object by its readers, into warm memory by `readinto`, or by torch.load."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from s3torchconnector import S3ClientConfig, S3ReaderConstructor
from s3torchconnector._s3client import S3Client

import reads
import talk


def get_memory(job):
    open_it, memory = opened(job), memoryview(talk.memory(job))

    def transfer():
        at = 0
        with open_it() as reader:
            while at < len(memory) and (read := reader.readinto(memory[at:])):
                at += read
        return at

    return transfer


def opened(job):
    given = {"part_size": job.part_bytes, "throughput_target_gbps": job.target_gbps}
    config = S3ClientConfig(force_path_style=True, **{name: value for name, value in given.items() if value})
    # What S3Checkpoint.reader does, which takes no constructor of readers.
    client = S3Client("us-east-1", endpoint=job.endpoint, s3client_config=config)
    constructor = getattr(S3ReaderConstructor, job.reader)()
    return lambda: client.get_object(job.bucket, job.key, reader_constructor=constructor)


if __name__ == "__main__":
    talk.run(
        __doc__,
        {("get", "memory"): get_memory, ("python", "torch"): reads.files(opened)["python", "torch"]},
        options=[("--reader", "sequential"), ("--target-gbps", 0.0)],
    )
