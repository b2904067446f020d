"""Writing through fsspec: what its suites do not ask, and what programs above it do."""

import asyncio
import pickle

import fsspec
import numpy as np
import pytest

import flatout
import flatout.fsspec
from flatout.fsspec import OssFileSystem
from test_fsspec import Bucket, bucket, served  # noqa: F401

MIB = 1 << 20


@pytest.fixture(autouse=True)
def registered():
    # As the installed package is.
    flatout.fsspec.register()


def test_objects_are_written_with_what_is_said(bucket):
    fs = bucket.fs()
    path = f"{bucket.name}/a.json"
    fs.pipe_file(path, b"{}", metadata={"k": "v"}, CacheControl="no-store")
    told = bucket.s3.head_object(Bucket=bucket.name, Key="a.json")
    assert (told["ContentType"], told["Metadata"], told["CacheControl"]) == ("application/json", {"k": "v"}, "no-store")
    with pytest.raises(FileExistsError):
        fs.pipe_file(path, b"[]", mode="create")
    with pytest.raises(TypeError, match="no option of a write is called 'colour'"):
        fs.pipe_file(path, b"[]", colour="red")
    with pytest.raises(ValueError, match="mode is 'overwrite' or 'create'"):
        fs.pipe_file(path, b"[]", mode="append")
    fs.pipe({f"{bucket.name}/d/{number}": b"%d" % number for number in range(300)})
    assert len(fs.ls(f"{bucket.name}/d")) == 300 and fs.cat_file(f"{bucket.name}/d/7") == b"7"


def test_what_was_written_is_seen_at_once(bucket):
    """A listing that is kept does not hide it."""
    fs = bucket.fs()
    bucket.put("d/a", b"1")
    assert fs.ls(f"{bucket.name}/d") == [f"{bucket.name}/d/a"] and fs.info(f"{bucket.name}/d/a")["size"] == 1
    fs.pipe_file(f"{bucket.name}/d/b", b"12")
    with fs.open(f"{bucket.name}/d/a", "ab") as file:
        file.write(b"23")
    with fs.open(f"{bucket.name}/d/c", "w") as file:
        file.write("text")
    assert [each["size"] for each in fs.ls(f"{bucket.name}/d", detail=True)] == [3, 2, 4]
    fs.mv(f"{bucket.name}/d/c", f"{bucket.name}/e")
    fs.rm_file(f"{bucket.name}/d/b")
    assert fs.find(bucket.name) == [f"{bucket.name}/d/a", f"{bucket.name}/e"]


def test_files_are_written_and_closed(bucket):
    fs, path = bucket.fs(), f"{bucket.name}/key"
    with fs.open(path, "wb") as file:
        assert (file.fs, file.path, file.loc, file.full_name) == (fs, path, 0, f"flatout://{path}")
        file.write(bytes(20 * MIB))
        file.flush()
        assert file.loc == 20 * MIB and not fs.exists(path)
    assert fs.size(path) == 20 * MIB
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    for mode in ("wb", "w", "ab", "a"):
        with pytest.raises(KeyError), fs.open(f"{bucket.name}/no", mode) as file:
            file.write(b"1" if "b" in mode else "1")
            raise KeyError
    assert not fs.exists(f"{bucket.name}/no")


@pytest.mark.parametrize("mode, compression", [("wb", None), ("w", None), ("wb", "gzip"), ("wt", "gzip")])
def test_a_block_of_fsspec_s_own_that_raises_publishes_nothing(served, mode, compression):
    """`with fsspec.open(…)` closes its files whatever has happened in the block: they were published half."""
    bucket = served
    options = {"endpoint_url": bucket.origin.endpoint, "mode": mode, "compression": compression}
    url, data = f"flatout://{bucket.name}/key", b"data" if "b" in mode else "data"
    with pytest.raises(KeyError):
        with fsspec.open(url, **options) as file:
            file.write(data)
            raise KeyError
    fs = bucket.fs()
    assert not fs.exists(f"{bucket.name}/key")
    try:
        raise KeyError
    except KeyError:
        # Somebody else's exception is none of the block's.
        with fsspec.open(url, **options) as file:
            file.write(data)
    with fsspec.open(url, endpoint_url=bucket.origin.endpoint, compression=compression) as file:
        assert file.read() == b"data"


