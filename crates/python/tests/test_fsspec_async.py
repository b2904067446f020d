"""flatout.fsspec awaited: the same answers as of the verbs that block, on the caller's own loop and without a thread."""

import asyncio
import contextlib
import io
import inspect
import multiprocessing
import pickle
import threading

import fsspec
import fsspec.asyn
import fsspec.generic
import pytest
from fsspec.asyn import AsyncFileSystem

import flatout
import origins
from flatout.fsspec import FlatoutFileSystem, OssFileSystem, S3FileSystem
from test_fsspec import Bucket

KEYS = {f"data/{number % 3}/{number:02}": bytes([number]) * (number + 1) for number in range(12)} | {"top": b"0123456789"}


@pytest.fixture(params=["serve", "minio"])
def tree(request):
    """A bucket with KEYS."""
    bucket = Bucket(request.getfixturevalue(request.param))
    for key, data in KEYS.items():
        bucket.put(key, data)
    return bucket


@pytest.fixture
def served(serve):
    return Bucket(serve)


def awaited(fs, ask):
    """What `ask` awaits of `fs`; that nobody's thread takes part is seen to elsewhere."""

    async def main():
        return await ask(fs)

    return asyncio.run(main())


#: Verbs, and arguments of which `ROOT` is the bucket.
ASKED = [
    ("ls", ("ROOT",), {}),
    ("ls", ("ROOT/data", True), {}),
    ("ls", ("ROOT/top",), {}),
    ("info", ("ROOT/top",), {}),
    ("info", ("ROOT/data/1",), {}),
    ("info", ("ROOT",), {}),
    ("exists", ("ROOT/top",), {}),
    ("exists", ("ROOT/none",), {}),
    ("isfile", ("ROOT/top",), {}),
    ("isfile", ("ROOT/data",), {}),
    ("isdir", ("ROOT/data",), {}),
    ("isdir", ("ROOT/top",), {}),
    ("size", ("ROOT/top",), {}),
    ("sizes", (["ROOT/top", "ROOT/data/1/01"],), {}),
    ("find", ("ROOT",), {}),
    ("find", ("ROOT/data",), {"withdirs": True, "detail": True}),
    ("find", ("ROOT",), {"maxdepth": 2}),
    ("find", ("ROOT/data/1",), {"prefix": "0"}),
    ("du", ("ROOT",), {}),
    ("du", ("ROOT/data",), {"total": False}),
    ("glob", ("ROOT/data/*/0?",), {}),
    ("glob", ("ROOT/**",), {"detail": True}),
    ("expand_path", ("ROOT/data/[12]",), {"recursive": True}),
    ("cat_file", ("ROOT/top",), {}),
    ("cat_file", ("ROOT/top", 2, 5), {}),
    ("cat_file", ("ROOT/top", -3), {}),
    ("cat_file", ("ROOT/top",), {"start": 2, "end": -2}),
    ("cat_file", ("ROOT/top",), {"start": 20, "end": 30}),
    ("cat", ("ROOT/top",), {}),
    ("cat", (["ROOT/top", "ROOT/data/1/01"],), {}),
    ("cat", ("ROOT/data",), {"recursive": True}),
    ("cat", (["ROOT/top", "ROOT/none"],), {"on_error": "omit"}),
    ("cat_ranges", (["ROOT/top", "ROOT/data/1/10", "ROOT/top"], [0, 3, -4], [2, 7, None]), {}),
    ("cat_ranges", (["ROOT/top"] * 3, [0, 3, 6], [2, 5, 8]), {"max_gap": 0}),
]


@pytest.mark.parametrize("verb, args, named", ASKED, ids=[f"{number}-{each[0]}" for number, each in enumerate(ASKED)])
def test_what_is_awaited_is_what_the_blocking_verb_gives(tree, verb, args, named):
    def named_by(value):
        return [named_by(each) for each in value] if isinstance(value, list) else (
            value.replace("ROOT", tree.name) if isinstance(value, str) else value
        )

    args = [named_by(each) for each in args]
    told = getattr(tree.fs(), verb)(*args, **named)
    for options in ({"asynchronous": True}, {}):
        assert awaited(tree.fs(**options), lambda fs: getattr(fs, f"_{verb}")(*args, **named)) == told


def test_walks_are_awaited_too(tree):
    async def walked(fs):
        return [each async for each in fs._walk(tree.name)]

    assert awaited(tree.fs(asynchronous=True), walked) == list(tree.fs().walk(tree.name))


def test_the_buckets_are_awaited(served):
    assert served.name in awaited(served.fs(asynchronous=True), lambda fs: fs._ls(""))


