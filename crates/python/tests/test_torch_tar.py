"""flatout.torch: samples in tar files."""

import io
import multiprocessing
import pickle
import tarfile
import time

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from flatout.torch import InvalidTar, TarDataset  # noqa: E402

SHARDS, PER_SHARD = 12, 10
ALL = [(shard, number) for shard in range(SHARDS) for number in range(PER_SHARD)]


def name_of(shard, number):
    """Every fourth is longer than a header of tar's has room for."""
    return f"train/{'long-' * 30 if number % 4 == 0 else ''}{shard:02}-{number:04}"


def packed(members, format=tarfile.PAX_FORMAT):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def shard_of(shard, format):
    members = []
    for number in range(PER_SHARD):
        name = name_of(shard, number)
        members += [(f"{name}.JPG", b"%d" % number * 1000), (f"{name}.seg.txt", name.encode())]
    return packed(members, format)


@pytest.fixture(scope="module")
def shards(serve):
    """Half of them name long members as POSIX does, half as GNU does."""
    bucket = origins.Bucket(serve, origins.new_name())
    for shard in range(SHARDS):
        bucket.put(f"train/{shard:02}.tar", shard_of(shard, (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)[shard % 2]))
    bucket.put("train/notes.txt", b"text")
    return bucket


@pytest.fixture
def client(serve):
    # It goes to workers with the dataset, and stays open for them.
    return flatout.Client(**serve.settings)


def place_of(sample):
    assert list(sample) == ["__key__", "__url__", "jpg", "seg.txt"]
    assert sample["seg.txt"].decode() == sample["__key__"]
    shard, _, number = sample["__key__"].rpartition("/")[2].removeprefix("long-" * 30).partition("-")
    assert sample["__url__"].endswith(f"{shard}.tar") and sample["jpg"] == b"%d" % int(number) * 1000
    return int(shard), int(number)


def dataset(shards, client, **named):
    named.setdefault("transform", place_of)
    return TarDataset.from_prefix(shards.url("train/"), include="*.tar", client=client, **named)


def places(loader):
    return [place for batch in loader for place in zip(*(map(int, part) for part in batch))]


def test_samples_are_members_of_one_name(shards, client, tmp_path):
    assert list(dataset(shards, client)) == ALL
    urls = [shards.url(f"train/{shard:02}.tar") for shard in (3, 1)]
    assert [shard for shard, _ in TarDataset.from_urls(urls, client=client, transform=place_of)] == [3] * PER_SHARD + [1] * PER_SHARD
    (tmp_path / "manifest").write_text("05.tar\n")
    data = TarDataset.from_manifest(tmp_path / "manifest", base=shards.url("train/"), client=client)
    sample = next(iter(data))
    assert sample["__key__"] == name_of(5, 0) and type(sample["jpg"]) is bytes
    (tmp_path / "manifest").write_text("05.tar\t1\n")
    with pytest.raises(flatout.UsageError, match="here each object has many samples"):
        TarDataset.from_manifest(tmp_path / "manifest", base=shards.url("train/"), client=client)


def test_names_are_taken_apart_as_webdataset_does(client, bucket):
    members = [("./a.b/1.cls", b"1"), ("./a.b/1.seg.PNG", b"2"), ("a.b/.hidden", b""), ("README", b""), ("a.b/2.cls", b"3"), ("a.b/1.cls", b"4")]
    data = TarDataset.from_urls([bucket.put("names.tar", packed(members))], client=client)
    url = bucket.url("names.tar")
    assert list(data) == [
        {"__key__": "./a.b/1", "__url__": url, "cls": b"1", "seg.png": b"2"},
        {"__key__": "a.b/2", "__url__": url, "cls": b"3"},
        {"__key__": "a.b/1", "__url__": url, "cls": b"4"},
    ]
    twice = bucket.put("twice.tar", packed([("1.cls", b""), ("1.CLS", b"")]))
    with pytest.raises(InvalidTar, match="twice.tar: sample '1' has two members 'cls'"):
        list(TarDataset.from_urls([twice], client=client))
    empty = bucket.put("empty.tar", packed([]))
    assert list(TarDataset.from_urls([empty], client=client)) == []


