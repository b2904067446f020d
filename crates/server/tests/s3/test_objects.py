"""Objects: what was put is what is got, whole and in ranges, with its metadata and tags."""

import datetime
import http.client
import urllib.parse

import pytest

from support import anonymous, ask, body, client, data, headers, md5, put_all, refused, status

MIB = 1 << 20


def test_object_write_to_nonexist_bucket(s3):
    refused(s3.put_object, 404, "NoSuchBucket", Bucket="whatchutalkinboutwillis", Key="foo", Body=b"foo")


def test_object_read_notexist(s3, bucket):
    refused(s3.get_object, 404, "NoSuchKey", Bucket=bucket, Key="bar")


def test_object_requestid_matches_header_on_error(s3, bucket):
    response = refused(s3.get_object, 404, Bucket=bucket, Key="bar")
    assert response["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"]


def test_object_head_zero_bytes(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"")
    assert s3.head_object(Bucket=bucket, Key="foo")["ContentLength"] == 0


def test_object_write_check_etag(s3, bucket):
    answer = s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")
    assert answer["ETag"] == '"37b51d194a7513e45b56f6524f2d51f2"'


def test_object_same_bytes_same_etag(s3, bucket):
    etags = {s3.put_object(Bucket=bucket, Key=key, Body=b"bar")["ETag"] for key in ("a", "b", "a")}
    etags |= {entry["ETag"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert etags == {'"37b51d194a7513e45b56f6524f2d51f2"'}


def test_object_write_cache_control(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", CacheControl="public, max-age=14400")
    assert s3.head_object(Bucket=bucket, Key="foo")["CacheControl"] == "public, max-age=14400"


def test_object_write_expires(s3, bucket):
    expires = datetime.datetime(2031, 5, 6, 7, 8, 9, tzinfo=datetime.timezone.utc)
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", Expires=expires)
    for answer in (s3.head_object(Bucket=bucket, Key="foo"), s3.get_object(Bucket=bucket, Key="foo")):
        assert headers(answer)["expires"] == "Tue, 06 May 2031 07:08:09 GMT"


def test_object_write_read_update_read_delete(s3, bucket):
    for content in (b"bar", b"soup"):
        s3.put_object(Bucket=bucket, Key="foo", Body=content)
        assert body(s3, bucket, "foo") == content
    assert status(s3.delete_object(Bucket=bucket, Key="foo")) == 204


def test_object_write_file(s3, bucket, tmp_path):
    path = tmp_path / "foo"
    path.write_bytes(data(100_000))
    with path.open("rb") as file:
        s3.put_object(Bucket=bucket, Key="foo", Body=file)
    assert body(s3, bucket, "foo") == data(100_000)


def test_object_write_with_chunked_transfer_encoding(s3, bucket):
    # S3 wants to know how much comes.
    url = urllib.parse.urlsplit(s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "foo"}))
    connection = http.client.HTTPConnection(url.netloc, timeout=60)
    connection.request("PUT", f"{url.path}?{url.query}", body=iter([b"bar"]), encode_chunked=True)
    assert connection.getresponse().status == 411


METADATA = {
    "none_to_good": "mymeta",
    "none_to_empty": "",
}


@pytest.mark.parametrize("case", METADATA)
def test_object_set_get_metadata(s3, bucket, case):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", Metadata={"meta1": METADATA[case]})
    assert s3.get_object(Bucket=bucket, Key="foo")["Metadata"] == {"meta1": METADATA[case]}


def test_object_set_get_metadata_overwrite_to_empty(s3, bucket):
    for text in ("oldmeta", ""):
        s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", Metadata={"meta1": text})
        assert s3.head_object(Bucket=bucket, Key="foo")["Metadata"] == {"meta1": text}


def test_object_set_get_unicode_metadata(s3, bucket):
    # What is not ASCII is encoded as RFC 2047 says.
    def encode(params, **_):
        params["headers"]["x-amz-meta-meta1"] = "Hello World\u00e9".encode().decode("latin-1")

    s3.meta.events.register_first("before-call.s3.PutObject", encode)
    try:
        s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")
    finally:
        s3.meta.events.unregister("before-call.s3.PutObject", encode)
    assert "meta1" in s3.get_object(Bucket=bucket, Key="foo")["Metadata"]


def test_object_metadata_replaced_on_put(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", Metadata={"meta1": "bar"})
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")
    assert s3.get_object(Bucket=bucket, Key="foo")["Metadata"] == {}


def test_object_headers_are_given_back(s3, bucket):
    said = {
        "ContentType": "text/plain; charset=utf-8",
        "ContentEncoding": "gzip",
        "ContentLanguage": "de, en",
        "ContentDisposition": 'attachment; filename="a.txt"',
        "CacheControl": "no-store",
    }
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", **said)
    answer = s3.head_object(Bucket=bucket, Key="foo")
    assert {name: answer[name] for name in said} == said


def test_object_content_encoding_aws_chunked(s3, bucket):
    for sent, kept in (("gzip", "gzip"), ("deflate, gzip", "deflate,gzip"), ("aws-chunked, gzip", "gzip"), ("aws-chunked", None)):
        s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", ContentEncoding=sent)
        found = s3.head_object(Bucket=bucket, Key="foo").get("ContentEncoding")
        assert (found or "").replace(" ", "") == (kept or "")


NAMES = [" ", '"', "$", "%", "&", "'", "<", ">", "_", "_ ", "_ _", "__", "a+b", "a b", "ü/ä", "100%25", "a?b#c", "~"]


@pytest.mark.parametrize("name", NAMES)
def test_bucket_create_special_key_names(s3, bucket, name):
    s3.put_object(Bucket=bucket, Key=name, Body=name.encode())
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [name]
    assert body(s3, bucket, name) == name.encode()
    s3.delete_object(Bucket=bucket, Key=name)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


ODD = ["folder/", "a//b", "a/../b", "../up", "./a", "/lead", "n" * 1024, "x/" * 300, "a/./b", "..", "c\u0001"]


@pytest.mark.parametrize("name", range(len(ODD)))
def test_keys_that_are_no_paths(s3, bucket, name):
    name = ODD[name]
    s3.put_object(Bucket=bucket, Key=name, Body=name.encode(), Metadata={"a": "b"})
    assert s3.list_objects_v2(Bucket=bucket, EncodingType="url")["KeyCount"] == 1
    assert body(s3, bucket, name) == name.encode()
    assert s3.head_object(Bucket=bucket, Key=name)["Metadata"] == {"a": "b"}
    refused(s3.delete_bucket, 409, "BucketNotEmpty", Bucket=bucket)
    s3.delete_object(Bucket=bucket, Key=name)
    refused(s3.get_object, 404, "NoSuchKey", Bucket=bucket, Key=name)
    s3.delete_bucket(Bucket=bucket)


@pytest.mark.parametrize("order", [["a", "a/b", "a/b/c"], ["a/b/c", "a/b", "a"], ["a/b", "a", "a/b/c"]])
def test_a_key_may_be_the_folder_of_another(s3, bucket, order):
    put_all(s3, bucket, order)
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == sorted(order)
    for key in order:
        assert body(s3, bucket, key) == key.encode()
    for key in order:
        s3.delete_object(Bucket=bucket, Key=key)
        refused(s3.get_object, 404, "NoSuchKey", Bucket=bucket, Key=key)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_object_read_unreadable(s3, bucket):
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "KEY"})
    host = url.split("/case-")[0]
    assert ask(f"{host}/{bucket}/%AE%8A-")[0] in (400, 403)


