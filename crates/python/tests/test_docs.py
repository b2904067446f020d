"""The examples of docs/python.md, run as they stand."""

import doctest

import pytest

import flatout
import origins


def test_examples(started, tmp_path, monkeypatch):
    pytest.importorskip("numpy", minversion="2.1", reason="examples have DLPack's word for writable memory")
    origin = started()
    origins.Bucket(origin, "data").put("model.bin", bytes(range(256)) * 4096)
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
