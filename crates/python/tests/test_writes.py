"""The verbs that make, copy and delete objects, at the origin of this project and at MinIO."""

import array
import asyncio
import datetime
import errno
import threading

import numpy as np
import pytest

import flatout

MIB = 1 << 20
BOTH = pytest.mark.parametrize("scheme", ["s3", "oss"])


@pytest.fixture(params=["serve", "minio"])
def origin(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def there(origin, bucket_of):
    """A client and a bucket of its own."""
    with flatout.Client(**origin.settings) as client:
        yield client, bucket_of(origin)


@BOTH
@pytest.mark.parametrize("size", [0, 1, 8 * MIB - 1, 8 * MIB, 40 * MIB + 3])
def test_what_is_written_is_read(client, bucket, content, scheme, size):
    data, url = content(size), bucket.url("key", scheme)
    info = client.write(url, data)
    assert (info.size, info.url, info.key, info.etag) == (size, url, "key", client.stat(url).etag)
    assert client.read(url) == data


def test_a_file_is_uploaded(there, content, tmp_path):
    client, bucket = there
    (tmp_path / "file.json").write_bytes(data := content(20 * MIB))
    info = client.upload(tmp_path / "file.json", bucket.url("a.json"))
    assert info.size == 20 * MIB and info.content_type == "application/json"
    assert client.read(bucket.url("a.json")) == data
    with pytest.raises(flatout.LocalError, match="no-file"):
        client.upload(tmp_path / "no-file", bucket.url("b"))
    assert not client.exists(bucket.url("b"))


@pytest.mark.parametrize(
    "data",
    [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"a memoryview")[2:],
        array.array("d", [1.5, 2.5]),
        np.arange(24, dtype="<u4").reshape(4, 6),
        flatout.Buffer(b"a Buffer"),
        memoryview(b""),
    ],
    ids=lambda data: type(data).__name__,
)
def test_any_buffer_is_taken(client, bucket, data):
    info = client.write(bucket.url("key"), data)
    assert client.read(bucket.url("key")) == memoryview(data).tobytes() and info.size == memoryview(data).nbytes


@pytest.mark.parametrize(
    "data, says",
    [
        ("text", "data has bytes, such as b'…', and is no str"),
        (5, "is no int"),
        (np.arange(10)[::2], "not C-contiguous"),
        (np.array([[], "x"], dtype=object), "holds references"),
    ],
    ids=["str", "int", "strides", "objects"],
)
def test_what_has_no_bytes_is_refused(client, bucket, data, says):
    with pytest.raises((TypeError, BufferError), match=says):
        client.write(bucket.url("key"), data)
    assert not client.exists(bucket.url("key"))


def test_an_object_is_stored_with_what_is_said(there):
    client, bucket = there
    until = datetime.datetime(2027, 1, 31, 12, tzinfo=datetime.UTC)
    options: flatout.WriteOptions = {
        "content_type": "text/x-own",
        "metadata": {"Step": "100", "by": "a test"},
        "cache_control": "max-age=60",
        "content_disposition": "inline",
        "content_encoding": "identity",
        "content_language": "de",
        "expires": until,
        "tags": {"team": "a b"},
        "storage_class": None,
    }
    info = client.write(bucket.url("key"), b"1", **options)
    told = bucket.origin.s3.head_object(Bucket=bucket.name, Key="key")
    assert (info.content_type, info.metadata) == ("text/x-own", {"step": "100", "by": "a test"})
    assert client.stat(bucket.url("key")).metadata == info.metadata == told["Metadata"]
    assert (told["ContentType"], told["CacheControl"], told["ContentLanguage"]) == ("text/x-own", "max-age=60", "de")
    assert (told["ContentDisposition"], told["Expires"]) == ("inline", until)
    tags = bucket.origin.s3.get_object_tagging(Bucket=bucket.name, Key="key")["TagSet"]
    assert tags == [{"Key": "team", "Value": "a b"}]
    # Without a word it is the extension that says the type.
    assert client.write(bucket.url("a.html"), b"1").content_type == "text/html"
    assert client.write(bucket.url("weights"), b"1").content_type is None


