"""flatout.fsspec: fsspec's own suites, and what users of it rely on, over the embedded origin and MinIO."""

import asyncio
import gzip
import importlib
import io
import json
import multiprocessing
import os
import pickle
import random
import socket
import threading
import time
import urllib.request
import zipfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.copy import AbstractCopyTests
from fsspec.tests.abstract.get import AbstractGetTests
from fsspec.tests.abstract.open import AbstractOpenTests
from fsspec.tests.abstract.pipe import AbstractPipeTests
from fsspec.tests.abstract.put import AbstractPutTests

import flatout
import flatout.fsspec
import origins
from flatout.fsspec import OssFileSystem, S3FileSystem


class Bucket:
    """A bucket of a test's own, written by boto3."""

    def __init__(self, origin):
        self.origin, self.name, self.s3 = origin, origins.new_name(), origin.s3
        self.s3.create_bucket(Bucket=self.name)

    def put(self, key, body=b""):
        self.s3.put_object(Bucket=self.name, Key=key, Body=body)
        return f"{self.name}/{key}"

    def delete(self, key):
        self.s3.delete_object(Bucket=self.name, Key=key)

    def keys(self):
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket=self.name).get("Contents", [])]

    @property
    def requests(self):
        """How many the origin has had that read."""
        return len(self.asked())

    def asked(self):
        return [each for each in self.origin.requests() if each["method"] in ("GET", "HEAD")]

    def fs(self, **options):
        return S3FileSystem(endpoint_url=self.origin.endpoint, skip_instance_cache=True, **options)


@pytest.fixture(params=["serve", "minio"])
def bucket(request):
    return Bucket(request.getfixturevalue(request.param))


@pytest.fixture
def served(serve):
    """One of the embedded origin, for what no other origin makes different."""
    return Bucket(serve)


@pytest.fixture
def counted(started):
    """One of an origin that counts: `counted.requests`."""
    return Bucket(started())


# fsspec's own suites


class FlatoutFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, bucket):
        return bucket.fs()

    @pytest.fixture
    def fs_path(self, bucket):
        return bucket.name

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestCopy(FlatoutFixtures, AbstractCopyTests):
    pass


class TestGet(FlatoutFixtures, AbstractGetTests):
    pass


class TestOpen(FlatoutFixtures, AbstractOpenTests):
    pass


class TestPipe(FlatoutFixtures, AbstractPipeTests):
    pass


class TestPut(FlatoutFixtures, AbstractPutTests):
    pass


@pytest.mark.parametrize("name", ["fsspec", "arrow", "upath", "compat.oss"])
def test_what_the_modules_show_is_there_and_documented(name):
    module = importlib.import_module(f"flatout.{name}")
    assert module.__doc__ and sorted(set(module.__all__)) == sorted(module.__all__)
    for each in module.__all__:
        assert getattr(module, each).__doc__, each


# Names


@pytest.mark.parametrize(
    "path",
    ["b/k", "b/k/", "/b/k", "flatout://b/k", "flatout+s3://b/k", "s3://b/k/", "flatout::b/k", Path("b/k")],
)
def test_paths_are_bucket_and_key(path):
    assert S3FileSystem._strip_protocol(path) == "b/k"


def test_a_scheme_is_that_of_the_class_and_no_other():
    assert OssFileSystem._strip_protocol("oss://b/k") == "b/k"
    assert OssFileSystem._strip_protocol("flatoutoss://b/k") == "b/k"
    assert OssFileSystem._strip_protocol("flatout+oss://b/k") == "b/k"
    assert S3FileSystem._strip_protocol("flatoutoss://b/k") == "flatoutoss://b/k"
    assert S3FileSystem._strip_protocol("oss://b/k") == "oss://b/k"
    with pytest.raises(flatout.UsageError):
        S3FileSystem().cat_file("flatout+s3:///no/bucket")
    assert S3FileSystem().unstrip_protocol("b/k") == "flatout://b/k"
    assert OssFileSystem().unstrip_protocol("b/k") == "flatoutoss://b/k"


def test_the_installed_package_is_found_by_fsspec():
    for cls, protocols in ((S3FileSystem, ("flatout", "flatout+s3")), (OssFileSystem, ("flatoutoss", "flatout+oss"))):
        assert cls.protocol == protocols and [fsspec.get_filesystem_class(each) for each in protocols] == [cls, cls]


def test_keys_with_marks_of_urls_are_taken_as_they_are(bucket):
    fs = bucket.fs()
    for key in ("a b", "a%20b", "a+b", "ключ/ü", "a#b?c=d&e", "a=1/b=2"):
        path = bucket.put(key, key.encode())
        assert fs.cat_file(path) == key.encode()
        assert fs.info(path)["name"] == path
    assert fs.find(bucket.name) == sorted(f"{bucket.name}/{key}" for key in bucket.keys())


# The tree, held against a local one

KEYS = [
    "data/2026-10/a.parquet",
    "data/2026-10/b.parquet",
    "data/2026-11/a.parquet",
    "data/2026-11/deep/er/c.csv",
    "data/readme",
    "data.bak/x",
    "top.txt",
    "[odd]/file*",
]
PATTERNS = [
    "*",
    "*.txt",
    "data/*",
    "data/*/*.parquet",
    "data/2026-1*",
    "data/2026-1?/a.parquet",
    "data/**",
    "**/a.parquet",
    "**",
]
PATTERNS += ["data/**/c.csv", "da*/x", "data*", "none/*", "data/*/", "data/2026-1[01]/b*", "*/2026-11/**"]


@pytest.fixture
def trees(bucket, tmp_path):
    """The same files in a bucket and in a folder: two file systems, and what makes names of both the same."""
    for number, key in enumerate(KEYS):
        bucket.put(key, b"x" * number)
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(b"x" * number)
    return (bucket.fs(), bucket.name), (LocalFileSystem(), str(tmp_path))