def test_a_transaction_publishes_all_or_nothing(bucket):
    fs = bucket.fs()
    name = lambda key: f"{bucket.name}/{key}"
    with fs.transaction:
        for number in range(100):
            with fs.open(name(f"d/{number}"), "wb") as file:
                file.write(b"%d" % number)
        with fs.open(name("large"), "wb", metadata={"k": "v"}) as file:
            file.write(bytes(20 * MIB))
        with fs.open(name("text"), "w") as file:
            file.write("ä")
        assert fs.find(bucket.name) == []
    assert len(fs.find(bucket.name)) == 102 and fs.cat_file(name("text")) == "ä".encode()
    assert fs.size(name("large")) == 20 * MIB and fs.info(name("large"), refresh=True)["Metadata"] == {"k": "v"}
    with pytest.raises(KeyError), fs.transaction:
        with fs.open(name("no"), "wb") as file:
            file.write(b"1")
        raise KeyError
    assert not fs.exists(name("no"))
    with fs.open(name("after"), "wb") as file:
        file.write(b"1")
    assert fs.exists(name("after"))


def test_what_a_block_of_a_transaction_gave_up_is_not_published(served):
    fs, name = served.fs(), lambda key: f"{served.name}/{key}"
    fs.pipe_file(name("log"), b"1")
    with fs.transaction:
        for mode in ("wb", "w"):
            with pytest.raises(KeyError), fs.open(name(mode), mode) as file:
                file.write(b"half" if mode == "wb" else "half")
                raise KeyError
        with fs.open(name("whole"), "w") as file:
            file.write("whole")
        with pytest.raises(flatout.Unsupported, match="cannot add"):
            fs.open(name("log"), "ab")
    assert fs.find(served.name) == [name("log"), name("whole")]
    with pytest.raises(flatout.NotFound), fs.transaction:
        with fs.open("no-such-bucket-here/key", "wb") as file:
            file.write(b"1")


@pytest.mark.parametrize("compression", ["gzip", "bz2", "infer"])
def test_what_is_compressed_is_published_with_its_file(bucket, compression):
    """It was dropped unclosed below the compressor, and nothing came of it."""
    fs, path = bucket.fs(), f"{bucket.name}/text.gz"
    for mode, data in (("wb", b"data"), ("wt", "data"), ("w", "data")):
        with fs.open(path, mode, compression=compression) as file:
            file.write(data)
        with fs.open(path, "rb", compression=compression) as file:
            assert file.read() == b"data"
        fs.rm(path)
        with pytest.raises(KeyError), fs.open(path, mode, compression=compression) as file:
            file.write(data)
            raise KeyError
        assert not fs.exists(path)


def test_local_trees_go_up_and_come_back(bucket, tmp_path):
    fs = bucket.fs()
    for number in range(50):
        file = tmp_path / "tree" / f"{number % 3}" / f"{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(number * 1000))
    (tmp_path / "tree" / "empty").mkdir()
    fs.put(f"{tmp_path}/tree", f"{bucket.name}/up", recursive=True)
    assert len(fs.find(f"{bucket.name}/up")) == 50
    fs.get(f"{bucket.name}/up", f"{tmp_path}/back", recursive=True)
    for number in range(50):
        assert (tmp_path / "back" / f"{number % 3}" / f"{number}").stat().st_size == number * 1000
    callback = fsspec.callbacks.Callback()
    fs.put_file(f"{tmp_path}/tree/1/40", f"{bucket.name}/one", callback=callback)
    assert callback.size == callback.value == 40_000
    # What cannot be read stops no other.
    with pytest.raises(flatout.LocalError):
        fs.put([f"{tmp_path}/tree/0/0", f"{tmp_path}/nothing"], [f"{bucket.name}/x", f"{bucket.name}/y"])
    assert fs.exists(f"{bucket.name}/x") and not fs.exists(f"{bucket.name}/y")


def test_trees_are_copied_moved_and_deleted(bucket):
    fs = bucket.fs()
    name = lambda key: f"{bucket.name}/{key}"
    keys = [f"d/{number % 4}/{number}" for number in range(1_100)]
    fs.pipe({name(key): b"1" for key in keys})
    bucket.put("d/mark/")
    fs.copy(name("d"), name("e"), recursive=True)
    assert [each.replace(name("e"), name("d")) for each in fs.find(name("e"))] == fs.find(name("d"))
    fs.mv(name("e"), name("f"), recursive=True)
    assert fs.find(name("e")) == [] and len(fs.find(name("f"))) == 1_100
    with pytest.raises(IsADirectoryError):
        fs.rm(name("f"))
    fs.rm(name("f/0/*"))
    assert len(fs.find(name("f"))) == 825
    fs.rm([name("f"), name("d")], recursive=True)
    # The marks of folders, too.
    assert bucket.keys() == []
    for verb in (fs.rm, fs.rm_file, lambda path: fs.rm(path, recursive=True), lambda path: fs.mv(path, name("x"))):
        with pytest.raises(FileNotFoundError):
            verb(name("nothing"))
    with pytest.raises(FileNotFoundError):
        fs.copy(name("nothing"), name("x"))
    fs.pipe({name("g/a"): b"1", name("h/a"): b"2"})
    with pytest.raises(flatout.UsageError, match="one name"):
        fs.mv([name("g/a"), name("h/a")], name("i/"))
    assert fs.find(name("g")) and fs.find(name("h"))


