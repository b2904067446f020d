"""CopyObject."""

import pytest

from support import body, data, md5, refused, status

MIB = 1 << 20


def copy(s3, bucket, key, source, **asked):
    return s3.copy_object(Bucket=bucket, Key=key, CopySource=source, **asked)


@pytest.mark.parametrize("size", [0, 16 * MIB], ids=["zero_size", "16m"])
def test_object_copy(s3, bucket, size):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=data(size))
    answer = copy(s3, bucket, "bar321foo", {"Bucket": bucket, "Key": "foo123bar"})
    assert answer["CopyObjectResult"]["ETag"] == f'"{md5(data(size))}"'
    assert md5(body(s3, bucket, "bar321foo")) == md5(data(size))


def test_object_copy_same_bucket(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=b"foo")
    copy(s3, bucket, "bar321foo", {"Bucket": bucket, "Key": "foo123bar"})
    assert body(s3, bucket, "bar321foo") == b"foo"


def test_object_copy_diff_bucket(s3, bucket, new_bucket):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=b"foo")
    other = new_bucket()
    copy(s3, other, "bar321foo", {"Bucket": bucket, "Key": "foo123bar"})
    assert body(s3, other, "bar321foo") == b"foo"


def test_object_copy_verify_contenttype(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=b"foo", ContentType="text/bla")
    copy(s3, bucket, "bar321foo", {"Bucket": bucket, "Key": "foo123bar"})
    assert s3.get_object(Bucket=bucket, Key="bar321foo")["ContentType"] == "text/bla"


def test_object_copy_to_itself(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=b"foo")
    source = {"Bucket": bucket, "Key": "foo123bar"}
    refused(copy, 400, "InvalidRequest", s3=s3, bucket=bucket, key="foo123bar", source=source)


def test_object_copy_to_itself_with_metadata(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=b"foo")
    source = {"Bucket": bucket, "Key": "foo123bar"}
    copy(s3, bucket, "foo123bar", source, Metadata={"foo": "bar"}, MetadataDirective="REPLACE")
    answer = s3.get_object(Bucket=bucket, Key="foo123bar")
    assert (answer["Metadata"], answer["Body"].read()) == ({"foo": "bar"}, b"foo")


def test_object_copy_to_itself_with_storage_class(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=b"foo", Metadata={"foo": "bar"})
    copy(s3, bucket, "foo123bar", {"Bucket": bucket, "Key": "foo123bar"}, StorageClass="STANDARD_IA")
    answer = s3.head_object(Bucket=bucket, Key="foo123bar")
    assert (answer["StorageClass"], answer["Metadata"]) == ("STANDARD_IA", {"foo": "bar"})


@pytest.mark.parametrize("size", [3, MIB])
def test_object_copy_retaining_metadata(s3, bucket, size):
    kept = {"Metadata": {"key1": "value1", "key2": "value2"}, "ContentType": "audio/ogg", "CacheControl": "no-store"}
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=data(size), **kept)
    copy(s3, bucket, "bar321foo", {"Bucket": bucket, "Key": "foo123bar"})
    answer = s3.head_object(Bucket=bucket, Key="bar321foo")
    assert {name: answer[name] for name in kept} == kept


@pytest.mark.parametrize("size", [3, MIB])
def test_object_copy_replacing_metadata(s3, bucket, size):
    s3.put_object(Bucket=bucket, Key="foo123bar", Body=data(size), Metadata={"key1": "value1"}, CacheControl="no-store")
    said = {"Metadata": {"key3": "value3"}, "ContentType": "audio/mpeg"}
    copy(s3, bucket, "bar321foo", {"Bucket": bucket, "Key": "foo123bar"}, MetadataDirective="REPLACE", **said)
    answer = s3.head_object(Bucket=bucket, Key="bar321foo")
    assert {name: answer[name] for name in said} == said
    assert "CacheControl" not in answer


def test_object_copy_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"foo", Tagging="a=b")
    for asked, tags in (({}, [("a", "b")]), ({"TaggingDirective": "REPLACE", "Tagging": "c=d"}, [("c", "d")])):
        copy(s3, bucket, "bar", {"Bucket": bucket, "Key": "foo"}, **asked)
        found = s3.get_object_tagging(Bucket=bucket, Key="bar")["TagSet"]
        assert [(tag["Key"], tag["Value"]) for tag in found] == tags


def test_object_copy_bucket_not_found(s3, bucket):
    source = {"Bucket": f"{bucket}-fake", "Key": "foo123bar"}
    refused(copy, 404, "NoSuchBucket", s3=s3, bucket=bucket, key="bar321foo", source=source)


def test_object_copy_key_not_found(s3, bucket):
    source = {"Bucket": bucket, "Key": "foo123bar"}
    refused(copy, 404, "NoSuchKey", s3=s3, bucket=bucket, key="bar321foo", source=source)


def test_object_copy_of_a_version_that_is_not_there(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")
    source = {"Bucket": bucket, "Key": "foo", "VersionId": "other"}
    refused(copy, 404, "NoSuchVersion", s3=s3, bucket=bucket, key="bar", source=source)


@pytest.mark.parametrize("name", ["a b", "a+b", "ü", "100%25", "dir/", "a//b", "?x"])
def test_object_copy_special_names(s3, bucket, name):
    s3.put_object(Bucket=bucket, Key=name, Body=b"foo")
    copy(s3, bucket, "bar", {"Bucket": bucket, "Key": name})
    assert body(s3, bucket, "bar") == b"foo"


def test_object_copy_canned_acl(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")
    assert status(copy(s3, bucket, "bar", {"Bucket": bucket, "Key": "foo"}, ACL="public-read")) == 200


def test_object_copy_versioned_bucket(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")["VersionId"]
    copy(s3, bucket, "bar", {"Bucket": bucket, "Key": "foo", "VersionId": version})
