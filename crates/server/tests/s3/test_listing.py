"""ListObjects, ListObjectsV2 and ListObjectVersions."""

import urllib.parse

import pytest

from support import anonymous, put_all, refused, status

# Case: keys, arguments of the listing, keys and common prefixes that it shows.
CASES = {
    "distinct": (["asdf"], {}, ["asdf"], []),
    "empty": ([], {}, [], []),
    "delimiter_basic": (
        ["foo/bar", "foo/bar/xyzzy", "quux/thud", "asdf"],
        {"Delimiter": "/"},
        ["asdf"],
        ["foo/", "quux/"],
    ),
    "delimiter_alt": (["bar", "baz", "cab", "foo"], {"Delimiter": "a"}, ["foo"], ["ba", "ca"]),
    "delimiter_percentage": (["b%ar", "b%az", "c%ab", "foo"], {"Delimiter": "%"}, ["foo"], ["b%", "c%"]),
    "delimiter_whitespace": (["b ar", "b az", "c ab", "foo"], {"Delimiter": " "}, ["foo"], ["b ", "c "]),
    "delimiter_dot": (["b.ar", "b.az", "c.ab", "foo"], {"Delimiter": "."}, ["foo"], ["b.", "c."]),
    "delimiter_unreadable": (["bar", "baz", "cab", "foo"], {"Delimiter": "\x0a"}, ["bar", "baz", "cab", "foo"], []),
    "delimiter_empty": (["bar", "baz", "cab", "foo"], {"Delimiter": ""}, ["bar", "baz", "cab", "foo"], []),
    "delimiter_none": (["bar", "baz", "cab", "foo"], {}, ["bar", "baz", "cab", "foo"], []),
    "delimiter_not_exist": (["bar", "baz", "cab", "foo"], {"Delimiter": "/"}, ["bar", "baz", "cab", "foo"], []),
    "delimiter_prefix": (
        ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/bla"],
        {"Delimiter": "/", "Prefix": "boo/"},
        ["boo/bar"],
        ["boo/baz/"],
    ),
    "delimiter_prefix_ends_with_delimiter": (["asdf/"], {"Delimiter": "/", "Prefix": "asdf/"}, ["asdf/"], []),
    "delimiter_prefix_underscore": (
        ["_obj1_", "_under1/bar", "_under1/baz/xyzzy", "_under2/thud", "_under2/bla"],
        {"Delimiter": "/", "Prefix": ""},
        ["_obj1_"],
        ["_under1/", "_under2/"],
    ),
    "delimiter_not_skip_special": (
        ["0/", *(f"0/{number}" for number in range(1000, 1019)), "1999", "1999#", "1999+", "2000"],
        {"Delimiter": "/"},
        ["1999", "1999#", "1999+", "2000"],
        ["0/"],
    ),
    "prefix_basic": (["foo/bar", "foo/baz", "quux"], {"Prefix": "foo/"}, ["foo/bar", "foo/baz"], []),
    "prefix_alt": (["bar", "baz", "foo"], {"Prefix": "ba"}, ["bar", "baz"], []),
    "prefix_empty": (["foo/bar", "foo/baz", "quux"], {"Prefix": ""}, ["foo/bar", "foo/baz", "quux"], []),
    "prefix_none": (["foo/bar", "foo/baz", "quux"], {}, ["foo/bar", "foo/baz", "quux"], []),
    "prefix_not_exist": (["foo/bar", "foo/baz", "quux"], {"Prefix": "d"}, [], []),
    "prefix_unreadable": (["foo/bar", "foo/baz", "quux"], {"Prefix": "\x0a"}, [], []),
    "prefix_delimiter_basic": (
        ["foo/bar", "foo/baz/xyzzy", "quux/thud", "asdf"],
        {"Delimiter": "/", "Prefix": "foo/"},
        ["foo/bar"],
        ["foo/baz/"],
    ),
    "prefix_delimiter_alt": (
        ["bar", "bazar", "cab", "foo"],
        {"Delimiter": "a", "Prefix": "ba"},
        ["bar"],
        ["baza"],
    ),
    "prefix_delimiter_prefix_not_exist": (["b/a/r", "b/a/c", "b/a/g", "g"], {"Delimiter": "d", "Prefix": "/"}, [], []),
    "prefix_delimiter_delimiter_not_exist": (
        ["b/a/c", "b/a/g", "b/a/r", "g"],
        {"Delimiter": "z", "Prefix": "b"},
        ["b/a/c", "b/a/g", "b/a/r"],
        [],
    ),
    "prefix_delimiter_prefix_delimiter_not_exist": (
        ["b/a/c", "b/a/g", "b/a/r", "g"],
        {"Delimiter": "z", "Prefix": "y"},
        [],
        [],
    ),
    "special_prefix": (
        ["_bla/1", "_bla/2", "_bla/3", "_bla/4", "abcd"],
        {"Prefix": "_bla/"},
        ["_bla/1", "_bla/2", "_bla/3", "_bla/4"],
        [],
    ),
    # Beside those of the suite: keys that are no paths, in the order of their bytes.
    "odd_keys": (
        ["a", "a/", "a//b", "a/../b", "a/b", "a0", "n" * 300, "z/"],
        {},
        ["a", "a/", "a/../b", "a//b", "a/b", "a0", "n" * 300, "z/"],
        [],
    ),
    "odd_keys_delimiter": (["a", "a/", "a//b", "a/b", "b//c"], {"Delimiter": "/"}, ["a"], ["a/", "b/"]),
    "odd_keys_prefix": (["a", "a/", "a//b", "a/b"], {"Prefix": "a/"}, ["a/", "a//b", "a/b"], []),
}

