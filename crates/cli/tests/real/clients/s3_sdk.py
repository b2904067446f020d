"""boto3 as a client of `flatout serve` in the dialect of S3.

    s3_sdk.py ENDPOINT all|list|sink BUCKET
    s3_sdk.py ENDPOINT read|write BUCKET KEY FILE     metadata on standard output; written with colour=blue

Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. A refusal is one line on standard error, exit code 1.
"""

import io
import sys
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

KEY = "folder/a b+ü%1"
BODY = bytes(range(251)) * 50_000


def everything(s3, bucket):
    put = s3.put_object(Bucket=bucket, Key=KEY, Body=BODY, Metadata={"colour": "blue"})
    got = s3.get_object(Bucket=bucket, Key=KEY)
    # botocore verifies the checksum that the answer states while it reads.
    assert got["Body"].read() == BODY and got["ETag"] == put["ETag"] and got["Metadata"] == {"colour": "blue"}
    got = s3.get_object(Bucket=bucket, Key=KEY, Range="bytes=5-9")
    assert got["Body"].read() == BODY[5:10]
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": KEY}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == BODY

    parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=3)
    s3.upload_fileobj(io.BytesIO(BODY), bucket, "parts", Config=parts)
    target = io.BytesIO()
    s3.download_fileobj(bucket, "parts", target, Config=parts)
    assert target.getvalue() == BODY

    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 1})
    assert [found["Key"] for page in pages for found in page["Contents"]] == [KEY, "parts"]
    for condition, code in [({"IfMatch": '"other"'}, "PreconditionFailed"), ({"Range": "bytes=99999999-"}, "InvalidRange")]:
        try:
            s3.get_object(Bucket=bucket, Key=KEY, **condition)
        except ClientError as error:
            assert error.response["Error"]["Code"] == code, error
        else:
            raise AssertionError(f"{code} was expected")
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": KEY}, {"Key": "parts"}]})
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def to_a_sink(s3, bucket):
    """All but the bytes comes back."""
    s3.create_bucket(Bucket=bucket)
    put = s3.put_object(Bucket=bucket, Key=KEY, Body=BODY, Metadata={"colour": "blue"}, ContentType="x/y")
    head = s3.head_object(Bucket=bucket, Key=KEY, ChecksumMode="ENABLED")
    assert head["ContentLength"] == len(BODY) and head["ETag"] == put["ETag"], head
    assert head["Metadata"] == {"colour": "blue"} and head["ContentType"] == "x/y", head
    assert head["ChecksumCRC32"] == put["ChecksumCRC32"], head
    parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=3)
    s3.upload_fileobj(io.BytesIO(BODY), bucket, "parts", Config=parts)
    about = s3.get_object_attributes(
        Bucket=bucket, Key="parts", ObjectAttributes=["ETag", "ObjectSize", "ObjectParts", "Checksum"]
    )
    assert about["ObjectSize"] == len(BODY) and about["ObjectParts"]["TotalPartsCount"] == 3, about
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert [(one["Key"], one["Size"], one["ETag"]) for one in listed] == [
        (KEY, len(BODY), put["ETag"]),
        ("parts", len(BODY), f'"{about["ETag"]}"'),
    ], listed
    try:
        s3.get_object(Bucket=bucket, Key=KEY)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 501, error
    else:
        raise AssertionError("a sink has no bytes")
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": KEY}, {"Key": "parts"}]})
    s3.delete_bucket(Bucket=bucket)


def read(s3, bucket, key, file):
    got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    with open(file, "wb") as target:
        target.write(got["Body"].read())
    print(got["ContentType"], got["CacheControl"], got["Metadata"], got.get("ChecksumCRC64NVME"))


def write(s3, bucket, key, file):
    described = {"ContentType": "a/b", "CacheControl": "max-age=3", "Metadata": {"colour": "blue"}}
    parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=3)
    s3.upload_file(file, bucket, key, ExtraArgs=described, Config=parts)


def main(endpoint, command, bucket, *more):
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, signature_version="s3v4")
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)
    try:
        if command == "all":
            everything(s3, bucket)
        elif command == "sink":
            to_a_sink(s3, bucket)
        elif command == "read":
            read(s3, bucket, *more)
        elif command == "write":
            write(s3, bucket, *more)
        else:
            s3.list_objects_v2(Bucket=bucket)
    except ClientError as error:
        sys.exit(f"{error.response['ResponseMetadata']['HTTPStatusCode']} {error.response['Error']['Code']}")
    print("done")


main(*sys.argv[1:])