def both(trees, ask):
    """What `ask(fs, path_of)` answers of either, names relative to the root."""
    answers = []
    for fs, root in trees:
        answer = ask(fs, lambda key, root=root: f"{root}/{key}" if key else root)
        answers.append(json.loads(json.dumps(answer, default=list).replace(root, "ROOT")))
    return answers


@pytest.mark.parametrize(
    "options", [{}, {"maxdepth": 1}, {"maxdepth": 2}, {"withdirs": True}, {"withdirs": True, "maxdepth": 2}]
)
@pytest.mark.parametrize("key", ["", "data", "data/2026-11", "top.txt", "none"])
def test_find_is_that_of_a_folder(trees, key, options):
    ours, local = both(trees, lambda fs, path: fs.find(path(key), **options))
    assert ours == local


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_glob_is_that_of_a_folder(trees, pattern, warm):
    if warm:
        trees[0][0].find(trees[0][1])
    ours, local = both(trees, lambda fs, path: fs.glob(path(pattern)))
    assert ours == local


@pytest.mark.parametrize("key", ["", "data", "data/2026-11", "data/2026-11/deep"])
def test_ls_walk_and_du_are_those_of_a_folder(trees, key):
    def ask(fs, path):
        walked = [(root, sorted(dirs), sorted(files)) for root, dirs, files in fs.walk(path(key))]
        return sorted(fs.ls(path(key), detail=False)), sorted(walked), fs.du(path(key)), fs.du(path(key), total=False)

    ours, local = both(trees, ask)
    assert ours == local


@pytest.mark.parametrize(
    "key", ["", "data", "data/readme", "data/2026-11/deep/er/c.csv", "dat", "data/none", "[odd]/file*"]
)
def test_what_is_there_is_that_of_a_folder(trees, key):
    def ask(fs, path):
        return fs.exists(path(key)), fs.isdir(path(key)), fs.isfile(path(key))

    for _ in range(2):
        ours, local = both(trees, ask)
        assert ours == local
        trees[0][0].find(trees[0][1])


def test_entries_say_size_type_and_version(bucket):
    path = bucket.put("dir/file", b"12345")
    fs = bucket.fs()
    told = bucket.s3.head_object(Bucket=bucket.name, Key="dir/file")
    listed = fs.ls(f"{bucket.name}/dir", detail=True)
    for entry in (fs.info(path), *listed, *fs.find(bucket.name, detail=True).values()):
        assert (entry["name"], entry["size"], entry["type"]) == (path, 5, "file")
        # And what s3fs calls them.
        assert (entry["Key"], entry["Size"], entry["StorageClass"]) == (path, 5, "STANDARD")
        assert entry["ETag"] == told["ETag"]
        assert entry["LastModified"] == told["LastModified"] == fs.modified(path) == fs.created(path)
        assert entry["mtime"] == told["LastModified"].timestamp()
    folder = {"name": f"{bucket.name}/dir", "size": 0, "type": "directory"}
    folder |= {"Key": folder["name"], "Size": 0, "StorageClass": "DIRECTORY"}
    for other in (fs, bucket.fs()):
        assert other.info(f"{bucket.name}/dir") == folder
    assert fs.ls(bucket.name, detail=True) == [folder]
    assert fs.info(bucket.name)["StorageClass"] == bucket.fs().ls("", detail=True)[0]["StorageClass"] == "BUCKET"
    assert fs.info(bucket.name)["type"] == fs.info("")["type"] == "directory"
    assert bucket.name in fs.ls("", detail=False)
    assert fs.size(path) == 5
    with pytest.raises(IsADirectoryError):
        fs.modified(f"{bucket.name}/dir")


def test_metadata_are_told_after_a_listing(bucket):
    path = f"{bucket.name}/dir/file"
    bucket.s3.put_object(Bucket=bucket.name, Key="dir/file", Body=b"1", Metadata={"by": "me", "made-at": "noon"})
    bare = bucket.put("dir/bare")
    fs = bucket.fs()
    fs.find(bucket.name)
    assert fs.metadata(path) == asyncio.run(fs._metadata(f"flatout://{path}")) == {"by": "me", "made-at": "noon"}
    # As s3fs has it.
    assert [fs.getxattr(path, name) for name in ("by", "made_at", "none")] == ["me", "noon", None]
    assert asyncio.run(fs._getxattr(path, "by")) == "me" and fs.metadata(bare) == {} and fs.getxattr(bare, "by") is None
    bucket.s3.put_object(Bucket=bucket.name, Key="dir/file", Body=b"1", Metadata={"by": "you"})
    assert fs.metadata(path) == {"by": "you"}
    for missing in (f"{bucket.name}/dir", f"{bucket.name}/none"):
        with pytest.raises(FileNotFoundError):
            fs.metadata(missing)
    with pytest.raises(flatout.UsageError, match="a bucket is no object"):
        fs.metadata(bucket.name)


def test_metadata_are_those_of_a_version(versions):
    fs, path, old, _ = versions
    fs.pipe_file(path, b"3", metadata={"by": "me"})
    assert fs.getxattr(path, "by") == "me" and fs.metadata(path, version_id=old) == {}


def test_missing_is_file_not_found(bucket):
    fs = bucket.fs()
    for path in (f"{bucket.name}/none", f"{bucket.name}/none/deeper", "no-such-bucket-here", "no-such-bucket-here/key"):
        for ask in (fs.ls, fs.info, fs.size, fs.modified):
            with pytest.raises(FileNotFoundError):
                ask(path)
        assert not fs.exists(path) and not fs.isdir(path) and not fs.isfile(path)
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{bucket.name}/none")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{bucket.name}/none")
    assert fs.ls(bucket.name) == []


def test_marks_of_folders_are_folders(bucket):
    for key in ("empty/", "full/", "full/file"):
        bucket.put(key)
    fs = bucket.fs()
    assert fs.find(bucket.name) == [f"{bucket.name}/full/file"]
    assert fs.isdir(f"{bucket.name}/empty") and not fs.isfile(f"{bucket.name}/empty")
    assert fs.ls(f"{bucket.name}/empty") == []
    assert fs.ls(f"{bucket.name}/full", detail=False) == [f"{bucket.name}/full/file"]
    assert f"{bucket.name}/empty" in fs.find(bucket.name, withdirs=True)


