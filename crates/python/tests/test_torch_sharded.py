"""flatout.torch.load_sharded: what several ranks fetch of one model, and tensors that are filled where they are."""

import os
import subprocess
import sys

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402

from flatout.safetensors import UnknownTensor, stream_tensors  # noqa: E402
from flatout.torch import load_sharded, stream_sharded  # noqa: E402

CUT = {"*.rows": 0, "*.columns": 1, "*.deep": -1, "*.tall": 1, "*.bias": 0}


def tensors():
    chance = torch.Generator().manual_seed(3)
    return {
        "1.rows": torch.randn(1000, 700, generator=chance),
        "1.columns": torch.randn(1001, 803, generator=chance).to(torch.bfloat16),
        "1.whole": torch.randn(700, 701, generator=chance),
        "1.bias": torch.randn(1003, generator=chance),
        "1.norm": torch.randn(7, generator=chance),
        "2.deep": torch.randn(31, 17, 512, generator=chance),
        # Few long rows: their parts are ranges of their own.
        "2.tall": torch.randn(2, 600_000, generator=chance),
        # Uneven: one rank's part is large enough for ranges of its own, another's is not.
        "2.uneven.columns": torch.randn(4, 5, 30_000, generator=chance),
        "2.small.columns": torch.randn(9, 30, generator=chance),
        "2.rows": torch.randn(400, 300, generator=chance).to(torch.float8_e4m3fn),
        "2.nothing.rows": torch.empty(0, 5),
    }


def wanted(name, tensor, rank, ranks):
    dimension = {"rows": 0, "columns": 1, "deep": -1, "tall": 1, "bias": 0}.get(name.rpartition(".")[2])
    return tensor if dimension is None else torch.tensor_split(tensor, ranks, dimension)[rank]


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.contiguous().reshape(-1).view(torch.uint8).equal(other.contiguous().reshape(-1).view(torch.uint8))


@pytest.fixture
def serve(started):
    return started()


@pytest.fixture
def model(serve):
    bucket = origins.Bucket(serve, origins.new_name())
    for shard in "12":
        part = {name: tensor for name, tensor in tensors().items() if name.startswith(shard)}
        bucket.put(f"model/model-{shard}.safetensors", safetensors.torch.save(part))
    return bucket.url("model/")


@pytest.fixture
def client(serve):
    return flatout.Client(**serve.settings)


def test_one_rank_has_all_of_it(client, model):
    found = load_sharded(model, CUT, client=client)
    assert list(found) == list(flatout.safetensors.load_model(model, framework="pt", client=client))
    assert all(same(found[name], tensor) for name, tensor in tensors().items())
    some = load_sharded(model, select="1.*", client=client)
    assert set(some) == {name for name in tensors() if name.startswith("1")}


def test_what_cannot_be_cut_is_refused(client, model):
    with pytest.raises(flatout.UsageError, match=r"'1.bias' is \(1003,\): it has no dimension 1"):
        load_sharded(model, lambda name, shape: 1, client=client)
    with pytest.raises(flatout.UsageError, match="no tensor matches '\\*.wieght', which is to be cut"):
        load_sharded(model, {"*.rows": 0, "*.wieght": 0}, client=client)
    with pytest.raises(flatout.UsageError, match="no tensor matches 'layer"):
        stream_tensors(model, select="layer*", client=client)
    with pytest.raises(flatout.NotFound):
        load_sharded(model + "none/", client=client)


RANK = """
import os, sys
import torch, torch.distributed as dist
import flatout
from flatout.torch import load_sharded, stream_sharded
sys.path.insert(0, sys.argv[4])
from test_torch_sharded import CUT, same, tensors, wanted

url, endpoint, store = sys.argv[1:4]
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
client = flatout.Client(endpoint_url=endpoint)
for name, tensor in stream_sharded(url, CUT, client=client):
    assert same(tensor, wanted(name, tensors()[name], rank, ranks)), name
shared = load_sharded(url, client=client)
try:
    load_sharded(url, select="1.rows" if rank else "*", client=client)
    raise AssertionError("other arguments are refused")
except flatout.UsageError as error:
    assert "different arguments" in str(error)
assert all(same(shared[name], tensor) for name, tensor in tensors().items())
sys.stdout.flush()
# Gloo of Debian 13 sometimes waits for ever, or aborts, where threads of it are to end.
os._exit(0)
"""


