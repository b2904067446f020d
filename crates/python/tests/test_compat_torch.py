"""flatout.compat.oss with PyTorch: osstorchconnector's datasets in DataLoader, its safetensors and its distributed checkpoints."""

import io
import json
import logging
import multiprocessing
import pickle

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from flatout.compat import oss  # noqa: E402
from flatout.compat.oss import OssDCPFileSystem, OssIterableDataset, OssMapDataset, OssSafetensor  # noqa: E402

COUNT = 100
KINDS = pytest.mark.parametrize("kind", [OssMapDataset, OssIterableDataset])


@pytest.fixture(scope="module")
def images(serve):
    """Objects whose bytes say which they are."""
    bucket = origins.Bucket(serve, origins.new_name())
    for number in range(COUNT):
        bucket.put(f"images/{number:04}.bin", b"%d" % number * 100)
    bucket.put("images/", b"")
    return bucket


@pytest.fixture
def account(serve, tmp_path, monkeypatch):
    """The arguments of a connector, whose keys are in a file only."""
    for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text(json.dumps({"AccessKeyId": origins.ACCESS_KEY, "AccessKeySecret": origins.SECRET_KEY}))
    (tmp_path / "credentials").chmod(0o600)
    (tmp_path / "config").write_text(json.dumps({"datasetConfig": {"prefetchConcurrency": 8, "prefetchWorker": 2}}))
    named = {"cred_path": str(tmp_path / "credentials"), "config_path": str(tmp_path / "config"), "region": "cn-hangzhou"}
    return {"endpoint": serve.endpoint, **named}


def number_of(item):
    number = int(item.key[-8:-4])
    assert item.read() == b"%d" % number * 100 and item.size == len(b"%d" % number * 100)
    return number


def label_of(item):
    return number_of(item), item.label


def key_of(item):
    return "none" if item is None else item.key


def test_every_name_is_documented():
    for each in (OssDCPFileSystem, OssIterableDataset, OssMapDataset):
        assert each.__doc__ and all(getattr(each, name).__doc__ for name in dir(each) if name.startswith(("from_", "reader", "writer")))


@KINDS
@pytest.mark.parametrize("workers, start", [(0, None), (2, "fork"), (2, "spawn")])
def test_a_loader_reads_each_object_once(images, account, kind, workers, start):
    data = kind.from_prefix(images.url("images/", "oss"), transform=number_of, **account)
    assert len(data) == COUNT and data._client.settings["parallel"] == 8
    context = None if start is None else multiprocessing.get_context(start)
    for _ in range(1 if start == "spawn" else 2):
        loader = DataLoader(data, batch_size=7, num_workers=workers, multiprocessing_context=context)
        got = [int(number) for batch in loader for number in batch]
        assert sorted(got) == list(range(COUNT))
        assert got == sorted(got) or (kind is OssIterableDataset and workers)


@KINDS
def test_without_a_transform_the_objects_are_what_they_are(images, account, kind):
    data = kind.from_prefix(f"/{images.name}/images/000", **account)
    items = list(data) if kind is OssIterableDataset else [data[index] for index in range(len(data))]
    assert [item.key for item in items] == [f"/{images.name}/images/{number:04}.bin" for number in range(10)]
    assert [(number_of(item), item.label) for item in items] == [(number, "") for number in range(10)]
    # They leave a worker.
    loader = DataLoader(data, batch_size=None, num_workers=1)
    assert [(item.key, item.read()) for item in loader] == [(item.key, item.getvalue()) for item in items]


@KINDS
def test_objects_are_named(images, account, kind):
    uris = [images.url("images/0007.bin", "oss"), f"/{images.name}/images/0003.bin"]
    data = kind.from_objects(iter(uris), transform=key_of, **account)
    assert [key for batch in DataLoader(data, batch_size=2) for key in batch] == uris
    assert len(kind.from_objects(uris[0], **account)) == 1
    assert len(pickle.dumps(data)) < 1_000


def parse(reader):
    for line in reader.read().decode().splitlines():
        yield line.split(" ")


@KINDS
@pytest.mark.parametrize("place", ["file", "object"])
def test_a_manifest_names_objects_and_labels(images, account, tmp_path, kind, place):
    text = "".join(f"{number:04}.bin label {number % 3}\n".replace("label ", "") for number in range(9)).encode()
    if place == "file":
        (tmp_path / "manifest").write_bytes(text)
        url = str(tmp_path / "manifest")
    else:
        url = images.put("manifest", text).replace("s3:", "oss:")
    data = kind.from_manifest_file(url, parse, images.url("images/", "oss"), transform=label_of, **account)
    batches = [batch for batch in DataLoader(data, batch_size=9, num_workers=1)]
    assert batches[0][0].tolist() == list(range(9)) and list(batches[0][1]) == [str(number % 3) for number in range(9)]


