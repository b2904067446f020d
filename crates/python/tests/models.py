"""Models in safetensors files, for the tests: what to put there, where to, and an origin that notes what is asked of it."""

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import flatout
import numpy as np
import pytest
import safetensors.numpy

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
        self.objects, self.asked, self.before, self.tells_etags = {}, [], None, True
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
        if self.tells_etags:
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


class Place:
    """Where real files are put: a bucket, by one dialect."""

    def __init__(self, bucket, scheme, client):
        self.bucket, self.scheme, self.client = bucket, scheme, client

    def put(self, key, body):
        self.bucket.put(key, body)
        return self.bucket.url(key, self.scheme)


@pytest.fixture(params=["s3", "oss", "minio"])
def place(request, bucket_of):
    """The embedded origin by either dialect, and MinIO."""
    origin = request.getfixturevalue("minio" if request.param == "minio" else "serve")
    scheme = "oss" if request.param == "oss" else "s3"
    with flatout.Client(**origin.settings) as client:
        yield Place(bucket_of(origin), scheme, client)


def of_type(dtype, bits, shape=(4, 8)):
    data = np.random.default_rng(1).bytes(shape[0] * shape[1] * bits // 8)
    return header({"a": tensor(dtype, shape, (0, len(data)))}, data), data


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
