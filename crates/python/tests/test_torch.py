"""flatout.torch: datasets in DataLoader, with workers of every kind, and checkpoints."""

import multiprocessing
import os
import pickle
import signal
import threading
import time

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, RandomSampler  # noqa: E402

import flatout.torch  # noqa: E402
from flatout.torch import Checkpoint, IterableDataset, KeyTable, MapDataset, Sample  # noqa: E402

COUNT = 300


@pytest.fixture(scope="module")
def images(serve):
    """Objects whose bytes say which they are."""
    bucket = origins.Bucket(serve, origins.new_name())
    for number in range(COUNT):
        bucket.put(f"images/{number:04}.bin", b"%d" % number * 100)
    bucket.put("images/", b"")
    bucket.put("images/notes.txt", b"text")
    return bucket


@pytest.fixture
def client(serve):
    # It goes to workers with the dataset, and stays open for them.
    return flatout.Client(**serve.settings)


def number_of(sample):
    number = int(sample.name[:4])
    assert sample.data == b"%d" % number * 100 and sample.url.endswith(sample.name)
    return number


def name_of(sample):
    return sample.name


def dataset(kind, images, client, **named):
    named.setdefault("transform", number_of)
    return kind.from_prefix(images.url("images/"), include="*.bin", client=client, **named)


def test_every_name_is_documented():
    for name in flatout.torch.__all__:
        shown = getattr(flatout.torch, name)
        assert shown.__doc__, name
        assert all(getattr(shown, each).__doc__ for each in vars(shown) if not each.startswith("_") and callable(getattr(shown, each))), name


@pytest.mark.parametrize("workers, start", [(0, None), (2, "fork"), (2, "spawn")])
def test_a_loader_reads_objects_in_the_order_of_its_sampler(images, client, workers, start):
    data = dataset(MapDataset, images, client)
    assert len(data) == COUNT and data[7] == 7 and data[-1] == COUNT - 1
    context = None if start is None else multiprocessing.get_context(start)
    order = [int(index) for index in RandomSampler(data, generator=torch.Generator().manual_seed(5))]
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(5))
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=workers, multiprocessing_context=context)
    got = [int(number) for batch in loader for number in batch]
    assert got == order and sorted(got) == list(range(COUNT))


def test_a_batch_is_read_at_once(started):
    origin = started()
    bucket = origins.Bucket(origin, origins.new_name())
    for number in range(64):
        bucket.put(f"{number:04}.bin", b"%d" % number * 100)
    data = MapDataset.from_prefix(bucket.url(""), client=flatout.Client(**origin.settings), transform=number_of)
    listed = len([line for line in origin.requests() if line["method"] == "GET"])
    assert data.__getitems__([5, 3, -1, 5]) == [5, 3, 63, 5]
    assert len([line for line in origin.requests() if line["method"] == "GET"]) == listed + 4
    for wrong in (64, -65):
        with pytest.raises(IndexError):
            data[wrong]


def test_a_sample_is_what_its_transform_gets(images, client):
    data = MapDataset.from_prefix(images.url("images/"), client=client)
    sample = data[COUNT]
    assert isinstance(sample, Sample) and (sample.name, sample.index, sample.label, sample.read()) == ("notes.txt", COUNT, None, b"text")
    again = pickle.loads(pickle.dumps(sample))
    assert (again.url, again.read()) == (sample.url, b"text")
    with data.open(COUNT) as file:
        assert file.read(2) == b"te"
    # The mark of a folder is none.
    assert len(data) == COUNT + 1
    with pytest.raises(flatout.UsageError, match="no object lies below this prefix that matches"):
        MapDataset.from_prefix(images.url("images/"), include="*.png", client=client)


def test_a_dataset_pickles_without_its_keys(client):
    urls = [f"s3://bucket/{number:08}" for number in range(100_000)]
    data = MapDataset.from_urls(urls, client=client)
    assert len(pickle.dumps(data)) < 1_000
    again = pickle.loads(pickle.dumps(data))
    assert (len(again), again.keys.url(99_999), again.keys.size(5)) == (100_000, urls[-1], None)
    assert list(again.keys)[:1000] == urls[:1000]
    path = data.keys.path
    del data
    assert not os.path.exists(path)
    # A process that has opened the table keeps its map.
    assert again.keys.url(0) == urls[0]


