"""flatout.safetensors beside the official package: the same tensors, bit for bit, and how many requests that takes."""

import gc
import json
import signal
import sys
import threading
import weakref

import flatout
import flatout.safetensors
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from flatout import _frameworks, _models, _slices
from flatout.safetensors import InvalidSafetensors, RawTensor, load_file, load_model, safe_open, stream_tensors

from models import MIB, check_same, counting, header, large, of_type, official, owner, place, shards, small, tensor  # noqa: F401


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
    # On a busy machine the rest of a part is asked for twice.
    assert 0 <= counting.bytes - (_models.HEAD_BYTES + len(body)) < len(body) // 2


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
        (True, TypeError),
        (np.s_[0, False], TypeError),
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


def test_two_indices_may_name_the_same_file(counting):
    tensors = {name: np.array([n]) for n, name in enumerate("abc")}
    whole = counting.put("m/0.safetensors", safetensors.numpy.save(tensors))
    urls = [
        counting.put(f"m/{name}.json", json.dumps({"weight_map": {name: "0.safetensors"}}).encode()) for name in "ab"
    ]
    with safe_open(urls, client=counting.client) as model:
        assert model.keys() == ["a", "b"]
    for several in ([urls[0], whole], [whole, urls[0]]):
        with safe_open(several, client=counting.client) as model:
            assert model.keys() == ["a", "b", "c"]


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
        (b'{"weight_map": {}}', "names no tensor"),
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


# Objects that change, and progress.


def test_a_file_that_is_replaced_behind_its_header_has_changed(counting):
    body, other = safetensors.numpy.save(large(1)), safetensors.numpy.save(large(2))
    url = counting.put("m.safetensors", body)
    counting.before = lambda asked, name: asked == 1 and counting.put(name, other)
    with pytest.raises(flatout.ObjectChanged):
        load_file(url, client=counting.client)


@pytest.mark.parametrize("tells_etags", [True, False])
@pytest.mark.parametrize("read", ["get_tensor", "rows", "columns", "scattered"])
def test_a_file_that_is_replaced_while_it_is_open_has_changed(counting, read, tells_etags):
    counting.tells_etags = tells_etags
    url = counting.put("m.safetensors", safetensors.numpy.save(large(1)))
    with safe_open(url, client=counting.client) as file:
        # Where there is no ETag its size tells.
        counting.put("m.safetensors", safetensors.numpy.save(large(2) | {"more": np.zeros(9)}))
        part = file.get_slice("embedding")
        ways = {
            "get_tensor": lambda: file.get_tensor("embedding"),
            "rows": lambda: part[:5],
            "columns": lambda: part[:, 3],
            "scattered": lambda: part[::100],
        }
        with pytest.raises(flatout.ObjectChanged):
            ways[read]()


def test_scattered_rows_come_without_an_etag_too(counting, monkeypatch):
    monkeypatch.setattr(_models, "RANGES_AT_ONCE", 2)
    counting.tells_etags = False
    tensors = large()
    with safe_open(counting.put("m.safetensors", safetensors.numpy.save(tensors)), client=counting.client) as file:
        assert np.array_equal(file.get_slice("embedding")[::100], tensors["embedding"][::100])


def test_a_signal_ends_a_load(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(large()))
    enough = threading.Event()
    counting.before = lambda asked, name: asked and enough.wait(20)

    def stop(*_):
        raise InterruptedError("enough")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(InterruptedError):
            load_file(url, client=counting.client)
    finally:
        signal.signal(signal.SIGALRM, before)
        enough.set()


def test_progress_is_that_of_all_files(place):
    tensors = large()
    folder = shards(place, tensors, 4)
    progress = flatout.Progress()
    load_model(folder, client=place.client, progress=progress)
    assert progress.done == progress.total > sum(array.nbytes for array in tensors.values())
    assert progress.rate > 0
