"""What goes wrong is one of Python's own exceptions, with what was done to what, why it failed and what to do about it."""

import builtins
import pickle
import socket

import pytest

import flatout


def check(error, kind, *classes):
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
        ({"part_size": "a few"}, "part-size", None),
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
    assert "window" in str(error)


@pytest.mark.parametrize("url", ["key", "s4://b/k", "s3:/b/k", "s3://", "s3://b", "s3://u:secret@b/k"])
def test_urls(client, url):
    error = refused(lambda: client.read(url))
    check(error, "usage", ValueError)
    assert "secret" not in str(error)


def test_unsupported(client):
    check(refused(lambda: client.ls("http://127.0.0.1:1/")), "unsupported", flatout.Unsupported, NotImplementedError)
    check(refused(lambda: client.open("s3://b/k", "wb")), "unsupported", NotImplementedError)


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
    assert len(kinds.split()) == len(flatout.errors.__all__) - 1
    for name in flatout.errors.__all__:
        error = getattr(flatout.errors, name)(kind="k", doing="read", object="s3://b/k", cause="why", hint="do")
        assert str(error) == "read: s3://b/k: why\n  hint: do"
