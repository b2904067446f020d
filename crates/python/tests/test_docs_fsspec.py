"""The examples of docs/python-fsspec.md, run as they stand."""

import doctest
import importlib
import io

import pyarrow as pa
import pyarrow.parquet as pq

import flatout
import flatout.fsspec
import origins


def parquet(**columns):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def test_examples(started, tmp_path, monkeypatch):
    origin = started()
    lake, models = origins.Bucket(origin, "lake"), origins.Bucket(origin, "models")
    lake.put("table.parquet", parquet(day=list(range(100)), price=list(range(100))))
    lake.put("prices.csv", b"day,price\n1,10\n2,20\n")
    for number in range(2):
        lake.put(f"parts/{number}.bin", bytes(range(256)))
        lake.put(f"years/year={2025 + number}/part.parquet", parquet(price=list(range(100))))
    models.put("model.ckpt", bytes(1 << 20))
    for name, value in {**origin.settings, "parallel": 8}.items():
        monkeypatch.setenv(f"FLATOUT_{name.upper()}", str(value))
    monkeypatch.setenv("OSS_BUCKET_NAME", "models")
    monkeypatch.setattr("flatout.client._default", None)
    # What the page takes over is given back, and nobody finds a file system of a client that is closed.
    tables = importlib.import_module("fsspec.registry")
    before = dict(tables._registry)
    try:
        page = str(origins.ROOT / "docs" / "python-fsspec.md")
        shown = {"folder": tmp_path}
        done = doctest.testfile(page, module_relative=False, globs=shown, optionflags=doctest.REPORT_NDIFF)
    finally:
        tables._registry.clear()
        tables._registry.update(before)
        flatout.fsspec.S3FileSystem.clear_instance_cache()
        flatout.default_client().close()
    assert done.attempted > 25 and done.failed == 0