def test_what_cannot_be_an_option_is_refused(client, bucket):
    for options, says in [
        ({"contenttype": "a/b"}, "no argument is called 'contenttype'; an object is stored with content_type"),
        ({"metadata": "a=b"}, "metadata is a dict of str to str, not str"),
        ({"tags": {"a": 1}}, "tags is a dict of str to str"),
        ({"content_type": 5}, "content_type is a str, not int"),
    ]:
        with pytest.raises(TypeError, match=says):
            client.write(bucket.url("key"), b"1", **options)
    with pytest.raises(flatout.UsageError, match="overwrite=False replaces none"):
        client.write(bucket.url("key"), b"1", if_match="e", overwrite=False)
    with pytest.raises(flatout.Unsupported, match="a plain URL cannot be written to"):
        client.write("http://127.0.0.1:1/key", b"1")
    assert client.ls(bucket.url("")) == []


def test_an_object_that_is_to_stay_stays(there):
    client, bucket = there
    url = bucket.url("key")
    etag = client.write(url, b"one", overwrite=False).etag
    with pytest.raises(flatout.AlreadyExists, match="it stays as it is") as raised:
        client.write(url, b"two", overwrite=False)
    assert isinstance(raised.value, FileExistsError) and raised.value.errno == errno.EEXIST
    with pytest.raises(FileExistsError):
        client.open(url, "xb")
    with client.open(bucket.url("late"), "xb") as file:
        file.write(b"mine")
        client.write(bucket.url("late"), b"theirs")
        with pytest.raises(flatout.AlreadyExists):
            file.close()
    assert client.read(bucket.url("late")) == b"theirs"
    with pytest.raises(flatout.ObjectChanged, match="it stays as it is"):
        client.write(url, b"two", if_match='"other"')
    assert client.read(url) == b"one"
    assert client.write(url, b"two", if_match=etag).etag != etag
    assert client.read(url) == b"two"


def test_many_files_are_uploaded(there, content, tmp_path):
    client, bucket = there
    pairs = []
    for number in range(200):
        (tmp_path / f"{number}").write_bytes(content(number * 100))
        pairs.append((tmp_path / f"{number}", bucket.url(f"d/{number}")))
    progress = flatout.Progress()
    infos = client.upload_many(pairs, progress=progress)
    assert [info.size for info in infos] == [number * 100 for number in range(200)]
    assert progress.is_over and progress.done == progress.total == sum(info.size for info in infos)
    assert client.read(bucket.url("d/150")) == content(15_000)
    # All others are uploaded.
    pairs = [(str(tmp_path / "0"), bucket.url("e/0")), ("/no/file", bucket.url("e/1")), (tmp_path / "2", bucket.url("e/2"))]
    done = client.upload_many(pairs, return_exceptions=True, content_type="a/b")
    assert isinstance(done[1], flatout.LocalError) and done[2].content_type == "a/b"
    with pytest.raises(flatout.LocalError, match="/no/file"):
        client.upload_many(pairs)
    assert [info.name for info in client.ls(bucket.url("e/"))] == ["0", "2"]
    for wrong, says in [([5], r"pairs\[0\] is \(path, url\)"), ([(5, "s3://b/k")], r"pairs\[0\]\[0\] is a path, not int")]:
        with pytest.raises(TypeError, match=says):
            client.upload_many(wrong)


@BOTH
def test_objects_are_deleted(client, bucket, scheme):
    url = lambda key: bucket.url(key, scheme)
    etag = client.write(url("a"), b"1").etag
    with pytest.raises(flatout.ObjectChanged):
        client.delete(url("a"), if_match='"other"')
    client.delete(url("a"), if_match=etag)
    client.delete(url("a"))
    assert not client.exists(url("a"))
    for number in range(1_200):
        bucket.put(f"d/{number}", b"")
    listed = client.ls(url("d/"))
    assert client.delete_many([*listed[:1_000], *(info.url for info in listed[1_000:]), url("nothing")]) == [None] * 1_201
    assert client.ls(url("")) == []
    with pytest.raises(TypeError, match="not one str: write delete"):
        client.delete_many(url("a"))


