"""Buckets, and who is let in."""

import urllib.parse
import uuid

import pytest

from support import ACCESS_KEY, anonymous, ask, body, client, headers, put_all, refused, status


def name(size=0):
    made = f"b-{uuid.uuid4().hex}"
    return made + "a" * (size - len(made))


def test_bucket_create_delete(s3):
    bucket = name()
    s3.create_bucket(Bucket=bucket)
    assert status(s3.delete_bucket(Bucket=bucket)) == 204
    refused(s3.delete_bucket, 404, "NoSuchBucket", Bucket=bucket)


def test_bucket_delete_notexist(s3):
    refused(s3.delete_bucket, 404, "NoSuchBucket", Bucket=name())


def test_bucket_delete_nonempty(s3, bucket):
    put_all(s3, bucket, ["foo"])
    refused(s3.delete_bucket, 409, "BucketNotEmpty", Bucket=bucket)


def test_bucket_delete_with_an_unfinished_upload(s3, bucket):
    s3.create_multipart_upload(Bucket=bucket, Key="foo")
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_bucket_create_exists(s3, bucket):
    refused(s3.create_bucket, 409, "BucketAlreadyOwnedByYou", Bucket=bucket)


def test_bucket_recreate_not_overriding(s3, bucket):
    put_all(s3, bucket, ["mykey1", "mykey2"])
    refused(s3.create_bucket, 409, Bucket=bucket)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 2


def test_bucket_head(s3, bucket):
    assert status(s3.head_bucket(Bucket=bucket)) == 200


def test_bucket_head_notexist(s3):
    refused(s3.head_bucket, 404, Bucket=name())


def test_bucket_get_location(s3, bucket):
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] in (None, "us-east-1")


def test_buckets_create_then_list(s3, new_bucket):
    made = {new_bucket() for _ in range(5)}
    assert made <= {entry["Name"] for entry in s3.list_buckets()["Buckets"]}


def test_buckets_list_ctime(s3, new_bucket):
    import datetime

    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    made = new_bucket()
    dates = {entry["Name"]: entry["CreationDate"] for entry in s3.list_buckets()["Buckets"]}
    assert dates[made] > before


def test_list_buckets_owner(s3, bucket):
    assert s3.list_buckets()["Owner"]["ID"] == s3.get_bucket_acl(Bucket=bucket)["Owner"]["ID"]


def test_list_buckets_paginated(s3, new_bucket):
    for _ in range(2):
        new_bucket()
    first = s3.list_buckets(MaxBuckets=1)
    assert len(first["Buckets"]) == 1
    assert s3.list_buckets(MaxBuckets=1, ContinuationToken=first["ContinuationToken"])["Buckets"]


GOOD = {
    "starts_alpha": lambda: "a" + name(),
    "starts_digit": lambda: "0" + name(),
    "contains_period": lambda: f"aaa.{name()}",
    "contains_hyphen": lambda: f"aaa-{name()}",
    "long_60": lambda: name(60),
    "long_61": lambda: name(61),
    "long_62": lambda: name(62),
    "long_63": lambda: name(63),
}


@pytest.mark.parametrize("case", GOOD)
def test_bucket_create_naming_good(s3, case):
    bucket = GOOD[case]()
    s3.create_bucket(Bucket=bucket)
    put_all(s3, bucket, ["a"])
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["a"]


BAD = {
    "starts_nonalpha": "_alpha-bucket",
    "short_one": "a",
    "short_two": "aa",
    "long": "a" * 64,
    "ip": "192.168.5.123",
    "underscore": "foo_bar",
    "dash_at_end": "foo-",
    "dot_dot": "foo..bar",
    "upper": "FooBar",
}


@pytest.mark.parametrize("case", BAD)
def test_bucket_create_naming_bad(url, s3, case):
    # boto3 would not send some of them.
    def send(request, **_):
        request.url = f"{url}/{BAD[case]}"

    s3.meta.events.register_first("before-sign.s3.CreateBucket", send)
    try:
        refused(s3.create_bucket, 400, "InvalidBucketName", Bucket="any-name")
    finally:
        s3.meta.events.unregister("before-sign.s3.CreateBucket", send)


