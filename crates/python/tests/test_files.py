"""An object as a file: what Python's own readers expect of one."""

import io
import pickle
import threading
import time
import zipfile

import numpy
import pytest

import flatout

SIZE = 5 << 20


@pytest.fixture(scope="module")
def data(content):
    return content(SIZE)


@pytest.fixture
def file(client, bucket, data):
    with client.open(bucket.put("folder/key", data)) as file:
        yield file


def test_it_is_a_raw_file(file, data):
    assert isinstance(file, io.RawIOBase) and file.readable() and file.seekable() and not file.writable()
    assert (file.size, file.tell(), file.mode, file.name.endswith("folder/key")) == (SIZE, 0, "rb", True)
    assert file.read(5) == data[:5] and file.tell() == 5
    buffer = bytearray(7)
    assert file.readinto(buffer) == 7 and buffer == data[5:12]
    assert file.seek(-3, 2) == SIZE - 3 and file.read() == data[-3:]
    assert file.read() == b"" and file.read(5) == b"" and file.readinto(buffer) == 0
    for strange in (1.5, "1", None):
        with pytest.raises(TypeError):
            file.seek(strange)
    assert file.seek(10) == 10 and file.seek(5, 1) == 15 and file.read(0) == b"" and file.tell() == 15
    file.seek(SIZE - 10)
    assert file.readall() == data[-10:]
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"1")
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()


def test_behind_the_end_there_is_nothing(file):
    assert file.seek(SIZE + 100) == SIZE + 100 and file.tell() == SIZE + 100
    assert file.read() == b"" and file.read(9) == b"" and file.readinto(bytearray(4)) == 0
    assert file.pread(SIZE, 10) == b"" and file.pread(1 << 62, 10) == b""
    for error in (ValueError, OSError):
        with pytest.raises(error, match="negative seek position"):
            file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 9)
    with pytest.raises(ValueError, match="offset is -1, and counts from 0 on"):
        file.pread(-1, 10)


def test_a_closed_file_says_so(client, bucket, data):
    file = client.open(bucket.put("key", data))
    assert not file.closed
    with file:
        file.read(1)
    file.close()
    assert file.closed
    for use in (file.read, file.tell, file.seekable, lambda: file.pread(0, 1), lambda: file.seek(0), file.readall):
        with pytest.raises(ValueError, match="closed file"):
            use()


def test_reads_at_any_place_move_nothing(file, data):
    file.seek(100)
    assert file.pread(1000, 50) == data[1000:1050] and file.pread(SIZE - 5, 50) == data[-5:]
    filled = numpy.zeros(1 << 20, numpy.uint8)
    assert file.preadinto(12345, filled) == 1 << 20 and bytes(filled) == data[12345 : 12345 + (1 << 20)]
    assert file.pread(7) == data[7:] and file.tell() == 100
    with pytest.raises(BufferError, match="read-only"):
        file.preadinto(0, b"123")


def test_buffered_and_text_readers_take_it(client, bucket, data):
    with io.BufferedReader(client.open(bucket.put("key", data)), 1 << 16) as reader:
        assert reader.peek(4)[:4] == data[:4] and reader.read() == data
    lines = [f"line {number}\n" for number in range(1000)]
    with io.TextIOWrapper(io.BufferedReader(client.open(bucket.put("text", "".join(lines).encode())))) as text:
        assert list(text) == lines


def test_zipfile_takes_it(client, bucket, data):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(10):
            archive.writestr(f"member-{number}", data[number * 1000 : number * 1000 + 500_000])
    with client.open(bucket.put("zip", packed.getvalue())) as file, zipfile.ZipFile(file) as archive:
        assert archive.read("member-7") == data[7000:507_000] and len(archive.namelist()) == 10


def test_zipfile_tells_what_is_none(client, bucket):
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    with client.open(bucket.put("empty.zip", empty.getvalue())) as file, zipfile.ZipFile(file) as archive:
        assert archive.namelist() == []
    for content in (b"", b"123"):
        with client.open(bucket.put("short", content)) as file:
            assert not zipfile.is_zipfile(file)


def test_any_thread_may_read_at_any_place(file, data):
    wrong = []

    def read(seed):
        for number in range(50):
            at = (seed * 7919 + number * 104_729) % SIZE
            if file.pread(at, 1000) != data[at : at + 1000]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_is_said_to_be_read_is_there(started, bucket_of, data):
    origin = started("--latency", "20ms")
    url = bucket_of(origin).put("key", data)
    client = flatout.Client(**origin.settings)
    ranges = [(number * 400_000, number * 400_000 + 1000) for number in range(12)]
    with client.open(url, size=SIZE, etag=client.stat(url).etag) as file:
        before = len(origin.requests())
        file.prefetch(ranges)

        def missing():
            asked = [request["range"] for request in origin.requests()[before:]]
            return [(a, b) for a, b in ranges if not any(first <= a and b <= last + 1 for first, last in asked)]

        # All are asked for before anybody reads, more or less together.
        until = time.monotonic() + 30
        while missing():
            assert time.monotonic() < until, missing()
            time.sleep(0.01)
        for start, end in reversed(ranges):
            assert file.pread(start, end - start) == data[start:end]
        file.prefetch([(-100, None), (SIZE + 5, None), (5, 5)])
        assert file.pread(SIZE - 50, 20) == data[-50:-30] and file.pread(SIZE - 30, 30) == data[-30:]


