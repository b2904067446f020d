"""Bytes arrive, whole or in part, wherever they are wanted."""

import array
import asyncio
import contextlib
import ctypes
import datetime
import http.server
import mmap
import multiprocessing
import pickle
import threading

import numpy
import pytest

import flatout

SIZE = 3_000_001


class Offsets(ctypes.Structure):
    """A field whose name has the letter by which others say that they hold objects."""

    _fields_ = [("Offset", ctypes.c_int64)]


@pytest.fixture(scope="module", params=["s3", "oss", "http", "minio"])
def stored(request, content):
    """An object by each dialect: a client, its URL, its bytes."""
    import origins

    data, key = content(SIZE), "folder/an object"
    origin = request.getfixturevalue("minio" if request.param == "minio" else "serve")
    bucket = origins.Bucket(origin, f"reads-{request.param}")
    bucket.put(key, data, {"content-type": "text/x-test", "x-amz-meta-colour": "blue"})
    if request.param == "http":
        # Nothing is signed there, and anything let in that asks without keys.
        public = request.getfixturevalue("started")("--no-auth")
        origins.Bucket(public, "reads").put(key, data)
        yield flatout.Client(), f"{public.url}/reads/folder/an%20object", data
    else:
        scheme = "oss" if request.param == "oss" else "s3"
        with flatout.Client(**origin.settings) as client:
            yield client, bucket.url(key, scheme), data


def test_whole(stored):
    client, url, data = stored
    assert client.read(url) == data
    buffer = bytearray(SIZE + 10)
    assert client.readinto(url, buffer) == SIZE
    assert buffer[:SIZE] == data and buffer[SIZE:] == bytes(10)


@pytest.mark.parametrize(
    "start, end",
    [
        (None, None),
        (0, 10),
        (5, None),
        (None, 7),
        (-9, None),
        (None, -9),
        (-20, -10),
        (10, -10),
        (1_000_000, 2_500_000),
        (SIZE - 3, SIZE + 100),
        (7, 7),
        (9, 3),
        (-SIZE - 50, 4),
    ],
)
def test_ranges_mean_what_slices_mean(stored, start, end):
    client, url, data = stored
    assert client.read(url, start, end) == data[start:end]


@pytest.mark.parametrize("start, end", [(SIZE, SIZE + 2), (SIZE + 1, None), (SIZE + 5, SIZE + 9)])
def test_a_range_behind_the_end_is_empty(stored, start, end):
    client, url, data = stored
    etag = client.stat(url).etag
    assert client.read(url, start, end) == b"" and client.read(url, start, end, if_match=etag) == b""
    assert [bytes(got) for got in client.read_ranges(url, [(0, 9), (start, end)])] == [data[:9], b""]
    assert client.read_ranges(url, [(start, SIZE + 9)], out=[bytearray(9)]) == [0]
    assert [bytes(got) for _, got in client.read_many([(url, start, end), (url, 0, 9)])] == [b"", data[:9]]
    with pytest.raises(flatout.FlatoutError):
        client.read(url, start, end, if_match='"another"')
    with pytest.raises(flatout.NotFound):
        client.read(url + "-not", start, end)


@pytest.mark.parametrize("name", ["serve", "minio"])
def test_any_range_of_an_empty_object_is_empty(request, bucket_of, name):
    origin = request.getfixturevalue(name)
    url = bucket_of(origin).put("empty", b"")
    with flatout.Client(**origin.settings) as client:
        for start, end in [(0, 5), (3, None), (-4, None), (None, -1)]:
            assert client.read(url, start, end) == b"" and client.read_ranges(url, [(start, end)]) == [b""]
            assert [got for _, got in client.read_many([(url, start, end)])] == [b""]


