"""Conditions: of reads, of writes, of copies and of deletions."""

import datetime

import pytest

from support import MIB, Upload, body, data, refused, status

PAST = datetime.datetime(1994, 9, 24, tzinfo=datetime.timezone.utc)
FUTURE = datetime.datetime(2100, 9, 24, tzinfo=datetime.timezone.utc)

# Case: what is asked, and the status; "ETAG" stands for that of the object.
READS = {
    "ifmatch_good": ({"IfMatch": "ETAG"}, 200),
    "ifmatch_star": ({"IfMatch": "*"}, 200),
    "ifmatch_failed": ({"IfMatch": '"ABCORZ"'}, 412),
    "ifnonematch_good": ({"IfNoneMatch": "ETAG"}, 304),
    "ifnonematch_failed": ({"IfNoneMatch": "ABCORZ"}, 200),
    "ifmodifiedsince_good": ({"IfModifiedSince": PAST}, 200),
    "ifmodifiedsince_failed": ({"IfModifiedSince": "NOW"}, 304),
    "ifunmodifiedsince_good": ({"IfUnmodifiedSince": PAST}, 412),
    "ifunmodifiedsince_failed": ({"IfUnmodifiedSince": FUTURE}, 200),
    "ifmatch_and_ifunmodifiedsince": ({"IfMatch": "ETAG", "IfUnmodifiedSince": PAST}, 200),
    "ifnonematch_and_ifmodifiedsince": ({"IfNoneMatch": "ETAG", "IfModifiedSince": PAST}, 304),
}


@pytest.mark.parametrize("call", ["get_object", "head_object"])
@pytest.mark.parametrize("case", READS)
def test_read(s3, bucket, case, call):
    asked, expected = READS[case]
    etag = s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")["ETag"]
    modified = s3.head_object(Bucket=bucket, Key="foo")["LastModified"]
    asked = {name: {"ETAG": etag, "NOW": modified}.get(value, value) for name, value in asked.items()}
    if expected == 200:
        assert status(getattr(s3, call)(Bucket=bucket, Key="foo", **asked)) == 200
    else:
        refused(getattr(s3, call), expected, Bucket=bucket, Key="foo", **asked)


def put(s3, bucket, content, **asked):
    return s3.put_object(Bucket=bucket, Key="foo", Body=content, **asked)


def put_in_parts(s3, bucket, content, **asked):
    begun = Upload(s3, bucket, "foo")
    begun.put(content)
    return begun.complete(**asked)


WRITES = [put, put_in_parts]


@pytest.mark.parametrize("write", WRITES)
def test_put_ifmatch_good(s3, bucket, write):
    etag = put(s3, bucket, b"bar")["ETag"]
    assert status(write(s3, bucket, b"zar", IfMatch=etag)) == 200
    assert body(s3, bucket, "foo") == b"zar"


@pytest.mark.parametrize("write", WRITES)
def test_put_ifmatch_failed(s3, bucket, write):
    put(s3, bucket, b"bar")
    refused(lambda **asked: write(s3, bucket, b"zar", **asked), 412, "PreconditionFailed", IfMatch='"ABCORZ"')
    assert body(s3, bucket, "foo") == b"bar"


@pytest.mark.parametrize("write", WRITES)
def test_put_ifmatch_overwrite_existed_good(s3, bucket, write):
    put(s3, bucket, b"bar")
    write(s3, bucket, b"zar", IfMatch="*")
    assert body(s3, bucket, "foo") == b"zar"


@pytest.mark.parametrize("write", WRITES)
def test_put_ifmatch_nonexisted_failed(s3, bucket, write):
    for asked in ("*", '"ABCORZ"'):
        refused(lambda **more: write(s3, bucket, b"bar", **more), 404, "NoSuchKey", IfMatch=asked)
    refused(s3.get_object, 404, "NoSuchKey", Bucket=bucket, Key="foo")