def test_a_listing_saves_the_question(started, bucket_of, data):
    origin = started()
    bucket = bucket_of(origin)
    bucket.put("key", data)
    client = flatout.Client(**origin.settings)
    (info,) = client.ls(bucket.url(""))
    before = len(origin.requests())
    with client.open(info.url, size=info.size, etag=info.etag, modified=info.modified) as file:
        assert file.pread(1000, 10) == data[1000:1010]
    assert [request["method"] for request in origin.requests()[before:]] == ["GET"]


def test_another_version_is_never_mixed_in(client, bucket, data):
    url = bucket.put("key", data)
    file = client.open(url)
    assert file.read(10) == data[:10]
    bucket.put("key", data[::-1])
    with pytest.raises(flatout.ObjectChanged) as error:
        for at in range(SIZE - 10, 0, -(1 << 20)):
            file.pread(at, 10)
    assert isinstance(error.value, OSError) and error.value.hint


def test_it_pickles_as_what_it_reads(file, data):
    file.seek(42)
    again = pickle.loads(pickle.dumps(file))
    assert again.read(3) == data[42:45] and (again.size, again.etag) == (file.size, file.etag)


def test_long_reads_land_where_they_are_wanted(started, python):
    """Not by way of the engine's memory, which would hold them twice."""
    origin = started("--synthetic", "data/object=256MiB", "--no-auth")
    python(
        """
import re, sys
import flatout
client = flatout.Client(endpoint_url=sys.argv[1], no_sign_request=True)
def peak():
    # Of this program: ru_maxrss is also what the process had before it was one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
whole, size = client.read("s3://data/object"), 256 << 20
file = client.open("s3://data/object")
for read in (lambda: file.pread(0), lambda: file.read(), lambda: bytearray(size)):
    before = peak()
    got = read()
    if isinstance(got, bytearray):
        assert file.preadinto(0, got) == size
    assert got == whole and file.pread(5, 7) == whole[5:12]
    assert peak() - before < size + (100 << 20), (peak() - before) >> 20
assert file.stats["served_bytes"] == 3 * size + 21
""",
        origin.url,
    )


def test_a_long_read_of_another_version_is_none(started, bucket_of, content):
    origin = started()
    bucket, data = bucket_of(origin), content(65 << 20)
    file = flatout.Client(**origin.settings).open(bucket.put("key", data))
    bucket.put("key", bytes(len(data)))
    with pytest.raises(flatout.ObjectChanged):
        file.pread(0)


def test_stats(file):
    file.read(10_000)
    file.pread(100, 20)
    assert file.stats == {"reads": 2, "served_bytes": 10_020}


def test_short_reads_share_one(file, data):
    """Who reads a header reads on: it is no request each time, nor a call into the engine."""
    assert file.read(4) == data[:4] and file.read(100) == data[4:104] and file.stats["reads"] == 1
    file.seek(50)
    buffer = bytearray(60)
    assert file.readinto(buffer) == 60 and buffer == data[50:110] and file.stats["reads"] == 1
    assert file.read(1 << 20) == data[110 : 110 + (1 << 20)] and file.stats["reads"] == 2


def test_any_buffer_is_filled_and_let_go_of(client, bucket, data):
    url = bucket.put("key", data)
    file = client.open(url)
    assert file.readinto(numpy.empty((0, 3))) == 0
    grid = numpy.zeros((4, 8), numpy.float32)
    assert file.readinto(grid) == 128 and grid.tobytes() == data[:128] and file.read(numpy.int64(5)) == data[128:133]
    bucket.put("key", data[::-1])
    for size in (100, 100_000):
        buffer = bytearray(size)
        file.seek(SIZE - 500_000)
        with pytest.raises(flatout.ObjectChanged) as error:
            file.readinto(buffer)
        # Though the exception is kept.
        buffer.append(0)
        assert error.value.hint


def test_lines(client, bucket):
    lines = [f"line {number}\n".encode() for number in range(20_000)]
    with client.open(bucket.put("lines", b"".join(lines) + b"the last")) as file:
        assert file.readline(3) == b"lin" and file.readline() == b"e 0\n" and file.tell() == 7
        assert list(file) == [*lines[1:], b"the last"] and file.readline() == b""
        assert file.stats["reads"] < 20


def test_an_etag_is_taken_without_its_quotes(client, bucket):
    url = bucket.put("quoted", b"0123456789")
    etag = client.stat(url).etag.strip('"')
    for told in ({"size": 10}, {}):
        with client.open(url, etag=etag, **told) as file:
            assert file.read() == b"0123456789"
    with pytest.raises(flatout.errors.ObjectChanged):
        client.open(url, etag="another")
