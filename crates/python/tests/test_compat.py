"""flatout.compat.oss: the functions of Alibaba Cloud's recipe, as programs that use them call them."""

import io
import os
import threading
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
