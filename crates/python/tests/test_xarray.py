"""xarray and zarr over Flatout: stores and files are opened by their URLs alone, and read on zarr's own loop."""

import asyncio
import functools
import threading
import warnings

import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr

import flatout.fsspec
from test_fsspec import Bucket

ROWS, COLUMNS = 200, 300


def made():
    numbers = np.arange(ROWS * COLUMNS, dtype="float64").reshape(ROWS, COLUMNS)
    return xr.Dataset(
        {"height": (("y", "x"), numbers), "mask": (("y", "x"), numbers % 7 == 0)},
        coords={"y": np.arange(ROWS) * 0.5, "x": np.arange(COLUMNS)},
        attrs={"title": "a field"},
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A folder with stores of zarr of both formats and a netCDF file."""
    folder = tmp_path_factory.mktemp("stores")
    chunks = {"height": {"chunks": (50, 100)}, "mask": {"chunks": (50, 100)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for version in (2, 3):
            made().to_zarr(folder / f"v{version}.zarr", zarr_format=version, encoding=chunks)
        shards = {"shape": (400, 400), "chunks": (20, 20), "shards": (200, 200), "dtype": "i4"}
        zarr.create_array(folder / "sharded.zarr", **shards)[:] = np.arange(400 * 400).reshape(400, 400)
    made().to_netcdf(folder / "field.nc", engine="h5netcdf")
    return folder


@pytest.fixture(scope="module")
def stored_at(request, stores):
    """A bucket with the same, of the origin that is named."""

    @functools.cache
    def stored(name):
        bucket = Bucket(request.getfixturevalue(name))
        for file in stores.rglob("*"):
            if file.is_file():
                bucket.put(str(file.relative_to(stores)), file.read_bytes())
        return bucket

    return stored


@pytest.fixture(params=["serve", "minio"])
def stored(request, stored_at):
    return stored_at(request.param)


# MinIO speaks no OSS.
SCHEMES = [("serve", each) for each in ("flatout", "flatoutoss", "s3", "oss")] + [("minio", "flatout"), ("minio", "s3")]


@pytest.fixture(params=SCHEMES, ids="-".join)
def url(request, stored_at, register_again):
    """What makes a URL of a key, by schemes of Flatout's and by those that it takes over; and the options for it."""
    name, scheme = request.param
    bucket, is_oss = stored_at(name), scheme.endswith("oss")
    if scheme in ("s3", "oss"):
        flatout.fsspec.register(scheme, clobber=True)
    place = bucket.origin.url
    options = {"oss_endpoint": place, "oss_region": "cn-hangzhou"} if is_oss else {"endpoint_url": place}
    return lambda key: f"{scheme}://{bucket.name}/{key}", options


@pytest.mark.parametrize("version", [2, 3])
def test_a_store_is_opened_by_its_url(url, version):
    url_of, options = url
    opened = xr.open_zarr(url_of(f"v{version}.zarr"), storage_options=options)
    xr.testing.assert_identical(opened.load(), made())
    part = xr.open_dataset(url_of(f"v{version}.zarr"), engine="zarr", storage_options=options)
    assert float(part["height"][120, 250]) == 120 * COLUMNS + 250


def test_a_file_is_opened_by_its_url(url):
    url_of, options = url
    with xr.open_dataset(url_of("field.nc"), engine="h5netcdf", storage_options=options) as opened:
        xr.testing.assert_identical(opened.load(), made())


def test_zarr_awaits_and_no_thread_reads(stored):
    """Neither wrapped, which is a thread for each read, nor warned of."""
    options = {"endpoint_url": stored.origin.url}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_url = zarr.storage.FsspecStore.from_url(f"flatout://{stored.name}/v3.zarr", storage_options=options, read_only=True)
        mapper = stored.fs().get_mapper(f"{stored.name}/v3.zarr")
        by_mapper = zarr.storage.FsspecStore.from_mapper(mapper, read_only=True)
        for store in (by_url, by_mapper):
            assert isinstance(store.fs, flatout.fsspec.S3FileSystem) and store.fs.asynchronous

    async def main():
        group = await zarr.api.asynchronous.open_group(by_url, mode="r")
        height = await group.getitem("height")
        await height.getitem((slice(0, 5), slice(0, 5)))
        before = {thread.name for thread in threading.enumerate()}
        got = await asyncio.gather(*(height.getitem((slice(at, at + 50), slice(None))) for at in range(0, ROWS, 50)))
        names = [name async for name in by_url.list()]
        return np.concatenate(got), names, {thread.name for thread in threading.enumerate()} - before

    got, names, threads = asyncio.run(main())
    assert (got == made()["height"].values).all()
    assert "height/c/0/0" in names and "zarr.json" in names
    # zarr decodes in threads of its own.
    assert not [name for name in threads if "flatout" in name or "fsspec" in name], threads


def test_shards_are_read_by_ranges(stored):
    array = zarr.open_array(
        f"flatout://{stored.name}/sharded.zarr", storage_options={"endpoint_url": stored.origin.url}, mode="r"
    )
    assert (array[190:230, 190:230] == np.arange(400 * 400).reshape(400, 400)[190:230, 190:230]).all()


def test_references_of_chunks_are_read(stored):
    """Of a virtual store, as kerchunk writes them: fsspec's reference file system awaits ours on its loop."""
    height = f"{stored.name}/v2.zarr/height/0.0"
    references = {"whole": [f"flatout://{height}"], "part": [f"flatout://{height}", 4, 20], "here": "text"}
    options = {"endpoint_url": stored.origin.url}
    fs = fsspec.filesystem(
        "reference",
        fo=references,
        remote_protocol="flatout",
        remote_options=options,
        skip_instance_cache=True,
    )
    whole = stored.fs().cat_file(height)
    assert fs.cat("whole") == whole and fs.cat("part") == whole[4:24] and fs.cat("here") == b"text"
    assert fs.cat(["whole", "part"]) == {"whole": whole, "part": whole[4:24]}