@pytest.mark.parametrize("write", WRITES)
def test_put_ifnonmatch_good(s3, bucket, write):
    put(s3, bucket, b"bar")
    write(s3, bucket, b"zar", IfNoneMatch="ABCORZ")
    assert body(s3, bucket, "foo") == b"zar"


@pytest.mark.parametrize("write", WRITES)
def test_put_ifnonmatch_failed(s3, bucket, write):
    etag = put(s3, bucket, b"bar")["ETag"]
    refused(lambda **asked: write(s3, bucket, b"zar", **asked), 412, "PreconditionFailed", IfNoneMatch=etag)
    assert body(s3, bucket, "foo") == b"bar"


@pytest.mark.parametrize("write", WRITES)
def test_put_ifnonmatch_nonexisted_good(s3, bucket, write):
    write(s3, bucket, b"bar", IfNoneMatch="*")
    assert body(s3, bucket, "foo") == b"bar"


@pytest.mark.parametrize("write", WRITES)
def test_put_ifnonmatch_overwrite_existed_failed(s3, bucket, write):
    put(s3, bucket, b"bar")
    refused(lambda **asked: write(s3, bucket, b"zar", **asked), 412, "PreconditionFailed", IfNoneMatch="*")
    assert body(s3, bucket, "foo") == b"bar"


def test_put_object_if_match_after_delete(s3, bucket):
    etag = put(s3, bucket, b"bar")["ETag"]
    s3.delete_object(Bucket=bucket, Key="foo")
    refused(put, 404, "NoSuchKey", s3=s3, bucket=bucket, content=b"zar", IfMatch=etag)
    put(s3, bucket, b"zar", IfNoneMatch="*")


def test_atomic_conditional_write(s3, bucket):
    etag = put(s3, bucket, b"A" * MIB)["ETag"]
    put(s3, bucket, b"B" * MIB, IfMatch=etag)
    refused(put, 412, "PreconditionFailed", s3=s3, bucket=bucket, content=b"C" * MIB, IfMatch=etag)
    assert body(s3, bucket, "foo") == b"B" * MIB


def test_of_many_who_create_one_wins(s3, bucket):
    from concurrent.futures import ThreadPoolExecutor

    from botocore.exceptions import ClientError

    def create(number):
        try:
            return status(put(s3, bucket, data(100_000, number), IfNoneMatch="*"))
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(create, range(8)))
    assert found == [200] + [412] * 7


COPIES = {
    "ifmatch_good": ({"CopySourceIfMatch": "ETAG"}, 200),
    "ifmatch_failed": ({"CopySourceIfMatch": "ABCORZ"}, 412),
    "ifnonematch_good": ({"CopySourceIfNoneMatch": "ETAG"}, 412),
    "ifnonematch_failed": ({"CopySourceIfNoneMatch": "ABCORZ"}, 200),
    "ifmodifiedsince_good": ({"CopySourceIfModifiedSince": PAST}, 200),
    "ifmodifiedsince_failed": ({"CopySourceIfModifiedSince": "NOW"}, 412),
    "ifunmodifiedsince_good": ({"CopySourceIfUnmodifiedSince": PAST}, 412),
    "ifunmodifiedsince_failed": ({"CopySourceIfUnmodifiedSince": FUTURE}, 200),
}


@pytest.mark.parametrize("part", [False, True], ids=["object", "part"])
@pytest.mark.parametrize("case", COPIES)
def test_copy(s3, bucket, case, part):
    asked, expected = COPIES[case]
    etag = put(s3, bucket, b"bar")["ETag"]
    modified = s3.head_object(Bucket=bucket, Key="foo")["LastModified"]
    asked = {name: {"ETAG": etag, "NOW": modified}.get(value, value) for name, value in asked.items()}
    source = {"Bucket": bucket, "Key": "foo"}
    if part:
        begun = Upload(s3, bucket, "bar")
        call, arguments = begun.copy, {"source": source}
    else:
        call, arguments = s3.copy_object, {"Bucket": bucket, "Key": "bar", "CopySource": source}
    if expected == 200:
        call(**arguments, **asked)
        if part:
            begun.complete()
        assert body(s3, bucket, "bar") == b"bar"
    else:
        refused(call, expected, "PreconditionFailed", **arguments, **asked)