def test_each_object_that_stays_is_told(client, bucket):
    client.write(bucket.url("a"), b"1")
    done = client.delete_many([bucket.url("a"), "s3://no-such-bucket-here/b"], return_exceptions=True)
    assert done[0] is None and isinstance(done[1], flatout.NotFound)
    with pytest.raises(flatout.NotFound):
        client.delete_many(["s3://no-such-bucket-here/b"])


def test_an_object_is_copied_and_moved(there, content):
    client, bucket = there
    data = content(9 * MIB)
    etag = client.write(bucket.url("a.txt"), data, metadata={"k": "v", "n": "1"}, cache_control="no-store").etag
    copy = client.copy(bucket.url("a.txt"), bucket.url("b.txt"), metadata={"n": "2"})
    assert (copy.size, copy.key) == (len(data), "b.txt")
    stored = client.stat(bucket.url("b.txt"))
    assert (stored.metadata, stored.content_type) == ({"k": "v", "n": "2"}, "text/plain")
    with pytest.raises(flatout.NotFound):
        client.copy(bucket.url("nothing"), bucket.url("c"))
    moved = client.move(bucket.url("b.txt"), bucket.url("c.txt"))
    assert client.read(bucket.url("c.txt"), if_match=moved.etag) == data and not client.exists(bucket.url("b.txt"))
    with pytest.raises(flatout.NotFound):
        client.move(bucket.url("b.txt"), bucket.url("d.txt"))
    assert client.stat(bucket.url("a.txt")).etag == etag


def test_between_two_services_the_bytes_pass_through_here(client, bucket, content):
    data = content(20 * MIB)
    client.write(bucket.url("a.txt"), data, metadata={"k": "v"}, tags={"t": "1"}, cache_control="no-store")
    copy = client.copy(bucket.url("a.txt"), bucket.url("b.txt", "oss"), metadata={"n": "2"}, cache_control=None)
    stored = client.stat(bucket.url("b.txt", "oss"))
    assert (copy.size, stored.metadata, stored.content_type) == (len(data), {"k": "v", "n": "2"}, "text/plain")
    client.move(bucket.url("b.txt", "oss"), bucket.url("c.txt"))
    assert client.read(bucket.url("c.txt")) == data and not client.exists(bucket.url("b.txt"))
    told = bucket.origin.s3.head_object(Bucket=bucket.name, Key="c.txt")
    assert told["CacheControl"] == "no-store" and told["Metadata"] == {"k": "v", "n": "2"}


def test_the_functions_use_a_client(client, bucket, tmp_path):
    url = bucket.url("key")
    assert flatout.write(url, b"12", client=client, content_type="a/b").content_type == "a/b"
    with flatout.open(url, "ab", client=client) as file:
        file.write(b"3")
    assert flatout.copy(url, bucket.url("other"), client=client).size == 3
    assert flatout.move(url, bucket.url("moved"), client=client).size == 3
    (tmp_path / "file").write_bytes(b"4")
    assert flatout.upload(tmp_path / "file", url, client=client).size == 1
    assert len(flatout.upload_many([(tmp_path / "file", url)], client=client)) == 1
    assert flatout.delete_many([url], client=client) == [None] and flatout.delete(url, client=client) is None
    with flatout.open(bucket.url("text"), "w", client=client) as text:
        text.write("ä")
    assert [info.key for info in flatout.ls(bucket.url(""), client=client)] == ["moved", "other", "text"]


def test_progress_is_told_of_an_upload(bucket, started, bucket_of, content):
    origin = started("--total", "20MiB/s")
    other, progress, seen = bucket_of(origin), flatout.Progress(), []
    with flatout.Client(**origin.settings) as client:
        thread = threading.Thread(target=lambda: client.write(other.url("key"), content(16 * MIB), progress=progress))
        thread.start()
        while thread.is_alive():
            thread.join(0.02)
            seen.append(progress.done)
    assert progress.done == progress.total == 16 * MIB and progress.is_over
    assert seen == sorted(seen) and any(0 < done < 16 * MIB for done in seen)