@pytest.mark.parametrize("workers, start", [(0, None), (2, "fork"), (2, "spawn")])
def test_each_sample_is_in_one_rank_and_one_worker(shards, client, workers, start):
    context = None if start is None else multiprocessing.get_context(start)
    seen = []
    for rank in range(3):
        data = dataset(shards, client, shuffle=True, seed=3, rank=rank, world_size=3)
        got = places(DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=context))
        assert len(got) == len(ALL) // 3
        seen += got
    assert sorted(seen) == ALL and seen != ALL


def test_a_rank_without_shards_is_an_error_and_a_worker_is_idle(shards, client):
    with pytest.raises(flatout.UsageError, match="12 shards for 13 ranks: some would have no samples"):
        dataset(shards, client, rank=0, world_size=13)
    data = dataset(shards, client, rank=1, world_size=12)
    assert sorted(places(DataLoader(data, batch_size=4, num_workers=3))) == [(1, number) for number in range(PER_SHARD)]


def test_the_order_is_that_of_seed_and_epoch(shards, client):
    order = lambda **named: list(dataset(shards, client, shuffle=True, **named))  # noqa: E731
    assert order(seed=1) == order(seed=1) != order(seed=2)
    data = dataset(shards, client, shuffle=True, seed=1)
    first, second = list(data), list(data)
    assert first != second and sorted(first) == sorted(second) == ALL
    data.set_epoch(1)
    assert list(data) == second


@pytest.mark.parametrize("taken", [0, 1, 4, 5, PER_SHARD - 1, PER_SHARD, PER_SHARD + 1, 37, len(ALL)])
def test_an_epoch_goes_on_where_it_was(shards, client, taken):
    data = dataset(shards, client, shuffle=True, seed=9)
    whole = list(data)
    data.set_epoch(0)
    stream = iter(data)
    begun = [next(stream) for _ in range(taken)]
    state = pickle.loads(pickle.dumps(data.state_dict()))
    again = dataset(shards, client, shuffle=True, seed=9)
    again.load_state_dict(state)
    assert begun + list(again) == whole
    # Then comes the next epoch.
    data.set_epoch(1)
    assert list(again) == list(data)
    with pytest.raises(flatout.UsageError, match="the state is of another seed"):
        dataset(shards, client, shuffle=True, seed=8).load_state_dict(state)


def test_iterators_at_the_same_time_do_not_disturb_each_other(shards, client):
    data = dataset(shards, client)
    assert list(zip(data, data)) == [(place, place) for place in ALL]
    for _ in zip(range(13), data):
        pass
    data.load_state_dict(data.state_dict())
    first, second = iter(data), iter(data)
    assert next(first) == next(second) == ALL[13] and list(first) == list(second) == ALL[14:]


def test_a_sample_that_cannot_be_made_comes_again(shards, client):
    def fail_at_5(sample):
        if place_of(sample) == (0, 5) and not is_mended:
            raise KeyError(sample["__key__"])
        return place_of(sample)

    is_mended = False
    data = dataset(shards, client, transform=fail_at_5)
    with pytest.raises(KeyError):
        list(data)
    data.load_state_dict(data.state_dict())
    is_mended = True
    assert list(data) == ALL[5:]


def test_what_was_read_is_not_read_again(started):
    origin = started()
    bucket = origins.Bucket(origin, origins.new_name())
    url = bucket.put("large.tar", packed([(f"{number:03}.bin", bytes([number]) * (1 << 20)) for number in range(64)]))
    client = flatout.Client(**origin.settings)
    data = TarDataset.from_urls([url], client=client)
    for _ in zip(range(56), data):
        pass
    state = data.state_dict()
    before = len(origin.requests())
    data.load_state_dict(state)
    assert [sample["__key__"] for sample in data] == [f"{number:03}" for number in range(56, 64)]
    read = [line for line in origin.requests()[before:] if line["method"] == "GET"]
    assert sum(line["bytes"] for line in read) < 9 << 20, read


def test_the_next_shard_is_begun_before_this_one_ends(started):
    origin = started()
    bucket = origins.Bucket(origin, origins.new_name())
    urls = [bucket.put(f"{shard}.tar", packed([(f"{number}.bin", bytes(1 << 19)) for number in range(4)])) for shard in range(4)]
    stream = iter(TarDataset.from_urls(urls, client=flatout.Client(**origin.settings)))
    next(stream)
    eventually(lambda: {line["key"] for line in origin.requests() if line["method"] == "GET"} == {f"{shard}.tar" for shard in range(4)})
    assert len(list(stream)) == 15
    assert sum(line["bytes"] for line in origin.requests() if line["method"] == "GET") < 10 << 20


