"""flatout.torch: datasets of an index, which `flatout volume build` has written, beside those of a listing; and a mount of one."""

import collections
import contextlib
import gc
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import time

import pytest

import flatout
import origins
from samples import number_of, taken_of

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler  # noqa: E402

from flatout.torch import IterableDataset, MapDataset, ReadAhead  # noqa: E402

COUNT = 90
KINDS = pytest.mark.parametrize("kind", [MapDataset, IterableDataset])


def flatout_volume(origin, *arguments, **named):
    """`flatout volume …` of an origin."""
    command = [origins.program(), "volume", *map(str, arguments), "--endpoint-url", origin.url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=origins.PATIENCE_S, **named)


def build(bucket, target, prefix="train/"):
    flatout_volume(bucket.origin, "build", bucket.url(prefix), target)
    return target


def key_of(number):
    """Folders and files whose order is not that of a walk: `a-0` comes before `a/0`, though the folder `a` comes before `a-0`."""
    return f"train/{('a', 'a-b', 'c/d', 'ü')[number % 4]}{'-' if number % 3 else '/'}{number:04}"


@pytest.fixture(scope="module")
def origin(started):
    return started()


@pytest.fixture(scope="module")
def filled(origin, tmp_path_factory):
    """Objects whose bytes say which they are, and the index of them."""
    bucket = origins.Bucket(origin, origins.new_name())
    for number in range(COUNT):
        bucket.put(key_of(number), b"%d" % number * 100)
    bucket.put("train/notes.txt", b"text")
    bucket.put("train/empty", b"")
    bucket.put("train/c/", b"")
    bucket.index = build(bucket, tmp_path_factory.mktemp("index") / "train.flat")
    return bucket


@pytest.fixture
def bucket(origin):
    """A new one of the origin that says what was asked of it."""
    return origins.Bucket(origin, origins.new_name())


@pytest.fixture
def client(origin):
    # It goes to workers with the dataset, and stays open for them.
    return flatout.Client(**origin.settings)


def seen(sample):
    return sample.url, sample.name, sample.index, sample.read()


def both(kind, bucket, client, **named):
    """The dataset of the listing, and that of the index."""
    listed = kind.from_prefix(bucket.url("train/"), client=client, **named)
    return listed, kind.from_index(bucket.index, client=client, **named)


def asked_of(origin, since=0):
    return [(line["method"], line["key"]) for line in origin.requests()[since:]]


@contextlib.contextmanager
def asking_nothing(origin):
    before = len(origin.requests())
    yield
    assert asked_of(origin, before) == []


@KINDS
@pytest.mark.parametrize("include", [None, "*0*"])
def test_an_index_is_as_good_as_a_listing(filled, client, kind, include):
    listed, indexed = both(kind, filled, client, include=include, transform=seen)
    assert list(listed.keys) == list(indexed.keys) and len(listed.keys) == len(indexed.keys) > 20
    # As a listing does, it tells sizes, ETags and times.
    with asking_nothing(filled.origin):
        told = {info.url: info for info in indexed.keys.infos()}
    known = {info.url: info for info in client.ls(filled.url("train/"), recursive=True)}
    for url in indexed.keys:
        assert all(getattr(told[url], name) == getattr(known[url], name) for name in ("key", "name", "size", "etag", "modified")), url
    numbers = list(range(len(listed.keys)))
    assert [indexed.keys.size(number) for number in numbers] == [listed.keys.size(number) for number in numbers]
    if kind is MapDataset:
        assert listed.__getitems__(numbers) == indexed.__getitems__(numbers)
        with indexed.open(3) as one, listed.open(3) as other:
            assert one.read() == other.read() and one.etag == indexed.keys.etag(3)
    else:
        assert list(listed) == list(indexed)