def test_a_bad_day_is_survived(started, bucket_of, content):
    origin = started(
        "--put-reset", "20%", "--put-error", "20%:503", "--put-lost", "15%", "--put-hidden-error", "30%:InternalError", "--seed", "3"
    )
    bucket = bucket_of(origin)
    with flatout.Client(part_size="5MiB", **origin.settings) as client:
        for number in range(6):
            data = content(number * 5 * MIB + number)
            client.write(bucket.url(f"{number}"), data)
            with client.open(bucket.url(f"w{number}"), "wb") as file:
                file.write(data)
            assert client.read(bucket.url(f"{number}")) == data and client.read(bucket.url(f"w{number}")) == data


def test_asyncio_does_the_same(there, content, tmp_path):
    client, bucket = there
    data = content(20 * MIB)
    (tmp_path / "file").write_bytes(data)

    async def main():
        writer = flatout.AsyncClient(client)
        url = bucket.url("a.txt")
        info = await writer.write(url, data, metadata={"k": "v"})
        assert (info.size, info.content_type, await writer.read(url)) == (len(data), "text/plain", data)
        with pytest.raises(flatout.AlreadyExists):
            await writer.write(url, b"2", overwrite=False)
        assert (await writer.upload(tmp_path / "file", bucket.url("b"))).size == len(data)
        progress = flatout.Progress()
        pairs = [(tmp_path / "file", bucket.url("c")), ("/no/file", bucket.url("d"))]
        done = await writer.upload_many(pairs, return_exceptions=True, progress=progress)
        assert done[0].size == len(data) and isinstance(done[1], flatout.LocalError) and progress.is_over
        with pytest.raises(flatout.LocalError):
            await writer.upload_many(pairs)
        assert (await writer.copy(url, bucket.url("e"))).size == len(data)
        assert (await writer.move(bucket.url("e"), bucket.url("f"))).size == len(data)
        assert not await writer.exists(bucket.url("e"))
        with pytest.raises(flatout.ObjectChanged):
            await writer.delete(url, if_match='"other"')
        await writer.delete(url)
        outcomes = await writer.delete_many([bucket.url("b"), bucket.url("c"), bucket.url("f"), "s3://no-such-bucket-here/b"], return_exceptions=True)
        assert outcomes[:3] == [None] * 3 and isinstance(outcomes[3], flatout.FlatoutError)
        assert await writer.ls(bucket.url("")) == []

    asyncio.run(main())


def test_a_task_that_is_cancelled_gives_its_buffer_back(started, bucket_of):
    origin = started("--total", "1MiB/s")
    bucket, data = bucket_of(origin), bytearray(64 * MIB)

    async def main():
        with flatout.Client(**origin.settings) as client:
            task = asyncio.ensure_future(flatout.AsyncClient(client).write(bucket.url("key"), data))
            await asyncio.sleep(0.3)
            with pytest.raises(BufferError):
                data.append(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            data.append(1)
            assert not client.exists(bucket.url("key"))

    asyncio.run(main())


def test_deletions_that_are_cancelled_end(started, bucket_of):
    origin = started("--latency", "100ms")
    bucket = bucket_of(origin)
    client = flatout.Client(**origin.settings)
    urls = [bucket.url(f"{number}") for number in range(60_000)]

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(flatout.AsyncClient(client).delete_many(urls), 0.3)
        await asyncio.sleep(1)
        asked = len(origin.requests())
        await asyncio.sleep(1)
        assert len(origin.requests()) == asked < 60

    asyncio.run(main())
    client.close()


def test_ctrl_c_gives_the_buffer_back(python, started, bucket_of):
    origin = started("--total", "1MiB/s")
    url = bucket_of(origin).url("key")
    said = python(
        """if True:
        import flatout, os, signal, sys, threading, time
        client = flatout.Client(endpoint_url=sys.argv[1])
        data = bytearray(64 << 20)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            client.write(sys.argv[2], data)
        except KeyboardInterrupt:
            data.append(1)
            print(client.exists(sys.argv[2]))
        """,
        origin.url,
        url,
    )
    assert said == "False\n"
    assert uploads(origin, url) == []


def uploads(origin, url):
    """The unfinished uploads of the bucket."""
    name = url.split("/")[2]
    return origin.s3.list_multipart_uploads(Bucket=name).get("Uploads", [])