def test_ls_gives_what_the_one_gives_whose_place_it_takes(served):
    path = served.put("dir/file", b"12345")
    folder = f"{served.name}/dir"
    oss = {"endpoint": served.origin.endpoint, "oss_region": "cn-hangzhou", "skip_instance_cache": True}
    s3 = {"endpoint_url": served.origin.endpoint, "skip_instance_cache": True}
    for cls in (S3FileSystem, flatout.fsspec.S3Takeover):
        # As s3fs.
        assert cls(**s3).ls(folder) == [path] == cls(**s3).ls(folder, False)
        assert cls(**s3).ls(folder, detail=True)[0]["name"] == path
    for cls in (OssFileSystem, flatout.fsspec.OssTakeover):
        # As ossfs.
        (entry,) = cls(**oss).ls(folder)
        assert (entry["name"], entry["size"], entry["Key"], entry["Size"]) == (path, 5, path, 5)
        assert cls(**oss).ls(folder, detail=False) == [path]
    assert S3FileSystem(**s3).listdir(folder)[0]["name"] == path


def test_no_prefix_is_every_name(served):
    paths = [served.put(key) for key in ("dir/a", "dir/b")]
    fs = served.fs()
    for prefix in (None, ""):
        assert fs.find(served.name, prefix=prefix) == paths
        assert fs.find(f"{served.name}/dir", maxdepth=1, prefix=prefix) == paths
    assert fs.find(f"{served.name}/dir", prefix="b") == paths[1:]


#: What may have been listed before somebody asks.
BEFORE = {
    "nothing": lambda fs, root: None,
    "parent": lambda fs, root: fs.ls(root),
    "itself": lambda fs, root: fs.ls(f"{root}/a"),
    "object": lambda fs, root: fs.info(f"{root}/a"),
    "tree": lambda fs, root: fs.find(root),
    "levels": lambda fs, root: fs.find(root, maxdepth=2),
}


@pytest.mark.parametrize("use_listings_cache", [True, False])
@pytest.mark.parametrize("before", BEFORE)
def test_an_object_may_be_called_like_a_folder(served, tmp_path, before, use_listings_cache):
    """All answers agree, whatever is kept. Not on MinIO, which refuses it."""
    file, below, deep = served.put("a", b"file"), served.put("a/b", b"below"), served.put("a/c/d", b"deep")
    other, root = served.put("other", b"other"), served.name

    def fs():
        asked = served.fs(use_listings_cache=use_listings_cache)
        BEFORE[before](asked, root)
        return asked

    assert fs().isfile(file) and fs().isdir(file) and fs().exists(file)
    assert fs().info(file)["type"] == "file" and fs().size(file) == 4
    assert fs().ls(file) == [below, f"{root}/a/c"]
    assert fs().ls(root) == [file, file, other]
    assert sorted(fs().walk(root)) == [
        (root, ["a"], ["a", "other"]),
        (file, ["c"], ["b"]),
        (f"{root}/a/c", [], ["d"]),
    ]
    assert fs().find(root) == [file, below, deep, other]
    assert fs().find(root, maxdepth=2) == [file, below, other]
    assert fs().find(file) == [below, deep]
    assert fs().glob(f"{root}/a/*") == [below, f"{root}/a/c"] and fs().glob(f"{root}/*") == [file, other]
    assert fs().du(root) == 4 + 5 + 4 + 5
    # The object itself.
    assert fs().cat(root, recursive=True) == {file: b"file", below: b"below", deep: b"deep", other: b"other"}
    fs().get(file, f"{tmp_path}/file")
    assert (tmp_path / "file").read_bytes() == b"file"
    # There is but one name in a folder, and keys without number below it.
    whole = {"a/b": b"below", "a/c/d": b"deep", "other": b"other"}
    for number, source in enumerate((root, f"{root}/*", f"{root}/")):
        folder = tmp_path / str(number)
        fs().get(source, f"{folder}/", recursive=True)
        copied = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
        assert {name.removeprefix(f"{root}/"): data for name, data in copied.items()} == whole
    fs().get([file, other], f"{tmp_path}/some/")
    assert (tmp_path / "some/a").read_bytes() == b"file"


def test_what_cannot_be_known_is_no_answer(served):
    fs = S3FileSystem(endpoint_url="http://127.0.0.1:9", retries=0, connect_timeout="50ms", skip_instance_cache=True)
    for ask in (fs.exists, fs.isdir, fs.isfile, fs.find, lambda path: list(fs.walk(path))):
        with pytest.raises(flatout.NetworkError):
            ask("bucket/key")


@pytest.fixture
def versions(minio):
    """An object of two versions: its file system, its path, and the ids of the old one and the new."""
    bucket = Bucket(minio)
    bucket.s3.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    ids = [bucket.s3.put_object(Bucket=bucket.name, Key="dir/data", Body=body)["VersionId"] for body in (b"old", b"newer")]
    return bucket.fs(), f"{bucket.name}/dir/data", *ids


def test_a_version_is_read_by_its_id(versions, tmp_path):
    fs, path, old, new = versions
    # What a listing told is of the newest.
    fs.ls(fs._parent(path))
    for version, body in ((old, b"old"), (new, b"newer"), (None, b"newer")):
        named = {"version_id": version}
        assert fs.cat_file(path, **named) == fs.cat(path, **named) == body and fs.cat_file(path, 1, **named) == body[1:]
        assert fs.info(path, **named)["size"] == len(body) and fs.exists(path, **named)
        assert asyncio.run(fs._cat_file(path, **named)) == body and asyncio.run(fs._info(path, **named))["size"] == len(body)
        for file in (fs.open(path, **named), pickle.loads(pickle.dumps(fs.open(path, **named)))):
            assert file.size == len(body) and file.read() == body and file.info()["size"] == len(body)
        fs.get_file(path, f"{tmp_path}/out", **named)
        assert (tmp_path / "out").read_bytes() == body
        opened = io.BytesIO()
        fs.get_file(path, opened, **named)
        assert opened.getvalue() == body
        with urllib.request.urlopen(fs.sign(path, **named)) as answer:
            assert answer.read() == body
    assert fs.info(path, version_id=old)["VersionId"] == old and fs.info(path, refresh=True)["VersionId"] == new
    assert fs.info(path)["size"] == 5