def test_a_move_deletes_only_what_was_copied(served):
    fs, path = served.fs(), f"{served.name}/key"
    fs.pipe_file(path, b"mine")
    copy = fs.client._copy

    def copy_and_replace(*args, **named):
        copied = copy(*args, **named)
        served.put("key", b"theirs")
        return copied

    fs.client._copy = copy_and_replace
    try:
        with pytest.raises(flatout.ObjectChanged):
            fs.mv(path, f"{served.name}/other")
    finally:
        del fs.client._copy
    assert served.fs().cat([path, f"{served.name}/other"]) == {path: b"theirs", f"{served.name}/other": b"mine"}


def test_buckets_are_folders_that_are_made(served):
    fs = served.fs()
    new = f"{served.name}-new"
    fs.mkdir(new)
    assert new in fs.ls("") and fs.ls(new) == []
    with pytest.raises(FileExistsError):
        fs.mkdir(new)
    with pytest.raises(FileExistsError):
        fs.makedirs(new)
    fs.makedirs(new, exist_ok=True)
    fs.mkdir(f"{new}/below")
    assert fs.find(new) == []
    fs.touch(f"{new}/key")
    assert fs.size(f"{new}/key") == 0
    with pytest.raises(flatout.Unsupported):
        fs.touch(f"{new}/key", truncate=False)
    with pytest.raises(OSError):
        fs.rmdir(new)
    served.s3.put_object(Bucket=new, Key="folder/", Body=b"")
    fs.rm(new, recursive=True)
    fs.rmdir(new)
    assert new not in fs.ls("")


def test_oss_is_written_to(serve):
    bucket = Bucket(serve)
    fs = OssFileSystem(oss_endpoint=serve.endpoint, skip_instance_cache=True)
    with fs.open(f"{bucket.name}/d/a", "wb") as file:
        file.write(bytes(20 * MIB))
    fs.pipe_file(f"{bucket.name}/d/b", b"1")
    fs.copy(f"{bucket.name}/d", f"{bucket.name}/e", recursive=True)
    fs.rm(f"{bucket.name}/d", recursive=True)
    assert fs.du(bucket.name) == 20 * MIB + 1 and fs.find(bucket.name) == [f"{bucket.name}/e/a", f"{bucket.name}/e/b"]


def test_verbs_are_awaited(bucket, tmp_path):
    (tmp_path / "file").write_bytes(b"file")
    name = lambda key: f"{bucket.name}/{key}"

    async def main():
        fs = bucket.fs(asynchronous=True)
        await fs._pipe_file(name("a"), b"1")
        await fs._pipe({name("b"): b"2", name("c"): b"3"})
        await fs._put_file(f"{tmp_path}/file", name("d"))
        await fs._put(f"{tmp_path}", name("tree"), recursive=True)
        await fs._cp_file(name("a"), name("e"))
        await fs._copy(name("tree"), name("copy"), recursive=True)
        await fs._mv(name("e"), name("f"))
        await fs._touch(name("g"))
        async with await fs.open_async(name("h"), "wb") as file:
            await file.write(b"12")
            assert file.loc == 2
        with pytest.raises(KeyError):
            async with await fs.open_async(name("no"), "wb") as file:
                await file.write(b"12")
                raise KeyError
        await fs._rm_file(name("b"))
        await fs._rm(name("tree"), recursive=True)
        found = await fs._find(bucket.name, detail=True, refresh=True)
        assert {path.partition("/")[2]: entry["size"] for path, entry in found.items()} == {
            "a": 1, "c": 1, "copy/file": 4, "d": 4, "f": 1, "g": 0, "h": 2,
        }  # fmt: skip

    asyncio.run(main())