def test_ranks_list_once(started, tmp_path):
    origin = started("--latency", "50ms")
    bucket = origins.Bucket(origin, origins.new_name())
    for number in range(20):
        bucket.put(f"{number}", b"1")
    settings, index = origin.settings, tmp_path / "keys"
    found = []

    def rank():
        data = MapDataset.from_prefix(bucket.url(""), index=index, client=flatout.Client(**settings))
        found.append(list(data.keys))

    threads = [threading.Thread(target=rank) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [sorted(bucket.url(f"{number}") for number in range(20))] * 8
    lists = [line for line in origin.requests() if line["method"] == "GET" and not line["key"]]
    assert len(lists) == 1, lists
    with pytest.raises(flatout.UsageError, match="the table of keys there is that of s3://"):
        MapDataset.from_prefix(bucket.url("1"), index=index, client=flatout.Client(**settings))
    whole = index.read_bytes()
    for broken in (b"", b"something else", whole[:-3], whole[:60], whole[:50]):
        index.write_bytes(broken)
        with pytest.raises(flatout.UsageError, match="remove it, and it is made anew"):
            KeyTable(index)


def test_an_index_is_of_one_pattern_and_never_empty(client, bucket, tmp_path):
    index = tmp_path / "keys"
    with pytest.raises(flatout.UsageError, match="no object lies below this prefix"):
        MapDataset.from_prefix(bucket.url(""), index=index, client=client)
    assert not index.exists()
    for name in ("1.jpg", "1.png"):
        bucket.put(name, b"1")
    names = lambda **named: [url.rpartition("/")[2] for url in MapDataset.from_prefix(bucket.url(""), client=client, **named).keys]  # noqa: E731
    assert names(include="*.jpg", index=index) == names(include="*.jpg", index=index) == ["1.jpg"]
    for named in ({"include": "*.png"}, {}):
        with pytest.raises(flatout.UsageError, match="'\\*.jpg', and not of s3://") as raised:
            names(index=index, **named)
        assert raised.value.object == str(index)
    index.unlink()
    assert names(index=index) == names(index=index, include="*") == ["1.jpg", "1.png"]


def test_a_manifest_names_objects_as_they_are(client, bucket, tmp_path):
    wanted = [" a", "b ", "c\u2028d", "e\x0cf", "g"]
    text = "\ufeff" + "\r\n".join(f"{name}\t{number}" for number, name in enumerate(wanted)) + "\r\n \n"
    (tmp_path / "manifest").write_bytes(text.encode())
    for manifest in (tmp_path / "manifest", bucket.put("manifest", text.encode())):
        data = MapDataset.from_manifest(manifest, base="s3://b/", client=client)
        assert [data.keys.name(number) for number in range(len(data))] == wanted
        assert data._labels == ["0", "1", "2", "3", "4"]


def test_what_names_no_object_is_refused(client, tmp_path):
    (tmp_path / "manifest").write_bytes(b"\n")
    for kind in (MapDataset, IterableDataset):
        with pytest.raises(flatout.UsageError, match="manifest: the manifest names no object"):
            kind.from_manifest(tmp_path / "manifest", client=client)
        with pytest.raises(flatout.UsageError, match="no object is named"):
            kind.from_urls([], client=client)
        with pytest.raises(flatout.UsageError, match="s3://b/1: this is one URL\n  hint: put it in a list"):
            kind.from_urls("s3://b/1", client=client)


def test_a_manifest_names_samples_and_labels(images, client, tmp_path):
    lines = [f"{number:04}.bin\t{number % 3}" for number in range(9)]
    (tmp_path / "manifest").write_text("\n".join(lines) + "\n\n")
    images.put("manifest.csv", "\n".join(f"cat {number},{number:04}.bin" for number in range(9)).encode())
    label = lambda sample: (number_of(sample), sample.label)  # noqa: E731
    data = MapDataset.from_manifest(tmp_path / "manifest", base=images.url("images/"), client=client, transform=label)
    assert [data[index] for index in range(9)] == [(number, str(number % 3)) for number in range(9)]

    def parse(line):
        label, name = line.split(",")
        return name, label

    url = images.url("manifest.csv")
    data = MapDataset.from_manifest(url, base=images.url("images/"), parser=parse, client=client, transform=label)
    assert data[8] == (8, "cat 8")
    with pytest.raises(flatout.UsageError, match="1 labels for 2 objects"):
        MapDataset.from_urls(["s3://b/1", "s3://b/2"], labels=["one"], client=client)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_each_sample_is_in_one_rank_and_one_worker(images, client, workers, shuffle):
    epochs = []
    for epoch in range(2):
        seen = []
        for rank in range(2):
            data = dataset(IterableDataset, images, client, shuffle=shuffle, seed=3, rank=rank, world_size=2)
            data.set_epoch(epoch)
            got = [int(number) for batch in DataLoader(data, batch_size=10, num_workers=workers) for number in batch]
            assert len(got) == COUNT // 2
            seen.append(got)
        assert sorted(seen[0] + seen[1]) == list(range(COUNT))
        epochs.append(seen)
    assert (epochs[0] == epochs[1]) == (not shuffle)


def test_the_order_is_that_of_seed_and_epoch(images, client, monkeypatch):
    order = lambda **named: list(dataset(IterableDataset, images, client, shuffle=True, **named))  # noqa: E731
    assert order(seed=1) == order(seed=1) != order(seed=2)
    data = dataset(IterableDataset, images, client, shuffle=True, seed=1)
    first, second = list(data), list(data)
    assert first != second and sorted(first) == sorted(second)
    data.set_epoch(1)
    assert list(data) == second
    assert list(dataset(IterableDataset, images, client)) == list(range(COUNT))
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(dataset(IterableDataset, images, client)) == list(range(2, COUNT, 3))
    with pytest.raises(flatout.UsageError, match="give both, or neither"):
        dataset(IterableDataset, images, client, rank=1)
    for rank, world_size, says in (("5", "2", "rank 5 of world_size 2"), ("-1", "2", "rank -1"), ("x", "2", "RANK=x and WORLD_SIZE=2 are")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", world_size)
        with pytest.raises(flatout.UsageError, match=says):
            dataset(IterableDataset, images, client)


@pytest.mark.parametrize("taken", [0, 1, 64, 65, 200, COUNT])
def test_an_epoch_goes_on_where_it_was(images, client, taken):
    data = dataset(IterableDataset, images, client, shuffle=True, seed=9)
    whole = list(data)
    data.set_epoch(0)
    stream = iter(data)
    begun = [next(stream) for _ in range(taken)]
    state = pickle.loads(pickle.dumps(data.state_dict()))
    again = dataset(IterableDataset, images, client, shuffle=True, seed=9)
    again.load_state_dict(state)
    rest = list(again)
    assert begun + rest == whole
    # Then comes the next epoch.
    data.set_epoch(1)
    assert list(again) == list(data)
    for other in ({"seed": 8}, {"shuffle": False}, {"rank": 1, "world_size": 2}):
        with pytest.raises(flatout.UsageError, match="the state is of another"):
            dataset(IterableDataset, images, client, **{"shuffle": True, "seed": 9, **other}).load_state_dict(state)


def test_iterators_at_the_same_time_do_not_disturb_each_other(images, client):
    data = dataset(IterableDataset, images, client)
    assert list(zip(data, data)) == [(number, number) for number in range(COUNT)]
    # All that begin before anything is taken begin where the state says; then comes the next epoch.
    state = {**data.state_dict(), "epoch": 0, "taken": 10}
    data.load_state_dict(state)
    first, second = iter(data), iter(data)
    data.set_epoch(0)
    assert [next(first), next(first), next(second)] == [10, 11, 10]
    # The one that was begun last is what a state tells of.
    assert data.state_dict()["taken"] == 11
    assert list(first) == list(range(12, COUNT)) and data.state_dict()["taken"] == 11
    assert list(data) == list(range(COUNT)) and data.state_dict()["epoch"] == 1
    # Of an epoch that is over nothing is left, and the second iterator leaves it.
    data.load_state_dict({**state, "taken": COUNT})
    assert list(iter(data)) == []
    data.load_state_dict({**state, "taken": COUNT})
    assert [len(list(each)) for each in (iter(data), iter(data))] == [COUNT, COUNT]
    assert data.state_dict()["epoch"] == 1


def test_a_sample_that_cannot_be_made_comes_again(images, client):
    def fail_at_5(sample):
        if sample.index == 5 and not is_mended:
            raise KeyError(sample.name)
        return sample.index

    is_mended = False
    data = dataset(IterableDataset, images, client, transform=fail_at_5)
    with pytest.raises(KeyError):
        list(data)
    data.load_state_dict(data.state_dict())
    is_mended = True
    assert list(data) == list(range(5, COUNT))


def test_an_object_that_is_gone_ends_the_epoch(images, client):
    data = MapDataset.from_urls([images.url("images/0000.bin"), images.url("images/none.bin")], client=client, transform=name_of)
    with pytest.raises(flatout.NotFound, match="none.bin"):
        data.__getitems__([0, 1])
    for workers in (0, 1):
        with pytest.raises(flatout.NotFound, match="none.bin") as raised:
            list(DataLoader(data, batch_size=2, num_workers=workers))
        assert raised.value.kind == "not_found"


def test_an_object_that_is_replaced_is_one_version_or_the_other(serve, client):
    bucket = origins.Bucket(serve, origins.new_name())
    urls = [bucket.put(f"{number}", b"a" * 200_000) for number in range(100)]
    is_over = threading.Event()

    def replace():
        while not is_over.is_set():
            for number in range(100):
                bucket.put(f"{number}", b"b" * 200_000)

    thread = threading.Thread(target=replace)
    thread.start()
    for sample in IterableDataset.from_urls(urls, client=client):
        assert sample.data in (b"a" * 200_000, b"b" * 200_000)
    is_over.set()
    thread.join()


def test_an_origin_that_is_away_for_a_while_is_a_pause(started):
    origin = started()
    bucket = origins.Bucket(origin, origins.new_name())
    urls = [bucket.put(f"{number:04}.bin", b"%d" % number * 100) for number in range(200)]
    client = flatout.Client(**origin.settings)
    data = IterableDataset.from_urls(urls, client=client, concurrency=4, transform=lambda sample: len(sample.data))
    stream = iter(data)
    assert next(stream) == 100
    origin._process.send_signal(signal.SIGSTOP)
    timer = threading.Timer(2, lambda: origin._process.send_signal(signal.SIGCONT))
    timer.start()
    since = time.monotonic()
    assert len(list(stream)) == 199 and time.monotonic() - since > 1
    timer.join()


def test_checkpoints_are_saved_and_loaded(serve, client):
    bucket = origins.Bucket(serve, origins.new_name())
    checkpoint = pickle.loads(pickle.dumps(Checkpoint(bucket.url("run"), client=client)))
    state = {"weights": torch.randn(300, 300), "step": 100}
    with checkpoint.writer("step-100.pt", metadata={"step": "100"}) as file:
        torch.save(state, file)
    assert client.stat(bucket.url("run/step-100.pt")).metadata == {"step": "100"}
    with checkpoint.reader("step-100.pt") as file:
        assert torch.equal(torch.load(file)["weights"], state["weights"])
    checkpoint.save(state, "step-200.pt")
    assert torch.equal(checkpoint.load("step-200.pt", map_location="cpu")["weights"], state["weights"])
    with pytest.raises(KeyError), checkpoint.writer("step-300.pt") as file:
        torch.save(state, file)
        raise KeyError
    with pytest.raises(flatout.NotFound):
        checkpoint.load("step-300.pt")
    assert [info.name for info in client.ls(bucket.url("run/"))] == ["step-100.pt", "step-200.pt"]


def test_a_checkpoint_has_a_name_below_its_prefix(images, client):
    for wrong in ("", "s3://other/x.pt", "../x.pt", "/x.pt", "a//x.pt"):
        with pytest.raises(flatout.UsageError, match="is no name below it"):
            Checkpoint(images.url("run"), client=client).writer(wrong)
    for prefix in ("us-east-1", "/tmp/run"):
        with pytest.raises(flatout.UsageError, match="no URL of a bucket"):
            Checkpoint(prefix)
    with pytest.raises(flatout.UsageError, match="'x.pt' is no URL of a bucket"):
        Checkpoint(client=client).reader("x.pt")
    Checkpoint(client=client).save({"a": 1}, images.url("run/named.pt"))
    assert Checkpoint(images.url("run"), client=client).load("named.pt") == {"a": 1}