VERSIONS = ("v1", "v2")


def page(s3, version, bucket, **arguments):
    call = s3.list_objects if version == "v1" else s3.list_objects_v2
    return call(Bucket=bucket, **arguments)


def keys_of(answer):
    return [entry["Key"] for entry in answer.get("Contents", [])]


def prefixes_of(answer):
    return [entry["Prefix"] for entry in answer.get("CommonPrefixes", [])]


def walk(s3, version, bucket, page_keys, **arguments):
    """All pages of so many entries each."""
    keys, prefixes, more = [], [], {}
    while True:
        answer = page(s3, version, bucket, MaxKeys=page_keys, **more, **arguments)
        assert len(keys_of(answer)) + len(prefixes_of(answer)) <= page_keys
        keys += keys_of(answer)
        prefixes += prefixes_of(answer)
        if not answer["IsTruncated"]:
            return keys, prefixes
        if version == "v2":
            more = {"ContinuationToken": answer["NextContinuationToken"]}
        else:
            more = {"Marker": answer.get("NextMarker") or keys[-1]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_list(s3, bucket, case, version):
    keys, arguments, shown, prefixes = CASES[case]
    put_all(s3, bucket, keys)
    answer = page(s3, version, bucket, **arguments)
    assert (keys_of(answer), prefixes_of(answer)) == (shown, prefixes)
    assert answer["IsTruncated"] is False
    if arguments.get("Delimiter"):
        assert answer["Delimiter"] == arguments["Delimiter"]
    else:
        assert "Delimiter" not in answer
    # boto3 decodes the prefix of the newer form alone.
    assert urllib.parse.unquote(answer.get("Prefix", "")) == arguments.get("Prefix", "")
    if version == "v2":
        assert answer["KeyCount"] == len(shown) + len(prefixes)
    for page_keys in (1, 2, 3):
        assert walk(s3, version, bucket, page_keys, **arguments) == (shown, prefixes)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_many(s3, bucket, version):
    put_all(s3, bucket, ["foo", "bar", "baz"])
    first = page(s3, version, bucket, MaxKeys=2)
    assert (keys_of(first), first["IsTruncated"]) == (["bar", "baz"], True)
    more = {"Marker": "baz"} if version == "v1" else {"StartAfter": "baz"}
    second = page(s3, version, bucket, MaxKeys=2, **more)
    assert (keys_of(second), second["IsTruncated"]) == (["foo"], False)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_maxkeys_one(s3, bucket, version):
    put_all(s3, bucket, ["bar", "baz", "foo", "quxx"])
    answer = page(s3, version, bucket, MaxKeys=1)
    assert (keys_of(answer), answer["IsTruncated"], answer["MaxKeys"]) == (["bar"], True, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_maxkeys_zero(s3, bucket, version):
    put_all(s3, bucket, ["bar", "baz"])
    answer = page(s3, version, bucket, MaxKeys=0)
    assert (keys_of(answer), answer["IsTruncated"]) == ([], False)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_maxkeys_none(s3, bucket, version):
    put_all(s3, bucket, ["bar", "baz"])
    answer = page(s3, version, bucket)
    assert (keys_of(answer), answer["IsTruncated"], answer["MaxKeys"]) == (["bar", "baz"], False, 1000)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_maxkeys_invalid(s3, bucket, version):
    # boto3 would not send it.
    def state(params, **_):
        params["url"] += ("&" if "?" in params["url"] else "?") + "max-keys=blah"

    s3.meta.events.register("before-call.s3", state)
    try:
        call = s3.list_objects if version == "v1" else s3.list_objects_v2
        refused(call, 400, "InvalidArgument", "InvalidRequest", Bucket=bucket)
    finally:
        s3.meta.events.unregister("before-call.s3", state)


def test_list_maxkeys_is_a_thousand_at_most(s3, bucket):
    put_all(s3, bucket, ["a"])
    assert page(s3, "v2", bucket, MaxKeys=5000)["MaxKeys"] == 1000


@pytest.mark.parametrize("version", VERSIONS)
def test_list_encoding_basic(s3, bucket, version):
    put_all(s3, bucket, ["foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "asdf+b"])
    answer = page(s3, version, bucket, Delimiter="/", EncodingType="url")
    assert (keys_of(answer), prefixes_of(answer)) == (["asdf%2Bb"], ["foo%2B1/", "foo/", "quux%20ab/"])
    assert answer["EncodingType"] == "url"


def test_list_marker_none(s3, bucket):
    put_all(s3, bucket, ["bar", "baz"])
    assert page(s3, "v1", bucket).get("Marker", "") == ""


def test_list_marker_empty(s3, bucket):
    put_all(s3, bucket, ["bar", "baz"])
    answer = page(s3, "v1", bucket, Marker="")
    assert (answer.get("Marker", ""), keys_of(answer)) == ("", ["bar", "baz"])


MARKERS = {
    "unreadable": ("\x0a", ["bar", "baz", "foo", "quxx"]),
    "not_in_list": ("blah", ["foo", "quxx"]),
    "after_list": ("zzz", []),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", MARKERS)
def test_list_marker(s3, bucket, case, version):
    marker, shown = MARKERS[case]
    put_all(s3, bucket, ["bar", "baz", "foo", "quxx"])
    name = "Marker" if version == "v1" else "StartAfter"
    answer = page(s3, version, bucket, **{name: marker})
    assert (answer[name], keys_of(answer), answer["IsTruncated"]) == (marker, shown, False)


def test_listv2_continuationtoken(s3, bucket):
    put_all(s3, bucket, ["bar", "baz", "foo", "quxx"])
    first = page(s3, "v2", bucket, MaxKeys=1)
    second = page(s3, "v2", bucket, ContinuationToken=first["NextContinuationToken"])
    assert second["ContinuationToken"] == first["NextContinuationToken"]
    assert (keys_of(second), second["IsTruncated"]) == (["baz", "foo", "quxx"], False)


def test_listv2_continuationtoken_empty(s3, bucket):
    put_all(s3, bucket, ["bar", "baz", "foo", "quxx"])
    answer = page(s3, "v2", bucket, ContinuationToken="")
    assert (answer["ContinuationToken"], keys_of(answer)) == ("", ["bar", "baz", "foo", "quxx"])


def test_listv2_continuationtoken_of_others(s3, bucket):
    refused(s3.list_objects_v2, 400, "InvalidArgument", Bucket=bucket, ContinuationToken="zzz")


def test_listv2_both_continuationtoken_startafter(s3, bucket):
    put_all(s3, bucket, ["bar", "baz", "foo", "quxx"])
    first = page(s3, "v2", bucket, StartAfter="bar", MaxKeys=1)
    second = page(s3, "v2", bucket, StartAfter="bar", ContinuationToken=first["NextContinuationToken"])
    assert (keys_of(first), keys_of(second)) == (["baz"], ["foo", "quxx"])
    assert second["StartAfter"] == "bar"


def test_listv2_fetchowner_notempty(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert page(s3, "v2", bucket, FetchOwner=True)["Contents"][0]["Owner"]["ID"]


def test_listv2_fetchowner_defaultempty(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert "Owner" not in page(s3, "v2", bucket)["Contents"][0]


def test_listv2_fetchowner_empty(s3, bucket):
    put_all(s3, bucket, ["foo"])
    assert "Owner" not in page(s3, "v2", bucket, FetchOwner=False)["Contents"][0]


def test_list_return_data(s3, bucket):
    put_all(s3, bucket, ["bar", "baz", "foo"])
    for entry in page(s3, "v1", bucket)["Contents"]:
        head = s3.head_object(Bucket=bucket, Key=entry["Key"])
        assert entry["ETag"] == head["ETag"]
        assert entry["Size"] == head["ContentLength"]
        assert entry["LastModified"].replace(microsecond=0) == head["LastModified"]
        assert entry["StorageClass"] == "STANDARD"
        assert entry["Owner"]["ID"] == s3.get_object_acl(Bucket=bucket, Key=entry["Key"])["Owner"]["ID"]


def test_basic_key_count(s3, bucket):
    put_all(s3, bucket, [str(number) for number in range(5)])
    assert page(s3, "v2", bucket)["KeyCount"] == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_list_objects_anonymous_fail(url, bucket, version):
    call = getattr(anonymous(url), "list_objects" if version == "v1" else "list_objects_v2")
    refused(call, 403, "AccessDenied", Bucket=bucket)


@pytest.mark.parametrize("version", VERSIONS)
def test_list_bucket_notexist(s3, version):
    call = s3.list_objects if version == "v1" else s3.list_objects_v2
    refused(call, 404, "NoSuchBucket", Bucket="no-such-bucket-here")


@pytest.mark.parametrize("version", VERSIONS)
def test_list_unordered(s3, bucket, version):
    # An extension of Ceph, which others ignore: what comes is in order.
    put_all(s3, bucket, ["b", "a", "c"])
    assert keys_of(page(s3, version, bucket)) == ["a", "b", "c"]


def test_list_versions_without_versions(s3, bucket):
    put_all(s3, bucket, ["a", "b/c", "d/"])
    answer = s3.list_object_versions(Bucket=bucket)
    assert [(entry["Key"], entry["VersionId"], entry["IsLatest"]) for entry in answer["Versions"]] == [
        ("a", "null", True),
        ("b/c", "null", True),
        ("d/", "null", True),
    ]
    assert "DeleteMarkers" not in answer
    folded = s3.list_object_versions(Bucket=bucket, Delimiter="/")
    assert prefixes_of(folded) == ["b/", "d/"]


def test_list_versions_in_pages(s3, bucket):
    put_all(s3, bucket, ["a", "b", "c"])
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    assert [entry["Key"] for found in pages for entry in found["Versions"]] == ["a", "b", "c"]


def test_get_version_null(s3, bucket):
    put_all(s3, bucket, ["a"])
    assert status(s3.get_object(Bucket=bucket, Key="a", VersionId="null")) == 200
    refused(s3.get_object, 404, "NoSuchVersion", Bucket=bucket, Key="a", VersionId="other")


def test_bucket_versioning_is_not_set(s3, bucket):
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