def test_failures_are_those_of_the_blocking_verbs(served, tmp_path):
    missing = f"{served.name}/none"
    for verb in ("info", "ls", "cat_file", "size", "expand_path"):
        path = f"{missing}*" if verb == "expand_path" else missing
        with pytest.raises(FileNotFoundError):
            awaited(served.fs(asynchronous=True), lambda fs: getattr(fs, f"_{verb}")(path))
    with pytest.raises(FileNotFoundError):
        awaited(served.fs(asynchronous=True), lambda fs: fs._get_file(missing, f"{tmp_path}/out"))
    with pytest.raises(FileNotFoundError):
        awaited(served.fs(asynchronous=True), lambda fs: fs._cat([missing]))
    (got,) = awaited(served.fs(asynchronous=True), lambda fs: fs._cat_ranges([missing], [0], [5]))
    assert isinstance(got, FileNotFoundError)
    assert not (tmp_path / "out").exists()
    with pytest.raises(flatout.Unsupported):
        awaited(served.fs(asynchronous=True), lambda fs: fs._ls(missing, version_id="1"))


def test_copies_are_awaited(tree, tmp_path):
    fs = tree.fs(asynchronous=True)
    awaited(fs, lambda fs: fs._get(tree.name, f"{tmp_path}/all", recursive=True))
    copied = {str(each.relative_to(tmp_path / "all")): each.read_bytes() for each in (tmp_path / "all").rglob("*") if each.is_file()}
    assert copied == KEYS
    callback, open_already = fsspec.Callback(), io.BytesIO()
    awaited(fs, lambda fs: fs._get_file(f"{tree.name}/top", f"{tmp_path}/deep/er/top", callback=callback))
    assert (tmp_path / "deep/er/top").read_bytes() == KEYS["top"] and callback.size == callback.value == 10
    awaited(fs, lambda fs: fs._get_file(f"{tree.name}/top", open_already))
    assert open_already.getvalue() == KEYS["top"]


def test_a_file_is_read_by_awaiting(served):
    data = origins.noise(300_000)
    path = served.put("data", data)

    async def read(fs):
        async with await fs.open_async(path) as file:
            assert file.size == len(data)
            first = await file.read(1000)
            assert file.tell() == 1000 and file.seek(-10, 2) == len(data) - 10
            last = await file.read()
            assert await file.read() == b"" and file.seek(500) == 500 and file.seek(500, 1) == 1000
            served.put("data", b"another version")
            # What was fetched ahead, or nothing: no byte of the other version.
            with contextlib.suppress(flatout.ObjectChanged):
                assert await file.read() == data[1000:]
        with pytest.raises(ValueError, match="closed"):
            await file.read()
        return first + last

    assert awaited(served.fs(asynchronous=True), read) == data[:1000] + data[-10:]


def test_no_thread_waits_for_what_is_awaited(served, tmp_path):
    paths = [served.put(f"many/{number}", b"x" * 1000) for number in range(50)]

    async def main(fs):
        await fs._cat_file(paths[0])
        before = threading.enumerate()
        told = await asyncio.gather(*(fs._cat_file(path) for path in paths))
        told += [await fs._find(served.name), await fs._cat_ranges(paths * 2, 0, 5), await fs._cat(paths)]
        await fs._get(f"{served.name}/many", f"{tmp_path}/out", recursive=True)
        assert threading.enumerate() == before
        return told

    awaited(served.fs(asynchronous=True), main)


def test_blocking_verbs_start_no_loop(served, python):
    """Neither those of a file system that is asynchronous nor those of any other."""
    said = python(
        """
import sys, threading
import fsspec.asyn
import fsspec.generic
from flatout.fsspec import S3FileSystem
for asynchronous in (False, True):
    fs = S3FileSystem(endpoint_url=sys.argv[1], asynchronous=asynchronous)
    fs.ls(""), fs.exists(f"{sys.argv[2]}/none"), fs.find(sys.argv[2]), fs.glob(f"{sys.argv[2]}/*")
    assert fs.asynchronous is asynchronous
assert fsspec.asyn.loop == [None] and fsspec.asyn.iothread == [None]
print(threading.active_count())
""",
        served.origin.url,
        served.name,
    )
    assert said == "1\n"