def test_another_version_than_the_latest_is_not_read_in_its_stead(versions, tmp_path):
    fs, path, old, _ = versions
    asks = [
        fs.ls,
        lambda path, **options: fs.cat([path], **options),
        lambda path, **options: fs.cat_ranges([path], [0], [1], **options),
        lambda path, **options: fs.get(path, f"{tmp_path}/out", **options),
    ]
    for ask in asks:
        with pytest.raises(flatout.Unsupported):
            ask(path, version_id=old)
    with pytest.raises(FileNotFoundError):
        fs.cat_file(path, version_id="00000000-0000-0000-0000-000000000000")


# Listings that are kept


def test_listings_are_kept_until_they_are_forgotten(counted):
    counted.put("dir/a", b"a")
    fs = counted.fs()
    folder = f"{counted.name}/dir"
    assert len(fs.ls(folder)) == 1
    requests = counted.requests
    assert len(fs.ls(folder)) == 1 and fs.info(f"{folder}/a")["size"] == 1 and fs.isdir(folder)
    assert counted.requests == requests
    counted.put("dir/b", b"bb")
    assert len(fs.ls(folder)) == 1
    # What no listing told of is asked for.
    assert fs.info(f"{folder}/b")["size"] == 2
    assert len(fs.ls(folder, refresh=True)) == 2
    counted.put("dir/c")
    for path in (None, "", "s3://", folder, f"{folder}/c", counted.name):
        fs.ls(folder)
        fs.invalidate_cache(path)
        assert folder not in fs.dircache
    assert len(fs.ls(folder)) == 3


def test_listings_expire(served):
    served.put("dir/a")
    fs = served.fs(listings_expiry_time=0.2)
    assert len(fs.ls(f"{served.name}/dir")) == 1
    served.put("dir/b")
    time.sleep(0.3)
    assert len(fs.ls(f"{served.name}/dir")) == 2


def test_what_a_head_told_expires_too(served):
    path = served.put("dir/a", b"old")
    fs = served.fs(listings_expiry_time=0.2)
    assert fs.info(path)["size"] == 3
    served.put("dir/a", b"longer")
    time.sleep(0.3)
    with fs.open(path) as file:
        assert file.size == 6


def test_what_is_gone_is_told_of_no_longer(served):
    path = served.put("dir/a", b"data")
    for tell in (fs_info, fs_ls):
        served.put("dir/a", b"data")
        fs = served.fs()
        tell(fs, path)
        served.delete("dir/a")
        with fs.open(path) as file:
            assert file.size == 4
            with pytest.raises(FileNotFoundError):
                file.read()
        with pytest.raises(FileNotFoundError):
            fs.open(path)
    served.put("dir/a", b"data")
    fs = served.fs()
    fs.info(path)
    served.delete("dir/a")
    assert not fs.isfile(path)
    with pytest.raises(FileNotFoundError):
        fs.open(path)


def fs_info(fs, path):
    fs.info(path)


def fs_ls(fs, path):
    fs.ls(fs._parent(path))


def test_no_listing_is_kept_where_none_is_wanted(served):
    served.put("dir/a")
    fs = served.fs(use_listings_cache=False)
    assert len(fs.ls(f"{served.name}/dir")) == len(fs.find(served.name)) == 1
    served.put("dir/b")
    assert len(fs.ls(f"{served.name}/dir")) == len(fs.find(served.name)) == 2


def test_threads_share_what_is_kept(served):
    """fsspec gives all of them the same file system, as one that has verbs to await."""
    path, options = served.put("dir/a", b"a"), {"endpoint_url": served.origin.endpoint, "listings_expiry_time": 0.001}
    found, wrong = [], []

    def use():
        try:
            fs = S3FileSystem(**options)
            found.append(fs)
            for number in range(100):
                assert fs.ls(f"{served.name}/dir") == [path] == fs.find(served.name) and fs.info(path)["size"] == 1
                fs.invalidate_cache((None, path, served.name)[number % 3])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len({id(fs) for fs in found}) == 1


def test_entries_handed_out_are_the_callers(served):
    path = served.put("dir/a", b"a")
    fs = served.fs()
    folder = f"{served.name}/dir"
    for entry in (*fs.ls(folder, detail=True), fs.info(path), *fs.find(served.name, detail=True).values()):
        entry["size"] = "spoilt"
    assert fs.info(path)["size"] == 1 and fs.ls(folder, detail=True)[0]["size"] == 1


def test_a_large_tree_is_listed_in_pages_not_in_folders(counted):
    for number in range(30):
        counted.put(f"tree/{number % 10}/{number}")
    fs = counted.fs()
    before = counted.requests
    assert len(fs.find(f"{counted.name}/tree")) == 30
    assert counted.requests - before == 1
    assert fs.du(f"{counted.name}/tree") == 0 and len(fs.ls(f"{counted.name}/tree/3")) == 3
    assert counted.requests - before == 2


# Bytes

SLICES = [None, 0, 1, 5, 9, 10, 11, 1000, -1, -5, -10, -11, -1000]


def test_cat_file_cuts_as_a_slice_does(bucket):
    data = b"0123456789"
    path, empty = bucket.put("ten", data), bucket.put("none", b"")
    fs = bucket.fs()
    for start in SLICES:
        for end in SLICES:
            assert fs.cat_file(path, start, end) == data[start:end], (start, end)
            assert fs.cat_file(empty, start, end) == b"", (start, end)
    assert isinstance(fs.cat_file(path), bytes)
    assert fs.head(path, 3) == b"012" and fs.tail(path, 3) == b"789" and fs.tail(path, 0) == b""
    assert fs.read_bytes(path, 2, 4) == b"23" and fs.read_text(path) == data.decode()