@pytest.mark.parametrize("workers, start", [(0, None), (2, "fork"), (1, "spawn")])
def test_the_order_by_seed_is_that_of_a_listing(filled, client, workers, start):
    named = {"include": "*[0-9]", "transform": number_of}
    maps, streams = both(MapDataset, filled, client, **named), both(IterableDataset, filled, client, shuffle=True, seed=5, **named)
    orders = []
    for place, started_by in enumerate(("fork", start)):
        context = multiprocessing.get_context(started_by) if workers else None
        of = {"batch_size": 8, "num_workers": workers, "multiprocessing_context": context, "persistent_workers": workers > 0}
        mapped = maps[place].loader(shuffle=True, seed=5, rank=1, world_size=2, **of)
        orders.append([[taken_of(loader) for _ in range(2)] for loader in (mapped, DataLoader(streams[place], **of))])
    assert orders[0] == orders[1]
    for epochs, count in zip(orders[0], (COUNT // 2, COUNT)):
        assert epochs[0] != epochs[1] and len(set(epochs[1])) == len(epochs[1]) == count


def test_a_distributed_sampler_takes_it(filled, client):
    listed, indexed = both(MapDataset, filled, client, include="*[0-9]", transform=number_of)
    taken = []
    for data in (listed, indexed):
        sampler = DistributedSampler(data, num_replicas=2, rank=1, seed=3)
        taken.append(taken_of(DataLoader(data, batch_sampler=ReadAhead(BatchSampler(sampler, 8, False)))))
    assert taken[0] == taken[1] and len(taken[0]) == COUNT // 2


def test_nothing_but_the_samples_is_asked_for(filled, client):
    with asking_nothing(filled.origin):
        data = MapDataset.from_index(filled.index, client=client)
        assert len(data) == COUNT + 2 and data.keys.size(5) and data.keys.etag(5).startswith('"')
    before = len(filled.origin.requests())
    taken_of(MapDataset.from_index(filled.index, include="*[0-9]", client=client, transform=number_of).loader(batch_size=10, shuffle=True))
    list(IterableDataset.from_index(filled.index, include="*[0-9]", client=client))
    asked = collections.Counter(asked_of(filled.origin, before))
    assert asked == {("GET", key_of(number)): 2 for number in range(COUNT)}


@pytest.mark.parametrize("size", [100, 9 << 20])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_object_that_was_replaced_is_an_error(bucket, client, tmp_path, workers, size):
    for number in range(4):
        bucket.put(f"train/{number}", b"a" * size)
    index = build(bucket, tmp_path / "train.flat")
    bucket.put("train/2", b"b" * size)
    for kind in (MapDataset, IterableDataset):
        data = kind.from_index(index, client=client, transform=lambda sample: len(sample.data))
        for read in (lambda: list(DataLoader(data, batch_size=1, num_workers=workers)), lambda: list(data)):
            with pytest.raises(flatout.ObjectChanged) as raised:
                read()
            assert f"s3://{bucket.name}/train/2" in str(raised.value) and f"the index {index} has" in str(raised.value)
    with pytest.raises(flatout.ObjectChanged), data.open(2) as file:
        file.read()
    # A new index has the new one.
    flatout_volume(bucket.origin, "update", index)
    assert list(MapDataset.from_index(index, client=client, transform=lambda sample: bytes(sample.data[:1])))[2] == b"b"


def test_an_index_that_was_replaced_is_not_taken_for_the_old_one(bucket, client, tmp_path):
    bucket.put("train/1", b"1")
    index = build(bucket, tmp_path / "train.flat")
    data = MapDataset.from_index(index, client=client)
    pickled = pickle.dumps(data)
    assert pickle.loads(pickled)[0].read() == b"1"
    bucket.put("train/0", b"0")
    flatout_volume(bucket.origin, "update", index)
    with pytest.raises(flatout.ObjectChanged, match="train.flat: the index was replaced since the dataset was made\n  hint: make"):
        pickle.loads(pickled)
    # Whoever has opened it has the old one.
    assert (len(data), data[0].read()) == (1, b"1")


def test_an_index_lies_beside_its_objects(filled, client):
    url = filled.url("train.flat")
    flatout_volume(filled.origin, "build", filled.url("train/"), url)
    before = len(filled.origin.requests())
    data = MapDataset.from_index(url, client=client)
    asked = asked_of(filled.origin, before)
    assert {key for _, key in asked} == {"train.flat"} and data.keys.index == url
    assert list(data.keys) == list(MapDataset.from_index(str(filled.index), client=client).keys)
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context=multiprocessing.get_context("spawn"))
    assert len(list(loader)) == COUNT + 2
    mine = [data.keys.path, data.keys._places_path]
    assert all(map(os.path.exists, mine))
    del data, loader
    assert not any(map(os.path.exists, mine))


def of_version(index, version):
    """An index that says that it is of another version, with the checksum of its first block."""
    block = bytearray(index[:4096])
    block[8:16] = version.to_bytes(4, "little") + bytes(4)
    block[12:16] = crc32c(block).to_bytes(4, "little")
    return bytes(block) + index[4096:]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def temporary_files():
    return set(pathlib.Path(os.environ.get("TMPDIR", "/tmp")).glob("flatout-[ip][nl]*-*"))


@pytest.mark.parametrize("is_remote", [False, True])
def test_what_is_no_whole_index_is_refused(filled, bucket, client, tmp_path, is_remote):
    whole = filled.index.read_bytes()
    head, later = bytearray(whole), bytearray(whole)
    head[1200] ^= 1
    later[4096 + 100] ^= 1
    cases = [
        (whole[:-1], flatout.Corrupt, "the index is truncated"),
        (whole[: len(whole) // 2], flatout.Corrupt, "the index is truncated"),
        (whole + b"more", flatout.Corrupt, "the index is longer than it says"),
        (bytes(head), flatout.Corrupt, "the index is damaged: block 0 does not have its checksum"),
        (bytes(later), flatout.Corrupt, "the index is damaged: block 1 does not have its checksum"),
        (of_version(whole, 2), flatout.UsageError, "the index has format 2, this program reads 1: use a newer program"),
        (b"", flatout.UsageError, "not an index"),
        (b"something else" * 1000, flatout.UsageError, "not an index"),
    ]
    gc.collect()
    before = temporary_files()
    for data, error, says in cases:
        name = tmp_path / "broken.flat"
        name.write_bytes(data)
        if is_remote:
            name = bucket.put("broken.flat", data)
        for kind in (MapDataset, IterableDataset):
            with pytest.raises(error, match=says) as raised:
                kind.from_index(name, client=client)
            assert raised.value.object == str(name) and str(name) in str(raised.value)
    missing = bucket.url("none.flat") if is_remote else tmp_path / "none.flat"
    with pytest.raises(FileNotFoundError, match="none.flat"):
        MapDataset.from_index(missing, client=client)
    with pytest.raises(flatout.UsageError, match="the index has no file that matches '\\*.png'\n  hint: `flatout volume ls` shows"):
        MapDataset.from_index(filled.index, include="*.png", client=client)
    # Tracebacks hold what they passed through.
    gc.collect()
    assert temporary_files() == before


MEMORY = """
import sys, flatout
from flatout.torch import MapDataset

def anonymous():
    # What this process has for itself, without what it maps.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

MapDataset.from_index(sys.argv[1])
before = anonymous()
data = MapDataset.from_index(sys.argv[2])
count = sum(1 for _ in data.keys)
for number in range(0, len(data), 20):
    data.keys.etag(number)
print(count, anonymous() - before)
"""


def test_an_index_of_many_files_takes_little_memory(started, tmp_path, python):
    count = 200_000
    origin = started("--synthetic", f"many/train/%07d.jpg=1000*{count}", "--synthetic", "many/some/%07d.jpg=1000*5")
    for name in ("some", "train"):
        flatout_volume(origin, "build", f"s3://many/{name}/", tmp_path / name)
    told = python(MEMORY, tmp_path / "some", tmp_path / "train")
    number, kib = map(int, told.split())
    # A table of them would take more than 40 bytes each, their objects in Python about 500.
    assert number == count and kib < 8192, told


class Files(torch.utils.data.Dataset):
    """The files of a folder, as PyTorch's own datasets read them."""

    def __init__(self, folder):
        self.paths = sorted(str(path) for path in pathlib.Path(folder).rglob("*") if path.is_file())

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return self.paths[index], file.read()


@contextlib.contextmanager
def mounted(origin, index, folder):
    """The folder, with the files of an index."""
    command = [origins.program(), "volume", "mount", "--foreground", index, folder, "--endpoint-url", origin.url]
    process = subprocess.Popen(list(map(str, command)), preexec_fn=origins._die_with_parent)
    try:
        until = time.monotonic() + origins.PATIENCE_S
        while not os.path.ismount(folder):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        yield folder
        subprocess.run([origins.program(), "umount", folder], check=True, timeout=origins.PATIENCE_S)
        assert process.wait(origins.PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        subprocess.run(["umount", "--lazy", folder], stderr=subprocess.DEVNULL, check=False)


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="needs root and /dev/fuse")
def test_a_training_loop_reads_the_files_of_a_mount(filled, client, tmp_path):
    indexed = MapDataset.from_index(filled.index, client=client, transform=seen)
    folder = tmp_path / "train"
    folder.mkdir()
    with mounted(filled.origin, filled.index, folder):
        files = Files(folder)
        named = [(os.path.relpath(path, folder), data) for path, data in files]
        # A dataset has the order of keys, and sorted paths are in that order, too.
        assert named == [(name, data) for _, name, _, data in indexed]
        runs = []
        for _ in range(2):
            chance = torch.Generator().manual_seed(7)
            loader = DataLoader(files, batch_size=8, shuffle=True, generator=chance, num_workers=2, collate_fn=list)
            runs.append([[name for batch in loader for name, _ in batch] for _ in range(2)])
        assert runs[0] == runs[1] and runs[0][0] != runs[0][1]
        assert sorted(runs[0][1]) == files.paths