@pytest.mark.parametrize("bad", ["foo.-bar", "foo-.bar"], ids=["dot_dash", "dash_dot"])
def test_bucket_create_naming_dns(s3, bad):
    refused(s3.create_bucket, 400, "InvalidBucketName", Bucket=bad)


def test_bucket_acl_default(s3, bucket):
    answer = s3.get_bucket_acl(Bucket=bucket)
    assert [(grant["Permission"], grant["Grantee"]["ID"]) for grant in answer["Grants"]] == [
        ("FULL_CONTROL", answer["Owner"]["ID"])
    ]


def test_bucket_acl_canned_private_to_private(s3, bucket):
    assert status(s3.put_bucket_acl(Bucket=bucket, ACL="private")) == 200


def test_bucket_acl_canned_during_create(s3):
    bucket = name()
    s3.create_bucket(Bucket=bucket, ACL="public-read")
    assert len(s3.get_bucket_acl(Bucket=bucket)["Grants"]) == 2


@pytest.mark.parametrize(
    "asked", [{"ACL": "public-read"}, {"GrantRead": "id=1"}, {"ObjectLockEnabledForBucket": True}], ids=str
)
def test_what_a_bucket_cannot_have_is_refused(s3, asked):
    bucket = name()
    refused(s3.create_bucket, 501, "NotImplemented", Bucket=bucket, **asked)
    refused(s3.head_bucket, 404, Bucket=bucket)


CALLS = {
    "put_bucket_versioning": {"VersioningConfiguration": {"Status": "Enabled"}},
    "put_bucket_tagging": {"Tagging": {"TagSet": []}},
    "put_bucket_policy": {"Policy": "{}"},
    "put_bucket_encryption": {
        "ServerSideEncryptionConfiguration": {
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        }
    },
    "put_bucket_cors": {"CORSConfiguration": {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}},
    "get_bucket_website": {},
    "get_bucket_lifecycle_configuration": {},
    "get_bucket_logging": {},
}


@pytest.mark.parametrize("call", CALLS)
def test_operations_that_are_not_there_say_so(s3, bucket, call):
    refused(getattr(s3, call), 501, "NotImplemented", Bucket=bucket, **CALLS[call])


# Who is let in


def test_list_buckets_anonymous(url):
    refused(anonymous(url).list_buckets, 403, "AccessDenied")


def test_list_buckets_invalid_auth(url):
    refused(client(url, "bad-key", "bad-secret").list_buckets, 403, "InvalidAccessKeyId")


def test_list_buckets_bad_auth(url):
    refused(client(url, ACCESS_KEY, "bad-secret").list_buckets, 403, "SignatureDoesNotMatch")


def presigned(s3, call, bucket, expires=1000, key="foo", **more):
    return s3.generate_presigned_url(call, Params={"Bucket": bucket, "Key": key, **more}, ExpiresIn=expires)


