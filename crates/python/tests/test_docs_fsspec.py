"""The examples of docs/python-fsspec.md, run as they stand."""

import doctest
import io

import pyarrow as pa
import pyarrow.parquet as pq
import xarray

import flatout
import flatout.fsspec
import origins


def parquet(**columns):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def test_examples(started, tmp_path, monkeypatch, register_again):
    origin = started()
    lake, models = origins.Bucket(origin, "lake"), origins.Bucket(origin, "models")
    lake.put("table.parquet", parquet(day=list(range(100)), price=list(range(100))))
    lake.put("prices.csv", b"day,price\n1,10\n2,20\n")
    for number in range(2):
        lake.put(f"parts/{number}.bin", bytes(range(256)))
        lake.put(f"years/year={2025 + number}/part.parquet", parquet(price=list(range(100))))
    put_fields(origins.Bucket(origin, "fields"), tmp_path / "fields")
    models.put("model.ckpt", bytes(1 << 20))
    for name, value in {**origin.settings, "parallel": 8}.items():
        monkeypatch.setenv(f"FLATOUT_{name.upper()}", str(value))
    monkeypatch.setenv("OSS_BUCKET_NAME", "models")
    monkeypatch.setattr("flatout.client._default", None)
    # Neither does the page find a file system of another test's client, nor another test one of a client that is closed.
    flatout.fsspec.S3FileSystem.clear_instance_cache()
    try:
        page = str(origins.ROOT / "docs" / "python-fsspec.md")
        shown = {"folder": tmp_path}
        done = doctest.testfile(page, module_relative=False, globs=shown, optionflags=doctest.REPORT_NDIFF)
    finally:
        flatout.fsspec.S3FileSystem.clear_instance_cache()
        flatout.default_client().close()
    assert done.attempted > 25 and done.failed == 0


def put_fields(bucket, folder):
    """A store of zarr and a file of netCDF."""
    field = xarray.Dataset({"height": ("x", list(range(100)))})
    field.to_zarr(folder / "height.zarr", zarr_format=2)
    field.to_netcdf(folder / "height.nc", engine="h5netcdf")
    for file in folder.rglob("*"):
        if file.is_file():
            bucket.put(str(file.relative_to(folder)), file.read_bytes())
