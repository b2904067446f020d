"""What goes wrong is one of Python's own exceptions, with what was done to what, why it failed and what to do about it."""

import asyncio
import builtins
import pathlib
import pickle
import re
import socket

import pytest

import flatout


def check(error, kind, *classes):
    said = str(error).replace("flatout serve --", "")
    assert not re.search(r"(^|[^-\w])--[a-z]", said), f"a flag of the command line: {error}"
    assert error.kind == kind and isinstance(error, flatout.FlatoutError)
    for each in classes:
        assert isinstance(error, each), type(error).__mro__
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.hint) == (type(error), str(error), error.hint)


def refused(call):
    with pytest.raises(flatout.FlatoutError) as caught:
        call()
    return caught.value


def test_not_found(client, bucket):
    for call in (client.read, client.stat, lambda url: client.readinto(url, bytearray(1)), client.file):
        error = refused(lambda: call(bucket.url("nothing")))
        check(error, "not_found", flatout.NotFound, FileNotFoundError, OSError)
        assert error.errno == 2 and error.filename == error.object == bucket.url("nothing")
        assert error.doing in ("read", "stat") and "no such object" in error.cause
        assert str(error).endswith(f"hint: {error.hint}") and error.message in str(error)


def test_denied(serve, bucket, monkeypatch):
    url = bucket.put("key", b"1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    error = refused(lambda: flatout.Client(**serve.settings).read(url))
    check(error, "denied", flatout.AccessDenied, PermissionError)
    assert error.hint and "another" not in str(error)


def test_throttled_and_network(started):
    origin = started("--synthetic", "data/key=1KiB", "--no-auth", "--error", "1:SlowDown")
    client = flatout.Client(no_sign_request=True, retries=0, **origin.settings)
    check(refused(lambda: client.read("s3://data/key")), "throttled", flatout.Throttled, ConnectionError)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/key"
        client = flatout.Client(retries=0)
        check(refused(lambda: client.read(url)), "network", flatout.NetworkError, ConnectionError)


def test_timeout():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/key"
        client = flatout.Client(retries=0, stall_timeout="200ms")
        check(refused(lambda: client.read(url)), "timeout", flatout.Timeout, builtins.TimeoutError)


def test_corrupt(started):
    origin = started("--synthetic", "data/key=1MiB", "--no-auth", "--flip", "1")
    client = flatout.Client(no_sign_request=True, retries=0, **origin.settings)
    check(refused(lambda: client.read("s3://data/key")), "corrupt", flatout.Corrupt, OSError)


def test_untrusted(started, tmp_path):
    origin = started("--synthetic", "data/key=1KiB", "--no-auth", "--tls", str(tmp_path / "authority"))
    url = origin.url + "/data/key"
    check(refused(lambda: flatout.Client(retries=0).read(url)), "untrusted", flatout.Untrusted, ConnectionError)
    assert len(flatout.Client(ca_bundle=str(tmp_path / "authority")).read(url)) == 1024


@pytest.mark.parametrize(
    "settings, said, hint",
    [
        ({"parallell": 1}, "there is no setting 'parallell'", "did you mean 'parallel'?"),
        ({"part_size": "a few"}, "part_size: 'a few' is not", None),
        ({"shards": 0}, "out of bounds", None),
        ({"secret_access_key": "x"}, "there is no setting", "keys are no settings"),
        ({"cache": "off"}, "there is no setting", None),
    ],
)
def test_settings(settings, said, hint):
    error = refused(lambda: flatout.Client(**settings))
    check(error, "usage", flatout.UsageError, ValueError)
    assert said in str(error) and (hint or "") in (error.hint or "")


def test_settings_that_make_no_sense_together(bucket):
    error = refused(lambda: flatout.Client(window="4MiB", part_size="4MiB").read("s3://b/k"))
    check(error, "usage", ValueError)
    assert str(error) == (
        'settings: window: 4MiB is too small for part_size="4MiB": write window="8MiB" or more, or a smaller part_size'
    )


def test_hints_named_flags_of_the_command_line(serve, bucket, started, tmp_path, monkeypatch):
    def hinted(call, kind, hint):
        error = refused(call)
        check(error, kind)
        assert hint in error.hint, error

    url = bucket.url("key")
    hinted(lambda: flatout.Client(memory="16MiB", parallel=1000).read(url), "usage", 'write memory="')
    hinted(lambda: flatout.Client(resolve="nonsense").read(url), "usage", 'for example resolve="s3.example.com:443:')
    hinted(lambda: flatout.Client().read("oss://bucket/key"), "usage", 'write oss_region="cn-hangzhou" or oss_endpoint="')
    unsigned = {**serve.settings, "no_sign_request": True}
    hinted(lambda: flatout.Client(**unsigned).read(url), "denied", "no_sign_request=True is on")
    hinted(lambda: flatout.Client(**serve.settings).stat(url), "not_found", "`flatout.ls` shows what a bucket holds")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    other = flatout.Client(endpoint_url=serve.settings["endpoint_url"])
    hinted(lambda: other.read(url), "denied", "choose other keys with profile, or none with no_sign_request=True")
    origin = started("--synthetic", "data/key=1KiB", "--no-auth", "--tls", str(tmp_path / "authority"))
    hinted(lambda: flatout.Client(retries=0).read(origin.url + "/data/key"), "untrusted", 'with ca_bundle="FILE"')


@pytest.mark.parametrize("url", ["key", "s4://b/k", "s3:/b/k", "s3://", "s3://b", "s3://u:secret@b/k"])
def test_urls(client, url):
    error = refused(lambda: client.read(url))
    check(error, "usage", ValueError)
    assert "secret" not in str(error)


def test_unsupported(client):
    check(refused(lambda: client.ls("http://127.0.0.1:1/")), "unsupported", flatout.Unsupported, NotImplementedError)
    check(refused(lambda: client.open("s3://b/k", "r+")), "unsupported", NotImplementedError)


def test_a_closed_client(serve, bucket):
    url = bucket.put("key", b"1")
    client = flatout.Client(**serve.settings)
    file = client.open(url)
    assert client.read(url) == b"1"
    client.close()
    client.close()
    for call in (lambda: client.read(url), lambda: file.read()):
        check(refused(call), "cancelled", flatout.Cancelled)


def test_every_kind_has_a_class():
    # The engine's kinds, by their names in JSON (docs/json.md).
    kinds = "usage not_found denied untrusted throttled changed corrupt network timeout local_io cancelled unsupported internal"
    # FlatoutError has none of its own, and AlreadyExists that of ObjectChanged.
    assert len(kinds.split()) == len(flatout.errors.__all__) - 2
    for name in flatout.errors.__all__:
        error = getattr(flatout.errors, name)(kind="k", doing="read", object="s3://b/k", cause="why", hint="do")
        assert str(error) == "read: s3://b/k: why\n  hint: do"


@pytest.mark.parametrize(
    "call, kind, said",
    [
        (lambda c: c.readinto("s3://b/k", bytearray(1), offset=-5), ValueError, "offset is -5, and counts from 0 on: start=-5 counts from the end"),
        (lambda c: c.readinto("s3://b/k", bytearray(1), length=-1), ValueError, "length is -1, and counts from 0 on"),
        (lambda c: c.readinto("s3://b/k", bytearray(1), 0, 5, offset=5), ValueError, "offset and length name a range, and so do start and end"),
        (lambda c: c.read("s3://b/k", "5"), TypeError, "start is an int, not str"),
        (lambda c: c.read("s3://b/k", 0, 5.0), TypeError, "end is an int, not float"),
        (lambda c: c.read("s3://b/k", 1 << 70), ValueError, "start is 1180591620717411303424, and nothing is so long"),
        (lambda c: c.read(pathlib.Path("s3://b/k")), TypeError, "url is a str such as 's3://BUCKET/KEY', not PosixPath: a path makes one '/' of the two"),
        (lambda c: c.read(None), TypeError, "url is a str such as 's3://BUCKET/KEY', not NoneType"),
        (lambda c: c.stat(b"s3://b/k"), TypeError, "url is a str such as 's3://BUCKET/KEY', not bytes"),
        (lambda c: c.read_ranges("s3://b/k", 5), TypeError, r"ranges is a list of pairs \(start, end\), not int"),
        (lambda c: c.read_ranges("s3://b/k", [(0, 1), 5]), TypeError, r"ranges\[1\] is a pair \(start, end\), not int"),
        (lambda c: c.read_ranges("s3://b/k", [slice(0, 5)]), TypeError, r"ranges\[0\] is a pair \(start, end\), not slice"),
        (lambda c: c.read_ranges("s3://b/k", [(0, "1")]), TypeError, r"ranges\[0\] is an int, not str"),
        (lambda c: c.read_ranges("s3://b/k", [(0, 1)], max_gap=-1), ValueError, "max_gap is -1"),
        (lambda c: c.read_many("s3://b/k"), TypeError, r"urls is a list of URLs, not one str: write read_many\(\[url\]\)"),
        (lambda c: list(c.read_many(["http://127.0.0.1:1/k", 5], concurrency=2)), TypeError, r"urls\[1\]: an object to read is a URL"),
        (lambda c: c.read_many([], concurrency=-5), ValueError, "concurrency is -5"),
        (lambda c: c.download_many(["s3://b/k"]), TypeError, r"pairs\[0\] is \(url, path\), not str"),
        (lambda c: c.download_many([("s3://b/k", 5)]), TypeError, r"pairs\[0\]\[1\] is a path, not int"),
        (lambda c: c.presign("s3://b/k", expires=-1), ValueError, "expires is -1"),
        (lambda c: c.presign("s3://b/k", expires="1h"), TypeError, "expires is an int of seconds or a timedelta, not str"),
        (lambda c: c.file("s3://b/k", size=-1), ValueError, "size is -1"),
        (lambda c: c.read("flatout+s3://b/k"), ValueError, "flatout\\+s3:// is the spelling for fsspec\n  hint: write s3://BUCKET/KEY"),
        (lambda c: c.read("flatout://b/k"), ValueError, "hint: write s3://BUCKET/KEY here, or open it by fsspec.open"),
        (lambda c: c.read("flatout+oss://b/k"), ValueError, "hint: write oss://BUCKET/KEY"),
    ],
)
def test_a_wrong_argument_is_named(client, call, kind, said):
    """"can't convert negative int to unsigned", "'PosixPath' object is not an instance of 'str'": of which argument?"""
    with pytest.raises(kind, match=said):
        call(client)


def test_asyncio_names_a_wrong_argument_too(client):
    reader = flatout.AsyncClient(client)

    async def refused(call, kind, said):
        with pytest.raises(kind, match=said):
            await call()

    async def main():
        await refused(lambda: reader.read("s3://b/k", "5"), TypeError, "start is an int, not str")
        await refused(lambda: reader.read(pathlib.Path("k")), TypeError, "url is a str")
        await refused(lambda: reader.readinto("s3://b/k", bytearray(1), offset=-5), ValueError, "offset is -5")
        await refused(lambda: reader.read_ranges("s3://b/k", [5]), TypeError, "ranges\\[0\\] is a pair")
        await refused(lambda: reader.download_many(["s3://b/k"]), TypeError, "pairs\\[0\\] is")
        await refused(lambda: reader.presign("s3://b/k", expires=-1), ValueError, "expires is -1")
        with pytest.raises(TypeError, match="urls is a list of URLs, not one str"):
            reader.read_many("s3://b/k")

    asyncio.run(main())


def test_an_etag_that_was_wrong_from_the_start(client, bucket):
    """It said "replaced while it was read … start again": which never helps."""
    url = bucket.put("key", b"123")
    for call in (
        lambda: client.read(url, if_match='"another"'),
        lambda: client.readinto(url, bytearray(3), if_match='"another"'),
        lambda: client.read_ranges(url, [(0, 3)], if_match='"another"'),
        lambda: asyncio.run(flatout.AsyncClient(client).read(url, if_match='"another"')),
    ):
        error = refused(call)
        check(error, "changed", flatout.ObjectChanged)
        assert error.cause == 'the object\'s ETag is not "another"' and "stat" in error.hint and "start again" not in str(error)
