"""flatout.compat.oss: the functions of Alibaba Cloud's recipe, and the classes of its packages, as programs call them."""

import datetime
import io
import json
import os
import pickle
import threading
import time
import types

import pytest

import flatout
import origins
from flatout.compat import oss

SIZE = 9 * 1024 * 1024 + 17


@pytest.fixture
def models(serve, monkeypatch):
    """A bucket with a model, named as the recipe names it: its bytes, and how to put another object."""
    name, data = origins.new_name(), origins.noise(SIZE)
    serve.s3.create_bucket(Bucket=name)
    monkeypatch.setenv("OSS_BUCKET_NAME", name)
    monkeypatch.setenv("OSS_BUCKET_ENDPOINT", serve.endpoint)
    monkeypatch.setenv("OSS_REGION", "cn-hangzhou")

    def put(key, body):
        serve.s3.put_object(Bucket=name, Key=key, Body=body)

    put("model.ckpt", data)
    put.data, put.name = data, name
    return put


def test_a_model_is_read_as_a_file_at_its_beginning(models):
    loaded = oss.read_remote_model("model.ckpt")
    assert isinstance(loaded, io.BytesIO) and loaded.tell() == 0
    assert loaded.getvalue() == models.data
    assert oss.read_remote_model(f"oss://{models.name}/model.ckpt").read() == models.data


@pytest.mark.parametrize(
    "start, size", [(0, -1), (0, 10), (5, -1), (5, 7), (SIZE - 3, -1), (SIZE - 3, 100), (SIZE, -1), (0, 0)]
)
def test_a_part_of_a_model_is_that_part(models, start, size):
    end = None if size == -1 else start + size
    assert oss.read_remote_model("model.ckpt", start, size).getvalue() == models.data[start:end]


def test_the_arguments_are_those_of_the_recipe(models):
    loaded = oss.read_remote_model(
        "model.ckpt", start=1, size=1 << 20, read_chunk_size=1 << 16, part_size=1 << 18, progress_callback=None
    )
    assert loaded.getvalue() == models.data[1 : 1 + (1 << 20)]


def test_what_makes_no_sense_is_refused(models):
    for start, size in ((-1, -1), (0, -2), (SIZE + 1, -1)):
        with pytest.raises(ValueError):
            oss.read_remote_model("model.ckpt", start, size)
    with pytest.raises(FileNotFoundError):
        oss.read_remote_model("missing.ckpt")