def test_programs_write_and_read_back(served, tmp_path):
    import duckdb
    import pandas
    import polars
    import xarray
    import zarr

    bucket, options = served, {"endpoint_url": served.origin.endpoint}
    url = lambda key: f"flatout://{bucket.name}/{key}"
    frame = pandas.DataFrame({"x": range(1000), "y": np.arange(1000) / 3})
    for name in ("csv", "csv.gz", "json", "parquet", "pickle"):
        write = getattr(frame, f"to_{name.partition('.')[0]}")
        read = getattr(pandas, f"read_{name.partition('.')[0]}")
        index = {"index": False} if name.startswith("csv") else {}
        write(url(f"frame.{name}"), storage_options=options, **index)
        pandas.testing.assert_frame_equal(read(url(f"frame.{name}"), storage_options=options), frame)
    frame.assign(z=frame.x % 3).to_parquet(url("parts"), partition_cols=["z"], storage_options=options)
    assert len(pandas.read_parquet(url("parts"), storage_options=options)) == 1000
    fs = bucket.fs()
    with fs.open(f"{bucket.name}/polars.parquet", "wb") as file:
        polars.DataFrame({"x": [1, 2]}).write_parquet(file)
    with fs.open(f"{bucket.name}/polars.parquet", "rb") as file:
        assert polars.read_parquet(file)["x"].to_list() == [1, 2]
    group = zarr.open_group(store=url("group.zarr"), mode="w", storage_options=options)
    group.create_array("a", shape=(100, 100), chunks=(10, 100), dtype="f8")[:] = np.arange(10_000.0).reshape(100, 100)
    again = zarr.open_group(store=url("group.zarr"), mode="r", storage_options=options)
    assert (again["a"][:] == np.arange(10_000.0).reshape(100, 100)).all()
    data = xarray.Dataset({"t": (("x", "y"), np.arange(12.0).reshape(3, 4))})
    data.to_zarr(url("x.zarr"), storage_options=options)
    xarray.testing.assert_identical(xarray.open_zarr(url("x.zarr"), storage_options=options).load(), data)
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    connection.execute(f"COPY (SELECT range AS x FROM range(10000)) TO '{url('duck.parquet')}' (FORMAT parquet)")
    assert connection.execute(f"SELECT sum(x) FROM read_parquet('{url('duck.parquet')}')").fetchone() == (49_995_000,)


def test_a_file_system_that_has_written_pickles(served):
    fs = served.fs()
    fs.pipe_file(f"{served.name}/key", b"1")
    assert pickle.loads(pickle.dumps(fs)).cat_file(f"{served.name}/key") == b"1"
    with pytest.raises(TypeError):
        pickle.dumps(fs.open(f"{served.name}/other", "wb"))
    assert not fs.exists(f"{served.name}/other")


@pytest.mark.parametrize("protocol", ["flatout+s3", "flatout+oss"])
def test_dask_writes_and_reads_back(served, protocol):
    import dask.array
    import dask.bag
    import dask.dataframe as frames
    import pandas

    bucket, options = served, dict(served.origin.settings)
    frame = pandas.DataFrame({"x": range(1000), "y": np.arange(1000) / 3})
    whole = frames.from_pandas(frame, npartitions=4)
    with dask.config.set(scheduler="threads"):
        whole.to_parquet(f"{protocol}://{bucket.name}/parquet", storage_options=options)
        again = frames.read_parquet(f"{protocol}://{bucket.name}/parquet", storage_options=options)
        assert again.npartitions == 4
        pandas.testing.assert_frame_equal(again.compute().sort_index(), frame, check_names=False)
        whole.to_csv(f"{protocol}://{bucket.name}/csv/*.csv", index=False, storage_options=options)
        assert frames.read_csv(f"{protocol}://{bucket.name}/csv/*.csv", storage_options=options).x.sum().compute() == 499500
        bag = dask.bag.from_sequence(["one", "two", "three"], npartitions=2)
        bag.to_textfiles(f"{protocol}://{bucket.name}/text/*.txt.gz", storage_options=options)
        assert [line.strip() for line in dask.bag.read_text(f"{protocol}://{bucket.name}/text/*.txt.gz", storage_options=options).compute()] == ["one", "two", "three"]
        ones = dask.array.ones((100, 100), chunks=(50, 50))
        ones.to_zarr(f"{protocol}://{bucket.name}/array.zarr", storage_options=options)
        assert dask.array.from_zarr(f"{protocol}://{bucket.name}/array.zarr", storage_options=options).sum().compute() == 10_000


@pytest.mark.parametrize("protocol", ["flatout+s3", "flatout+oss"])
def test_datasets_of_hugging_face_write_and_read_back(served, protocol, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    options, url = dict(served.origin.settings), f"{protocol}://{served.name}"
    made = datasets.Dataset.from_dict({"text": [f"line {number}" for number in range(500)], "label": list(range(500))})
    made.save_to_disk(f"{url}/saved", num_shards=3, storage_options=options)
    assert datasets.load_from_disk(f"{url}/saved", storage_options=options)[:] == made[:]
    made.to_parquet(f"{url}/part.parquet", storage_options=options)
    made.to_json(f"{url}/part.jsonl", storage_options=options)
    for kind, name in (("parquet", "part.parquet"), ("json", "part.jsonl")):
        loaded = datasets.load_dataset(kind, data_files=f"{url}/{name}", split="train", storage_options=options)
        assert loaded[:] == made[:], kind
        streamed = datasets.load_dataset(kind, data_files=f"{url}/{name}", split="train", streaming=True, storage_options=options)
        assert [each["label"] for each in streamed] == list(range(500)), kind
