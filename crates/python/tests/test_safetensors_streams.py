"""Tensors one by one: each once, in the order asked for, no more of them ahead than was allowed."""

import gc
import time
import weakref

import flatout
import flatout.safetensors
import numpy as np
import pytest
import safetensors.numpy
from flatout import _models
from flatout.safetensors import safe_open, stream_tensors

from models import MIB, counting, large, owner, place, shards, small  # noqa: F401


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
    until = time.monotonic() + 60
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
    # On a busy machine it is broken off before it has asked for all that it may: two that were taken, and two ahead.
    time.sleep(0.1)
    asked = counting.bytes
    assert asked <= _models.HEAD_BYTES + 4 * MIB
    time.sleep(0.1)
    assert counting.bytes == asked


@pytest.mark.parametrize("arguments", [{"order": "size"}, {"memory_limit": 0}, {"framework": "x"}])
def test_a_stream_of_nonsense_is_refused_at_once(counting, arguments):
    url = counting.put("m.safetensors", safetensors.numpy.save(small()))
    with pytest.raises(flatout.UsageError):
        stream_tensors(url, client=counting.client, **arguments)
    assert not counting.asked


def test_a_stream_of_a_file_that_is_replaced_has_changed(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(large(1)))
    stream = stream_tensors(url, memory_limit=1, client=counting.client)
    next(stream)
    counting.put("m.safetensors", safetensors.numpy.save(large(2)))
    with pytest.raises(flatout.ObjectChanged):
        list(stream)