def test_object_raw_get(url, s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert ask(f"{url}/{bucket}/foo")[0] == 403


def test_object_raw_authenticated(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert ask(presigned(s3, "get_object", bucket))[::2] == (200, b"foo")


def test_object_raw_response_headers(s3, bucket):
    put_all(s3, bucket, ["foo"])
    wishes = {
        "ResponseCacheControl": ("cache-control", "no-cache"),
        "ResponseContentDisposition": ("content-disposition", "bla"),
        "ResponseContentEncoding": ("content-encoding", "aaa"),
        "ResponseContentLanguage": ("content-language", "esperanto"),
        "ResponseContentType": ("content-type", "foo/bar"),
    }
    answer = s3.get_object(Bucket=bucket, Key="foo", **{wish: value for wish, (_, value) in wishes.items()})
    for name, value in wishes.values():
        assert headers(answer)[name] == value


def test_object_raw_authenticated_bucket_gone(s3, bucket):
    url = presigned(s3, "get_object", bucket)
    s3.delete_bucket(Bucket=bucket)
    assert ask(url)[0] == 404


def test_object_raw_authenticated_object_gone(s3, bucket):
    put_all(s3, bucket, ["foo"])
    url = presigned(s3, "get_object", bucket)
    s3.delete_object(Bucket=bucket, Key="foo")
    assert ask(url)[0] == 404


def test_object_raw_get_x_amz_expires_not_expired(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert ask(presigned(s3, "get_object", bucket, expires=100_000))[0] == 200


def test_object_raw_get_x_amz_expires_out_range_zero(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert ask(presigned(s3, "get_object", bucket, expires=0))[0] == 403


def test_object_raw_get_x_amz_expires_out_max_range(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert ask(presigned(s3, "get_object", bucket, expires=604_800))[0] == 200
    answer = ask(presigned(s3, "get_object", bucket, expires=604_801))
    assert answer[0] == 400
    assert b"AuthorizationQueryParametersError" in answer[2]


def test_object_raw_get_x_amz_expires_out_positive_range(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert ask(presigned(s3, "get_object", bucket, expires=-7))[0] in (400, 403)


def test_object_raw_put_authenticated(s3, bucket):
    assert ask(presigned(s3, "put_object", bucket), "PUT", b"bar")[0] == 200
    assert body(s3, bucket, "foo") == b"bar"


def test_object_raw_put_authenticated_expired(s3, bucket):
    assert ask(presigned(s3, "put_object", bucket, expires=-1000), "PUT", b"bar")[0] in (400, 403)
    refused(s3.head_object, 404, Bucket=bucket, Key="foo")


def test_object_presigned_put_object_with_acl(s3, bucket):
    url = presigned(s3, "put_object", bucket, ACL="private")
    assert ask(url, "PUT", b"bar", {"x-amz-acl": "private"})[0] == 200
    url = presigned(s3, "put_object", bucket, ACL="public-read")
    assert ask(url, "PUT", b"bar", {"x-amz-acl": "public-read"})[0] == 501


def test_object_raw_put_with_a_wrong_signature(s3, bucket):
    url = urllib.parse.urlsplit(presigned(s3, "put_object", bucket))
    assert ask(url._replace(path=f"/{bucket}/other").geturl(), "PUT", b"bar")[0] == 403


def test_object_raw_get_bucket_gone(url, s3, bucket):
    s3.delete_bucket(Bucket=bucket)
    assert ask(f"{url}/{bucket}/foo")[0] in (403, 404)


def test_object_delete_key_bucket_gone(s3, bucket):
    s3.delete_bucket(Bucket=bucket)
    refused(s3.delete_object, 404, "NoSuchBucket", Bucket=bucket, Key="foo")


# Deletions


def delete(s3, bucket, keys, **more):
    return s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], **more})


def test_multi_object_delete(s3, bucket):
    keys = ["key0", "key1", "key2"]
    put_all(s3, bucket, keys)
    for _ in range(2):
        answer = delete(s3, bucket, keys)
        assert sorted(entry["Key"] for entry in answer["Deleted"]) == keys
        assert "Errors" not in answer
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_multi_object_delete_quiet(s3, bucket):
    put_all(s3, bucket, ["key0"])
    assert "Deleted" not in delete(s3, bucket, ["key0"], Quiet=True)


@pytest.mark.parametrize("keys", [1001, 5000])
def test_multi_object_delete_key_limit(s3, bucket, keys):
    put_all(s3, bucket, ["key0"])
    keys = [f"key{number}" for number in range(keys)]
    refused(s3.delete_objects, 400, "MalformedXML", Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert body(s3, bucket, "key0") == b"key0"
    assert len(delete(s3, bucket, keys[:1000])["Deleted"]) == 1000


def test_multi_object_delete_of_a_version_that_is_not_there(s3, bucket):
    put_all(s3, bucket, ["key0"])
    objects = [{"Key": "key0", "VersionId": "other"}]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    assert answer["Errors"][0]["Code"] == "NoSuchVersion"
    objects = [{"Key": "key0", "VersionId": "null"}]
    assert s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})["Deleted"]
    refused(s3.head_object, 404, Bucket=bucket, Key="key0")


@pytest.mark.parametrize("odd", ["\x01ctl", "\ufffex"])
def test_delete_objects_that_no_answer_could_name(s3, bucket, odd):
    """As MinIO: refused whole. By itself such a key goes."""
    put_all(s3, bucket, ["plain", odd])
    keys = [{"Key": "plain"}, {"Key": odd}]
    refused(s3.delete_objects, 400, "MalformedXML", Bucket=bucket, Delete={"Objects": keys})
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert sorted(object["Key"] for object in listed) == sorted(["plain", odd])
    s3.delete_object(Bucket=bucket, Key=odd)
    assert [object["Key"] for object in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["plain"]


def test_delete_objects_names_a_carriage_return(s3, bucket):
    put_all(s3, bucket, ["cr\rx"])
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "cr\rx"}]})
    assert [object["Key"] for object in answer["Deleted"]] == ["cr\rx"]
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_delete_marker_nonversioned(s3, bucket):
    put_all(s3, bucket, ["foo"])
    answer = s3.delete_object(Bucket=bucket, Key="foo")
    assert not {"DeleteMarker", "VersionId"} & set(answer)
    answer = s3.delete_object(Bucket=bucket, Key="foo")
    assert not {"DeleteMarker", "VersionId"} & set(answer)


