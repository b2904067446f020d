"""The same with PyTorch, beside the official package."""

import gc
import weakref

import flatout
import flatout.safetensors
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from flatout.safetensors import RawTensor, load_file, safe_open, stream_tensors

from models import counting, header, large, of_type, place, small, tensor  # noqa: F401

# scripts/python.sh runs this with the interpreter that has it, too.
torch = pytest.importorskip("torch")

import safetensors.torch  # noqa: E402


BODIES = {
    name: safetensors.numpy.save(of)
    for name, of in {"none": {}, "small": small(), "large": large()}.items()
}
BODIES["bf16"] = of_type("BF16", 16)[0]


def check_same(ours, theirs):
    assert list(ours) == list(theirs)
    for name, one in theirs.items():
        mine = ours[name]
        assert (mine.dtype, mine.shape, mine.device) == (one.dtype, one.shape, one.device), name
        assert mine.is_contiguous() and same_bytes(mine, one), name


def same_bytes(mine, one):
    # NaN is not equal to itself.
    return torch.equal(mine.reshape(-1).view(torch.uint8), one.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_tensors_are_bit_for_bit_the_official_ones(place, tmp_path, body):
    url, path = place.put("model.safetensors", body), tmp_path / "model.safetensors"
    path.write_bytes(body)
    theirs = safetensors.torch.load_file(path)
    check_same(load_file(url, framework="pt", client=place.client), theirs)
    check_same(dict(stream_tensors(url, framework="torch", client=place.client)), theirs)
    with safe_open(url, "pytorch", client=place.client) as mine, safetensors.safe_open(path, "pt") as other:
        check_same({name: mine.get_tensor(name) for name in mine.offset_keys()}, theirs)
        for name in theirs:
            for index in (np.s_[1:3], np.s_[..., 0:1], np.s_[:, 1], np.s_[::2]):
                if theirs[name].dim() >= 2 and theirs[name].numel():
                    wanted = other.get_slice(name)[index].contiguous()
                    assert same_bytes(mine.get_slice(name)[index], wanted), (name, index)


def test_a_slice_of_scattered_columns(counting):
    tensors = large()
    with safe_open(
        counting.put("m.safetensors", safetensors.numpy.save(tensors)), "pt", client=counting.client
    ) as file:
        for name, index in (
            ("embedding", np.s_[::100, 5:9]),
            ("cube", np.s_[3:5, ::7, 1::2]),
            ("layers.3.weight", np.s_[:, 2]),
        ):
            assert file.get_slice(name)[index].numpy().tobytes() == tensors[name][index].tobytes()


def test_tensors_at_odd_places_are_copied_to_even_ones(counting):
    body = header({"a": tensor("U8", (1,), (0, 1)), "b": tensor("F64", (2,), (1, 17))}, bytes(range(17)))
    ours = load_file(counting.put("m.safetensors", body), framework="pt", client=counting.client)
    assert ours["b"].view(torch.uint8).tolist() == list(range(1, 17)) and ours["b"].data_ptr() % 8 == 0


def test_a_tensor_keeps_its_memory_and_nothing_else_does(counting):
    body = safetensors.numpy.save(large())
    tensors = load_file(counting.put("m.safetensors", body), framework="pt", client=counting.client)
    addresses = sorted(tensor.data_ptr() for tensor in tensors.values())
    assert addresses[-1] - addresses[0] < len(body)
    last, wanted = tensors["cube"], tensors["cube"].clone()
    del tensors
    gc.collect()
    [torch.full((1 << 20,), 7.0) for _ in range(32)]
    assert torch.equal(last, wanted)
    last += 1
    assert torch.equal(last, wanted + 1)


def test_a_type_that_torch_lacks_comes_raw(counting):
    if hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch has it")
    body, data = of_type("F8_E8M0", 8)
    raw = load_file(counting.put("m.safetensors", body), framework="pt", client=counting.client)["a"]
    assert isinstance(raw, RawTensor) and (raw.dtype, raw.shape) == ("F8_E8M0", (4, 8))
    assert raw.data.dtype == torch.uint8 and bytes(raw.data.tolist()) == data


def test_tensors_go_to_their_device(counting):
    url = counting.put("m.safetensors", safetensors.numpy.save(large()))
    for tensors in (
        load_file(url, "meta", framework="pt", client=counting.client),
        dict(stream_tensors(url, device="meta", framework="pt", client=counting.client)),
    ):
        assert len(tensors) == len(large()) and all(tensor.device.type == "meta" for tensor in tensors.values())
