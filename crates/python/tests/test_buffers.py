"""What a read returns: writable, aligned, shared with whoever wants it, never copied."""

import gc
import os
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
    # Before 2.1 numpy knew no word for it, and took all for read-only.
    assert shared.flags.writeable or numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0"


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
