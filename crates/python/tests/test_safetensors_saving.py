"""Safetensors files that are written: what the official package makes of the same tensors, byte for byte."""

import json

import numpy as np
import pytest
import safetensors.numpy

import flatout
from flatout.safetensors import RawTensor, load_file, load_model, save_file, save_model

MIB = 1 << 20


def tensors():
    chance = np.random.default_rng(5)
    return {
        "weights": chance.standard_normal((300, 1000), "float32"),
        "half": chance.standard_normal((10, 3)).astype("float16"),
        "bytes": np.arange(7, dtype="uint8"),
        "flags": np.array([True, False]),
        "many": np.arange(100_000, dtype="int64"),
        "scalar": np.array(1.5),
        "empty": np.zeros((0, 5), "float32"),
        "complex": np.array([1 + 2j], "complex64"),
        **brain(),
    }


def brain():
    """Where there is such a type."""
    try:
        import ml_dtypes
    except ImportError:
        return {}
    return {"brain": np.arange(5).astype(ml_dtypes.bfloat16)}


@pytest.mark.parametrize("metadata", [None, {"format": "np"}])
def test_a_file_is_that_of_the_official_package(client, bucket, tmp_path, metadata):
    named = {name: tensor for name, tensor in tensors().items() if name != "brain"}
    info = save_file(named, bucket.url("ours.safetensors"), metadata, client=client, storage_class="STANDARD")
    official = safetensors.numpy.save(named, metadata)
    assert client.read(bucket.url("ours.safetensors")) == official and info.size == len(official)


def test_what_is_saved_is_loaded(client, bucket):
    url = bucket.url("all.safetensors")
    save_file(tensors(), url, {"step": "100"}, client=client)
    for name, tensor in load_file(url, client=client).items():
        assert tensor.dtype == tensors()[name].dtype and tensor.shape == tensors()[name].shape, name
        assert (tensor == tensors()[name]).all(), name


def test_layouts_that_a_file_has_not_are_brought_into_order(client, bucket):
    table = np.arange(24, dtype=">i4").reshape(4, 6)
    url = bucket.url("key.safetensors")
    save_file({"big": table, "columns": table.astype("<i4").T, "steps": np.arange(10.0)[::3]}, url, client=client)
    loaded = load_file(url, client=client)
    assert (loaded["big"] == table).all() and (loaded["columns"] == table.T).all() and loaded["steps"].tolist() == [0, 3, 6, 9]
    raw = RawTensor("F8_E4M3", (3,), np.arange(3, dtype="uint8"))
    save_file({"raw": raw}, url, client=client)
    assert load_file(url, client=client)["raw"].shape == (3,)
    save_file({}, url, client=client)
    assert load_file(url, client=client) == {}


@pytest.mark.parametrize(
    "given, says",
    [
        ([1], "a dict of tensors by name, not list"),
        ({"a": [1, 2]}, "list is no tensor of PyTorch or NumPy"),
        ({"a": np.array(["text"])}, "no type for"),
        ({5: np.zeros(1)}, "names of tensors are str"),
        ({"a": RawTensor("F7", (1,), np.zeros(1, "uint8"))}, "F7 is no type"),
        ({"a": RawTensor("F32", (5,), np.zeros(1, "uint8"))}, "key.safetensors"),
    ],
)
def test_what_is_no_tensor_is_refused(client, bucket, given, says):
    url = bucket.put("key.safetensors", b"before")
    with pytest.raises(flatout.UsageError, match=says):
        save_file(given, url, client=client)
    assert client.read(url) == b"before"


def test_a_model_is_saved_in_files_with_an_index(client, bucket):
    named = {f"layers.{number}.weight": np.full((256, 256), number, "float32") for number in range(10)}
    folder = bucket.url("llama/")
    urls = save_model(named, folder, {"by": "a test"}, max_shard_size=MIB, client=client)
    assert [url.rpartition("/")[2] for url in urls] == [
        *(f"model-{number:05}-of-00003.safetensors" for number in range(1, 4)),
        "model.safetensors.index.json",
    ]
    index = json.loads(bytes(client.read(urls[-1])))
    assert index["metadata"] == {"total_size": 10 * 256 * 1024} and len(index["weight_map"]) == 10
    loaded = load_model(folder, client=client)
    assert loaded.keys() == named.keys() and all((loaded[name] == named[name]).all() for name in named)
    # One file in the same place: the index of before would name others.
    fewer = {"only": np.ones(3)}
    assert [url.rpartition("/")[2] for url in save_model(fewer, folder, client=client)] == ["model.safetensors", "model.safetensors.index.json"]
    assert load_model(folder, client=client).keys() == {"only"}
    assert save_model(fewer, bucket.url("new"), client=client) == [bucket.url("new/model.safetensors")]
    with pytest.raises(flatout.UsageError, match="max_shard_size is 0"):
        save_model(fewer, folder, max_shard_size=0, client=client)


def test_a_model_that_is_there_is_kept(client, bucket):
    tensors = {name: np.full(1000, number, np.float32) for number, name in enumerate("abcd")}
    url = bucket.url("model/")
    save_model(tensors, url, max_shard_size=5000, client=client)
    before = {info.url: info.etag for info in client.ls(url)}
    other = {name: array + 1 for name, array in tensors.items()}
    for most in (5000, 100_000):
        with pytest.raises(flatout.AlreadyExists, match="model.safetensors.index.json.*there already"):
            save_model(other, url, max_shard_size=most, client=client, overwrite=False)
    assert {info.url: info.etag for info in client.ls(url)} == before
    save_model(other, bucket.url("new/"), max_shard_size=5000, client=client, overwrite=False)
    assert np.array_equal(load_model(bucket.url("new/"), client=client)["d"], other["d"])