@pytest.mark.parametrize(
    "make",
    [
        bytearray,
        lambda length: memoryview(bytearray(length)),
        lambda length: numpy.zeros(length, numpy.uint8),
        lambda length: array.array("b", bytes(length)),
        lambda length: mmap.mmap(-1, length),
        lambda length: (ctypes.c_char * length)(),
        lambda length: (ctypes.c_uint8 * length)(),
        lambda length: multiprocessing.RawArray("b", length),
        lambda length: (Offsets * (length // 8))(),
    ],
)
def test_any_writable_buffer_is_filled(stored, make):
    client, url, data = stored
    buffer = make(1000)
    assert client.readinto(url, buffer, offset=100, length=1000) == 1000
    assert bytes(memoryview(buffer)) == data[100:1100]


@pytest.mark.parametrize("start, end", [(None, None), (10, 20), (5, -5), (-7, None), (7, 7), (SIZE + 5, SIZE + 9)])
def test_a_buffer_is_filled_with_a_slice(stored, start, end):
    """One style of ranges, as `read` has it."""
    client, url, data = stored
    for fill in (client.readinto, lambda *ends: asyncio.run(flatout.AsyncClient(client).readinto(*ends))):
        buffer = bytearray(SIZE)
        assert fill(url, buffer, start, end) == len(data[start:end])
        assert buffer[: len(data[start:end])] == data[start:end]


def test_a_url_works_for_a_timedelta(client, bucket):
    import urllib.request

    url = bucket.put("key", b"123")
    asked = client.presign(url, expires=datetime.timedelta(minutes=5))
    assert "X-Amz-Expires=300" in asked and urllib.request.urlopen(asked).read() == b"123"
    with pytest.raises(flatout.UsageError):
        client.presign(url, expires=datetime.timedelta(milliseconds=5))


def test_a_buffer_of_wider_items_is_counted_in_bytes(client, bucket):
    wanted = numpy.arange(12, dtype=numpy.float64).reshape(3, 4)
    url, filled = bucket.put("doubles", wanted.tobytes()), numpy.zeros((3, 4))
    assert client.readinto(url, filled) == 96
    assert (filled == wanted).all()


def test_no_more_is_read_than_there_is(stored):
    client, url, data = stored
    buffer = bytearray(100)
    assert client.readinto(url, buffer, offset=SIZE - 10, length=100) == 10
    assert buffer[:10] == data[-10:]
    assert client.readinto(url, buffer, length=0) == 0


def test_an_empty_object(client, bucket):
    url = bucket.put("empty", b"")
    assert client.read(url) == b"" and client.readinto(url, bytearray()) == 0
    assert client.stat(url).size == 0


def test_keys_are_taken_as_they_are(client, bucket, content):
    for number, key in enumerate(("a b", "ü", "a+b%20c", "a#b?c", "x/y//z")):
        data = content(100, number)
        assert client.read(bucket.put(key, data)) == data


def test_several_ranges_in_the_order_asked_for(stored):
    client, url, data = stored
    ranges = [(2_000_000, 2_000_100), (5, 10), (12, 30), (5, 5), (0, 1_500_000), (-7, None), (100, 120), (6, 9)]
    got = client.read_ranges(url, ranges)
    assert [bytes(buffer) for buffer in got] == [data[start:end] for start, end in ranges]
    out = [bytearray(5), numpy.zeros(18, numpy.uint8)]
    assert client.read_ranges(url, ranges[1:3], out=out) == [5, 18]
    assert [bytes(each) for each in out] == [data[5:10], data[12:30]]
    assert client.read_ranges(url, []) == []


def test_near_ranges_are_one_request(started, bucket_of, content):
    origin = started()
    url, data = bucket_of(origin).put("key", content(SIZE)), content(SIZE)
    client = flatout.Client(**origin.settings)
    count = lambda: sum(request["method"] == "GET" for request in origin.requests())
    near = [(at, at + 100) for at in range(0, 100_000, 1000)]
    assert [bytes(each) for each in client.read_ranges(url, near)] == [data[a:b] for a, b in near]
    assert count() == 1
    client.read_ranges(url, [(0, 10), (20, 30), (40, 50)], max_gap=5)
    assert count() == 4


def test_buffers_that_overlap_are_refused(stored):
    """Two transfers would write to the same bytes."""
    client, url, data = stored
    buffer = bytearray(20)
    for out in ([buffer, buffer], [memoryview(buffer)[:10], memoryview(buffer)[9:19]]):
        for ranges in ([(0, 10), (30, 40)], [(0, 10), (2_000_000, 2_000_010)]):
            with pytest.raises(flatout.UsageError, match="buffers 0 and 1 have bytes in common"):
                client.read_ranges(url, ranges, out=out)
    out = [memoryview(buffer)[10:], memoryview(buffer)[:10], memoryview(buffer)[5:]]
    assert client.read_ranges(url, [(0, 10), (20, 30), (4, 4)], out=out) == [10, 10, 0]
    assert buffer == data[20:30] + data[:10]


def test_what_is_counted_from_the_end_wants_a_size():
    """A server that does not tell it; an empty answer would be a wrong one."""
    with sizeless() as url:
        client = flatout.Client()
        assert client.stat(url).size is None
        reader = flatout.AsyncClient(client)
        for call in (
            lambda: client.read(url, 0, -1),
            lambda: client.read_ranges(url, [(-5, -1)]),
            lambda: list(client.read_many([(url, -5, -1)])),
            lambda: client.file(url),
            lambda: asyncio.run(reader.read(url, 0, -1)),
        ):
            with pytest.raises(flatout.Unsupported, match="does not tell the object's size"):
                call()


@contextlib.contextmanager
def sizeless():
    """An object of HTTP whose size nobody tells."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()
            self.wfile.write(b"0123456789")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/key"
        server.shutdown()


def test_buffers_that_do_not_fit_are_refused(stored):
    client, url, _ = stored
    with pytest.raises(flatout.UsageError, match="the buffer holds 10 bytes, the range has"):
        client.readinto(url, bytearray(10))
    with pytest.raises(flatout.UsageError, match="buffer 1 holds 3 bytes, its range has 4"):
        client.read_ranges(url, [(0, 4), (4, 8)], out=[bytearray(4), bytearray(3)])
    with pytest.raises(flatout.UsageError, match="1 buffers for 2 ranges"):
        client.read_ranges(url, [(0, 4), (4, 8)], out=[bytearray(4)])
    with pytest.raises(BufferError, match="bytes is read-only: pass a bytearray"):
        client.readinto(url, b"0123456789")
    with pytest.raises(BufferError, match="not C-contiguous"):
        client.readinto(url, memoryview(bytearray(10))[::2])
    with pytest.raises(TypeError, match="ndarray holds references to objects"):
        client.readinto(url, numpy.array([None, "a"], dtype=object), length=8)
    with pytest.raises(TypeError, match="a writable buffer is wanted, not str"):
        client.readinto(url, "0123456789")


def test_a_buffer_is_locked_only_during_the_call(stored):
    client, url, _ = stored
    buffer = bytearray(SIZE)
    client.readinto(url, buffer)
    buffer.append(0)
    with pytest.raises(flatout.UsageError):
        client.readinto(url, bytearray_of_ten := bytearray(10))
    bytearray_of_ten.append(0)


def test_what_is_known_of_an_object(stored):
    client, url, data = stored
    info = client.stat(url)
    assert (info.url, info.size, info.is_prefix, info.name) == (url, SIZE, False, "an object")
    assert info.etag.startswith('"') and info.modified > 1e9
    if not url.startswith("http"):
        assert info.content_type == "text/x-test" and info.metadata == {"colour": "blue"}
    assert pickle.loads(pickle.dumps(info)) == info
    assert client.exists(url) and not client.exists(url + "-not")


def test_listings(bucket, client):
    for key in ("a", "f/b", "f/c", "f/g/d"):
        bucket.put(key, b"12")
    for scheme in ("s3", "oss"):
        top = client.ls(bucket.url("", scheme))
        assert [(info.name, info.key, info.is_prefix, info.size) for info in top] == [
            ("a", "a", False, 2),
            ("f/", "f/", True, None),
        ]
        assert [info.url for info in client.ls(bucket.url("f/", scheme), recursive=True)] == [
            bucket.url(key, scheme) for key in ("f/b", "f/c", "f/g/d")
        ]
        assert client.ls(bucket.url("nothing/", scheme)) == []
        assert bucket.name in client.buckets(scheme)


def test_listings_come_in_pages(started):
    origin = started("--synthetic", "many/file-%05d=10*2500", "--no-auth")
    client = flatout.Client(no_sign_request=True, **origin.settings)
    pages = list(client.ls_pages("s3://many/", recursive=True))
    assert [len(page) for page in pages] == [1000, 1000, 500]
    assert pages[2][-1].key == "file-02499"


def test_only_the_version_that_was_asked_for(stored):
    client, url, data = stored
    etag = client.stat(url).etag
    assert client.read(url, 0, 10, if_match=etag) == data[:10]
    for call in (
        lambda: client.read(url, if_match='"another"'),
        lambda: client.readinto(url, bytearray(SIZE), if_match='"another"'),
        lambda: client.read_ranges(url, [(0, 5)], if_match='"another"'),
        lambda: client.file(url, etag='"another"'),
    ):
        with pytest.raises(flatout.ObjectChanged):
            call()


def test_an_object_replaced_while_it_is_read(started):
    origin = started("--synthetic", "data/object=64MiB", "--no-auth", "--replace-after", "4")
    client = flatout.Client(no_sign_request=True, part_size="1MiB", **origin.settings)
    with pytest.raises(flatout.ObjectChanged):
        client.readinto("s3://data/object", bytearray(64 << 20))


def test_an_object_replaced_while_it_is_downloaded(started, tmp_path):
    """No file, and one that was there stays as it was."""
    origin = started("--synthetic", "data/object=64MiB", "--no-auth", "--replace-after", "4")
    client = flatout.Client(no_sign_request=True, part_size="1MiB", **origin.settings)
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(flatout.ObjectChanged):
        client.download("s3://data/object", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"before"


def test_files(stored, tmp_path):
    client, url, data = stored
    path = tmp_path / "file"
    assert client.download(url, path) == SIZE
    assert path.read_bytes() == data
    with pytest.raises(flatout.ObjectChanged):
        client.download(url, path, if_match='"another"')
    assert path.read_bytes() == data and [each.name for each in tmp_path.iterdir()] == ["file"]
    pairs = [(url, tmp_path / str(number)) for number in range(3)] + [(url + "-not", str(tmp_path / "no"))]
    sizes = client.download_many(pairs, return_exceptions=True)
    assert sizes[:3] == [SIZE] * 3 and isinstance(sizes[3], FileNotFoundError)
    assert all((tmp_path / str(number)).read_bytes() == data for number in range(3))
    with pytest.raises(FileNotFoundError):
        client.download_many(pairs)
    with pytest.raises(flatout.LocalError, match="No such file") as error:
        client.download(url, tmp_path / "missing/file")
    assert error.value.hint


def test_progress_is_looked_at(stored):
    client, url, _ = stored
    progress = flatout.Progress()
    assert (progress.done, progress.total, progress.elapsed, progress.is_over) == (0, None, 0.0, False)
    client.read(url, progress=progress)
    assert (progress.done, progress.total, progress.is_over) == (SIZE, SIZE, True)
    assert progress.rate > 0 and progress.elapsed > 0
    with pytest.raises(flatout.UsageError, match="serves another call"):
        client.read(url, progress=progress)
    with pytest.raises(TypeError, match="a flatout.Progress\\(\\) to look at, or True for a bar, not function"):
        client.read(url, progress=lambda done, total: None)


def test_a_bar_is_shown_on_request(stored, capsys):
    client, url, _ = stored
    client.read(url, progress=True)
    assert "2.86M/2.86M" in capsys.readouterr().err


def test_the_functions_of_the_package(bucket, serve, monkeypatch):
    monkeypatch.setenv("FLATOUT_ENDPOINT_URL", serve.url)
    monkeypatch.setattr("flatout.client._default", None)
    url = bucket.put("key", b"0123456789")
    assert flatout.read(url, 2, 4) == b"23" and flatout.readinto(url, bytearray(10)) == 10
    assert flatout.stat(url).size == 10 and flatout.exists(url)
    assert [info.key for info in flatout.ls(bucket.url(""))] == ["key"]
    with flatout.open(url) as file:
        assert file.read() == b"0123456789"
    default = flatout.default_client()
    assert default is flatout.default_client() and not default.closed
    default.close()
    # Whoever closed it meant what ran on it, not everything after.
    assert default.closed and flatout.read(url, 2, 4) == b"23"
    flatout.default_client().close()