def eventually(is_so):
    until = time.monotonic() + origins.PATIENCE_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 3, 11])
def test_a_stateful_loader_goes_on_in_the_middle(shards, client, workers, taken):
    def loader():
        return StatefulDataLoader(dataset(shards, client, shuffle=True, seed=4), batch_size=7, num_workers=workers)

    whole = places(loader())
    assert sorted(whole) == ALL
    first = loader()
    stream = iter(first)
    begun = places(next(stream) for _ in range(taken))
    state = pickle.loads(pickle.dumps(first.state_dict()))
    del stream
    second = loader()
    second.load_state_dict(state)
    assert begun + places(second) == whole


def test_a_shard_that_is_replaced_is_an_error(client, bucket):
    def put(byte):
        return bucket.put("shard.tar", packed([(f"{number}.bin", byte * (8 << 20)) for number in range(16)]))

    # Less memory than the shard.
    client = flatout.Client(**{**client.settings, "memory": "64MiB"})
    data = TarDataset.from_urls([put(b"a")], client=client)
    stream = iter(data)
    assert next(stream)["bin"] == b"a" * (8 << 20)
    state = data.state_dict()
    put(b"b")
    with pytest.raises(flatout.ObjectChanged, match="shard.tar"):
        assert all(sample["bin"][0] == ord("a") for sample in stream)
    data.load_state_dict(state)
    with pytest.raises(flatout.ObjectChanged, match="shard.tar: it was replaced since the state was taken"):
        list(data)
    data.set_epoch(0)
    assert next(iter(data))["bin"][0] == ord("b")


WHOLE = packed([("1.bin", bytes(1000)), ("2.bin", bytes(1000))])
LONG = packed([("1.bin", bytes(1000)), ("long" * 50 + ".bin", bytes(1000))], tarfile.GNU_FORMAT)


def linked(type):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("1.bin"))
        for name in ("latest", "2.bin"):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = type, "1.bin"
            tar.addfile(member)
    return file.getvalue()


@pytest.mark.parametrize(
    "body, error, says",
    [
        (b"", InvalidTar, "this is no tar file: empty file"),
        (b"text", InvalidTar, "this is no tar file: truncated header"),
        (b"text" * 1000, InvalidTar, "this is no tar file"),
        # In the content, in the padding behind it, between members, and in the header of one.
        (WHOLE[:1000], InvalidTar, "it is truncated: its 1000 bytes end"),
        (WHOLE[:1520], InvalidTar, "it is truncated"),
        (WHOLE[:1536], InvalidTar, "it is truncated"),
        (WHOLE[:1600], InvalidTar, "it is truncated"),
        (WHOLE[:3072], InvalidTar, "it is truncated"),
        (LONG[: 1536 + 600], InvalidTar, "it is truncated"),
        (WHOLE[:1536] + b"x" * 5000, InvalidTar, "there is no header of a member at byte 1536"),
        # Several in one, and what is none.
        (WHOLE * 2, InvalidTar, "it goes on behind the mark that ends it, at byte 3072, like several tar files in one"),
        (WHOLE + bytes(3 << 20) + b"x", InvalidTar, "it goes on behind the mark that ends it"),
        (linked(tarfile.LNKTYPE), flatout.Unsupported, "member '2.bin' is a link\n  hint: write the shard again"),
        (linked(tarfile.SYMTYPE), flatout.Unsupported, "member '2.bin' is a link"),
        (b"\x1f\x8b\x08\0" + bytes(2000), flatout.Unsupported, "it is compressed by gzip\n  hint: store the shard as it is"),
        (b"\x28\xb5\x2f\xfd" + bytes(2000), flatout.Unsupported, "it is compressed by zstd"),
    ],
)
def test_what_is_no_whole_tar_file_is_an_error(client, bucket, body, error, says):
    data = TarDataset.from_urls([bucket.put("broken.tar", body)], client=client)
    with pytest.raises(error, match=f"broken.tar: {says}") as raised:
        list(data)
    assert raised.value.object.endswith("broken.tar")
    with pytest.raises(error, match=says):
        list(DataLoader(data, batch_size=None, num_workers=1))