def test_delete_marker_versioned(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put_all(s3, bucket, ["foo"])
    assert s3.delete_object(Bucket=bucket, Key="foo")["DeleteMarker"]


def test_expected_bucket_owner_is_refused_by_name(s3, bucket):
    refused(s3.list_objects_v2, 501, "NotImplemented", Bucket=bucket, ExpectedBucketOwner="000000000000")


def test_expected_bucket_owner(s3, bucket):
    refused(s3.list_objects_v2, 403, "AccessDenied", Bucket=bucket, ExpectedBucketOwner="000000000000")


def test_put_public_block(s3, bucket):
    block = {"BlockPublicAcls": True, "IgnorePublicAcls": True}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=block)
    answer = s3.get_public_access_block(Bucket=bucket)
    assert answer["PublicAccessBlockConfiguration"]["BlockPublicAcls"]


def test_put_bucket_ownership_bucket_owner_enforced(s3, bucket):
    rules = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=rules)
    assert s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"] == rules


def test_bucket_list_objects_anonymous(url, s3, bucket):
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    assert status(anonymous(url).list_objects(Bucket=bucket)) == 200


def test_object_raw_get_object_acl(url, s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", ACL="public-read")
    assert ask(f"{url}/{bucket}/foo")[0] == 200


def test_post_object_authenticated_request(url, s3, bucket):
    form = s3.generate_presigned_post(bucket, "foo", Fields={"Content-Type": "text/plain"}, Conditions=[{"Content-Type": "text/plain"}])
    assert post(form, b"bar")[0] in (200, 204)
    assert body(s3, bucket, "foo") == b"bar"
    assert s3.head_object(Bucket=bucket, Key="foo")["ContentType"] == "text/plain"


def test_post_object_is_refused_by_name(url, s3, bucket):
    answer = post(s3.generate_presigned_post(bucket, "foo"), b"bar")
    assert answer[0] == 501 and b"POST of a form" in answer[2]
    refused(s3.head_object, 404, Bucket=bucket, Key="foo")


def test_post_object_expired_policy(url, s3, bucket):
    form = s3.generate_presigned_post(bucket, "foo", ExpiresIn=-6000)
    assert post(form, b"bar")[0] == 403


def post(form, content):
    """What a browser makes of a form with a file."""
    line = "flatout-form-line"
    fields = "".join(
        f'--{line}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in form["fields"].items()
    )
    head = f'--{line}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    whole = f"{fields}{head}".encode() + content + f"\r\n--{line}--\r\n".encode()
    return ask(form["url"], "POST", whole, {"Content-Type": f"multipart/form-data; boundary={line}"})
