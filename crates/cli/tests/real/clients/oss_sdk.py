"""The OSS Python SDK v2 as a client of `flatout serve`.

    oss_sdk.py ENDPOINT v4|v1 all BUCKET       every operation, compared with what it must bring
    oss_sdk.py ENDPOINT v4|v1 list BUCKET      one listing
    oss_sdk.py ENDPOINT v4|v1 skewed BUCKET    the same, by a clock that is 20 minutes ahead
    oss_sdk.py ENDPOINT v4|v1 read|write BUCKET KEY FILE     metadata on standard output; written with colour=blue

Keys come from OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET. A refusal is one line on standard error, exit code 1.
"""

import datetime
import io
import sys
import tempfile
import urllib.request

import alibabacloud_oss_v2 as oss
from alibabacloud_oss_v2 import exceptions
from alibabacloud_oss_v2.signer import SignerV1, SignerV4

KEY = "folder/a b+ü%1"
BODY = bytes(range(251)) * 4000


class WrongClock:
    """Signs as a machine would whose clock is ahead; what the SDK learns of the difference still counts."""

    def __init__(self, signer):
        self.signer = signer

    def sign(self, context):
        now = datetime.datetime.now(datetime.timezone.utc)
        off = datetime.timedelta(minutes=20, seconds=context.clock_offset or 0)
        context.signing_time = now + off
        self.signer.sign(context)


def client(endpoint, version, skewed=False):
    config = oss.config.load_default()
    config.credentials_provider = oss.credentials.EnvironmentVariableCredentialsProvider()
    config.region, config.endpoint = "cn-hangzhou", endpoint
    config.signature_version, config.use_path_style = version, True
    if skewed:
        config.retry_max_attempts = 1
        return oss.Client(config, signer=WrongClock(SignerV1() if version == "v1" else SignerV4()))
    return oss.Client(config)


def everything(oss_client, bucket):
    objects(oss_client, bucket)
    ranges(oss_client, bucket)
    appends(oss_client, bucket)
    parts(oss_client, bucket)
    transfers(oss_client, bucket)
    lists(oss_client, bucket)


def objects(oss_client, bucket):
    put = oss_client.put_object(oss.PutObjectRequest(bucket, KEY, body=BODY, metadata={"colour": "blue"}))
    got = oss_client.get_object(oss.GetObjectRequest(bucket, KEY))
    assert got.body.read() == BODY
    head = oss_client.head_object(oss.HeadObjectRequest(bucket, KEY))
    assert (head.content_length, head.metadata["colour"], head.object_type) == (len(BODY), "blue", "Normal")
    assert put.hash_crc64 == got.hash_crc64 == head.hash_crc64 and put.etag == head.etag
    meta = oss_client.get_object_meta(oss.GetObjectMetaRequest(bucket, KEY))
    assert (meta.content_length, meta.hash_crc64) == (len(BODY), put.hash_crc64)
    url = oss_client.presign(oss.GetObjectRequest(bucket, KEY)).url
    assert urllib.request.urlopen(url).read() == BODY
    assert oss_client.is_object_exist(bucket, KEY) and not oss_client.is_object_exist(bucket, "not there")
    refused("PreconditionFailed", oss_client.get_object, oss.GetObjectRequest(bucket, KEY, if_match='"other"'))
    copied = oss_client.copy_object(oss.CopyObjectRequest(bucket, "copy", source_bucket=bucket, source_key=KEY))
    assert copied.hash_crc64 == put.hash_crc64


def ranges(oss_client, bucket):
    def get(header, behaviour):
        request = oss.GetObjectRequest(bucket, KEY, range_header=header, range_behavior=behaviour)
        result = oss_client.get_object(request)
        return result.status_code, result.body.read()

    beyond = f"bytes={len(BODY)}-{len(BODY) + 5}"
    assert get("bytes=5-9", None) == (206, BODY[5:10])
    assert get("bytes=9-99999999", "standard") == (206, BODY[9:])
    # The whole object, as OSS has always answered a range that does not lie within it.
    assert get("bytes=9-99999999", None) == (200, BODY)
    assert get(beyond, None) == (200, BODY)
    refused("InvalidRange", get, beyond, "standard")


def appends(oss_client, bucket):
    first = oss_client.append_object(oss.AppendObjectRequest(bucket, "log", position=0, body=BODY[:1000]))
    assert first.next_position == 1000
    request = oss.AppendObjectRequest(bucket, "log", position=1000, body=BODY[1000:])
    second = oss_client.append_object(request)
    assert second.next_position == len(BODY)
    refused("PositionNotEqualToLength", oss_client.append_object, request)
    refused(
        "ObjectNotAppendable", oss_client.append_object, oss.AppendObjectRequest(bucket, KEY, position=0, body=b"x")
    )
    got = oss_client.get_object(oss.GetObjectRequest(bucket, "log"))
    assert got.body.read() == BODY and got.object_type == "Appendable"
    whole = oss_client.head_object(oss.HeadObjectRequest(bucket, KEY)).hash_crc64
    assert got.hash_crc64 == second.hash_crc64 == whole