# Ranges


RANGES = {
    "ranged_request_response_code": ("bytes=4-7", 4, 8),
    "ranged_request_skip_leading_bytes_response_code": ("bytes=4-", 4, 11),
    "ranged_request_return_trailing_bytes_response_code": ("bytes=-7", 4, 11),
    "ranged_request_past_the_end": ("bytes=4-100", 4, 11),
    "ranged_request_one_byte": ("bytes=0-0", 0, 1),
}


@pytest.mark.parametrize("case", RANGES)
def test_range(s3, bucket, case):
    asked, start, end = RANGES[case]
    content = b"testcontent"
    s3.put_object(Bucket=bucket, Key="testobj", Body=content)
    answer = s3.get_object(Bucket=bucket, Key="testobj", Range=asked)
    assert status(answer) == 206
    assert answer["ContentRange"] == f"bytes {start}-{end - 1}/11"
    assert answer["Body"].read() == content[start:end]


def test_ranged_big_request_response_code(s3, bucket):
    content = data(8 * MIB)
    s3.put_object(Bucket=bucket, Key="testobj", Body=content)
    answer = s3.get_object(Bucket=bucket, Key="testobj", Range="bytes=3145728-5242880")
    assert (status(answer), answer["ContentRange"]) == (206, f"bytes 3145728-5242880/{8 * MIB}")
    assert answer["Body"].read() == content[3145728:5242881]


def test_ranged_request_invalid_range(s3, bucket):
    s3.put_object(Bucket=bucket, Key="testobj", Body=b"testcontent")
    refused(s3.get_object, 416, "InvalidRange", Bucket=bucket, Key="testobj", Range="bytes=40-50")