def test_what_is_cancelled_leaves_nothing_behind(started, tmp_path):
    origin = started("--synthetic", "data/slow=256MiB", "--no-auth", "--total", "10MiB/s")
    fs = S3FileSystem(endpoint_url=origin.url, no_sign_request=True, asynchronous=True, skip_instance_cache=True)

    async def main():
        for ask in (
            lambda: fs._cat_file("data/slow"),
            lambda: fs._get_file("data/slow", f"{tmp_path}/one", callback=fsspec.Callback()),
            lambda: fs._get(["data/slow"], [f"{tmp_path}/two"]),
            lambda: fs._cat_ranges(["data/slow"] * 2, [0, 1 << 27], [1 << 26, 1 << 28]),
        ):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ask(), 0.2)
            assert asyncio.all_tasks() == {asyncio.current_task()}
        return (await fs._info("data/slow"))["size"]

    assert asyncio.run(main()) == 256 << 20
    assert not [each for each in tmp_path.iterdir() if each.is_file()]
    fs.client.close()


def test_one_file_system_serves_several_loops(served):
    path = served.put("data", b"data")
    fs, got = served.fs(), []
    for _ in range(3):
        assert asyncio.run(fs._cat_file(path)) == b"data"
    threads = [threading.Thread(target=lambda: got.append(asyncio.run(fs._cat_file(path)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [b"data"] * 3
    # On fsspec's own loop, as its reference file system does.
    assert fsspec.asyn.sync(fs.loop, fs._cat_file, path) == b"data"
    # And beside verbs that block.
    assert fs.cat_file(path) == b"data"


def read_in_child(fs, path, answers):
    answers.put((asyncio.run(fs._cat_file(path)), fs.cat_file(path), len(asyncio.run(fs._ls(fs._parent(path))))))


@pytest.mark.parametrize("start", ["spawn", "fork", "forkserver"])
def test_children_await_too(served, start):
    path = served.put("dir/data", b"0123456789")
    fs = served.fs(asynchronous=True)
    assert asyncio.run(fs._cat_file(path)) == b"0123456789"
    context = multiprocessing.get_context(start)
    answers = context.Queue()
    child = context.Process(target=read_in_child, args=(fs, path, answers))
    child.start()
    assert answers.get(timeout=60) == (b"0123456789", b"0123456789", 1)
    child.join(timeout=60)
    assert child.exitcode == 0
    assert asyncio.run(fs._cat_file(path)) == b"0123456789"


def test_asynchronous_is_told_and_kept():
    for cls in (S3FileSystem, OssFileSystem):
        assert cls.async_impl and isinstance(cls(), AsyncFileSystem) and not cls().asynchronous
        fs = cls(asynchronous=True)
        assert fs.asynchronous and fs is not cls() and fs.loop is None
        assert pickle.loads(pickle.dumps(fs)).asynchronous
        assert fsspec.AbstractFileSystem.from_json(fs.to_json()).asynchronous
        assert fsspec.filesystem(cls.protocol[0], asynchronous=True).asynchronous


def test_every_verb_of_fsspec_has_both_forms():
    """A verb that fsspec awaits is ours, or one that fsspec builds of ours; and both forms take the same."""
    built = {"_glob", "_walk", "_size", "_sizes", "_process_limits", "_mv_file"}
    for name, theirs in vars(AsyncFileSystem).items():
        if not inspect.isfunction(theirs) or not name.startswith("_") or name.startswith("__") or name in built:
            continue
        ours, blocking = getattr(FlatoutFileSystem, name), getattr(FlatoutFileSystem, name[1:])
        assert ours is not theirs and inspect.iscoroutinefunction(ours), name
        assert inspect.signature(ours) == inspect.signature(blocking), name
        assert ours.__doc__ == blocking.__doc__ and ours.__name__ == name, name


def test_file_systems_of_fsspecs_own_are_laid_over_it(served, tmp_path, monkeypatch):
    """Some await what lies below them where it says that it can be awaited."""
    monkeypatch.setenv("FLATOUT_ENDPOINT_URL", served.origin.url)
    monkeypatch.setattr("flatout.client._default", None)
    path = served.put("dir/data", b"0123456789")
    for asynchronous in (False, True):
        below = S3FileSystem(asynchronous=asynchronous, skip_instance_cache=True)
        fs = fsspec.filesystem("dir", path=f"{served.name}/dir", fs=below, asynchronous=asynchronous)
        assert asyncio.run(fs._cat_file("data", 2, 4)) == b"23" and asyncio.run(fs._find("")) == ["data"]
        assert fs.cat_file("data") == b"0123456789" and fs.ls("", detail=False) == ["data"]
    try:
        fsspec.generic.rsync(f"flatout://{served.name}/dir", f"file://{tmp_path}/copied")
        assert (tmp_path / "copied/data").read_bytes() == b"0123456789"
        everywhere = fsspec.filesystem("generic", default_method="current")
        assert everywhere.cat_file(f"flatout://{path}") == b"0123456789"
    finally:
        S3FileSystem.clear_instance_cache()
