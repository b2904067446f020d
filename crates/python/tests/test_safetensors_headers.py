"""Which bytes are a safetensors file, and which are none: by the verdict of the official package on the same bytes."""

import json
import struct

import flatout.safetensors
import pytest
import safetensors
from flatout.safetensors import InvalidSafetensors, load_file, safe_open

from models import counting, header, tensor  # noqa: F401

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