def test_cat_of_many_is_a_dict(bucket):
    paths = [bucket.put(f"many/{number:03}", bytes([number]) * number) for number in range(100)]
    fs = bucket.fs()
    expected = {path: bytes([number]) * number for number, path in enumerate(paths)}
    assert fs.cat(paths) == expected
    assert fs.cat(f"{bucket.name}/many/*") == expected
    assert fs.cat(f"{bucket.name}/many", recursive=True) == expected
    assert list(fs.cat(paths)) == paths
    assert fs.cat(paths[7]) == expected[paths[7]]
    assert fs.cat(paths, start=-2) == {path: data[-2:] for path, data in expected.items()}
    # As fsspec's own: what stands for itself alone is no dict.
    assert fs.cat(paths[7], recursive=True, start=1) == expected[paths[7]][1:]
    assert fs.cat([paths[7]], recursive=True) == {paths[7]: expected[paths[7]]}
    assert fs.cat(f"{paths[7][:-1]}[{paths[7][-1]}]") == {paths[7]: expected[paths[7]]}
    with pytest.raises(FileNotFoundError):
        fs.expand_path({f"{bucket.name}/none*"})


def test_cat_of_many_says_what_failed_as_asked(bucket):
    there, missing = bucket.put("there", b"data"), f"{bucket.name}/missing"
    fs = bucket.fs()
    with pytest.raises(FileNotFoundError):
        fs.cat([there, missing])
    assert fs.cat([there, missing], on_error="omit") == {there: b"data"}
    returned = fs.cat([there, missing], on_error="return")
    assert returned[there] == b"data" and isinstance(returned[missing], FileNotFoundError)
    # What zarr reads by.
    store = fs.get_mapper(bucket.name)
    assert store["there"] == b"data" and "missing" not in store
    assert store.getitems(["there", "missing"], on_error="omit") == {"there": b"data"}
    with pytest.raises(KeyError):
        store["missing"]


def test_cat_ranges_answers_in_the_order_asked(bucket):
    data = bytes(range(256)) * 40
    long, short = bucket.put("long", data), bucket.put("short", b"abcdef")
    fs = bucket.fs()
    paths = [long, short, long, long, long, short, long]
    starts = [500, 0, 10, None, -7, -3, 9_999_999]
    ends = [600, 2, 10, 5, None, None, 99_999_999]
    whole = {long: data, short: b"abcdef"}
    expected = [whole[path][start:end] for path, start, end in zip(paths, starts, ends)]
    assert fs.cat_ranges(paths, starts, ends) == expected
    assert fs.cat_ranges([long, short], 1, 3) == [data[1:3], b"bc"]
    assert fs.cat_ranges([], [], []) == []


