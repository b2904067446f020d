"""flatout.torch against a server that nobody here wrote."""

import io
import tarfile

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402

from flatout.safetensors import save_file, save_model  # noqa: E402
from flatout.torch import Checkpoint, IterableDataset, MapDataset, RowMapDataset, TarDataset, load_sharded  # noqa: E402
from flatout.torch.dcp import Reader, Writer, gc_old  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is unavailable or uninitialized")


@pytest.fixture
def client(minio):
    return flatout.Client(**minio.settings)


@pytest.fixture
def bucket(minio):
    return origins.Bucket(minio, origins.new_name())


def data_of(sample):
    return int(bytes(sample.data))


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets(client, bucket, workers):
    for number in range(70):
        bucket.put(f"samples/{number:03}", b"%d" % number)
    named = {"transform": data_of, "client": client}
    loader = MapDataset.from_prefix(bucket.url("samples/"), **named).loader(batch_size=8, shuffle=True, num_workers=workers)
    first, second = ([int(each) for batch in loader for each in batch] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(70)) and first != second
    found = torch.utils.data.DataLoader(IterableDataset.from_prefix(bucket.url("samples/"), **named), batch_size=8, num_workers=workers)
    assert sorted(int(each) for batch in found for each in batch) == list(range(70))


def test_samples_in_tar_and_safetensors_files(client, bucket):
    for shard in range(3):
        body = io.BytesIO()
        with tarfile.open(fileobj=body, mode="w") as archive:
            for number in range(5):
                member = tarfile.TarInfo(f"{shard}{number}.txt")
                member.size = 2
                archive.addfile(member, io.BytesIO(b"%d%d" % (shard, number)))
        bucket.put(f"tar/{shard}.tar", body.getvalue())
        save_file({"x": torch.arange(6).view(3, 2) + 10 * shard}, bucket.url(f"rows/{shard}.safetensors"), client=client)
    samples = list(TarDataset.from_prefix(bucket.url("tar/"), client=client))
    assert [bytes(sample["txt"]).decode() for sample in samples] == [sample["__key__"] for sample in samples] and len(samples) == 15
    rows = RowMapDataset.from_prefix(bucket.url("rows/"), client=client)
    assert [row["x"].tolist() for row in rows.__getitems__([8, 0, 4])] == [[24, 25], [0, 1], [12, 13]]


def test_checkpoints_and_models(client, bucket):
    state = {"w": torch.randn(2_000_000), "b": torch.randn(7), "step": 3}
    Checkpoint(bucket.url("run"), client=client).save(state, "whole.pt")
    assert torch.equal(Checkpoint(bucket.url("run"), client=client).load("whole.pt")["w"], state["w"])
    for step in (1, 2, 3):
        dcp.save({**state, "step": step}, storage_writer=Writer(bucket.url(f"run/{step}"), client=client))
    assert gc_old(bucket.url("run"), 2, client=client) == [bucket.url("run/1")]
    into = {"w": torch.zeros(2_000_000), "b": torch.zeros(7), "step": 0}
    dcp.load(into, storage_reader=Reader(bucket.url("run/3"), client=client))
    assert torch.equal(into["w"], state["w"]) and torch.equal(into["b"], state["b"]) and into["step"] == 3
    with pytest.raises(dcp.api.CheckpointException, match="there already"):
        dcp.save(state, storage_writer=Writer(bucket.url("run/3"), overwrite=False, client=client))
    save_model({"w": state["w"], "b": state["b"]}, bucket.url("model"), max_shard_size=4_000_000, client=client)
    assert torch.equal(load_sharded(bucket.url("model/"), client=client)["w"], state["w"])
