"""flatout.safetensors beside the official package: the same bytes, the same verdicts, and how many requests that takes."""

import gc
import json
import os
import struct
import subprocess
import sys
import threading
import time
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import flatout
import flatout.safetensors
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from flatout import _frameworks, _models, _slices
from flatout.safetensors import InvalidSafetensors, RawTensor, load_file, load_model, safe_open, stream_tensors

MIB = 1 << 20


# Files.


def header(said, data=b"", length=None):
    """A file of this header, whatever that is."""
    text = said if isinstance(said, bytes) else (said if isinstance(said, str) else json.dumps(said)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def small(seed=1):
    """Of a few hundred bytes: a scalar, one without elements, every type of NumPy's."""
    random = np.random.default_rng(seed)
    names = "bool uint8 int8 int16 uint16 float16 int32 uint32 float32 complex64 float64 int64 uint64".split()
    tensors = {name: random.integers(0, 2, (3, 5)).astype(name) for name in names}
    return tensors | {"scalar": np.array(2.5, "float32"), "nothing": np.zeros((0, 3), "int16")}


def large(seed=1):
    """Of 24 MB: tensors above and below the size from which each is fetched by itself."""
    random = np.random.default_rng(seed)
    shapes = {f"layers.{n}.weight": (300, 1000 + n) for n in range(20)} | {
        f"layers.{n}.bias": (1000 + n,) for n in range(20)
    }
    tensors = {name: random.integers(0, 1 << 16, shape, "uint16") for name, shape in shapes.items()}
    return tensors | {
        "embedding": random.normal(size=(512, 3000)).astype("float32"),
        "cube": random.normal(size=(40, 50, 60)),
    }


def official(body, tmp_path):
    """What the official package makes of the same bytes."""
    path = tmp_path / "official.safetensors"
    path.write_bytes(body)
    return safetensors.numpy.load_file(path)


def owner(array):
    """Whose memory it shows."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj


def check_same(ours, theirs):
    assert list(ours) == list(theirs)
    for name, one in theirs.items():
        mine = ours[name]
        assert (mine.dtype, mine.shape) == (one.dtype, one.shape), name
        assert mine.tobytes() == one.tobytes(), name
        assert mine.flags.writeable and mine.flags.aligned, name


# Origins.


class Counting:
    """Plain HTTP from memory; notes what is asked for, and changes what is there when told."""

    def __init__(self):
        self.objects, self.asked, self.before = {}, [], None
        counting = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                counting.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.client = flatout.Client()

    def put(self, name, body):
        self.objects[name] = (body, f'"{hash(bytes(body)) & (1 << 64) - 1:x}"')
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"

    def answer(self, handler):
        name = handler.path.lstrip("/")
        if self.before is not None:
            self.before(len(self.asked), name)
        body, etag = self.objects.get(name, (None, None))
        if body is None:
            return self.refuse(handler, 404)
        start, end = 0, len(body)
        if asked := handler.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            start, end = int(first), min(int(last) + 1 if last else end, end)
            if start >= len(body):
                return self.refuse(handler, 416)
        self.asked.append((name, start, end))
        if handler.headers.get("If-Match", etag) != etag:
            return self.refuse(handler, 412)
        handler.send_response(206 if asked else 200)
        handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(end - start))
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(memoryview(body)[start:end])

    @staticmethod
    def refuse(handler, status):
        handler.send_response(status)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    @property
    def bytes(self):
        return sum(end - start for _, start, end in self.asked)

    def close(self):
        self.client.close()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def counting():
    origin = Counting()
    yield origin
    origin.close()


@pytest.fixture(params=["serve", "minio"])
def place(request, bucket_of):
    """Where real files are put: a bucket of the embedded origin, and one of MinIO."""
    origin = request.getfixturevalue(request.param)
    with flatout.Client(**origin.settings) as client:
        place = bucket_of(origin)
        place.client = client
        yield place


# Whole files.


@pytest.mark.parametrize("tensors", [{}, small(), large()], ids=["none", "small", "large"])
def test_load_file_is_bit_for_bit_the_official_one(place, tmp_path, tensors):
    body = safetensors.numpy.save(tensors, metadata={"format": "np"})
    url = place.put("model.safetensors", body)
    check_same(load_file(url, client=place.client), official(body, tmp_path))


def test_a_large_file_is_its_header_and_one_transfer_of_the_whole(counting):
    body = safetensors.numpy.save(large())
    url = counting.put("model.safetensors", body)
    load_file(url, client=counting.client)
    heads = [asked for asked in counting.asked if asked[1:] == (0, _models.HEAD_BYTES)]
    assert len(heads) == 1
    assert counting.bytes == _models.HEAD_BYTES + len(body)


def test_a_small_file_is_one_request(counting):
    body = safetensors.numpy.save(small())
    load_file(counting.put("model.safetensors", body), client=counting.client)
    assert counting.asked == [("model.safetensors", 0, len(body))]


@pytest.mark.parametrize("size", [40, 3 * MIB])
def test_tensors_that_lie_at_odd_places_are_copied_to_even_ones(counting, tmp_path, size):
    # A header of odd length, and eight-byte numbers behind a single byte.
    data = np.random.default_rng(1).bytes(1 + size)
    said = {"a": tensor("U8", (1,), (0, 1)), "b": tensor("F64", (size // 8,), (1, 1 + size)), "__metadata__": {"x": ""}}
    text = json.dumps(said)
    body = header(text + " " * (1 - len(text) % 2), data)
    url = counting.put("odd.safetensors", body)
    check_same(load_file(url, client=counting.client), official(body, tmp_path))
    with safe_open(url, client=counting.client) as file:
        assert file.get_tensor("b").tobytes() == data[1:]


def test_tensors_share_one_memory_which_goes_with_the_last_of_them(counting):
    tensors = load_file(counting.put("m.safetensors", safetensors.numpy.save(large())), client=counting.client)
    owners = {id(owner(array)) for array in tensors.values()}
    assert len(owners) == 1
    last = tensors["cube"]
    gone = weakref.ref(owner(last))
    kept = last.copy()
    del tensors
    gc.collect()
    last += 1
    assert np.array_equal(last, kept + 1)
    with pytest.raises(BufferError):
        gone().release()
    del last
    gc.collect()
    assert gone() is None


def test_memory_is_the_model_and_little_more(bucket, python):
    size = 256 * MIB
    tensors = {f"w{n}": np.full(size // 16, n, "uint8") for n in range(16)}
    url = bucket.put("model.safetensors", safetensors.numpy.save(tensors))
    del tensors
    program = """
import re, sys, flatout.safetensors, numpy

def most():
    # What getrusage says outlives exec: it would be that of the tests.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

endpoint, url = sys.argv[1:]
before = most()
tensors = flatout.safetensors.load_file(url, client=flatout.Client(endpoint_url=endpoint))
print(most() - before)
"""
    grown = int(python(program, bucket.origin.url, url))
    assert size <= grown < size + 100 * MIB


# What is no safetensors file.

DATA = b"\x01\x02\x03\x04"
WHOLE = header({"a": tensor()}, DATA)
DEEP = "[" * 200 + "]" * 200

CORPUS = {
    "empty": b"",
    "seven bytes": b"\x01" * 7,
    "eight bytes": b"\0" * 8,
    "length alone": struct.pack("<Q", 10),
    "header cut off": WHOLE[:30],
    "data cut off": WHOLE[:-1],
    "a byte too many": WHOLE + b"\0",
    "length one too many": header({"a": tensor()}, DATA, length=len(WHOLE) - 12 + 1),
    "length one too few": header({"a": tensor()}, DATA, length=len(WHOLE) - 12 - 1),
    "length of 100,000,001": header("{}", length=100_000_001),
    "length of 100,000,000": header("{}", length=100_000_000),
    "length of all bits": header("{}", length=(1 << 64) - 1),
    "length that overflows": header("{}", length=(1 << 64) - 8),
    "not JSON": header("a: 1"),
    "JSON that ends early": header('{"a":', DATA),
    "two JSON values": header("{}{}"),
    "an array": header("[]"),
    "null": header("null"),
    "a number": header("7"),
    "nothing in the header": header(""),
    "spaces alone": header("   "),
    "nested too deep": header('{"__metadata__":' + DEEP + "}"),
    "not UTF-8": header(b'{"\xff":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', DATA),
    "half a surrogate": header('{"\\ud800":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', DATA),
    "a byte order mark": header("\ufeff{}"),
    "trailing comma": header('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},}', DATA),
    "NaN": header('{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,4]}}', DATA),
    "zeros behind it": header(json.dumps({"a": tensor()}) + "\0\0", DATA),
    "unknown type": header({"a": tensor("F7")}, DATA),
    "type in small letters": header({"a": tensor("u8")}, DATA),
    "type that is a number": header({"a": {"dtype": 8, "shape": [4], "data_offsets": [0, 4]}}, DATA),
    "no type": header({"a": {"shape": [4], "data_offsets": [0, 4]}}, DATA),
    "no shape": header({"a": {"dtype": "U8", "data_offsets": [0, 4]}}, DATA),
    "no offsets": header({"a": {"dtype": "U8", "shape": [4]}}, DATA),
    "one offset": header({"a": tensor(offsets=(0,))}, DATA),
    "three offsets": header({"a": tensor(offsets=(0, 4, 4))}, DATA),
    "negative shape": header({"a": tensor(shape=(-4,))}, DATA),
    "negative offset": header({"a": tensor(offsets=(-4, 0))}, DATA),
    "fraction of an element": header({"a": tensor(shape=(4.5,))}, DATA),
    "a whole fraction": header({"a": tensor(shape=(4.0,))}, DATA),
    "offset as text": header({"a": {"dtype": "U8", "shape": [4], "data_offsets": ["0", "4"]}}, DATA),
    "shape too small": header({"a": tensor(shape=(3,))}, DATA),
    "shape too large": header({"a": tensor(shape=(5,))}, DATA),
    "end before start": header({"a": tensor(offsets=(4, 0))}, DATA),
    "does not begin at 0": header({"a": tensor(shape=(3,), offsets=(1, 4))}, DATA),
    "does not reach the end": header({"a": tensor(shape=(3,), offsets=(0, 3))}, DATA),
    "beyond the end": header({"a": tensor(shape=(5,), offsets=(0, 5))}, DATA),
    "far beyond the end": header({"a": tensor(shape=(1 << 40,), offsets=(0, 1 << 40))}, DATA),
    "overlap": header({"a": tensor(shape=(3,), offsets=(0, 3)), "b": tensor(shape=(2,), offsets=(2, 4))}, DATA),
    "the same place": header({"a": tensor(), "b": tensor()}, DATA),
    "gap": header({"a": tensor(shape=(1,), offsets=(0, 1)), "b": tensor(shape=(2,), offsets=(2, 4))}, DATA),
    "shape overflows": header({"a": tensor(shape=(1 << 33, 1 << 33))}, DATA),
    "shape overflows to the right size": header({"a": tensor(shape=(1 << 32, 1 << 32, 4))}, DATA),
    "shape overflows times nothing": header({"a": tensor(shape=(1 << 33, 1 << 33, 0), offsets=(0, 0))}),
    "bits overflow": header({"a": tensor("F64", (1 << 61,), (0, 1 << 62))}, DATA),
    "64 bits of shape": header({"a": tensor(shape=((1 << 64) - 1,), offsets=(0, (1 << 64) - 1))}, DATA),
    "65 bits of shape": header({"a": tensor(shape=(1 << 64,), offsets=(0, 4))}, DATA),
    "half a byte": header({"a": tensor("F4", (3,), (0, 2))}, DATA[:2]),
    "six bits": header({"a": tensor("F6_E2M3", (5,), (0, 4))}, DATA),
    "the same name twice": header('{"a":%s,"a":%s}' % ((json.dumps(tensor()),) * 2), DATA),
    "the same name, once wrong": header(
        '{"a":%s,"a":%s}' % (json.dumps(tensor(shape=(9,))), json.dumps(tensor())), DATA
    ),
    "the same name, then wrong": header(
        '{"a":%s,"a":%s}' % (json.dumps(tensor()), json.dumps(tensor(shape=(9,)))), DATA
    ),
    "the same field twice": header('{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}', DATA),
    "a field too many": header({"a": tensor() | {"more": 1}}, DATA),
    "a tensor that is a list": header('{"a":["U8",[4],[0,4]]}', DATA),
    "a tensor that is null": header({"a": None}),
    "metadata twice": header('{"__metadata__":{},"__metadata__":{}}'),
    "metadata with a number": header({"__metadata__": {"a": 1}}),
    "metadata that nests": header({"__metadata__": {"a": {}}}),
    "metadata that is text": header({"__metadata__": "a"}),
    "metadata that is null": header({"__metadata__": None}),
    "metadata that looks like a tensor": header({"__metadata__": tensor()}, DATA),
    "whole": WHOLE,
    "no tensors": header({}),
    "spaces around": header(f"  {json.dumps({'a': tensor()})}   ", DATA),
    "metadata alone": header({"__metadata__": {"a": "b"}}),
    "elements of no bytes": header(
        {"a": tensor(shape=(0, 7), offsets=(0, 0)), "b": tensor(shape=(3, 0), offsets=(0, 0))}
    ),
    "a scalar": header({"a": tensor("F32", ())}, DATA),
    "an empty name": header({"": tensor()}, DATA),
    "names from end to start": header({"b": tensor(offsets=(4, 8)), "a": tensor()}, DATA * 2),
    "a name in Chinese": header({"权重": tensor()}, DATA),
    "two elements a byte": header({"a": tensor("F4", (8,))}, DATA),
}


@pytest.mark.parametrize("body", CORPUS.values(), ids=CORPUS.keys())
def test_the_verdict_is_the_official_one(counting, tmp_path, body):
    path = tmp_path / "local.safetensors"
    path.write_bytes(body)
    try:
        with safetensors.safe_open(path, "np") as file:
            theirs = (file.keys(), file.metadata())
    except Exception as refused:
        theirs = refused
    url = counting.put("remote.safetensors", body)
    if isinstance(theirs, Exception):
        with pytest.raises(InvalidSafetensors) as refused:
            load_file(url, client=counting.client)
        told = refused.value
        assert isinstance(told, ValueError) and told.object == url and told.cause
        # Nothing was fetched for it but its first bytes.
        assert len([asked for asked in counting.asked if asked[2]]) <= 1
    else:
        with safe_open(url, client=counting.client) as file:
            assert (file.keys(), file.metadata()) == theirs


def test_the_corpus_has_both(tmp_path):
    def is_whole(body):
        path = tmp_path / "local.safetensors"
        path.write_bytes(body)
        try:
            safetensors.safe_open(path, "np")
        except safetensors.SafetensorError:
            return False
        return True

    verdicts = [is_whole(body) for body in CORPUS.values() if body]
    assert verdicts.count(True) >= 10 and verdicts.count(False) >= 50


def test_an_error_says_what_is_wrong(counting):
    url = counting.put("model.safetensors", header({"a": tensor(shape=(5,))}, DATA))
    with pytest.raises(InvalidSafetensors, match="invalid shape, data type, or offset") as refused:
        load_file(url, client=counting.client)
    assert str(refused.value).startswith(f"read: {url}: its header: ")


# One tensor, and parts of one.


def test_safe_open_tells_what_the_official_one_tells(place, tmp_path):
    body = safetensors.numpy.save(large(), metadata={"format": "np", "more": "as well"})
    url = place.put("model.safetensors", body)
    path = tmp_path / "model.safetensors"
    path.write_bytes(body)
    with safe_open(url, framework="np", client=place.client) as ours, safetensors.safe_open(path, "np") as theirs:
        assert ours.keys() == theirs.keys()
        assert ours.offset_keys() == theirs.offset_keys()
        assert ours.metadata() == theirs.metadata()
        for name in theirs.keys():
            assert np.array_equal(ours.get_tensor(name), theirs.get_tensor(name))
            mine, other = ours.get_slice(name), theirs.get_slice(name)
            assert (mine.get_shape(), mine.get_dtype()) == (other.get_shape(), other.get_dtype())
            assert (ours.get_shape(name), ours.get_dtype(name)) == (other.get_shape(), other.get_dtype())
    with pytest.raises(flatout.UsageError, match="closed"):
        ours.keys()


def test_a_tensor_is_one_request_and_owns_its_memory(counting):
    tensors = large()
    with safe_open(counting.put("m.safetensors", safetensors.numpy.save(tensors)), client=counting.client) as file:
        assert len(counting.asked) == 1
        counting.asked.clear()
        first, second = file.get_tensor("layers.3.weight"), file.get_tensor("layers.3.weight")
        first += 1
        assert np.array_equal(second, tensors["layers.3.weight"])
        assert [end - start for _, start, end in counting.asked] == [first.nbytes, first.nbytes]


def test_a_header_that_is_longer_costs_a_second_request(counting):
    names = [f"a.rather.long.name.of.a.tensor.{n:06}" for n in range(8000)]
    body = safetensors.numpy.save({name: np.array([n], "int32") for n, name in enumerate(names)})
    header_end = 8 + int.from_bytes(body[:8], "little")
    assert header_end > _models.HEAD_BYTES
    with safe_open(counting.put("many.safetensors", body), client=counting.client) as file:
        assert file.keys() == names
        assert counting.asked[0][1:] == (0, _models.HEAD_BYTES)
        assert sum(end - start for _, start, end in counting.asked[1:]) == header_end
        assert file.get_tensor(names[77])[0] == 77


def test_an_unknown_name_is_a_key_error(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(small()))
    with safe_open(url, client=counting.client) as file:
        for ask in (file.get_tensor, file.get_slice, file.get_shape, file.get_dtype):
            with pytest.raises(KeyError) as refused:
                ask("nowhere")
            assert isinstance(refused.value, flatout.UsageError) and "'nowhere'" in str(refused.value)


OFFICIAL_INDICES = [
    np.s_[...],
    np.s_[3],
    np.s_[-1],
    np.s_[2:9],
    np.s_[:4],
    np.s_[5:],
    np.s_[::3],
    np.s_[:, 5:9],
    np.s_[..., 1],
]
OFFICIAL_INDICES += [np.s_[1, 2, 3], np.s_[2:4, 3, ::7], np.s_[:, :, 2:3], np.s_[5:6, :, :], np.s_[:, ::2], np.s_[:0]]


@pytest.mark.parametrize("index", OFFICIAL_INDICES, ids=str)
def test_slices_are_the_official_ones(counting, tmp_path, index):
    body = safetensors.numpy.save(large())
    path = tmp_path / "model.safetensors"
    path.write_bytes(body)
    url = counting.put("m.safetensors", body)
    with safe_open(url, client=counting.client) as ours, safetensors.safe_open(path, "np") as theirs:
        mine, other = ours.get_slice("cube")[index], theirs.get_slice("cube")[index]
        assert (mine.shape, mine.dtype, mine.tobytes()) == (other.shape, other.dtype, other.tobytes())
        assert mine.flags.writeable


@pytest.mark.parametrize(
    "index", [np.s_[-3:], np.s_[2:1000], np.s_[5:2], np.s_[:-1, -7:], np.s_[()], np.s_[np.int64(1)]], ids=str
)
def test_slices_that_the_official_one_refuses_are_those_of_numpy(counting, index):
    tensors = large()
    with safe_open(counting.put("m.safetensors", safetensors.numpy.save(tensors)), client=counting.client) as file:
        mine, theirs = file.get_slice("cube")[index], tensors["cube"][index]
        assert (mine.shape, mine.tobytes()) == (theirs.shape, theirs.tobytes())


@pytest.mark.parametrize(
    "index, error",
    [
        (40, IndexError),
        (-41, IndexError),
        ((0, 0, 0, 0), IndexError),
        ((..., ...), IndexError),
        (np.s_[::-1], ValueError),
        (None, TypeError),
        ("a", TypeError),
        ([0, 1], TypeError),
        (1.0, TypeError),
    ],
)
def test_what_is_no_index_is_refused_before_anything_is_read(counting, index, error):
    with safe_open(counting.put("m.safetensors", safetensors.numpy.save(large())), client=counting.client) as file:
        counting.asked.clear()
        with pytest.raises(error):
            file.get_slice("cube")[index]
        assert not counting.asked


@pytest.mark.parametrize(
    "index, requests, fetched",
    [
        # Rows: one range, and not a byte more.
        (np.s_[100:164], 1, 64 * 3000 * 4),
        (np.s_[7], 1, 3000 * 4),
        # Columns: what lies between them is less than a request is worth.
        (np.s_[:, 5:9], 1, 511 * 3000 * 4 + 4 * 4),
        (np.s_[::2], 1, 511 * 3000 * 4),
        # Rows far apart: each by itself.
        (np.s_[::100], 6, 6 * 3000 * 4),
    ],
    ids=str,
)
def test_a_slice_fetches_what_it_needs(counting, index, requests, fetched):
    tensors = large()
    with safe_open(counting.put("m.safetensors", safetensors.numpy.save(tensors)), client=counting.client) as file:
        counting.asked.clear()
        got = file.get_slice("embedding")[index]
        assert np.array_equal(got, tensors["embedding"][index])
        assert counting.bytes == fetched
        spans = sorted(asked[1:] for asked in counting.asked)
        runs = 1 + sum(1 for before, after in zip(spans, spans[1:]) if before[1] != after[0])
        assert runs == requests


def test_any_slice_is_what_numpy_says(monkeypatch):
    random = np.random.default_rng(1)
    for _ in range(3000):
        monkeypatch.setattr(_slices, "GAP_MOST", int(random.choice([0, 1, 3, 8, 50, 10**6])))
        monkeypatch.setattr(_slices, "PIECE_BYTES", int(random.choice([1, 7, 40, 10**6])))
        shape = tuple(random.integers(0, 6, random.integers(0, 5)))
        array = np.arange(int(np.prod(shape)), dtype="int16").reshape(shape)
        index = tuple(any_index(random, size) for size in shape[: random.integers(0, len(shape) + 1)])
        index += (...,) * int(random.integers(0, 2))
        selected, wanted = _slices.select(tuple(map(int, shape)), 2, index), array[index]
        raw = array.tobytes()
        pieces = [
            np.ndarray(p.counts, "int16", raw[p.start : p.end], 0, p.strides).tobytes() for p in selected.pieces()
        ]
        assert (selected.shape, selected.bytes) == (wanted.shape, wanted.nbytes), (shape, index)
        assert b"".join(pieces) == wanted.tobytes(), (shape, index)


def any_index(random, size):
    if size and random.random() < 0.3:
        return int(random.integers(-size, size))
    start, stop = (None if random.random() < 0.2 else int(random.integers(-7, 8)) for _ in range(2))
    return slice(start, stop, [None, 1, 2, 3][random.integers(0, 4)])


# Types.

RAW = {"BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8}
TINY = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def of_type(dtype, bits, shape=(4, 8)):
    data = np.random.default_rng(1).bytes(shape[0] * shape[1] * bits // 8)
    return header({"a": tensor(dtype, shape, (0, len(data)))}, data), data


@pytest.mark.parametrize("dtype, bits", (RAW | TINY).items())
def test_a_type_that_numpy_lacks_comes_raw(counting, monkeypatch, dtype, bits):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    body, data = of_type(dtype, bits)
    url = counting.put("m.safetensors", body)
    loaded = load_file(url, client=counting.client)["a"]
    with safe_open(url, client=counting.client) as file:
        for raw in (loaded, file.get_tensor("a")):
            assert isinstance(raw, RawTensor) and (raw.dtype, raw.shape) == (dtype, (4, 8))
            assert raw.data.dtype == "uint8" and raw.data.tobytes() == data and raw.data.flags.writeable
        row = file.get_slice("a")[1:3]
        assert (row.shape, row.data.tobytes()) == ((2, 8), data[bits : 3 * bits])
        assert file.get_dtype("a") == dtype


@pytest.mark.parametrize("dtype, bits", RAW.items())
def test_a_type_that_ml_dtypes_has_is_that(counting, dtype, bits):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    body, data = of_type(dtype, bits)
    array = load_file(counting.put("m.safetensors", body), client=counting.client)["a"]
    assert array.dtype == np.dtype(getattr(ml_dtypes, _frameworks._ML_DTYPES[dtype]))
    assert (array.shape, array.tobytes()) == ((4, 8), data)


def test_elements_smaller_than_a_byte_are_cut_between_bytes_only(counting):
    body, data = of_type("F4", 4)
    with safe_open(counting.put("m.safetensors", body), client=counting.client) as file:
        whole = file.get_slice("a")
        pairs = whole[:, 2:6]
        assert (pairs.shape, pairs.data.tobytes()) == (
            (4, 4),
            b"".join(data[at + 1 : at + 3] for at in range(0, 16, 4)),
        )
        assert whole[...].data.tobytes() == data
        for index in (np.s_[:, 1:3], np.s_[:, 0], np.s_[:, ::2]):
            with pytest.raises(ValueError, match="cut a byte"):
                whole[index]


def test_frameworks_and_devices_that_are_not_there_are_refused(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(small()))
    for arguments in ({"framework": "tensorflow"}, {"device": "cuda"}):
        with pytest.raises(flatout.UsageError):
            load_file(url, client=counting.client, **arguments)
    assert not counting.asked


# Several files.


def shards(place, tensors, count, index="model.safetensors.index.json"):
    """Puts them into files in turn, and an index beside them."""
    names = list(tensors)
    weight_map = {}
    for n in range(count):
        file = f"model-{n + 1:05}-of-{count:05}.safetensors"
        part = {name: tensors[name] for name in names[n::count]}
        url = place.put(f"llama/{file}", safetensors.numpy.save(part, metadata={"shard": str(n), "format": "np"}))
        weight_map |= dict.fromkeys(part, file)
    if index:
        said = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}
        place.put(f"llama/{index}", json.dumps(said).encode())
    return url.rpartition("/")[0]


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "unet.safetensors.index.json", None])
def test_a_model_in_several_files(place, index):
    tensors = large()
    folder = shards(place, tensors, 5, index)
    for url in [folder, folder + "/"] + ([f"{folder}/{index}"] if index else []):
        loaded = load_model(url, client=place.client)
        assert loaded.keys() == tensors.keys()
        assert all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    with safe_open(folder + "/", client=place.client) as model:
        assert model.keys() == sorted(tensors)
        assert model.metadata() == {"shard": "0", "format": "np"}
        assert np.array_equal(model.get_slice("cube")[7:9], tensors["cube"][7:9])


def test_several_files_by_name(counting):
    one, two = small(1), {f"other.{name}": array for name, array in small(2).items()}
    urls = [counting.put(f"{n}.safetensors", safetensors.numpy.save(part)) for n, part in enumerate((one, two))]
    with safe_open(urls, client=counting.client) as model:
        assert model.keys() == sorted(one | two)
        assert model.offset_keys()[: len(one)] == list(load_file(urls[0], client=counting.client))
        assert np.array_equal(model.get_tensor("other.int32"), two["other.int32"])


def test_files_with_a_tensor_of_the_same_name_are_refused(counting):
    urls = [counting.put(f"{n}.safetensors", safetensors.numpy.save(small())) for n in range(2)]
    with pytest.raises(InvalidSafetensors, match="and so has"):
        safe_open(urls, client=counting.client)


def test_an_index_says_which_of_two_files_a_tensor_is_from(counting):
    for n in range(2):
        counting.put(f"m/{n}.safetensors", safetensors.numpy.save({"a": np.array([n]), f"b{n}": np.array([n])}))
    weight_map = {"a": "1.safetensors", "b0": "0.safetensors", "b1": "1.safetensors"}
    url = counting.put("m/model.safetensors.index.json", json.dumps({"weight_map": weight_map}).encode())
    assert {name: array[0] for name, array in load_model(url, client=counting.client).items()} == {
        "a": 1,
        "b0": 0,
        "b1": 1,
    }


@pytest.mark.parametrize(
    "said, why",
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "weight_map"),
        (b"{}", "weight_map"),
        (b'{"weight_map": []}', "weight_map"),
        (b'{"weight_map": {"a": 7}}', "no name below this folder"),
        (b'{"weight_map": {"a": "../secret.safetensors"}}', "no name below this folder"),
        (b'{"weight_map": {"a": "/etc/secret.safetensors"}}', "no name below this folder"),
        (b'{"weight_map": {"a": "s3://elsewhere/m.safetensors"}}', "no name below this folder"),
        (b'{"weight_map": {"nowhere": "there.safetensors"}}', "its index says that it has a tensor 'nowhere'"),
    ],
)
def test_an_index_that_is_none_is_refused(counting, said, why):
    counting.put("m/there.safetensors", safetensors.numpy.save(small()))
    url = counting.put("m/model.safetensors.index.json", said)
    with pytest.raises(InvalidSafetensors, match=why):
        load_model(url, client=counting.client)


def test_a_file_that_an_index_names_and_that_is_missing_is_not_found(place):
    place.put("m/model.safetensors.index.json", json.dumps({"weight_map": {"a": "gone.safetensors"}}).encode())
    url = place.put("m/other", b"")
    with pytest.raises(FileNotFoundError, match="gone.safetensors"):
        load_model(url.rpartition("/")[0], client=place.client)


def test_a_folder_without_a_model_is_not_found(place):
    url = place.put("nothing/readme.md", b"")
    with pytest.raises(FileNotFoundError, match="no \\*.safetensors"):
        load_model(url.rpartition("/")[0], client=place.client)


# Streams.


@pytest.mark.parametrize("order", ["file", "names", "completion"])
@pytest.mark.parametrize("limit", [None, 1, 2 * MIB])
def test_a_stream_has_every_tensor_once(place, order, limit):
    tensors = large() | small()
    folder = shards(place, tensors, 3)
    streamed = list(stream_tensors(folder + "/", order=order, memory_limit=limit, client=place.client))
    names = [name for name, _ in streamed]
    assert sorted(names) == sorted(tensors)
    assert all(np.array_equal(array, tensors[name]) for name, array in streamed)
    if order == "names":
        assert names == sorted(tensors)
    if order == "file":
        with safe_open(folder + "/", client=place.client) as model:
            assert names == model.offset_keys()


def test_what_comes_out_of_a_stream_owns_its_memory(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(large()))
    stream = stream_tensors(url, client=counting.client)
    memories = []
    for name, array in stream:
        memories.append(weakref.ref(owner(array)) if isinstance(owner(array), flatout.Buffer) else None)
        array[...] = 0
        del array
        gc.collect()
        assert not any(memory is not None and memory() for memory in memories), name
    assert any(memories)


@pytest.mark.parametrize("select", ["layers.1?.*", lambda name: name.startswith("layers.1") and name[8].isdigit()])
def test_a_stream_fetches_what_was_selected(counting, select):
    tensors = large()
    url = counting.put("m.safetensors", safetensors.numpy.save(tensors))
    streamed = dict(stream_tensors(url, select=select, client=counting.client))
    assert sorted(streamed) == sorted(name for name in tensors if name.startswith("layers.1") and name[8].isdigit())
    assert counting.bytes == _models.HEAD_BYTES + sum(array.nbytes for array in streamed.values())


@pytest.mark.parametrize("order", ["file", "completion"])
@pytest.mark.parametrize("limit", [3 * MIB, 10 * MIB])
def test_a_stream_fetches_no_more_ahead_than_was_allowed(counting, order, limit):
    tensors = {f"w{n:02}": np.full(MIB, n, "uint8") for n in range(40)}
    url = counting.put("m.safetensors", safetensors.numpy.save(tensors))
    taken = 0
    for _, array in stream_tensors(url, order=order, memory_limit=limit, client=counting.client):
        taken += array.nbytes
        # It does fetch as far ahead as it may, and no further.
        wait_for(counting, _models.HEAD_BYTES + taken + min(limit, 40 * MIB - taken))


def wait_for(counting, nbytes):
    """Waits until so many bytes have been asked for, and looks whether more are then."""
    until = time.monotonic() + 20
    while counting.bytes < nbytes and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(0.02)
    assert counting.bytes == nbytes


def test_a_tensor_larger_than_the_limit_comes_alone(counting):
    tensors = {f"w{n}": np.full(3 * MIB, n, "uint8") for n in range(3)}
    url = counting.put("m.safetensors", safetensors.numpy.save(tensors))
    stream = stream_tensors(url, memory_limit=MIB, client=counting.client)
    wait_for(counting, _models.HEAD_BYTES + 3 * MIB)
    assert [name for name, _ in stream] == sorted(tensors)


def test_breaking_off_a_stream_ends_it(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save({f"w{n}": np.full(MIB, n, "uint8") for n in range(20)}))
    for name, _ in stream_tensors(url, memory_limit=2 * MIB, client=counting.client):
        if name == "w1":
            break
    gc.collect()
    wait_for(counting, _models.HEAD_BYTES + 4 * MIB)


@pytest.mark.parametrize("arguments", [{"order": "size"}, {"memory_limit": 0}, {"framework": "x"}])
def test_a_stream_of_nonsense_is_refused_at_once(counting, arguments):
    url = counting.put("m.safetensors", safetensors.numpy.save(small()))
    with pytest.raises(flatout.UsageError):
        stream_tensors(url, client=counting.client, **arguments)
    assert not counting.asked


# Objects that change, and progress.


def test_a_file_that_is_replaced_behind_its_header_has_changed(counting):
    body, other = safetensors.numpy.save(large(1)), safetensors.numpy.save(large(2))
    url = counting.put("m.safetensors", body)
    counting.before = lambda asked, name: asked == 1 and counting.put(name, other)
    with pytest.raises(flatout.ObjectChanged):
        load_file(url, client=counting.client)


@pytest.mark.parametrize("read", ["get_tensor", "rows", "columns", "scattered"])
def test_a_file_that_is_replaced_while_it_is_open_has_changed(counting, read):
    url = counting.put("m.safetensors", safetensors.numpy.save(large(1)))
    with safe_open(url, client=counting.client) as file:
        counting.put("m.safetensors", safetensors.numpy.save(large(2)))
        part = file.get_slice("embedding")
        ways = {
            "get_tensor": lambda: file.get_tensor("embedding"),
            "rows": lambda: part[:5],
            "columns": lambda: part[:, 3],
            "scattered": lambda: part[::100],
        }
        with pytest.raises(flatout.ObjectChanged):
            ways[read]()


def test_a_stream_of_a_file_that_is_replaced_has_changed(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(large(1)))
    stream = stream_tensors(url, memory_limit=1, client=counting.client)
    next(stream)
    counting.put("m.safetensors", safetensors.numpy.save(large(2)))
    with pytest.raises(flatout.ObjectChanged):
        list(stream)


def test_progress_is_that_of_all_files(place):
    tensors = large()
    folder = shards(place, tensors, 4)
    progress = flatout.Progress()
    load_model(folder, client=place.client, progress=progress)
    assert progress.done == progress.total > sum(array.nbytes for array in tensors.values())
    assert progress.rate > 0


# PyTorch: Debian's, with Debian's Python.

TORCH = "/usr/bin/python3"


def as_torch_has(tensors):
    """Without the unsigned types that came to torch with 2.3."""
    unsigned = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}
    return {name: array.view(unsigned.get(array.dtype.name, array.dtype)) for name, array in tensors.items()}


def test_with_torch(bucket, tmp_path):
    local = tmp_path / "local"
    local.mkdir()
    bodies = {"none": {}, "small": small(), "large": large()}
    bodies = {name: safetensors.numpy.save(as_torch_has(tensors)) for name, tensors in bodies.items()}
    bodies["bf16"] = of_type("BF16", 16)[0]
    bodies["odd"] = header({"a": tensor("U8", (1,), (0, 1)), "b": tensor("F64", (2,), (1, 17))}, bytes(range(17)))
    for name, body in bodies.items():
        bucket.put(f"{name}.safetensors", body)
        (local / f"{name}.safetensors").write_bytes(body)
    url = bucket.put("raw.safetensors", of_type("F8_E4M3", 8)[0])
    script = os.path.join(os.path.dirname(__file__), "torch_safetensors.py")
    # Debian's NumPy before ours: torch was built with that. The official package is pure enough to be shared.
    beside = os.path.dirname(os.path.dirname(safetensors.__file__))
    package = os.path.dirname(os.path.dirname(flatout.__file__))
    command = [TORCH, script, package, beside, bucket.origin.url, url.rpartition("/")[0], str(local), *bodies]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("same\n"), done.stdout + done.stderr