def test_ranged_request_empty_object(s3, bucket):
    s3.put_object(Bucket=bucket, Key="testobj", Body=b"")
    refused(s3.get_object, 416, "InvalidRange", Bucket=bucket, Key="testobj", Range="bytes=40-50")


# One write at a time is seen


@pytest.mark.parametrize("size", [1, 4, 8])
def test_atomic_read(s3, bucket, size):
    before, after = b"A" * (size * MIB), b"B" * (size * MIB)
    s3.put_object(Bucket=bucket, Key="testobj", Body=before)
    answer = s3.get_object(Bucket=bucket, Key="testobj")["Body"]
    start = answer.read(100)
    s3.put_object(Bucket=bucket, Key="testobj", Body=after)
    assert start + answer.read() == before
    assert body(s3, bucket, "testobj") == after


class Slowly:
    """A body that does something before its last half goes out."""

    def __init__(self, content, act):
        self.content, self.act, self.at = content, act, 0

    def __len__(self):
        return len(self.content)

    def tell(self):
        return self.at

    def seek(self, offset, whence=0):
        self.at = (0, self.at, len(self.content))[whence] + offset
        return self.at

    def read(self, size=-1):
        size = len(self.content) if size < 0 else size
        piece = self.content[self.at : self.at + size]
        self.at += len(piece)
        if self.act and self.at > len(self.content) // 2:
            self.act, act = None, self.act
            act()
        return piece


def put_slowly(url, bucket, content, act, expected=200):
    """A PUT during which something happens."""
    signed = client(url).generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "testobj"})
    found = ask(signed, "PUT", Slowly(content, act), {"content-length": str(len(content))})
    assert found[0] == expected, found


@pytest.mark.parametrize("size", [1, 4, 8])
def test_atomic_write(url, s3, bucket, size):
    before, after = b"A" * (size * MIB), b"B" * (size * MIB)
    s3.put_object(Bucket=bucket, Key="testobj", Body=before)
    put_slowly(url, bucket, after, lambda: check_content(s3, bucket, before))
    check_content(s3, bucket, after)


@pytest.mark.parametrize("size", [1, 4, 8])
def test_atomic_dual_write(url, s3, bucket, size):
    first, second = b"A" * (size * MIB), b"B" * (size * MIB)
    put_slowly(url, bucket, first, lambda: s3.put_object(Bucket=bucket, Key="testobj", Body=second))
    # Who ends last wins, whole.
    check_content(s3, bucket, first)


def check_content(s3, bucket, content):
    assert md5(body(s3, bucket, "testobj")) == md5(content)


def test_atomic_write_bucket_gone(url, s3, bucket):
    put_slowly(url, bucket, b"A" * MIB, lambda: s3.delete_bucket(Bucket=bucket), expected=404)


# Continue, before the body


@pytest.mark.parametrize("signed, line", [(True, b"HTTP/1.1 100"), (False, b"HTTP/1.1 403")])
def test_100_continue(url, s3, bucket, signed, line):
    target = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "foo"})
    target = urllib.parse.urlsplit(target if signed else f"{url}/{bucket}/foo")
    connection = http.client.HTTPConnection(target.netloc, timeout=60)
    connection.connect()
    head = f"PUT {target.path}?{target.query} HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    connection.sock.sendall(head.encode())
    assert connection.sock.recv(12) == line
    connection.close()


# Tags


def tags(pairs):
    return {"TagSet": [{"Key": key, "Value": value} for key, value in pairs]}


def tags_of(s3, bucket, key="foo"):
    found = s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    return sorted((tag["Key"], tag["Value"]) for tag in found)


def test_get_obj_tagging(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    pairs = [(str(number), str(number)) for number in range(2)]
    assert status(s3.put_object_tagging(Bucket=bucket, Key="foo", Tagging=tags(pairs))) == 200
    assert tags_of(s3, bucket) == pairs


def test_get_obj_head_tagging(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Tagging="0=0&1=1")
    assert s3.get_object(Bucket=bucket, Key="foo")["TagCount"] == 2


def test_put_max_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    pairs = [(str(number), str(number)) for number in range(10)]
    s3.put_object_tagging(Bucket=bucket, Key="foo", Tagging=tags(pairs))
    assert tags_of(s3, bucket) == pairs


def test_put_excess_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    pairs = [(str(number), str(number)) for number in range(11)]
    refused(s3.put_object_tagging, 400, "BadRequest", "InvalidTag", Bucket=bucket, Key="foo", Tagging=tags(pairs))
    assert tags_of(s3, bucket) == []


def test_put_max_kvsize_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    pairs = [(f"{number}" + "k" * 127, "v" * 256) for number in range(10)]
    s3.put_object_tagging(Bucket=bucket, Key="foo", Tagging=tags(pairs))
    assert tags_of(s3, bucket) == pairs


def test_put_excess_key_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    refused(s3.put_object_tagging, 400, "InvalidTag", Bucket=bucket, Key="foo", Tagging=tags([("k" * 129, "v")]))


def test_put_excess_val_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    refused(s3.put_object_tagging, 400, "InvalidTag", Bucket=bucket, Key="foo", Tagging=tags([("k", "v" * 257)]))


def test_put_modify_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo")
    for pairs in ([("key", "val"), ("key2", "val2")], [("key3", "val3")]):
        s3.put_object_tagging(Bucket=bucket, Key="foo", Tagging=tags(pairs))
        assert tags_of(s3, bucket) == pairs


def test_put_delete_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Tagging="a=b")
    assert status(s3.delete_object_tagging(Bucket=bucket, Key="foo")) == 204
    assert tags_of(s3, bucket) == []


