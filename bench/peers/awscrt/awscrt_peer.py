"""The AWS CRT for Python: one object to a file, or from one, by s3transfer's CRT manager, or to nowhere by its own client; many.

A file the C library reads and writes itself; to nowhere it calls `on_body` with each part, which drops it. In both, it decides
how many connections there are by the throughput that it is told to aim at.
"""

import os
import sys
import threading
from urllib.parse import quote, urlsplit

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import botocore.config
import botocore.session
from awscrt import auth, http, s3
from s3transfer.crt import BotocoreCRTRequestSerializer, CRTTransferManager, create_s3_crt_client
from s3transfer.manager import TransferConfig

import talk

REGION = "us-east-1"
# As s3transfer asks for every download.
VERIFIED = s3.S3ChecksumConfig(validate_response=True)


def get_file(job):
    manager, target = transfer_manager(job), job.check or job.target

    def transfer():
        # Its end waits for the last step, the temporary file's new name; `result` does not.
        with manager:
            manager.download(job.bucket, job.key, target).result()
        return talk.landed(target)

    return transfer


def put_file(job):
    manager = transfer_manager(job)

    def transfer():
        with manager:
            manager.upload(job.source, job.bucket, job.key).result()
        return os.stat(job.source).st_size

    return transfer


def many_files(job):
    manager, keys = transfer_manager(job), talk.keys(job)
    paths = talk.files(job, job.target)

    def transfer():
        # The manager itself lets no more than 128 be in flight.
        with manager:
            for future in [manager.download(job.bucket, key, path) for key, path in zip(keys, paths)]:
                future.result()
        return talk.landed(*paths)

    return transfer


def get_nowhere(job):
    client = crt_client(job)
    return lambda: drop(client, job, [job.key], [job.check])


def many_nowhere(job):
    client, keys = crt_client(job), talk.keys(job)
    kept = talk.files(job, job.check) if job.check else [None] * len(keys)
    return lambda: drop(client, job, keys, kept)


def drop(client, job, keys, kept):
    """Gets each key, no more than so many at a time; returns the bytes of all that `on_body` was given."""
    free, delivered = threading.Semaphore(talk.IN_FLIGHT), []

    def count(chunk, **_):
        delivered.append(len(chunk))

    def keep_in(path):
        def keep(chunk, offset, **_):
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            delivered.append(os.pwrite(file, chunk, offset))
            os.close(file)

        return keep

    requests = []
    for key, path in zip(keys, kept):
        free.acquire()
        requests.append(
            client.make_request(
                type=s3.S3RequestType.GET_OBJECT,
                request=get_request(job, key),
                max_active_connections_override=job.parallel,
                checksum_config=VERIFIED,
                on_body=keep_in(path) if path else count,
                on_done=lambda **_: free.release(),
            )
        )
    for request in requests:
        request.finished_future.result()
    return sum(delivered)


def get_request(job, key):
    headers = http.HttpHeaders([("host", urlsplit(job.endpoint).netloc)])
    return http.HttpRequest("GET", f"/{job.bucket}/{quote(key)}", headers)


def transfer_manager(job):
    config = botocore.config.Config(s3={"addressing_style": "path"})
    serializer = BotocoreCRTRequestSerializer(
        botocore.session.get_session(),
        {"region_name": REGION, "endpoint_url": job.endpoint, "verify": job.ca, "config": config},
    )
    given = {"max_request_concurrency": job.parallel, "multipart_chunksize": job.part_bytes}
    config = TransferConfig(**{name: value for name, value in given.items() if value})
    return CRTTransferManager(crt_client(job), serializer, config=config)


def crt_client(job):
    given = {
        "target_throughput": job.target_gbps * 1_000_000_000 / 8,
        "part_size": job.part_bytes,
        "num_threads": job.event_loops,
        "verify": job.ca,
    }
    return create_s3_crt_client(
        REGION,
        auth.AwsCredentialsProvider.new_environment(),
        use_ssl=job.endpoint.startswith("https:"),
        **{name: value for name, value in given.items() if value},
    )


if __name__ == "__main__":
    talk.run(
        __doc__,
        {
            ("get", "file"): get_file,
            ("get", "nowhere"): get_nowhere,
            ("put", "file"): put_file,
            ("many", "files"): many_files,
            ("many", "nowhere"): many_nowhere,
        },
        options=[("--target-gbps", 0.0), ("--event-loops", 0)],
    )
