"""What a read returns: writable, aligned, shared with whoever wants it, never copied."""

import asyncio
import concurrent.futures
import copy
import ctypes
import gc
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import weakref

import numpy
import pytest

import flatout

DATA = bytes(range(256)) * 4096


@pytest.fixture
def buffer(client, bucket):
    return client.read(bucket.put("key", DATA))


def address(view):
    return numpy.frombuffer(view, numpy.uint8).ctypes.data


def test_it_is_a_buffer(buffer):
    assert len(buffer) == len(DATA) and bytes(buffer) == DATA and buffer == DATA
    assert buffer != DATA[:-1] and buffer != b"" and buffer != 5
    assert buffer[3] == 3 and buffer[-2:] == DATA[-2:] and isinstance(buffer[1:3], memoryview)
    view = memoryview(buffer)
    assert (view.readonly, view.format, view.shape, view.itemsize) == (False, "B", (len(DATA),), 1)
    assert repr(buffer) == f"Buffer({len(DATA)} bytes)"


@pytest.mark.parametrize("made", ["read", "read_ranges", "pread", "read_many"])
def test_it_is_aligned_and_writable(client, bucket, made):
    url = bucket.put("key", DATA)
    buffer = {
        "read": lambda: client.read(url, 1, 1001),
        "read_ranges": lambda: client.read_ranges(url, [(1, 1001), (5, 10)])[0],
        "pread": lambda: client.open(url).pread(1, 1000),
        "read_many": lambda: next(client.read_many([(url, 1, 1001)]))[1],
    }[made]()
    assert address(buffer) % 64 == 0 and buffer == DATA[1:1001]
    buffer_of_doubles = numpy.frombuffer(buffer, numpy.float64)
    buffer_of_doubles[:] = 1.5
    assert memoryview(buffer).cast("d")[124] == 1.5


def test_numpy_shares_it(buffer):
    array = numpy.frombuffer(buffer, numpy.uint8)
    array[0] = 77
    assert buffer[0] == 77
    shared = numpy.from_dlpack(buffer)
    assert shared.ctypes.data == array.ctypes.data and shared.dtype == numpy.uint8 and shared.shape == (len(DATA),)
    # Before 2.1 numpy knew no word for it; that of Debian 13 takes even its own arrays for read-only.
    assert shared.flags.writeable or numpy.lib.NumpyVersion(numpy.__version__) < "2.3.0"


def test_torch_shares_it(buffer):
    torch = pytest.importorskip("torch")
    tensor = torch.from_dlpack(buffer)
    assert tensor.dtype == torch.uint8 and tensor.data_ptr() == address(buffer)
    tensor[0] = 99
    assert buffer[0] == 99
    assert torch.frombuffer(buffer, dtype=torch.float32).data_ptr() == address(buffer)


def test_memory_lives_as_long_as_anybody_shows_it(client, bucket):
    buffer = client.read(bucket.put("key", DATA))
    arrays = [numpy.from_dlpack(buffer), numpy.frombuffer(buffer, numpy.uint8)]
    del buffer
    gc.collect()
    assert all(bytes(array) == DATA for array in arrays)


def test_what_keeps_the_object_alone_keeps_the_memory(client, bucket):
    # Both give the export back at once.
    buffer = client.read(bucket.put("key", DATA))
    gone = weakref.ref(buffer)
    array = numpy.ndarray(len(DATA), numpy.uint8, buffer=buffer)
    del buffer
    gc.collect()
    assert gone() is not None and bytes(array) == DATA
    del array
    gc.collect()
    assert gone() is None


def test_a_capsule_that_nobody_consumes_lets_go(client, bucket):
    big = bucket.put("big", bytes(64 << 20))

    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for version in (None, (0, 8), (1, 0), (1, 2)) * 3:
        del_me = client.read(big).__dlpack__(max_version=version)
        del del_me
    assert resident() - before < 3 * (64 << 20)


