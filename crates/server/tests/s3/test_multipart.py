"""Uploads in parts: made, copied, completed, listed and aborted; objects asked for by part."""

import pytest

from support import MIB, PART_BYTES, Upload, body, data, etag_of_parts, md5, put_all, refused, status, upload


def check(s3, bucket, key, content):
    assert md5(body(s3, bucket, key)) == md5(content)


def test_multipart_upload_empty(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    refused(begun.complete, 400, "MalformedXML", "InvalidRequest")


def test_multipart_upload_small(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(b"a")
    answer = begun.complete()
    assert answer["ETag"] == etag_of_parts([b"a"])
    check(s3, bucket, "mymultipart", b"a")
    # A client that lost the answer asks again.
    assert begun.complete()["ETag"] == answer["ETag"]


def test_multipart_upload_complete_without_create(s3, bucket):
    refused(
        s3.complete_multipart_upload,
        404,
        "NoSuchUpload",
        Bucket=bucket,
        Key="key",
        UploadId="NONEXISTENT",
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": "abc"}]},
    )


def test_multipart_upload(s3, bucket):
    content = data(30 * MIB)
    asked = {"Metadata": {"foo": "bar"}, "ContentType": "text/bla", "StorageClass": "STANDARD_IA", "Tagging": "a=b"}
    answers = [upload(s3, bucket, "mymultipart", content, **asked)]
    parts = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    found = s3.get_object(Bucket=bucket, Key="mymultipart")
    assert found["ETag"] == answers[0]["ETag"] == etag_of_parts(parts)
    assert (found["Metadata"], found["ContentType"], found["StorageClass"]) == ({"foo": "bar"}, "text/bla", "STANDARD_IA")
    assert s3.get_object_tagging(Bucket=bucket, Key="mymultipart")["TagSet"] == [{"Key": "a", "Value": "b"}]
    assert md5(found["Body"].read()) == md5(content)
    middle = s3.get_object(Bucket=bucket, Key="mymultipart", Range=f"bytes={PART_BYTES - 5}-{PART_BYTES + 4}")
    assert middle["Body"].read() == content[PART_BYTES - 5 : PART_BYTES + 5]


def test_multipart_complete_again(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    content = [data(PART_BYTES, 1), data(100, 2)]
    for piece in content:
        begun.put(piece)
    first = begun.complete()
    second = begun.complete()
    assert (first["ETag"], first["Location"]) == (second["ETag"], second["Location"])
    refused(begun.complete, 400, "InvalidPart", parts=begun.parts[:1])
    check(s3, bucket, "mymultipart", b"".join(content))
    s3.put_object(Bucket=bucket, Key="mymultipart", Body=b"another")
    refused(begun.complete, 404, "NoSuchUpload")


SIZES = [
    [5 * MIB],
    [5 * MIB, 100 * 1024],
    [5 * MIB, 600 * 1024],
    [5 * MIB, 5 * MIB],
    [5 * MIB, 5 * MIB, 100 * 1024],
    [10 * MIB],
    [10 * MIB, 600 * 1024],
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(str(size) for size in sizes))
def test_multipart_upload_multiple_sizes(s3, bucket, sizes):
    begun = Upload(s3, bucket, "mymultipart")
    parts = [data(size, number) for number, size in enumerate(sizes)]
    for part in parts:
        begun.put(part)
    assert begun.complete()["ETag"] == etag_of_parts(parts)
    check(s3, bucket, "mymultipart", b"".join(parts))


def test_multipart_upload_resend_part(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(data(PART_BYTES, 1))
    begun.put(data(PART_BYTES, 2))
    begun.put(data(PART_BYTES, 3), number=1)
    begun.put(data(PART_BYTES, 1), number=1)
    begun.parts.sort(key=lambda part: part["PartNumber"])
    begun.complete()
    check(s3, bucket, "mymultipart", data(PART_BYTES, 1) + data(PART_BYTES, 2))


def test_multipart_resend_first_finishes_last(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    for content in (b"A" * 1000, b"B" * 2000, b"A" * 1000):
        begun.put(content, number=1)
    begun.complete()
    check(s3, bucket, "mymultipart", b"A" * 1000)


def test_multipart_upload_size_too_small(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(data(100 * 1024))
    begun.put(data(10))
    refused(begun.complete, 400, "EntityTooSmall")


def test_multipart_upload_contents(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    parts = [bytes([65 + number]) * (5 * MIB) for number in range(3)] + [b"last"]
    for part in parts:
        begun.put(part)
    begun.complete()
    content = body(s3, bucket, "mymultipart")
    assert md5(content) == md5(b"".join(parts))
    assert s3.head_object(Bucket=bucket, Key="mymultipart")["ContentLength"] == 15 * MIB + 4


def test_multipart_upload_overwrite_existing_object(s3, bucket):
    s3.put_object(Bucket=bucket, Key="mymultipart", Body=data(100))
    upload(s3, bucket, "mymultipart", data(6 * MIB, 2))
    check(s3, bucket, "mymultipart", data(6 * MIB, 2))


def test_atomic_multipart_upload_write(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")
    begun = Upload(s3, bucket, "foo")
    begun.put(b"other")
    assert body(s3, bucket, "foo") == b"bar"
    begun.abort()
    assert body(s3, bucket, "foo") == b"bar"


def test_abort_multipart_upload(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(data(100))
    assert status(begun.abort()) == 204
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    refused(begun.complete, 404, "NoSuchUpload")
    refused(s3.head_object, 404, Bucket=bucket, Key="mymultipart")


def test_abort_multipart_upload_not_found(s3, bucket):
    refused(s3.abort_multipart_upload, 404, "NoSuchUpload", Bucket=bucket, Key="mymultipart", UploadId="56788")


def test_list_multipart_upload(s3, bucket):
    begun = [Upload(s3, bucket, key) for key in ("mymultipart", "mymultipart", "mymultipart2")]
    found = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert sorted((entry["Key"], entry["UploadId"]) for entry in found) == sorted((one.at["Key"], one.id) for one in begun)
    first = s3.list_multipart_uploads(Bucket=bucket, MaxUploads=2)
    assert (len(first["Uploads"]), first["IsTruncated"]) == (2, True)
    second = s3.list_multipart_uploads(
        Bucket=bucket, KeyMarker=first["NextKeyMarker"], UploadIdMarker=first["NextUploadIdMarker"]
    )
    assert [entry["Key"] for entry in second["Uploads"]] == ["mymultipart2"]
    for one in begun:
        one.abort()


def test_list_multipart_upload_owner(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    entry = s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]
    assert entry["Owner"]["ID"] == entry["Initiator"]["ID"] == s3.get_bucket_acl(Bucket=bucket)["Owner"]["ID"]
    begun.abort()


def test_list_parts(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    for number in (1, 2, 4):
        begun.put(data(100, number), number=number)
    asked = {**begun.at, "UploadId": begun.id}
    first = s3.list_parts(**asked, MaxParts=2)
    assert [part["PartNumber"] for part in first["Parts"]] == [1, 2]
    assert (first["IsTruncated"], first["NextPartNumberMarker"]) == (True, 2)
    second = s3.list_parts(**asked, PartNumberMarker=2)
    assert [(part["PartNumber"], part["Size"]) for part in second["Parts"]] == [(4, 100)]
    assert second["Parts"][0]["ETag"] == f'"{md5(data(100, 4))}"'


def test_multipart_upload_missing_part(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    answer = begun.put(b"\x00")
    refused(begun.complete, 400, "InvalidPart", parts=[{"ETag": answer["ETag"], "PartNumber": 9999}])


def test_multipart_upload_incorrect_etag(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(b"\x00")
    wrong = "ffffffffffffffffffffffffffffffff"
    refused(begun.complete, 400, "InvalidPart", parts=[{"ETag": wrong, "PartNumber": 1}])


def test_multipart_upload_wrong_order(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(data(PART_BYTES))
    begun.put(data(PART_BYTES))
    refused(begun.complete, 400, "InvalidPartOrder", parts=begun.parts[::-1])


def test_multipart_part_number_out_of_range(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    for number in (-1, 10_001):
        refused(begun.put, 400, "InvalidArgument", content=b"x", number=number)


# Parts that are copied


def copied(s3, bucket, source, key, size, source_bucket=None, **asked):
    begun = Upload(s3, bucket, key)
    for start in range(0, size, PART_BYTES):
        end = min(start + PART_BYTES, size) - 1
        begun.copy({"Bucket": source_bucket or bucket, "Key": source}, CopySourceRange=f"bytes={start}-{end}", **asked)
    begun.complete()


def test_multipart_copy_small(s3, bucket, new_bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")
    other = new_bucket()
    begun = Upload(s3, other, "mymultipart")
    begun.copy({"Bucket": bucket, "Key": "foo"}, CopySourceRange="bytes=0-0")
    begun.complete()
    assert body(s3, other, "mymultipart") == b"f"


@pytest.mark.parametrize("size", [5 * MIB, 5 * MIB + 1, 10 * MIB, 10 * MIB + 600 * 1024])
def test_multipart_copy_multiple_sizes(s3, bucket, size):
    content = data(12 * MIB)
    s3.put_object(Bucket=bucket, Key="foo", Body=content)
    copied(s3, bucket, "foo", "mymultipart", size)
    check(s3, bucket, "mymultipart", content[:size])


def test_multipart_copy_without_range(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=data(10))
    begun = Upload(s3, bucket, "mymultipart")
    begun.copy({"Bucket": bucket, "Key": "foo"})
    begun.complete()
    assert body(s3, bucket, "mymultipart") == data(10)


def test_multipart_copy_invalid_range(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=data(5))
    begun = Upload(s3, bucket, "mymultipart")
    source = {"Bucket": bucket, "Key": "foo"}
    refused(begun.copy, 400, "InvalidArgument", "InvalidRange", source=source, CopySourceRange="bytes=0-21")


IMPROPER = ["0-2", "bytes=0", "bytes=hello-world", "bytes=0-bar", "bytes=hello-", "bytes=0-2,3-5", "bytes=2-1"]


@pytest.mark.parametrize("asked", IMPROPER)
def test_multipart_copy_improper_range(s3, bucket, asked):
    s3.put_object(Bucket=bucket, Key="foo", Body=data(5))
    begun = Upload(s3, bucket, "mymultipart")
    refused(begun.copy, 400, "InvalidArgument", source={"Bucket": bucket, "Key": "foo"}, CopySourceRange=asked)


@pytest.mark.parametrize("name", [" ", "_", "__", "?versionId", "a+b", "ü", "100%"])
def test_multipart_copy_special_names(s3, bucket, name):
    s3.put_object(Bucket=bucket, Key=name, Body=data(10))
    begun = Upload(s3, bucket, "mymultipart")
    begun.copy({"Bucket": bucket, "Key": name})
    begun.complete()
    assert body(s3, bucket, "mymultipart") == data(10)


def test_upload_part_copy_percent_encoded_key(s3, bucket):
    put_all(s3, bucket, ["anyfilename%25.txt", "anyfilename%.txt"])
    # boto3 encodes it.
    for key, source in (("a", "anyfilename%25.txt"), ("b", "anyfilename%.txt")):
        begun = Upload(s3, bucket, key)
        begun.copy(f"{bucket}/{source}")
        begun.complete()
    assert body(s3, bucket, "a") == b"anyfilename%25.txt"
    assert body(s3, bucket, "b") == b"anyfilename%.txt"


def test_multipart_copy_source_not_there(s3, bucket):
    begun = Upload(s3, bucket, "mymultipart")
    refused(begun.copy, 404, "NoSuchKey", source={"Bucket": bucket, "Key": "none"})
    refused(begun.copy, 404, "NoSuchBucket", source={"Bucket": "no-such-bucket-here", "Key": "none"})


def test_multipart_copy_to_no_upload(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=data(10))
    asked = {"Bucket": bucket, "Key": "k", "UploadId": "none", "PartNumber": 1, "CopySource": f"{bucket}/foo"}
    refused(s3.upload_part_copy, 404, "NoSuchUpload", **asked)


def test_multipart_copy_mixed_with_parts_that_are_sent(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=data(6 * MIB, 1))
    begun = Upload(s3, bucket, "mymultipart")
    begun.put(data(PART_BYTES, 2))
    begun.copy({"Bucket": bucket, "Key": "foo"})
    begun.put(b"end")
    assert begun.complete()["ETag"] == etag_of_parts([data(PART_BYTES, 2), data(6 * MIB, 1), b"end"])
    check(s3, bucket, "mymultipart", data(PART_BYTES, 2) + data(6 * MIB, 1) + b"end")


def test_copy_by_the_transfer_manager(s3, bucket):
    from boto3.s3.transfer import TransferConfig

    s3.put_object(Bucket=bucket, Key="foo", Body=data(20 * MIB))
    settings = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    s3.copy({"Bucket": bucket, "Key": "foo"}, bucket, "bar", Config=settings)
    check(s3, bucket, "bar", data(20 * MIB))


# Objects by part


@pytest.mark.parametrize("call", ["get_object", "head_object"])
def test_multipart_get_part(s3, bucket, call):
    content = data(11 * MIB)
    etag = upload(s3, bucket, "mymultipart", content)["ETag"]
    for number, (start, end) in enumerate([(0, 5), (5, 10), (10, 11)], 1):
        answer = getattr(s3, call)(Bucket=bucket, Key="mymultipart", PartNumber=number)
        assert (answer["PartsCount"], answer["ETag"], answer["ContentLength"]) == (3, etag, (end - start) * MIB)
        if call == "get_object":
            assert status(answer) == 206
            assert answer["ContentRange"] == f"bytes {start * MIB}-{end * MIB - 1}/{11 * MIB}"
            assert md5(answer["Body"].read()) == md5(content[start * MIB : end * MIB])
    refused(getattr(s3, call), 416, Bucket=bucket, Key="mymultipart", PartNumber=4)


def test_multipart_get_part_and_range(s3, bucket):
    upload(s3, bucket, "mymultipart", data(6 * MIB))
    refused(s3.get_object, 400, "InvalidRequest", Bucket=bucket, Key="mymultipart", PartNumber=1, Range="bytes=0-1")


def test_multipart_single_get_part(s3, bucket):
    upload(s3, bucket, "mymultipart", data(MIB))
    answer = s3.get_object(Bucket=bucket, Key="mymultipart", PartNumber=1)
    assert (answer["PartsCount"], md5(answer["Body"].read())) == (1, md5(data(MIB)))
    refused(s3.get_object, 416, "InvalidPartNumber", Bucket=bucket, Key="mymultipart", PartNumber=2)


def test_non_multipart_get_part(s3, bucket):
    s3.put_object(Bucket=bucket, Key="singlepart", Body=b"body")
    refused(s3.get_object, 416, "InvalidPartNumber", Bucket=bucket, Key="singlepart", PartNumber=2)
    answer = s3.get_object(Bucket=bucket, Key="singlepart", PartNumber=1)
    assert "PartsCount" not in answer
    assert answer["Body"].read() == b"body"


# With what the origin does not have


def test_multipart_copy_versioned(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="foo", Body=data(10))["VersionId"]
    begun = Upload(s3, bucket, "mymultipart")
    begun.copy({"Bucket": bucket, "Key": "foo", "VersionId": version})
    begun.complete()


def test_multipart_upload_on_a_bucket_with_policy(s3, bucket):
    policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}'
    s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    upload(s3, bucket, "foo", data(MIB))