def test_progress_is_of_the_whole_and_ends_at_its_end(models):
    told = []
    oss.read_remote_model("model.ckpt", start=7, progress_callback=lambda done, total: told.append((done, total)))
    assert told[-1] == (SIZE - 7, SIZE - 7)
    assert all(total == SIZE - 7 for _, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_no_bytes_are_mixed_where_many_read_at_once(models):
    # The recipe's threads seek and write in one BytesIO: bytes land where another thread has moved to.
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(oss.read_remote_model("model.ckpt", part_size=64 << 10).getvalue())
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(result == models.data for result in results)


def test_a_model_replaced_meanwhile_is_no_mixture(models, monkeypatch):
    stat = flatout.Client.stat

    def stat_and_replace(self, url):
        told = stat(self, url)
        models("model.ckpt", origins.noise(SIZE, seed=1))
        return told

    monkeypatch.setattr(flatout.Client, "stat", stat_and_replace)
    with pytest.raises(flatout.ObjectChanged):
        oss.read_remote_model("model.ckpt")


def test_a_model_that_shrank_meanwhile_is_no_zeros(models, monkeypatch):
    stat = flatout.Client.stat

    def stat_without_etag(self, url):
        told = stat(self, url)
        models("model.ckpt", models.data[:-100])
        return types.SimpleNamespace(size=told.size, etag=None)

    monkeypatch.setattr(flatout.Client, "stat", stat_without_etag)
    with pytest.raises(flatout.ObjectChanged):
        oss.read_remote_model("model.ckpt")


def test_models_are_listed_by_their_extension(models):
    for key in ("B.CKPT", "weights.safetensors", "notes.txt", "deeper/c.ckpt"):
        models(key, b"x")
    assert sorted(oss.list_remote_models()) == ["B.CKPT", "model.ckpt"]
    assert oss.list_remote_models((".safetensors", ".txt")) == ["notes.txt", "weights.safetensors"]


def test_the_time_of_a_model_is_a_unix_time(models, serve):
    told = serve.s3.head_object(Bucket=models.name, Key="model.ckpt")["LastModified"]
    assert oss.get_remote_model_mmtime("model.ckpt") == int(told.timestamp())


def test_a_bucket_is_named_or_asked_for(models, monkeypatch):
    monkeypatch.delenv("OSS_BUCKET_NAME")
    with pytest.raises(flatout.UsageError, match="OSS_BUCKET_NAME"):
        oss.read_remote_model("model.ckpt")


# The packages osstorchconnector and ossmodelconnector; test_compat_torch.py has what needs PyTorch.


@pytest.fixture
def bucket(serve):
    return origins.Bucket(serve, origins.new_name())


@pytest.fixture
def arguments(serve):
    return {"endpoint": serve.endpoint, "region": "cn-hangzhou"}


KEYS = {"AccessKeyId": origins.ACCESS_KEY, "AccessKeySecret": origins.SECRET_KEY}


def written(path, content, mode=0o600):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return str(path)


def test_nothing_heavy_is_imported(python):
    program = "import sys, flatout.compat.oss; print([name for name in ('torch', 'numpy', 'safetensors') if name in sys.modules])"
    assert python(program) == "[]\n"
    with pytest.raises(AttributeError, match="has no attribute 'OssNothing'"):
        oss.OssNothing


def test_a_checkpoint_is_a_file(bucket, arguments):
    checkpoint = pickle.loads(pickle.dumps(oss.OssCheckpoint(**arguments)))
    with checkpoint.writer(bucket.url("run/1", "oss")) as file:
        file.write(b"state")
    with checkpoint.reader(f"/{bucket.name}/run/1") as file:
        assert (file.read(2), file.seek(0), file.read()) == (b"st", 0, b"state")
    with pytest.raises(KeyError), checkpoint.writer(bucket.url("run/2", "oss")):
        raise KeyError
    with pytest.raises(FileNotFoundError):
        checkpoint.reader(bucket.url("run/2", "oss"))


@pytest.mark.parametrize("uri", ["", "s3://b/k", "b/k", "oss://", "/", "oss:///k", "oss:/b/k", "//k"])
def test_what_names_no_bucket_is_refused(arguments, uri):
    with pytest.raises(flatout.UsageError, match="write oss://BUCKET/KEY or /BUCKET/KEY") as raised:
        oss.OssCheckpoint(**arguments).reader(uri)
    assert raised.value.object == uri


def test_an_object_of_a_dataset_is_a_file_that_is_read():
    for item in (oss.DataObject("/b/k", b"one\ntwo", "cat"), pickle.loads(pickle.dumps(oss.DataObject("/b/k", b"one\ntwo", "cat")))):
        assert (item.key, item.size, item.label, item.readable(), item.writable()) == ("/b/k", 7, "cat", True, False)
        assert (item.readline(), item.tell(), item.seek(-2, 2), item.read()) == (b"one\n", 4, 5, b"wo")
        other, place = item.copy(), bytearray(3)
        item.close()
        assert item.closed and other.readinto(place) == 3 and place == b"one" and other.label == "cat"
        for write in (lambda: other.write(b"x"), lambda: other.writelines([b"x"]), lambda: other.truncate(1)):
            with pytest.raises(io.UnsupportedOperation):
                write()
        assert other.getvalue() == b"one\ntwo" and "7 bytes" in repr(other)


def test_a_manifest_of_imagenet_is_parsed():
    text = b"a.png\tcat\tmore\n\nb.png\r\n  c.png\tdog  \n"
    assert list(oss.imagenet_manifest_parser(io.BytesIO(text))) == [("a.png", "cat"), ("b.png", ""), ("c.png", "dog")]


# Credentials


def test_keys_of_a_file(bucket, arguments, tmp_path, monkeypatch):
    url = bucket.put("one", b"1").replace("s3:", "oss:")
    for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name)
    path = written(tmp_path / "credentials", {**KEYS, "SecurityToken": "", "Expiration": "2999-08-02T15:04:05Z"}, 0o640)
    checkpoint = oss.OssCheckpoint(cred_path=path, **arguments)
    held = pickle.dumps(checkpoint)
    assert origins.SECRET_KEY.encode() not in held and path.encode() in held
    for each in (checkpoint, pickle.loads(held)):
        assert each.reader(url).read() == b"1"
    written(tmp_path / "credentials", {**KEYS, "AccessKeySecret": "wrong"})
    with pytest.raises(flatout.AccessDenied):
        oss.OssCheckpoint(cred_path=path, **arguments).reader(url)