def test_put_obj_with_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=data(100), Tagging="foo=bar&bar")
    assert body(s3, bucket, "foo") == data(100)
    assert tags_of(s3, bucket) == [("bar", ""), ("foo", "bar")]


def test_tags_change_neither_bytes_nor_etag(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", Metadata={"a": "b"})
    before = s3.head_object(Bucket=bucket, Key="foo")
    s3.put_object_tagging(Bucket=bucket, Key="foo", Tagging=tags([("a", "b")]))
    after = s3.head_object(Bucket=bucket, Key="foo")
    for name in ("ETag", "LastModified", "ContentLength", "Metadata"):
        assert before[name] == after[name]


def test_tags_of_nothing(s3, bucket):
    refused(s3.get_object_tagging, 404, "NoSuchKey", Bucket=bucket, Key="foo")
    refused(s3.put_object_tagging, 404, "NoSuchKey", Bucket=bucket, Key="foo", Tagging=tags([("a", "b")]))


def test_object_storage_class(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", StorageClass="STANDARD_IA")
    assert s3.head_object(Bucket=bucket, Key="foo")["StorageClass"] == "STANDARD_IA"
    assert s3.list_objects_v2(Bucket=bucket)["Contents"][0]["StorageClass"] == "STANDARD_IA"
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")
    assert "StorageClass" not in s3.head_object(Bucket=bucket, Key="foo")


# What is not there is refused by name


UNKNOWN = {
    "sse": ({"ServerSideEncryption": "aws:kms"}, "x-amz-server-side-encryption"),
    "sse_s3": ({"ServerSideEncryption": "AES256"}, "x-amz-server-side-encryption"),
    "acl": ({"ACL": "public-read"}, "x-amz-acl"),
    "grant": ({"GrantRead": "id=somebody"}, "x-amz-grant-read"),
    "redirect": ({"WebsiteRedirectLocation": "/other"}, "x-amz-website-redirect-location"),
    "archive": ({"StorageClass": "GLACIER"}, "x-amz-storage-class"),
    "lock": ({"ObjectLockLegalHoldStatus": "ON"}, "x-amz-object-lock-legal-hold"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_there_is_refused_by_name(s3, bucket, case):
    arguments, name = UNKNOWN[case]
    calls = [
        (s3.put_object, {"Body": b"bar"}),
        (s3.create_multipart_upload, {}),
        (s3.copy_object, {"CopySource": f"{bucket}/other"}),
    ]
    s3.put_object(Bucket=bucket, Key="other", Body=b"bar")
    for call, more in calls:
        response = refused(call, 501, "NotImplemented", Bucket=bucket, Key="foo", **more, **arguments)
        assert name in response["Error"]["Message"]
    refused(s3.head_object, 404, Bucket=bucket, Key="foo")


def test_object_acl_default(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", ACL="private")
    answer = s3.get_object_acl(Bucket=bucket, Key="foo")
    assert [(grant["Permission"], grant["Grantee"]["ID"]) for grant in answer["Grants"]] == [
        ("FULL_CONTROL", answer["Owner"]["ID"])
    ]


def test_object_acl_canned_bucketownerfullcontrol(s3, bucket):
    s3.put_object(Bucket=bucket, Key="foo", Body=b"bar", ACL="bucket-owner-full-control")
    assert len(s3.get_object_acl(Bucket=bucket, Key="foo")["Grants"]) == 1


def test_object_anon_put(url, bucket):
    refused(anonymous(url).put_object, 403, "AccessDenied", Bucket=bucket, Key="foo", Body=b"bar")


def test_object_put_authenticated(s3, bucket):
    assert status(s3.put_object(Bucket=bucket, Key="foo", Body=b"bar")) == 200
