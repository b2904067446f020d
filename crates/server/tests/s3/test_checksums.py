"""Checksums: stated, compared, kept, given back, joined; and the attributes that tell of them."""

import base64
import hashlib
import zlib

import pytest

from support import MIB, PART_BYTES, Upload, body, client, data, refused, upload

CONTENT = b"\0" * 1024


def sha256(content):
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def sha1(content):
    return base64.b64encode(hashlib.sha1(content).digest()).decode()


def crc32(content):
    return base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()


def bit_by_bit(content, bits, polynomial):
    """A reflected CRC from its definition: slow, and nobody's code but this."""
    mask = (1 << bits) - 1
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    crc = mask
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return base64.b64encode((crc ^ mask).to_bytes(bits // 8, "big")).decode()


def crc32c(content):
    return bit_by_bit(content, 32, 0x82F63B78)


def crc64nvme(content):
    return bit_by_bit(content, 64, 0x9A6C9329AC4BC9B5)


SUMS = {"CRC32": crc32, "CRC32C": crc32c, "CRC64NVME": crc64nvme, "SHA1": sha1, "SHA256": sha256}


def field(algorithm):
    return f"Checksum{algorithm}"


def sums_of(answer):
    return {name: value for name, value in answer.items() if name.startswith("Checksum") and name != "ChecksumType"}


@pytest.mark.parametrize("algorithm", SUMS)
def test_object_checksum(s3, bucket, algorithm):
    right = {field(algorithm): SUMS[algorithm](CONTENT)}
    answer = s3.put_object(Bucket=bucket, Key="foo", Body=CONTENT, **right)
    assert sums_of(answer) == right
    for call in (s3.get_object, s3.head_object):
        assert sums_of(call(Bucket=bucket, Key="foo")) == {}
        found = call(Bucket=bucket, Key="foo", ChecksumMode="ENABLED")
        assert (sums_of(found), found["ChecksumType"]) == (right, "FULL_OBJECT")
    wrong = {field(algorithm): SUMS[algorithm](b"other")}
    refused(s3.put_object, 400, "BadDigest", Bucket=bucket, Key="foo", Body=b"bar", **wrong)
    assert body(s3, bucket, "foo") == CONTENT


def test_object_checksum_when_none_is_stated(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=CONTENT)
    answer = s3.head_object(Bucket=bucket, Key="foo", ChecksumMode="ENABLED")
    assert sums_of(answer) == {"ChecksumCRC64NVME": crc64nvme(CONTENT)}


def test_object_checksum_of_a_range(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=CONTENT, ChecksumSHA256=sha256(CONTENT))
    answer = s3.get_object(Bucket=bucket, Key="foo", Range="bytes=0-9", ChecksumMode="ENABLED")
    assert sums_of(answer) == {}


def test_object_checksum_of_two_kinds(s3, bucket):
    two = {"ChecksumSHA256": sha256(CONTENT), "ChecksumCRC32": crc32(CONTENT)}
    refused(s3.put_object, 400, "InvalidRequest", Bucket=bucket, Key="foo", Body=CONTENT, **two)


@pytest.mark.parametrize(
    "md5, status, codes",
    [
        ("rL0Y20xC+Fzt72VPzMSk2A==", 400, ("BadDigest",)),
        ("YWJyYWNhZGFicmE=", 400, ("InvalidDigest",)),
        ("", 400, ("InvalidDigest",)),
        ("not base64", 400, ("InvalidDigest",)),
        ("N7UdGUp1E+RbVvZSTy1R8g==", 200, ()),
    ],
    ids=["bad", "short", "empty", "unreadable", "good"],
)
def test_object_create_bad_md5(s3, bucket, md5, status, codes):
    def state(params, **_):
        params["headers"]["Content-MD5"] = md5

    s3.meta.events.register("before-call.s3.PutObject", state)
    try:
        if status == 200:
            s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")
        else:
            refused(s3.put_object, status, *codes, Bucket=bucket, Key="foo", Body=b"bar")
    finally:
        s3.meta.events.unregister("before-call.s3.PutObject", state)


# Of several parts

PARTS = [bytes([65 + number]) * PART_BYTES for number in range(2)] + [b"C" * 1000]


@pytest.fixture(scope="module")
def part_sums():
    # The others are computed bit by bit here.
    return {algorithm: [SUMS[algorithm](part) for part in PARTS] for algorithm in ("CRC32", "SHA1", "SHA256")}


def composite(algorithm, sums):
    digests = b"".join(base64.b64decode(one) for one in sums)
    return f"{SUMS[algorithm](digests)}-{len(sums)}"


def upload_with(s3, bucket, algorithm, **asked):
    return Upload(s3, bucket, "foo", ChecksumAlgorithm=algorithm, **asked)


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_multipart_use_cksum_helper(s3, bucket, algorithm, part_sums):
    begun = upload_with(s3, bucket, algorithm)
    sums = part_sums[algorithm]
    for part, one in zip(PARTS, sums):
        assert begun.put(part, **{field(algorithm): one})[field(algorithm)] == one
    answer = begun.complete()
    expected = {field(algorithm): composite(algorithm, sums)}
    assert (sums_of(answer), answer["ChecksumType"]) == (expected, "COMPOSITE")
    found = s3.head_object(Bucket=bucket, Key="foo", ChecksumMode="ENABLED")
    assert (sums_of(found), found["ChecksumType"]) == (expected, "COMPOSITE")
    again = begun.complete()
    assert (sums_of(again), again["ETag"]) == (expected, answer["ETag"])
    part = s3.get_object(Bucket=bucket, Key="foo", PartNumber=3, ChecksumMode="ENABLED")
    assert sums_of(part) == {field(algorithm): sums[2]}


@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME"])
def test_multipart_use_cksum_helper_small(s3, bucket, algorithm):
    begun = upload_with(s3, bucket, algorithm)
    begun.put(CONTENT, **{field(algorithm): SUMS[algorithm](CONTENT)})
    answer = begun.complete()
    if algorithm == "CRC64NVME":
        assert (answer["ChecksumType"], answer["ChecksumCRC64NVME"]) == ("FULL_OBJECT", crc64nvme(CONTENT))
    else:
        assert answer["ChecksumType"] == "COMPOSITE"
        assert answer["ChecksumCRC32C"] == composite("CRC32C", [crc32c(CONTENT)])


def test_multipart_checksum_of_the_whole(s3, bucket):
    begun = upload_with(s3, bucket, "CRC32", ChecksumType="FULL_OBJECT")
    for part in PARTS:
        begun.put(part, ChecksumCRC32=crc32(part))
    right = crc32(b"".join(PARTS))
    refused(begun.complete, 400, "BadDigest", ChecksumCRC32=crc32(b"other"))
    answer = begun.complete(ChecksumCRC32=right, ChecksumType="FULL_OBJECT")
    assert (sums_of(answer), answer["ChecksumType"]) == ({"ChecksumCRC32": right}, "FULL_OBJECT")


@pytest.mark.parametrize(
    "algorithm, kind", [("SHA256", "FULL_OBJECT"), ("SHA1", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE")]
)
def test_multipart_checksum_that_cannot_be(s3, bucket, algorithm, kind):
    asked = {"Bucket": bucket, "Key": "foo", "ChecksumAlgorithm": algorithm, "ChecksumType": kind}
    refused(s3.create_multipart_upload, 400, "InvalidRequest", **asked)


def test_multipart_checksum_of_another_kind(s3, bucket):
    begun = upload_with(s3, bucket, "SHA256")
    refused(begun.put, 400, "InvalidRequest", content=CONTENT, ChecksumCRC32=crc32(CONTENT))
    refused(begun.put, 400, "BadDigest", content=CONTENT, ChecksumSHA256=sha256(b"other"))
    begun.put(CONTENT, ChecksumSHA256=sha256(CONTENT))
    refused(begun.complete, 400, "BadDigest", ChecksumSHA256=sha256(b"other"))
    refused(begun.complete, 400, "InvalidRequest", ChecksumCRC32=crc32(b"other"))
    wrong = [{**begun.parts[0], "ChecksumSHA256": sha256(b"other")}]
    refused(begun.complete, 400, "InvalidPart", parts=wrong)
    begun.complete()


def test_multipart_reupload_checksum_and_etag(s3, bucket):
    found = []
    for content in (PARTS[2], PARTS[2] + b"x", PARTS[2]):
        begun = upload_with(s3, bucket, "SHA256")
        begun.put(content, ChecksumSHA256=sha256(content))
        answer = begun.complete()
        found.append((answer["ETag"], answer["ChecksumSHA256"]))
    assert found[0] == found[2] != found[1]


def test_multipart_object_size(s3, bucket):
    begun = Upload(s3, bucket, "foo")
    begun.put(CONTENT)
    refused(begun.complete, 400, "InvalidRequest", MpuObjectSize=1)
    begun.complete(MpuObjectSize=len(CONTENT))


def test_list_parts_with_checksums(s3, bucket):
    begun = upload_with(s3, bucket, "SHA256")
    begun.put(CONTENT, ChecksumSHA256=sha256(CONTENT))
    answer = s3.list_parts(**begun.at, UploadId=begun.id)
    assert (answer["ChecksumAlgorithm"], answer["ChecksumType"]) == ("SHA256", "COMPOSITE")
    assert sums_of(answer["Parts"][0]) == {"ChecksumSHA256": sha256(CONTENT)}


def test_copied_part_has_the_checksum_of_its_upload(s3, bucket):
    s3.put_object(Bucket=bucket, Key="source", Body=CONTENT)
    begun = upload_with(s3, bucket, "SHA256")
    answer = begun.copy({"Bucket": bucket, "Key": "source"})
    assert sums_of(answer) == {"ChecksumSHA256": sha256(CONTENT)}
    assert begun.complete()["ChecksumSHA256"] == composite("SHA256", [sha256(CONTENT)])


def test_copied_object_keeps_the_algorithm(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=CONTENT, ChecksumSHA256=sha256(CONTENT))
    for asked, expected in (({}, {"ChecksumSHA256": sha256(CONTENT)}), ({"ChecksumAlgorithm": "CRC32"}, {"ChecksumCRC32": crc32(CONTENT)})):
        s3.copy_object(Bucket=bucket, Key="bar", CopySource=f"{bucket}/foo", **asked)
        assert sums_of(s3.head_object(Bucket=bucket, Key="bar", ChecksumMode="ENABLED")) == expected


def test_uploads_of_the_transfer_manager_as_they_are_by_default(url, bucket):
    from io import BytesIO

    from boto3.s3.transfer import TransferConfig

    usual = client(
        url, request_checksum_calculation="when_supported", response_checksum_validation="when_supported"
    )
    for size in (1000, 12 * MIB):
        settings = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
        usual.upload_fileobj(BytesIO(data(size)), bucket, "foo", Config=settings)
        assert usual.get_object(Bucket=bucket, Key="foo")["Body"].read() == data(size)


# Attributes

EVERY = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]


def attributes(s3, bucket, **asked):
    return s3.get_object_attributes(Bucket=bucket, Key="foo", **{"ObjectAttributes": EVERY, **asked})


def test_get_object_attributes(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")["ETag"].strip('"')
    answer = attributes(s3, bucket)
    assert (answer["ObjectSize"], answer["ETag"], answer["StorageClass"]) == (3, etag, "STANDARD")
    assert not {"ObjectParts", "DeleteMarker", "VersionId"} & set(answer)


def test_get_checksum_object_attributes(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=CONTENT, ChecksumSHA256=sha256(CONTENT))
    answer = attributes(s3, bucket)
    assert sums_of(answer["Checksum"]) == {"ChecksumSHA256": sha256(CONTENT)}
    assert answer["Checksum"]["ChecksumType"] == "FULL_OBJECT"


def test_get_object_attributes_that_are_asked_for(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")
    answer = attributes(s3, bucket, ObjectAttributes=["ObjectSize"])
    assert answer["ObjectSize"] == 3
    assert not {"ETag", "Checksum", "StorageClass"} & set(answer)
    s3.delete_object(Bucket=bucket, Key="foo")
    refused(attributes, 404, "NoSuchKey", s3=s3, bucket=bucket)


def test_get_multipart_checksum_object_attributes(s3, bucket, part_sums):
    begun = upload_with(s3, bucket, "SHA256")
    for part, one in zip(PARTS, part_sums["SHA256"]):
        begun.put(part, ChecksumSHA256=one)
    done = begun.complete()
    answer = attributes(s3, bucket)
    assert answer["ObjectSize"] == sum(len(part) for part in PARTS)
    assert answer["Checksum"]["ChecksumSHA256"] == done["ChecksumSHA256"]
    assert answer["ObjectParts"]["TotalPartsCount"] == 3
    found = [(part["PartNumber"], part["Size"], part["ChecksumSHA256"]) for part in answer["ObjectParts"]["Parts"]]
    expected = zip((1, 2, 3), (len(part) for part in PARTS), part_sums["SHA256"])
    assert found == list(expected)


def test_get_multipart_object_attributes(s3, bucket):
    etag = upload(s3, bucket, "foo", data(6 * MIB))["ETag"].strip('"')
    answer = attributes(s3, bucket)
    assert (answer["ObjectSize"], answer["ETag"]) == (6 * MIB, etag)
    assert answer["ObjectParts"]["TotalPartsCount"] == 2


def test_get_paginated_multipart_object_attributes(s3, bucket, part_sums):
    begun = upload_with(s3, bucket, "SHA256")
    for part, one in zip(PARTS, part_sums["SHA256"]):
        begun.put(part, ChecksumSHA256=one)
    begun.complete()
    answer = attributes(s3, bucket, MaxParts=1, PartNumberMarker=1)["ObjectParts"]
    assert (answer["MaxParts"], answer["PartNumberMarker"], answer["NextPartNumberMarker"]) == (1, 1, 2)
    assert (answer["IsTruncated"], [part["PartNumber"] for part in answer["Parts"]]) == (True, [2])
    answer = attributes(s3, bucket, MaxParts=10, PartNumberMarker=2)["ObjectParts"]
    assert (answer["IsTruncated"], [part["PartNumber"] for part in answer["Parts"]]) == (False, [3])


def test_get_single_multipart_object_attributes(s3, bucket):
    upload(s3, bucket, "foo", CONTENT)
    assert attributes(s3, bucket)["ObjectParts"]["TotalPartsCount"] == 1


def test_get_versioned_object_attributes(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")["VersionId"]
    assert attributes(s3, bucket, VersionId=version)["VersionId"] == version