def test_the_file_is_read_again_before_the_keys_end(bucket, arguments, tmp_path, monkeypatch):
    url = bucket.put("one", b"1").replace("s3:", "oss:")

    def refresh(**changed):
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=5)
        new = written(tmp_path / "new", {**KEYS, "Expiration": end.isoformat(timespec="seconds"), **changed})
        os.replace(new, tmp_path / "credentials")

    refresh()
    checkpoint = oss.OssCheckpoint(cred_path=str(tmp_path / "credentials"), **arguments)
    assert checkpoint.reader(url).read() == b"1"
    # The old ones still work when these are read.
    refresh(AccessKeySecret="wrong")
    until = time.monotonic() + origins.PATIENCE_S
    with pytest.raises(flatout.AccessDenied):
        while time.monotonic() < until:
            checkpoint.reader(url)
            time.sleep(0.1)


@pytest.mark.parametrize(
    "content, mode, said",
    [
        (KEYS, 0o604, "every user of this machine may read or write it: its mode is 0604\n  hint: chmod o-rw"),
        (KEYS, 0o602, "its mode is 0602"),
        ("{'AccessKeyId': 'very-secret'}", 0o600, "it is no JSON (line 1)"),
        ("[]", 0o600, "it holds no JSON object"),
        ({"AccessKeyId": "a"}, 0o600, "'AccessKeySecret' is missing or empty\n  hint: the file holds "),
        ({"AccessKeyId": "", "AccessKeySecret": "very-secret"}, 0o600, "'AccessKeyId' is missing or empty"),
        ({**KEYS, "SecurityToken": 5}, 0o600, "'SecurityToken' is no text"),
        ({**KEYS, "Expiration": "tomorrow"}, 0o600, "'Expiration' is 'tomorrow', not a time with a zone\n  hint: as in 2026"),
        ({**KEYS, "Expiration": "2999-08-02T15:04:05"}, 0o600, "not a time with a zone"),
        ({**KEYS, "Expiration": "2024-08-02T15:04:05Z"}, 0o600, "its keys ended at 2024-08-02T15:04:05Z"),
    ],
)
def test_a_file_without_usable_keys_is_refused(arguments, tmp_path, content, mode, said):
    path = written(tmp_path / "credentials", content, mode)
    with pytest.raises(flatout.AccessDenied) as raised:
        oss.OssCheckpoint(cred_path=path, **arguments)
    error = raised.value
    assert said in str(error) and error.object == path and error.kind == "denied"
    assert "very-secret" not in str(error) and origins.SECRET_KEY not in str(error)
    assert not isinstance(error.__cause__, json.JSONDecodeError) and error.__suppress_context__ == ("no JSON (" in said)