@KINDS
def test_bad_arguments_are_refused(images, account, tmp_path, kind):
    def refused(cause, make, *arguments):
        with pytest.raises(flatout.UsageError, match=cause) as raised:
            make(*arguments, **account)
        return raised.value

    url = images.url("images/", "oss")
    assert refused("no object lies below this prefix", kind.from_prefix, url + "none").object == url + "none"
    refused("write oss://BUCKET/KEY", kind.from_prefix, "images/")
    refused("object_uris names no object", kind.from_objects, [])
    refused("write oss://BUCKET/KEY", kind.from_objects, [url + "0000.bin", "s3://bucket/key"])
    path = str(tmp_path / "manifest")
    refused("the manifest cannot be read: No such file or directory\n  hint: it is", kind.from_manifest_file, path, parse, url)
    (tmp_path / "manifest").write_text("")
    assert refused("the manifest names no object", kind.from_manifest_file, path, parse, url).object == path
    for made in ("0000.bin", ("a", "b", "c"), (1, "b"), None):
        cause = "manifest_parser made .*, not a name and a label"
        refused(cause, kind.from_manifest_file, path, lambda reader: [made], url)  # noqa: B023
    with pytest.raises(flatout.NotFound):
        kind.from_manifest_file(url + "none", parse, url, **account)
    account["endpoint"] = ""
    refused("endpoint is empty", kind.from_prefix, url)


def test_an_object_that_is_gone(images, account, caplog):
    uris = [images.url(f"images/{name}.bin", "oss") for name in ("0000", "none", "0001")]
    data = OssMapDataset.from_objects(uris, transform=key_of, **account)
    with caplog.at_level(logging.WARNING, "flatout"):
        assert data.__getitems__([0, 1, -1]) == [uris[0], "none", uris[2]] and data[1] == "none"
        assert OssMapDataset.from_objects(uris, **account)[1] is None
    assert len(caplog.records) == 3 and all("none.bin: no such object" in record.message for record in caplog.records)
    for index in (3, -4):
        with pytest.raises(IndexError):
            data[index]
        with pytest.raises(IndexError):
            data.__getitems__([index])
    stream = iter(OssIterableDataset.from_objects(uris, transform=key_of, **account))
    assert next(stream) == uris[0]
    with pytest.raises(flatout.NotFound, match="none.bin"):
        next(stream)


def test_another_failure_is_no_object_that_is_gone(images, account):
    data = OssMapDataset.from_prefix(images.url("images/", "oss"), **account)
    data._client.close()
    for read in (lambda: data[0], lambda: data.__getitems__([0])):
        with pytest.raises(flatout.Cancelled):
            read()


def test_an_exception_of_a_transform_is_raised(images, account):
    data = OssIterableDataset.from_prefix(images.url("images/", "oss"), transform=int, **account)
    with pytest.raises(TypeError):
        list(DataLoader(data, num_workers=1))


def test_a_checkpoint_is_saved_and_loaded(images, account):
    checkpoint, state = oss.OssCheckpoint(**account), {"weights": torch.randn(300, 300), "step": 5}
    with checkpoint.writer(images.url("epoch.1", "oss")) as file:
        torch.save(state, file)
    with checkpoint.reader(images.url("epoch.1", "oss")) as file:
        assert torch.equal(torch.load(file)["weights"], state["weights"])


def test_tensors_are_saved_and_loaded(images, account):
    model, url = pickle.loads(pickle.dumps(OssSafetensor(**account))), images.url("model.safetensors", "oss")
    tensors = {"b": torch.randn(30, 40), "a": torch.arange(7, dtype=torch.bfloat16)}
    assert model.save_file(tensors, url, {"format": "pt"}) is None
    for device in ("cpu", torch.device("cpu")):
        loaded = model.load_file(url, device)
        assert loaded.keys() == tensors.keys() and all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    with model.safe_open(url) as file:
        assert sorted(file.offset_keys()) == file.keys() == ["a", "b"] and file.metadata() == {"format": "pt"}
        assert torch.equal(file.get_tensor("a"), tensors["a"]) and torch.equal(file.get_slice("b")[3:5], tensors["b"][3:5])
    with pytest.raises(flatout.UsageError, match="write oss://BUCKET/KEY"):
        model.load_file("s3://bucket/key")


@pytest.mark.filterwarnings("ignore:torch.distributed is unavailable or uninitialized")
def test_distributed_checkpoints_are_saved_and_loaded(images, account):
    system, state = pickle.loads(pickle.dumps(OssDCPFileSystem(**account))), {"weights": torch.randn(30, 40), "step": 5}
    writer = system.writer(images.url("run", "oss"), thread_count=4, single_file_per_rank=False)
    dcp.save(state, storage_writer=writer)
    dcp.async_save(state, storage_writer=system.writer(f"/{images.name}/run-2")).result()
    for name in ("run", "run-2"):
        loaded = {"weights": torch.zeros(30, 40), "step": 0}
        dcp.load(loaded, storage_reader=system.reader(images.url(name, "oss")))
        assert torch.equal(loaded["weights"], state["weights"]) and loaded["step"] == 5
    with pytest.raises(CheckpointException, match="AlreadyExists"):
        dcp.save(state, storage_writer=system.writer(images.url("run", "oss"), overwrite=False))
    with pytest.raises(TypeError, match="sync_file"):
        system.writer(images.url("run", "oss"), sync_file=True)
    with pytest.raises(flatout.UsageError, match="write oss://BUCKET/KEY"):
        system.reader("run")
    with pytest.raises(flatout.UsageError, match="endpoint is empty"):
        OssDCPFileSystem("")


def test_a_manifest_of_imagenet(images, account):
    url = images.put("imagenet", b"0001.bin\tone\n0002.bin\n").replace("s3:", "oss:")
    data = OssMapDataset.from_manifest_file(url, oss.imagenet_manifest_parser, images.url("images/", "oss"), transform=label_of, **account)
    assert [data[0], data[1]] == [(1, "one"), (2, "")]
    with pytest.raises(io.UnsupportedOperation):
        OssMapDataset.from_objects(url, **account)[0].write(b"")