def parts(oss_client, bucket):
    size = 300_000
    begun = oss_client.initiate_multipart_upload(oss.InitiateMultipartUploadRequest(bucket, "parts"))
    named = []
    for number, at in enumerate(range(0, len(BODY), size), 1):
        request = oss.UploadPartRequest(
            bucket, "parts", part_number=number, upload_id=begun.upload_id, body=BODY[at : at + size]
        )
        named.append(oss.UploadPart(part_number=number, etag=oss_client.upload_part(request).etag))
    listed = oss_client.list_parts(oss.ListPartsRequest(bucket, "parts", upload_id=begun.upload_id))
    assert [(part.part_number, part.etag) for part in listed.parts] == [(p.part_number, p.etag) for p in named]
    uploads = oss_client.list_multipart_uploads(oss.ListMultipartUploadsRequest(bucket)).uploads
    assert [upload.upload_id for upload in uploads] == [begun.upload_id]
    done = oss_client.complete_multipart_upload(
        oss.CompleteMultipartUploadRequest(
            bucket,
            "parts",
            upload_id=begun.upload_id,
            complete_multipart_upload=oss.CompleteMultipartUpload(parts=named),
        )
    )
    got = oss_client.get_object(oss.GetObjectRequest(bucket, "parts"))
    assert got.body.read() == BODY and got.hash_crc64 == done.hash_crc64 and got.object_type == "Multipart"
    begun = oss_client.initiate_multipart_upload(oss.InitiateMultipartUploadRequest(bucket, "parts"))
    abort = oss.AbortMultipartUploadRequest(bucket, "parts", upload_id=begun.upload_id)
    oss_client.abort_multipart_upload(abort)
    refused("NoSuchUpload", oss_client.abort_multipart_upload, abort)


def transfers(oss_client, bucket):
    uploader = oss_client.uploader(part_size=200_000, parallel_num=3)
    uploader.upload_from(oss.PutObjectRequest(bucket, "uploaded"), reader=io.BytesIO(BODY))
    with tempfile.NamedTemporaryFile() as target:
        downloader = oss_client.downloader(part_size=150_000, parallel_num=3)
        downloader.download_file(oss.GetObjectRequest(bucket, "uploaded"), target.name)
        assert open(target.name, "rb").read() == BODY
    opened = oss_client.open_file(bucket, "uploaded", enable_prefetch=True, chunk_size=100_000, prefetch_threshold=0)
    assert opened.read() == BODY


def lists(oss_client, bucket):
    every = ["copy", KEY, "log", "parts", "uploaded"]
    pages = oss_client.list_objects_v2_paginator().iter_page(oss.ListObjectsV2Request(bucket, max_keys=2))
    assert [found.key for page in pages for found in page.contents] == every
    page = oss_client.list_objects_v2(oss.ListObjectsV2Request(bucket, delimiter="/", prefix="f"))
    assert [prefix.prefix for prefix in page.common_prefixes] == ["folder/"]
    assert bucket in [found.name for found in oss_client.list_buckets(oss.ListBucketsRequest()).buckets]
    assert oss_client.get_bucket_info(oss.GetBucketInfoRequest(bucket)).bucket_info.name == bucket
    oss_client.delete_object(oss.DeleteObjectRequest(bucket, "copy"))
    objects_left = [oss.DeleteObject(key=key) for key in every[1:]]
    oss_client.delete_multiple_objects(oss.DeleteMultipleObjectsRequest(bucket, objects=objects_left))
    assert not oss_client.list_objects(oss.ListObjectsRequest(bucket)).contents


def read(oss_client, bucket, key, file):
    got = oss_client.get_object(oss.GetObjectRequest(bucket, key))
    with open(file, "wb") as target:
        target.write(got.body.read())
    print(got.content_type, got.cache_control, got.metadata, got.hash_crc64)


def write(oss_client, bucket, key, file):
    uploader = oss_client.uploader(part_size=1 << 20, parallel_num=3)
    described = {"content_type": "a/b", "cache_control": "max-age=3", "metadata": {"colour": "blue"}}
    uploader.upload_file(oss.PutObjectRequest(bucket, key, **described), file)


def refused(code, call, *arguments):
    try:
        call(*arguments)
    except exceptions.OperationError as error:
        found = error.unwrap()
        assert isinstance(found, exceptions.ServiceError) and found.code == code, error
    else:
        raise AssertionError(f"{code} was expected")


def main(endpoint, version, command, bucket, *more):
    try:
        oss_client = client(endpoint, version, skewed=command == "skewed")
        if command == "all":
            everything(oss_client, bucket)
        elif command == "read":
            read(oss_client, bucket, *more)
        elif command == "write":
            write(oss_client, bucket, *more)
        else:
            oss_client.list_objects_v2(oss.ListObjectsV2Request(bucket))
    except exceptions.OperationError as error:
        refusal = error.unwrap()
        if not isinstance(refusal, exceptions.ServiceError):
            raise
        sys.exit(f"{refusal.status_code} {refusal.code}")
    print("done")


main(*sys.argv[1:])