@pytest.mark.parametrize("half", ["", json.dumps(KEYS)[:20]])
def test_a_file_that_is_half_written_is_read_again(bucket, arguments, tmp_path, monkeypatch, half):
    url = bucket.put("one", b"1").replace("s3:", "oss:")
    for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name)
    path, pauses = written(tmp_path / "credentials", half), []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            written(tmp_path / "credentials", KEYS)

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", pause)
        checkpoint = oss.OssCheckpoint(cred_path=path, **arguments)
    assert checkpoint.reader(url).read() == b"1" and len(pauses) == 3 and sum(pauses) < 0.3


def test_a_file_that_is_not_there_is_refused(arguments, tmp_path):
    with pytest.raises(flatout.AccessDenied, match="it cannot be read: No such file or directory\n  hint: correct cred_path"):
        oss.OssCheckpoint(cred_path=str(tmp_path / "none"), **arguments)


class Provider:
    """As those of oss2 are."""

    def __init__(self, **changed):
        self.keys = {"key": origins.ACCESS_KEY, "secret": origins.SECRET_KEY, "token": "", **changed}

    def get_credentials(self):
        methods = {"get_access_key_id": "key", "get_access_key_secret": "secret", "get_security_token": "token"}
        return types.SimpleNamespace(**{name: lambda of=of: self.keys[of] for name, of in methods.items()})


class ProviderOfVersion2(Provider):
    def get_credentials(self):
        return types.SimpleNamespace(access_key_id=self.keys["key"], access_key_secret=self.keys["secret"], security_token=None)


@pytest.mark.parametrize("kind", [Provider, ProviderOfVersion2])
def test_keys_of_a_provider(bucket, arguments, monkeypatch, kind):
    url = bucket.put("one", b"1").replace("s3:", "oss:")
    for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name)
    # As there, it comes before a file.
    checkpoint = oss.OssCheckpoint(cred_provider=kind(), cred_path="nowhere", **arguments)
    for each in (checkpoint, pickle.loads(pickle.dumps(checkpoint))):
        assert each.reader(url).read() == b"1"
    with pytest.raises(flatout.AccessDenied, match="it raised TypeError: access_key_id is a str, not NoneType"):
        oss.OssCheckpoint(cred_provider=kind(key=None), **arguments).reader(url)


def test_a_provider_without_its_method_is_refused(arguments):
    with pytest.raises(flatout.UsageError, match="cred_provider is str, which has no method get_credentials"):
        oss.OssCheckpoint(cred_provider="key", **arguments)


# Configuration


CONFIG = {
    "logLevel": 1,
    "logPath": "/var/log/oss-connector/connector.log",
    "auditPath": "/var/log/oss-connector/audit.log",
    "expireTimeSec": 120,
    "datasetConfig": {"prefetchConcurrency": 24, "prefetchWorker": 2, "enableFastList": True},
    "checkpointConfig": {"prefetchConcurrency": 24, "prefetchWorker": 4, "uploadConcurrency": 64},
}


def settings_of(thing):
    return {name: value for name, value in thing._client.settings.items() if value is not None}


def test_the_configuration_becomes_settings(arguments, tmp_path):
    base = {"oss_endpoint": arguments["endpoint"], "oss_region": "cn-hangzhou"}
    given = {**arguments, "config_path": written(tmp_path / "config", CONFIG)}
    assert settings_of(oss.OssCheckpoint(**given)) == settings_of(oss.OssSafetensor(**given)) == {**base, "parallel": 64}
    assert settings_of(oss.OssModelConnector(**given)) == settings_of(oss.OssCheckpoint(**arguments)) == base
    for prefetch, parallel in (({"vcpus": 24, "workers": 32}, 768), ({"vcpus": 2}, 32), ({"vcpus": 400, "workers": 400}, 4096)):
        given["config_path"] = written(tmp_path / "config", {"prefetch": prefetch, "fastList": {"vcpus": 2}})
        assert settings_of(oss.OssModel(**given)) == {**base, "parallel": parallel}