def test_ranks_fetch_each_byte_once(serve, model, tmp_path):
    script, folder = tmp_path / "rank.py", os.path.dirname(__file__)
    script.write_text(RANK)
    size = sum(tensor.nbytes for tensor in tensors().values())
    for ranks in (2, 3):
        before = len(serve.requests())
        env = {**os.environ, "WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, script, model, serve.url, tmp_path / f"store-{ranks}", folder]
        running = [subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(ranks)]
        try:
            told = [each.communicate(timeout=400)[0].decode() for each in running]
        finally:
            [each.kill() for each in running]
        assert [each.returncode for each in running] == [0] * ranks, "\n".join(told)
        # Twice each, and by each rank three times the heads of both files, and small tensors.
        fetched = sum(line["bytes"] for line in serve.requests()[before:] if line["method"] == "GET")
        assert size * 2 <= fetched < size * 2.05 + ranks * 6 * (512 << 10), (fetched / size, size)


def test_tensors_are_filled_where_they_are(client, model):
    into = {name: torch.zeros_like(tensor) for name, tensor in tensors().items() if name != "1.norm"}
    addresses = {name: tensor.data_ptr() for name, tensor in into.items()}
    seen = dict(stream_tensors(model, into=into, client=client))
    assert seen.keys() == into.keys() and all(seen[name] is tensor for name, tensor in into.items())
    assert all(same(tensor, tensors()[name]) and tensor.data_ptr() == addresses[name] for name, tensor in into.items())
    # Another type, another layout, a part of others, a parameter.
    wide = torch.zeros(1000, 1400)
    others = {"1.rows": wide[:, ::2], "1.columns": torch.zeros(1001, 803), "1.whole": torch.nn.Parameter(torch.zeros(700, 701))}
    with torch.no_grad():
        list(stream_tensors(model, into=others, order="names", client=client))
    assert all(torch.equal(target, tensors()[name].to(target.dtype)) for name, target in others.items())
    assert not wide[:, 1::2].any()
    # Tied ones, and parameters where gradients are on.
    tied = torch.zeros(1000, 700, requires_grad=True)
    both = {"1.rows": tied, "1.bias": torch.nn.Parameter(torch.zeros(1003, dtype=torch.float64))}
    list(stream_tensors(model, into={**both, "1.whole": tied.detach().view(-1)[: 700 * 701].view(700, 701)}, client=client))
    assert torch.equal(both["1.bias"], tensors()["1.bias"].double()) and torch.equal(tied.detach().view(-1)[: 700 * 701], tensors()["1.whole"].view(-1))
    arrays = {"2.tall": np.zeros((2, 600_000), np.float32), "1.rows": np.zeros((1000, 700), np.float64)}
    list(stream_tensors(model, into=arrays, client=client))
    assert all(np.array_equal(array, tensors()[name].numpy().astype(array.dtype)) for name, array in arrays.items())


def test_what_cannot_be_filled_is_refused_before_anything_is(client, model):
    good = torch.zeros(7)
    for name, target, error, told in [
        ("1.lacks", torch.zeros(1), UnknownTensor, "no tensor '1.lacks'"),
        ("1.rows", torch.zeros(700, 1000), flatout.UsageError, r"is \(1000, 700\)"),
        ("1.rows", [1, 2], flatout.UsageError, "'1.rows' is"),
    ]:
        with pytest.raises(error, match=told):
            stream_tensors(model, into={"1.norm": good, name: target}, client=client)
    frozen = np.zeros(7, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(flatout.UsageError, match="read-only"):
        stream_tensors(model, into={"1.norm": frozen}, client=client)
    with pytest.raises(flatout.UsageError, match="for each framework"):
        stream_tensors(model, into={"1.norm": good, "1.bias": np.zeros(1003, np.float32)}, client=client)
    with pytest.raises(flatout.UsageError, match="progress"):
        stream_tensors(model, into={"1.norm": good}, progress=True, client=client)
    assert not good.any()


def test_nothing_is_written_once_the_iterator_is_closed(client, model):
    into = {name: torch.zeros_like(tensor) for name, tensor in tensors().items()}
    tensors_of = stream_tensors(model, into=into, client=client)
    next(tensors_of)
    tensors_of.close()
    before = {name: tensor.clone() for name, tensor in into.items()}
    assert client.read(model + "model-1.safetensors", 0, 8)
    assert all(same(tensor, before[name]) for name, tensor in into.items())