def test_copy_over_what_is_there(s3, bucket):
    put(s3, bucket, b"bar")
    etag = s3.put_object(Bucket=bucket, Key="there", Body=b"old")["ETag"]
    asked = {"Bucket": bucket, "Key": "there", "CopySource": f"{bucket}/foo"}
    refused(s3.copy_object, 412, "PreconditionFailed", IfNoneMatch="*", **asked)
    refused(s3.copy_object, 412, "PreconditionFailed", IfMatch='"ABCORZ"', **asked)
    s3.copy_object(IfMatch=etag, **asked)
    assert body(s3, bucket, "there") == b"bar"


# Deletions


def modified_of(s3, bucket):
    return s3.head_object(Bucket=bucket, Key="foo")["LastModified"]


CONDITIONS = {
    "if_match": ("IfMatch", "ETag", lambda s3, bucket: s3.head_object(Bucket=bucket, Key="foo")["ETag"], '"badetag"'),
    "if_match_unquoted": (
        "IfMatch",
        "ETag",
        lambda s3, bucket: s3.head_object(Bucket=bucket, Key="foo")["ETag"].strip('"'),
        "badetag",
    ),
    "if_match_last_modified_time": ("IfMatchLastModifiedTime", "LastModifiedTime", modified_of, PAST),
    "if_match_size": ("IfMatchSize", "Size", lambda s3, bucket: 3, 9999),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_delete_object(s3, bucket, case):
    name, _, right, wrong = CONDITIONS[case]
    put(s3, bucket, b"bar")
    at = {"Bucket": bucket, "Key": "foo"}
    refused(s3.delete_object, 412, "PreconditionFailed", **at, **{name: wrong})
    assert body(s3, bucket, "foo") == b"bar"
    assert status(s3.delete_object(**at, **{name: right(s3, bucket)})) == 204
    refused(s3.get_object, 404, "NoSuchKey", **at)
    # What is not there is deleted already, whatever was asked.
    assert status(s3.delete_object(**at, **{name: wrong})) == 204


@pytest.mark.parametrize("case", CONDITIONS)
def test_delete_objects(s3, bucket, case):
    _, name, right, wrong = CONDITIONS[case]
    put(s3, bucket, b"bar")
    s3.put_object(Bucket=bucket, Key="other", Body=b"bar")

    def delete(asked):
        return s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "foo", name: asked}, {"Key": "other"}]})

    answer = delete(wrong)
    assert [(error["Key"], error["Code"]) for error in answer["Errors"]] == [("foo", "PreconditionFailed")]
    assert [entry["Key"] for entry in answer["Deleted"]] == ["other"]
    assert body(s3, bucket, "foo") == b"bar"
    assert sorted(entry["Key"] for entry in delete(right(s3, bucket))["Deleted"]) == ["foo", "other"]
    refused(s3.get_object, 404, "NoSuchKey", Bucket=bucket, Key="foo")
    assert "Errors" not in delete(wrong)


def test_delete_object_if_match_star(s3, bucket):
    put(s3, bucket, b"bar")
    s3.delete_object(Bucket=bucket, Key="foo", IfMatch="*")
    refused(s3.get_object, 404, "NoSuchKey", Bucket=bucket, Key="foo")


# With versions, which this origin does not have


def with_versions(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})


@pytest.mark.parametrize("case", CONDITIONS)
def test_delete_object_current(s3, bucket, case):
    with_versions(s3, bucket)
    test_delete_object(s3, bucket, case)


@pytest.mark.parametrize("case", CONDITIONS)
def test_delete_object_version(s3, bucket, case):
    with_versions(s3, bucket)
    version = put(s3, bucket, b"bar")["VersionId"]
    assert status(s3.delete_object(Bucket=bucket, Key="foo", VersionId=version)) == 204