@pytest.mark.parametrize(
    "content, said",
    [
        ("{", "the configuration file is no JSON: "),
        ("[]", "the configuration file holds no JSON object"),
        ({"loglevel": 1}, "there is no key 'loglevel'\n  hint: it may have auditPath, "),
        ({"datasetConfig": {"prefetchConcurency": 1}}, "there is no key 'datasetConfig.prefetchConcurency'\n  hint: it may have "),
        ({"datasetConfig": 5}, "'datasetConfig' holds no JSON object"),
        ({"checkpointConfig": {"uploadConcurrency": "64"}}, "'checkpointConfig.uploadConcurrency' is \"64\", not a number from 0 on"),
        ({"checkpointConfig": {"uploadConcurrency": -1}}, "is -1, not a number from 0 on"),
        ({"logLevel": True}, "'logLevel' is true, not a number"),
        ({"datasetConfig": {"enableFastList": 1}}, "is 1, not true or false"),
        ({"logPath": None}, "'logPath' is null, not a text"),
    ],
)
def test_a_configuration_that_is_none_is_refused(arguments, tmp_path, content, said):
    path = written(tmp_path / "config", content)
    with pytest.raises(flatout.UsageError) as raised:
        oss.OssCheckpoint(config_path=path, **arguments)
    assert said in str(raised.value) and raised.value.object == path


def test_a_configuration_or_an_endpoint_that_is_not_there_is_refused(arguments, tmp_path):
    with pytest.raises(flatout.UsageError, match="the configuration file cannot be read: No such file or directory"):
        oss.OssCheckpoint(config_path=str(tmp_path / "none"), **arguments)
    for make in (oss.OssCheckpoint, oss.OssSafetensor, oss.OssModelConnector):
        with pytest.raises(flatout.UsageError, match="endpoint is empty\n  hint: as in endpoint='http://oss-cn"):
            make("")


# Models


@pytest.fixture
def model(bucket):
    """Objects of a model, and what they hold."""
    files = {"config.json": b"{}", "model-1.safetensors": origins.noise(SIZE), "sub/tokens.txt": b"a b c"}
    for name, data in files.items():
        bucket.put(f"llama/{name}", data)
    bucket.put("llama/sub/", b"")
    bucket.put("llama-2/other", b"")
    return files


def test_objects_of_a_model_are_opened_and_listed(bucket, arguments, model):
    connector = pickle.loads(pickle.dumps(oss.OssModelConnector(**arguments)))
    with connector.open(bucket.url("llama/model-1.safetensors", "oss")) as file:
        buffer = bytearray(100)
        assert file.seek(5) == 5 and file.readinto(buffer) == 100 and buffer == model["model-1.safetensors"][5:105]
        assert file.size == SIZE
    assert connector.open(bucket.url("llama/sub/tokens.txt", "oss"), False).read() == "a b c"
    listed = [(info.key, info.size) for info in connector.list(bucket.name, "llama/", True) if info.size]
    assert listed == [(f"llama/{name}", len(data)) for name, data in sorted(model.items())]
    assert len(connector.list(bucket.name, "llama")) == 5
    connector.close()
    with pytest.raises(flatout.Cancelled):
        connector.list(bucket.name, "")
    with pytest.raises(flatout.UsageError):
        oss.OssModelConnector(**arguments).list("", "llama")


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_directory_holds_the_model(bucket, arguments, model, tmp_path, monkeypatch):
    fetched = []
    download_many = flatout.Client.download_many

    def counted(self, pairs):
        fetched.extend(os.path.relpath(path, folder) for _, path in pairs)
        return download_many(self, pairs)

    monkeypatch.setattr(flatout.Client, "download_many", counted)
    connector, folder = oss.OssModel(**arguments), tmp_path / "deep" / "llama"
    connector.prepare_directory(bucket.url("llama", "oss"), str(folder), libc_hook=True)
    assert content_of(folder) == model and sorted(fetched) == sorted(model)
    fetched.clear()
    # Files of others stay. What was changed here or there, or has another time, is fetched.
    (folder / "mine.txt").write_text("mine")
    connector.prepare_directory(bucket.url("llama/", "oss"), f"{folder}/")
    assert fetched == []
    bucket.put("llama/config.json", b"{  }")
    (folder / "sub/tokens.txt").write_text("x y z")
    connector.prepare_directory(bucket.url("llama", "oss"), str(folder))
    assert content_of(folder) == {**model, "config.json": b"{  }", "mine.txt": b"mine"}
    assert sorted(fetched) == ["config.json", "sub/tokens.txt"]