def test_cat_ranges_puts_failures_where_they_belong(bucket):
    there, missing = bucket.put("there", b"0123456789"), f"{bucket.name}/missing"
    fs = bucket.fs()
    asked = [there, missing, there, missing], [0, 0, 5, 5], [2, 2, 7, 7]
    got = fs.cat_ranges(*asked)
    assert got[0] == b"01" and got[2] == b"56"
    assert isinstance(got[1], FileNotFoundError) and isinstance(got[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(*asked, on_error="raise")
    with pytest.raises(ValueError):
        fs.cat_ranges([there], [0, 1], [2, 3])


def test_what_fails_twice_is_handed_on_once():
    # The end of an object is asked for after a failure: that this fails, too, is no other one.
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    fs = S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}", no_sign_request=True, retries=0)
    (got,) = fs.cat_ranges(["bucket/key"], [-5], [None])
    assert isinstance(got, flatout.NetworkError)
    assert fs.cat(["bucket/key"], on_error="omit", start=-5) == {}
    got = fs.cat(["bucket/key"], on_error="return", start=-5)["bucket/key"]
    assert isinstance(got, flatout.NetworkError) and got.doing == "read"


def test_cat_ranges_joins_what_lies_close(counted):
    data = origins.noise(1 << 20)
    path = counted.put("data", data)
    fs = counted.fs()
    starts = list(range(0, 1 << 16, 1024))
    before = counted.requests
    got = fs.cat_ranges([path] * len(starts), starts, [start + 100 for start in starts], max_gap=4096)
    assert got == [data[start : start + 100] for start in starts]
    assert counted.requests - before <= 2


# Copies


def test_get_of_many_is_one_call(bucket, tmp_path):
    expected = {f"{number:03}": origins.noise(number * 10) for number in range(60)}
    for key, data in expected.items():
        bucket.put(f"many/{key}", data)
    bucket.fs().get(f"{bucket.name}/many", f"{tmp_path}/out", recursive=True)
    assert {each.name: each.read_bytes() for each in (tmp_path / "out").iterdir()} == expected


def test_get_takes_paths_as_objects(served, tmp_path):
    path = served.put("dir/data", b"data")
    served.fs().get(Path(path), tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"data"


def test_get_file_tells_how_far_it_is(bucket, tmp_path):
    data = origins.noise(3 << 20)
    path = bucket.put("data", data)
    callback = fsspec.Callback()
    bucket.fs().get_file(path, f"{tmp_path}/new/folder/data", callback=callback)
    assert (tmp_path / "new/folder/data").read_bytes() == data
    assert callback.size == callback.value == len(data)


def test_get_of_many_tells_how_many(bucket, tmp_path):
    for number in range(5):
        bucket.put(f"many/{number}", b"x")
    callback = fsspec.Callback()
    bucket.fs().get(f"{bucket.name}/many/*", f"{tmp_path}/out/", callback=callback)
    assert callback.size == callback.value == 5


def test_get_file_writes_into_what_is_open(bucket):
    data = origins.noise(5 << 20)
    path = bucket.put("data", data)
    out = io.BytesIO()
    bucket.fs().get_file(path, out)
    assert out.getvalue() == data


def test_get_of_what_is_missing_says_so(bucket, tmp_path):
    bucket.put("dir/file")
    fs = bucket.fs()
    for recursive in (False, True):
        with pytest.raises(FileNotFoundError):
            fs.get(f"{bucket.name}/none", f"{tmp_path}/out", recursive=recursive)
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{bucket.name}/none", f"{tmp_path}/out")
    assert not (tmp_path / "out").exists()


def test_no_key_leads_out_of_the_target_folder(served, tmp_path):
    served.put("dir/good")
    served.put("dir/../../../evil")
    with pytest.raises(ValueError):
        served.fs().get(f"{served.name}/dir", f"{tmp_path}/out", recursive=True)
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


# Files


def test_two_keys_are_never_copied_to_one_file(served, tmp_path):
    for key in ("two/a/x", "two/a//x", "two/y"):
        served.put(key, key.encode())
    target = tmp_path / "target"
    with pytest.raises(flatout.UsageError, match="would be this file"):
        served.fs().get(f"{served.name}/two", str(target), recursive=True)
    assert not target.exists()


def test_a_closed_file_reads_no_lines(served):
    file = served.fs().open(served.put("lines", b"one\ntwo\nthree\n"))
    assert file.readline() == b"one\n"
    file.close()
    for read in (file.readline, file.readuntil, file.readlines, lambda: next(file)):
        with pytest.raises(ValueError, match="closed"):
            read()


def test_what_cannot_be_filled_is_refused(served):
    with served.fs().open(served.put("data", b"0123456789")) as file:
        for buffer in (b"abcd", memoryview(bytearray(8))[::2]):
            with pytest.raises(BufferError):
                file.readinto(buffer)
        assert file.tell() == 0


def test_a_file_is_read_as_files_are(bucket):
    lines = [f"line {number}\n".encode() for number in range(1000)]
    data = b"".join(lines)
    path = bucket.put("lines", data)
    fs = bucket.fs()
    with fs.open(path) as file:
        assert file.size == len(data) and file.readable() and file.seekable() and not file.writable()
        assert file.read(6) == b"line 0" and file.tell() == 6
        assert file.seek(-5, 2) == len(data) - 5 and file.read() == b" 999\n"[-5:]
        assert file.read() == b"" and file.seek(0) == 0
        assert file.readline() == lines[0] and file.readlines() == lines[1:]
        assert list(iter(file)) == [] and file.seek(0) == 0 and list(file) == lines
        memory = bytearray(10)
        file.seek(100)
        assert file.readinto(memory) == 10 and bytes(memory) == data[100:110]
        assert file.info()["name"] == path == file.path
        assert file.full_name == f"flatout://{path}"
        assert file.readuntil(b"7") == data[110 : data.index(b"7", 110) + 1]
    assert file.closed
    with fs.open(path, "r", encoding="ascii") as text:
        assert text.readline() == "line 0\n" and sum(1 for _ in text) == 999


def test_reads_of_any_size_are_those_of_a_local_file(served, tmp_path):
    data = origins.noise(300_000)
    path = served.put("data", data)
    (tmp_path / "data").write_bytes(data)
    chance = random.Random(7)
    with served.fs().open(path) as ours, open(tmp_path / "data", "rb") as local:
        for step in range(2000):
            verb, size = (
                chance.choice(["read", "read", "readinto", "readline", "seek", "pread"]),
                chance.choice([0, 1, 3, 30, 1024, 1025, 40_000]),
            )
            if verb == "seek":
                at = chance.randrange(len(data) + 10)
                assert ours.seek(at) == local.seek(at), step
            elif verb == "readinto":
                one, other = bytearray(size), bytearray(size)
                assert (ours.readinto(one), one) == (local.readinto(other), other), step
            elif verb == "pread":
                assert bytes(ours.pread(size * 7, size)) == data[size * 7 : size * 8], step
            else:
                most = size if chance.random() < 0.5 else -1
                wanted = size if verb == "read" else most
                assert getattr(ours, verb)(wanted) == getattr(local, verb)(wanted), step
            assert ours.tell() == local.tell(), step


@pytest.mark.parametrize("char", [b"\n", b"--", b"abc"])
def test_what_a_file_is_cut_by_may_lie_across_any_border(served, char):
    data = b"".join(b"x" * length + char for length in range(0, 70, 3)) + b"rest"
    path = served.put("data", data)
    for blocks in (1, 2, 3, 5, 64):
        with served.fs().open(path) as file:
            pieces = list(iter(lambda: file.readuntil(char, blocks), b""))
        assert pieces == [piece + char for piece in data.split(char)[:-1]] + [b"rest"]


def test_a_member_of_a_zip_is_one_request(counted):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for number in range(200):
            file.writestr(f"{number}", origins.noise(20_000, number))
    path = counted.put("archive.zip", archive.getvalue())
    with counted.fs().open(path) as file, zipfile.ZipFile(file) as opened:
        before = counted.requests
        opened.read("150")
    assert counted.requests - before <= 2


def test_compressed_and_zipped_files(bucket):
    packed = bucket.put("text.gz", gzip.compress(b"hello\n" * 1000))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(20):
            file.writestr(f"{number}.txt", f"{number}" * 1000)
    zipped = bucket.put("archive.zip", archive.getvalue())
    fs = bucket.fs()
    with fs.open(packed, "rt", compression="infer") as file:
        assert file.read() == "hello\n" * 1000
    with fs.open(zipped) as file, zipfile.ZipFile(file) as opened:
        assert opened.testzip() is None
        assert opened.read("13.txt") == b"13" * 1000
    options = {"flatout+s3": {"endpoint_url": bucket.origin.endpoint}}
    with fsspec.open(f"zip://7.txt::flatout+s3://{zipped}", **options) as file:
        assert file.read() == b"7" * 1000


def test_a_local_copy_is_kept_by_fsspecs_own_cache(bucket, tmp_path):
    path = bucket.put("data", b"first")
    url = f"filecache::flatout+s3://{path}"
    options = {
        "flatout+s3": {"endpoint_url": bucket.origin.endpoint},
        "filecache": {"cache_storage": str(tmp_path), "check_files": True},
    }
    with fsspec.open(url, **options) as file:
        assert file.read() == b"first"
    bucket.put("data", b"second")
    with fsspec.open(url, **options) as file:
        assert file.read() == b"second"


@pytest.mark.parametrize("block_size", [None, 1 << 16])
def test_blocks_are_kept_by_fsspecs_own_cache(counted, tmp_path, block_size):
    data = origins.noise(300_000)
    path = counted.put("data", data)
    options = {
        "flatout+s3": {"endpoint_url": counted.origin.endpoint},
        "blockcache": {"cache_storage": str(tmp_path)},
    }
    fs, name = fsspec.url_to_fs(f"blockcache::flatout+s3://{path}", **options)

    def read():
        with fs.open(name, block_size=block_size) as file:
            assert file.read(10) == data[:10]
            assert file.readline() == io.BytesIO(data[10:]).readline()
            file.seek(-1000, 2)
            part = bytearray(5000)
            assert file.readinto(part) == 1000 and part[:1000] == data[-1000:]
            file.seek(1 << 17)
            assert file.read(1 << 16) == data[1 << 17 : 3 << 16]
        assert file.closed

    read()
    before = counted.requests
    read()
    # Whatever it asks to open the file: no byte comes again.
    assert all(each["method"] == "HEAD" for each in counted.asked()[before:])
    with fs.open(name, block_size=block_size) as file:
        assert file.read() == data
    with fs.open(name, block_size=block_size) as file:
        assert file.read() == data


def test_what_a_listing_told_is_not_asked_again(counted):
    path = counted.put("dir/data", b"0123456789")
    fs = counted.fs()
    fs.ls(f"{counted.name}/dir")
    before = counted.requests
    with fs.open(path) as file:
        assert file.size == 10
        assert file.read() == b"0123456789"
    assert counted.requests - before == 1


def test_a_file_replaced_after_its_listing_is_read_as_it_is_now(bucket):
    path = bucket.put("dir/data", b"old old old")
    fs = bucket.fs()
    fs.ls(f"{bucket.name}/dir")
    bucket.put("dir/data", b"new and longer than before")
    with fs.open(path) as file:
        assert file.read() == b"new and longer than before"
        assert file.size == 26


def test_a_file_whose_size_was_told_stays_that_version_or_fails(bucket):
    path = bucket.put("dir/data", b"old old old")
    fs = bucket.fs()
    fs.ls(f"{bucket.name}/dir")
    with fs.open(path) as file:
        assert file.size == 11
        bucket.put("dir/data", b"new and longer than before")
        with pytest.raises(flatout.ObjectChanged):
            file.read()
    # The next one to open it is told of what is there now.
    with fs.open(path) as file:
        assert file.size == 26 and file.read() == b"new and longer than before"


def test_an_empty_file_that_was_filled_is_not_empty(bucket):
    path = bucket.put("dir/data", b"")
    fs = bucket.fs()
    fs.ls(f"{bucket.name}/dir")
    bucket.put("dir/data", b"filled")
    with fs.open(path) as file:
        assert file.read() == b"filled"


def test_versions_have_different_keys(bucket):
    path = bucket.put("data", b"one")
    fs = bucket.fs()
    first = fs.ukey(path), fs.checksum(path)
    fs.ls(bucket.name)
    assert (fs.ukey(path), fs.checksum(path)) == first
    bucket.put("data", b"two")
    assert fs.ukey(path) != first[0] and fs.checksum(path) != first[1]


def test_a_signed_url_is_for_anyone(bucket):
    path = bucket.put("data", b"for anyone")
    url = bucket.fs().sign(path, expiration=60)
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"for anyone"


# Options

ENDPOINT = "http://127.0.0.1:9000"
TRANSLATED = [
    ({"anon": True}, {"no_sign_request": True}),
    ({"anon": False, "key": None, "use_ssl": True, "version_aware": False}, {}),
    ({"endpoint_url": ENDPOINT, "use_ssl": False, "profile": "p"}, {"endpoint_url": ENDPOINT, "profile": "p"}),
    (
        {"client_kwargs": {"endpoint_url": ENDPOINT, "region_name": "eu-west-1"}},
        {"endpoint_url": ENDPOINT, "region": "eu-west-1"},
    ),
    ({"client_kwargs": {"verify": "ca.pem"}}, {"ca_bundle": "ca.pem"}),
    ({"config_kwargs": {"s3": {"addressing_style": "path"}, "signature_version": "s3v4"}}, {"addressing": "path"}),
    (
        {"config_kwargs": {"connect_timeout": 1.5, "read_timeout": 60}},
        {"connect_timeout": "1500ms", "stall_timeout": "60000ms"},
    ),
    ({"requester_pays": True}, {"request_payer": True}),
    ({"s3_additional_kwargs": {"RequestPayer": "requester"}}, {"request_payer": True}),
    ({"default_block_size": 1, "default_cache_type": "none", "asynchronous": False, "max_concurrency": 3}, {}),
    ({"part_size": "16MiB", "parallel": 7}, {"part_size": "16MiB", "parallel": 7}),
]


@pytest.mark.parametrize("options, settings", TRANSLATED)
def test_options_of_s3fs_mean_the_same(options, settings):
    assert S3FileSystem(**options).client.settings == settings


def test_options_of_ossfs_mean_the_same():
    assert OssFileSystem(endpoint="oss-cn-hangzhou.aliyuncs.com").client.settings == {
        "oss_endpoint": "oss-cn-hangzhou.aliyuncs.com"
    }


SECRETS = [
    {"key": "SESAME"},
    {"secret": "SESAME"},
    {"token": "SESAME"},
    {"password": "SESAME"},
    {"client_kwargs": {"aws_secret_access_key": "SESAME"}},
    {"proxy": "http://user:SESAME@proxy:3128"},
    {"endpoint_url": "http://user:SESAME@127.0.0.1:9000"},
    {"proxy": "user:SESAME@proxy:3128"},
    {"endpoint_url": "user:SESAME@127.0.0.1:9000"},
    {"oss_endpoint": "user:SESAME@127.0.0.1:9000"},
    {"oss-endpoint": "user:SESAME@127.0.0.1:9000"},
    {"client_kwargs": {"endpoint_url": "user:SESAME@127.0.0.1:9000"}},
    {"credentials": flatout.Credentials("SESAME", "SESAME")},
]


@pytest.mark.parametrize("cls", [S3FileSystem, OssFileSystem])
@pytest.mark.parametrize("options", SECRETS)
def test_secrets_are_refused_and_not_repeated(cls, options):
    with pytest.raises(flatout.UsageError) as refused:
        cls(**options)
    assert refused.value.hint and "SESAME" not in str(refused.value)


def keys():
    return flatout.Credentials(origins.ACCESS_KEY, origins.SECRET_KEY)


def no_keys():
    return flatout.Credentials("NOBODY", "SESAME")


def test_keys_may_come_from_a_function(served, monkeypatch):
    """It goes into pickles by its name; so two accounts live in one process."""
    path, endpoint = served.put("data", b"data"), served.origin.endpoint
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    mine, other = (S3FileSystem(endpoint_url=endpoint, credentials=each) for each in (keys, no_keys))
    assert mine.cat_file(path) == asyncio.run(mine._cat_file(path)) == b"data"
    with pytest.raises(PermissionError):
        other.cat_file(path)
    pickled = pickle.dumps(mine)
    assert origins.SECRET_KEY.encode() not in pickled and pickle.loads(pickled).cat_file(path) == b"data"
    assert origins.SECRET_KEY not in f"{mine!r} {mine._fs_token}"


REFUSED = [
    {"version_aware": True},
    {"session": object()},
    {"use_ssl": False},
    {"client_kwargs": {"verify": False}},
    {"client_kwargs": {"nonsense": 1}},
    {"config_kwargs": {"nonsense": 1}},
    {"s3_additional_kwargs": {"SSECustomerKey": "x"}},
    {"endpoint": ENDPOINT},
    {"nonsense": 1},
    {"parallel": "many"},
]


@pytest.mark.parametrize("options", REFUSED)
def test_what_would_be_disregarded_to_harm_is_refused(options):
    with pytest.raises(flatout.UsageError):
        S3FileSystem(**options)


def test_file_systems_of_the_same_settings_share_a_client():
    first = S3FileSystem(endpoint_url=ENDPOINT, skip_instance_cache=True)
    second = S3FileSystem(endpoint_url=ENDPOINT, use_listings_cache=False, skip_instance_cache=True)
    assert first is not second and first.client is second.client
    assert S3FileSystem(endpoint_url=ENDPOINT, parallel=3).client is not first.client


# Copies of file systems and files


def test_a_client_that_was_closed_is_made_anew(served):
    path = served.put("data", b"data")
    fs = S3FileSystem(endpoint_url=served.origin.endpoint)
    fs.client.close()
    assert S3FileSystem(endpoint_url=served.origin.endpoint) is fs
    assert fs.cat(path) == b"data"
    assert served.fs().client is fs.client


def test_a_pickle_is_the_recipe(bucket, monkeypatch):
    path = bucket.put("data", b"0123456789")
    options = {
        "endpoint_url": bucket.origin.endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
        "listings_expiry_time": 5,
    }
    fs = S3FileSystem(**options)
    fs.ls(bucket.name)
    pickled = pickle.dumps(fs)
    for text in (pickled.decode("latin1"), fs.to_json(), repr(fs), fs._fs_token):
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in text
    assert pickle.loads(pickled) == fs
    again = fsspec.AbstractFileSystem.from_json(fs.to_json())
    assert again == fs and again.cat_file(path) == b"0123456789"
    with fs.open(path) as file:
        file.seek(4)
        assert pickle.loads(pickle.dumps(file)).read() == b"456789"


def read_in_child(fs, path, answers):
    answers.put((fs.cat_file(path), fs.cat([path]), len(fs.ls(path.rpartition("/")[0]))))


@pytest.mark.parametrize("start", ["spawn", "fork", "forkserver"])
def test_children_read_too(bucket, start):
    path = bucket.put("dir/data", b"0123456789")
    fs = bucket.fs()
    # In use before: a forked child has to do without what its parent runs.
    assert fs.cat_file(path) == b"0123456789"
    context = multiprocessing.get_context(start)
    answers = context.Queue()
    child = context.Process(target=read_in_child, args=(fs, path, answers))
    child.start()
    assert answers.get(timeout=60) == (b"0123456789", {path: b"0123456789"}, 1)
    child.join(timeout=60)
    assert child.exitcode == 0
    assert fs.cat_file(path) == b"0123456789"


# Taking over


def test_taking_over_is_asked_for(register_again):
    with pytest.raises(flatout.UsageError):
        flatout.fsspec.register("s3")
    with pytest.raises(flatout.UsageError):
        flatout.fsspec.register("gs", clobber=True)
    flatout.fsspec.register("s3", "oss", clobber=True)
    flatout.fsspec.register("s3")
    flatout.fsspec.register()
    fs = fsspec.filesystem("s3", endpoint_url=ENDPOINT)
    assert isinstance(fs, S3FileSystem) and fs.unstrip_protocol("b/k") == "s3://b/k"
    assert pickle.loads(pickle.dumps(fs)) == fs
    assert isinstance(fsspec.filesystem("oss"), OssFileSystem)
    assert fsspec.core.url_to_fs("s3://bucket/key", endpoint_url=ENDPOINT) == (fs, "bucket/key")
