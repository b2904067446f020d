"""What test_safetensors.py runs with Debian's Python, which has torch: ours beside the official package."""

import gc
import sys
import weakref

package, beside, endpoint, folder, local, *names = sys.argv[1:]
sys.path.insert(0, package)
sys.path.append(beside)

import flatout  # noqa: E402
import safetensors  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from flatout.safetensors import RawTensor, load_file, safe_open, stream_tensors  # noqa: E402

client = flatout.Client(endpoint_url=endpoint)


def check_same(ours, theirs):
    assert list(ours) == list(theirs), (list(ours), list(theirs))
    for name, one in theirs.items():
        mine = ours[name]
        assert (mine.dtype, mine.shape, mine.device) == (one.dtype, one.shape, one.device), name
        assert mine.is_contiguous() and same_bytes(mine, one), name


def same_bytes(mine, one):
    # NaN is not equal to itself.
    return torch.equal(mine.reshape(-1).view(torch.uint8), one.reshape(-1).view(torch.uint8))


for name in names:
    url, path = f"{folder}/{name}.safetensors", f"{local}/{name}.safetensors"
    if name == "odd":
        # torch's own slices of a mapped file refuse to begin there.
        ours = load_file(url, framework="pt", client=client)
        assert ours["b"].view(torch.uint8).tolist() == list(range(1, 17)) and ours["b"].data_ptr() % 8 == 0
        continue
    theirs = safetensors.torch.load_file(path)
    check_same(load_file(url, framework="pt", client=client), theirs)
    check_same(dict(stream_tensors(url, framework="torch", client=client)), theirs)
    with safe_open(url, "pytorch", client=client) as mine, safetensors.safe_open(path, "pt") as other:
        check_same({n: mine.get_tensor(n) for n in mine.offset_keys()}, theirs)
        for n in theirs:
            for index in ((slice(1, 3),), (Ellipsis, slice(0, 1)), (slice(None), 1)):
                if theirs[n].dim() >= 2 and theirs[n].numel():
                    assert same_bytes(mine.get_slice(n)[index], other.get_slice(n)[index].contiguous()), (n, index)

# Nothing but the tensor holds the memory, and it does.
tensors = load_file(f"{folder}/large.safetensors", framework="pt", client=client)
last, wanted = tensors["cube"], tensors["cube"].clone()
addresses = sorted(tensor.data_ptr() for tensor in tensors.values())
span = addresses[-1] - addresses[0]
assert span < sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
del tensors
gc.collect()
rubbish = [torch.full((1 << 20,), 7.0) for _ in range(32)]
assert torch.equal(last, wanted)
last += 1
assert torch.equal(last, wanted + 1)

buffer = client.read(f"{folder}/large.safetensors")
gone, tensor = weakref.ref(buffer), torch.frombuffer(memoryview(buffer), dtype=torch.uint8)
del buffer
gc.collect()
assert gone() is not None and tensor[8] == ord("{")
try:
    gone().release()
except BufferError:
    pass
else:
    raise AssertionError("memory that a tensor shows was released")
del tensor
gc.collect()
assert gone() is None

raw = load_file(f"{folder}/raw.safetensors", framework="pt", client=client)["a"]
assert isinstance(raw, RawTensor) and (raw.dtype, raw.shape) == ("F8_E4M3", (4, 8))
assert raw.data.dtype == torch.uint8 and raw.data.shape == (32,)

on_meta = load_file(f"{folder}/large.safetensors", "meta", framework="pt", client=client)
assert all(tensor.device.type == "meta" for tensor in on_meta.values())

print("same")