def test_a_directory_that_is_prepared_by_many_is_downloaded_once(bucket, arguments, model, tmp_path, monkeypatch):
    fetched = []
    download_many = flatout.Client.download_many
    monkeypatch.setattr(flatout.Client, "download_many", lambda self, pairs: fetched.extend(pairs) or download_many(self, pairs))
    threads = [
        threading.Thread(target=oss.OssModel(**arguments).prepare_directory, args=(bucket.url("llama", "oss"), str(tmp_path)))
        for _ in range(4)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert content_of(tmp_path) == model and len(fetched) == len(model)


@pytest.fixture
def fetched(monkeypatch):
    """The names of the files that were asked for."""
    names, download_many = [], flatout.Client.download_many

    def noted(self, pairs):
        names.extend(os.path.basename(path) for _, path in pairs)
        return download_many(self, pairs)

    monkeypatch.setattr(flatout.Client, "download_many", noted)
    return names


def test_what_was_fetched_before_a_failure_is_kept(bucket, arguments, model, tmp_path, monkeypatch, fetched):
    download_many, connector = flatout.Client.download_many, oss.OssModel(**arguments)
    # Of the size of the object, and never fetched.
    (tmp_path / "config.json").write_text("[]")

    def failing(self, pairs):
        bucket.delete("llama/config.json")
        return download_many(self, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(flatout.Client, "download_many", failing)
        with pytest.raises(flatout.NotFound):
            connector.prepare_directory(bucket.url("llama", "oss"), str(tmp_path))
    bucket.put("llama/config.json", b"{}")
    fetched.clear()
    connector.prepare_directory(bucket.url("llama", "oss"), str(tmp_path))
    assert content_of(tmp_path) == model and fetched == ["config.json"]


def test_a_model_that_is_replaced_meanwhile_is_not_current(bucket, arguments, model, tmp_path, monkeypatch, fetched):
    download_many = flatout.Client.download_many

    def replaced(self, pairs):
        sizes = download_many(self, pairs)
        bucket.put("llama/config.json", b"[]")
        return sizes

    connector = oss.OssModel(**arguments)
    with monkeypatch.context() as patch:
        patch.setattr(flatout.Client, "download_many", replaced)
        with pytest.raises(flatout.ObjectChanged, match="the model was replaced while it was downloaded\n  hint: call again"):
            connector.prepare_directory(bucket.url("llama", "oss"), str(tmp_path))
    fetched.clear()
    connector.prepare_directory(bucket.url("llama", "oss"), str(tmp_path))
    assert content_of(tmp_path) == {**model, "config.json": b"[]"} and fetched == ["config.json"]


def test_a_directory_that_cannot_be_prepared(bucket, arguments, model, tmp_path):
    connector = oss.OssModel(**arguments)
    with pytest.raises(flatout.NotFound, match="no object lies below this prefix"):
        connector.prepare_directory(bucket.url("none", "oss"), str(tmp_path))
    for key in ("a//b", "./c", "d/../../e"):
        flatout.write(f"oss://{bucket.name}/odd{key[0]}/{key}", b"", client=connector._client)
        with pytest.raises(flatout.UsageError, match="is no path below a folder\n  hint: rename the object"):
            connector.prepare_directory(bucket.url(f"odd{key[0]}", "oss"), str(tmp_path))
    assert content_of(tmp_path) == {}
    (tmp_path / "sub").write_text("a file where the folder is to be")
    with pytest.raises(flatout.LocalError, match="the folder cannot be made: .*\n  hint: no file may be where"):
        connector.prepare_directory(bucket.url("llama", "oss"), str(tmp_path))
