"""The examples of docs/python.md, run as they stand."""

import doctest
import json

import flatout
import origins


def test_examples(started, tmp_path, monkeypatch):
    origin = started()
    data = origins.Bucket(origin, "data")
    data.put("model.bin", bytes(range(256)) * 4096)
    (tmp_path / "some.json").write_text("{}")
    put_model(data)
    many = origins.Bucket(origin, "many")
    for number in range(1000):
        many.put(f"file-{number:04d}", bytes(1024))
    for name, value in origin.settings.items():
        monkeypatch.setenv(f"FLATOUT_{name.upper()}", value)
    monkeypatch.setattr("flatout.client._default", None)
    page = origins.ROOT / "docs" / "python.md"
    done = doctest.testfile(str(page), module_relative=False, globs={"folder": tmp_path}, optionflags=doctest.REPORT_NDIFF)
    assert done.attempted > 30 and done.failed == 0
    flatout.default_client().close()


def put_model(bucket):
    """Two files and their index."""
    import numpy
    from safetensors.numpy import save

    square = numpy.ones((64, 64), "float32")
    one = {"embed.weight": numpy.ones((1000, 64), "float32"), "layers.0.weight": square}
    weight_map = {}
    for number, tensors in enumerate((one, {"layers.1.weight": square}), 1):
        name = f"model-{number:05}-of-00002.safetensors"
        bucket.put(f"llama/{name}", save(tensors, metadata={"format": "pt"}))
        weight_map |= dict.fromkeys(tensors, name)
    bucket.put("llama/model.safetensors.index.json", json.dumps({"weight_map": weight_map}).encode())