def test_dlpack_refuses_what_it_is_not(buffer):
    assert buffer.__dlpack_device__() == (1, 0)
    for refused in ({"stream": 1}, {"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            buffer.__dlpack__(**refused)


def test_an_empty_one(client, bucket):
    buffer = client.read(bucket.put("key", b""))
    assert len(buffer) == 0 and bytes(buffer) == b"" and numpy.from_dlpack(buffer).shape == (0,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles(buffer, protocol):
    again = pickle.loads(pickle.dumps(buffer, protocol))
    assert type(again) is flatout.Buffer and again == DATA and again.info == buffer.info
    assert address(again) % 64 == 0 and not memoryview(again).readonly


def test_it_pickles_out_of_band_without_a_copy(buffer):
    taken = []
    pickled = pickle.dumps(buffer, 5, buffer_callback=taken.append)
    assert len(pickled) < 2000 and address(taken[0].raw()) == address(buffer)
    again = pickle.loads(pickled, buffers=taken)
    assert again == DATA and address(again) != address(buffer)
    assert copy.copy(buffer) == copy.deepcopy(buffer) == DATA


@pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver"])
def test_pools_hand_buffers_back(serve, bucket, monkeypatch, kind):
    """`pool.map(flatout.read, urls)` said MaybeEncodingError: cannot pickle 'flatout.Buffer'."""
    monkeypatch.setenv("FLATOUT_ENDPOINT_URL", serve.url)
    urls = [bucket.put(f"key-{number}", bytes([number]) * 1000) for number in range(5)]
    context = multiprocessing.get_context(kind)
    with context.Pool(2) as pool:
        assert pool.map(flatout.read, urls) == [bytes([number]) * 1000 for number in range(5)]
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert [each.info.size for each in pool.map(flatout.read, urls)] == [1000] * 5


def test_it_is_read_as_bytes_are(client, bucket):
    text = "grüß Gott, 日本".encode()
    buffer = client.read(bucket.put("key", text))
    assert buffer.decode() == text.decode() and buffer.decode("ascii", "ignore") == text.decode("ascii", "ignore")
    with pytest.raises(UnicodeDecodeError):
        buffer.decode("ascii")
    assert b"Gott" in buffer and b"" in buffer and ord("G") in buffer and b"nothing" not in buffer and 0 not in buffer
    assert bytearray(b"Gott") in buffer and memoryview(b"Gott") in buffer
    with pytest.raises(ValueError):
        300 in buffer
    with pytest.raises(TypeError, match="what is looked for has bytes"):
        "Gott" in buffer
    assert buffer.startswith(b"gr") and not buffer.startswith(b"r") and buffer.endswith("本".encode())
    assert type(buffer + b"!") is bytes and buffer + b"!" == text + b"!" and b"!" + buffer == b"!" + text
    assert list(buffer) == list(text) and b"".join([buffer, buffer]) == text * 2
    assert io.BytesIO(buffer).read() == text and hashlib.sha256(buffer).digest() == hashlib.sha256(text).digest()
    assert (text == buffer) and not (text != buffer) and bytearray(text) == buffer and buffer == memoryview(text)
    assert buffer == (ctypes.c_char * len(text)).from_buffer_copy(text)


def test_what_can_be_written_to_has_no_hash(buffer):
    with pytest.raises(TypeError, match="unhashable"):
        hash(buffer)
    assert {bytes(buffer): 1}[DATA] == 1


def test_what_it_says_of_the_object(stored_info):
    buffer, info = stored_info
    for name in ("url", "key", "name", "size", "etag", "modified", "content_type", "metadata"):
        assert getattr(buffer.info, name) == getattr(info, name), name


@pytest.fixture(params=["read", "range", "read_ranges", "together", "read_many", "async"])
def stored_info(request, client, bucket):
    """A buffer by each verb, and what a HEAD says of its object."""
    url = bucket.put("key", DATA, {"content-type": "text/x-test", "x-amz-meta-colour": "blue"})
    buffer = {
        "read": lambda: client.read(url),
        "range": lambda: client.read(url, 5, 10),
        "read_ranges": lambda: client.read_ranges(url, [(0, 5)])[0],
        "together": lambda: client.read_ranges(url, [(0, 5), (10, 20)])[1],
        "read_many": lambda: next(client.read_many([url]))[1],
        "async": lambda: asyncio.run(flatout.AsyncClient(client).read(url, 0, -5)),
    }[request.param]()
    return buffer, client.stat(url)


def test_where_nothing_was_asked_nothing_is_said(client, bucket):
    url = bucket.put("key", DATA)
    assert client.read(url, 5, 5).info is None and client.open(url).pread(0, 5).info is None
    assert flatout.Buffer(b"123").info is None and flatout.Buffer() == b""


def test_programs_that_want_bytes_and_those_that_do_not(client, bucket):
    """As the documentation's first lines have it."""
    document = client.read(bucket.put("a.json", b'{"a": 1}'))
    with pytest.raises(TypeError, match="must be str, bytes or bytearray"):
        json.loads(document)
    assert json.loads(document.decode()) == json.loads(bytes(document)) == {"a": 1}

    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = client.read(bucket.put("a.safetensors", safetensors.save({"a": numpy.arange(5)})))
    assert safetensors.load(bytes(tensors))["a"].tolist() == [0, 1, 2, 3, 4]

    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    frame = polars.DataFrame({"a": [1, 2, 3]})
    frame.write_parquet(parquet := io.BytesIO())
    frame.write_csv(csv := io.BytesIO())
    data = client.read(bucket.put("a.parquet", parquet.getvalue()))
    assert polars.read_parquet(io.BytesIO(data)).equals(frame) and polars.read_parquet(bytes(data)).equals(frame)
    assert polars.read_csv(io.BytesIO(client.read(bucket.put("a.csv", csv.getvalue())))).equals(frame)
    assert pyarrow.py_buffer(data).address == address(data)
