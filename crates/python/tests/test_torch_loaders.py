"""flatout.torch in loaders: what is read ahead, epochs that go on in the middle, Lightning, and origins that fail meanwhile."""

import collections
import pickle
import threading

import pytest

import flatout
import origins
from links import link  # noqa: F401
from samples import number_of, taken_of

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

import pytorch_lightning  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from flatout.torch import IterableDataset, MapDataset, ReadAhead, TarDataset  # noqa: E402
from test_torch_tar import eventually, packed  # noqa: E402

COUNT = 90


@pytest.fixture(scope="module")
def numbers(serve):
    """Objects whose bytes say which they are."""
    bucket = origins.Bucket(serve, origins.new_name())
    for number in range(COUNT):
        bucket.put(f"{number:04}", b"%d" % number * 100)
    return bucket


@pytest.fixture
def client(serve):
    # It goes to workers with the dataset, and stays open for them.
    return flatout.Client(**serve.settings)


@pytest.fixture
def logged(started):
    """An origin that says what was asked of it."""
    origin = started()
    bucket = origins.Bucket(origin, origins.new_name())
    for number in range(COUNT):
        bucket.put(f"{number:04}", b"%d" % number * 100)
    return bucket


def dataset(bucket, client, kind=MapDataset, **named):
    return kind.from_prefix(bucket.url(""), client=client, transform=number_of, **named)


def asked_of(bucket):
    """How often each object was asked for."""
    return collections.Counter(int(line["key"]) for line in bucket.origin.requests() if line["method"] == "GET" and line["key"])


# Reading ahead.


@pytest.mark.parametrize("workers, batches", [(0, 0), (0, 1), (0, 2), (1, 2), (3, 1), (3, 2)])
def test_a_batch_names_those_that_its_worker_gets_next(workers, batches):
    inner = BatchSampler(SequentialSampler(range(45)), 4, False)
    ahead = list(ReadAhead(inner, num_workers=workers, batches=batches))
    assert ahead == list(inner)
    turn = max(workers, 1)
    for place, batch in enumerate(ahead):
        assert batch.ahead == ahead[place + turn :: turn][:batches], place
    again = pickle.loads(pickle.dumps(ahead[0]))
    assert (again, again.ahead) == (ahead[0], ahead[0].ahead)
    with pytest.raises(flatout.UsageError, match="neither is less than 0"):
        ReadAhead(inner, batches=-1)


def test_the_next_batches_are_in_flight_while_one_is_made(logged):
    data = dataset(logged, flatout.Client(**logged.origin.settings))
    stream = iter(data.loader(batch_size=10, batches=2))
    for count in range(1, 10):
        assert [int(number) for number in next(stream)] == list(range(count * 10 - 10, count * 10))
        begun = range(min((count + 2) * 10, COUNT))
        eventually(lambda: set(asked_of(logged)) == set(begun))
        assert set(asked_of(logged).values()) == {1}
    assert not list(stream)


def test_workers_read_ahead_too(logged):
    data = dataset(logged, flatout.Client(**logged.origin.settings))
    loader = data.loader(batch_size=3, num_workers=2, prefetch_factor=1, batches=3)
    stream = iter(loader)
    next(stream)
    # One batch of each worker, one more that replaces the first, and three ahead of each.
    eventually(lambda: len(asked_of(logged)) >= 8 * 3)
    assert taken_of(stream) == list(range(3, COUNT))
    assert set(asked_of(logged).values()) == {1}


def test_what_is_not_wanted_any_more_is_dropped(logged):
    data = dataset(logged, flatout.Client(**logged.origin.settings))
    loader = data.loader(batch_size=10, shuffle=True)
    for batch in loader:
        break
    assert not data._begun._begun and not data._begun._held
    stream = iter(loader)
    next(stream)
    assert data._begun._held
    # Another epoch over the same dataset.
    assert sorted(taken_of(loader)) == list(range(COUNT))
    assert sorted(taken_of(data.loader(batch_size=7, shuffle=True))) == list(range(COUNT))
    del stream
    assert not data._begun._begun and not data._begun._held
    assert len(pickle.dumps(data)) < 1000


def test_a_transform_that_fails_drops_what_was_begun(numbers, client):
    def fail(sample):
        raise KeyError(sample.name)

    data = MapDataset.from_prefix(numbers.url(""), client=client, transform=fail)
    with pytest.raises(KeyError, match="0000"):
        next(iter(data.loader(batch_size=10)))
    assert not data._begun._begun and not data._begun._held


def test_reading_ahead_stays_within_memory(serve, bucket):
    client = flatout.Client(memory="64MiB", **serve.settings)
    for number in range(16):
        bucket.put(f"{number:04}", b"%x" % number * (8 << 20))
    held = []

    def transform(sample):
        held.append(data._begun._held)
        return sample.index, sample.data[0]

    data = MapDataset.from_prefix(bucket.url(""), client=client, transform=transform)
    got = [pair for batch in data.loader(batch_size=4, collate_fn=list) for pair in batch]
    assert got == [(number, ord("%x" % number)) for number in range(16)]
    assert 8 << 20 < max(held) <= client.memory_limit


def test_objects_of_every_size_are_read_ahead(bucket, client):
    bodies = [b"", b"a", b"b" * (9 << 20), b"", b"c" * (20 << 20), b"d"]
    urls = [bucket.put(f"{number}", body) for number, body in enumerate(bodies)]
    listed = MapDataset.from_prefix(bucket.url(""), client=client)
    for data in (listed, MapDataset.from_urls(urls, client=client)):
        order = [0, 2, 4, 2, 5, 3, 1, 0]
        loader = DataLoader(data, batch_sampler=ReadAhead(BatchSampler(order, 2, False)), collate_fn=list)
        assert [sample.data == bodies[sample.index] for batch in loader for sample in batch] == [True] * 8
        assert [sample.index for batch in loader for sample in batch] == order
        assert data[-1].read() == b"d" and data[2].read() == bodies[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_is_in_one_rank_and_one_worker(numbers, client, workers):
    epochs = []
    for epoch in range(2):
        seen = []
        for rank in range(3):
            loader = dataset(numbers, client).loader(batch_size=4, shuffle=True, seed=2, num_workers=workers, rank=rank, world_size=3)
            loader.batch_sampler.set_epoch(epoch)
            assert len(loader) == 8
            seen += taken_of(loader)
        assert sorted(seen) == list(range(COUNT))
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    streams = [dataset(numbers, client, IterableDataset, rank=rank, world_size=3) for rank in range(3)]
    seen = [taken_of(DataLoader(data, batch_size=4, num_workers=workers)) for data in streams]
    assert sorted(sum(seen, [])) == list(range(COUNT))


def test_even_ranks_have_as_many_batches(numbers, client):
    urls = [numbers.url(f"{number:04}") for number in range(33)]
    for even, batches, samples in ((False, [2, 1], 33), (True, [1, 1], 32)):
        data = MapDataset.from_urls(urls, client=client, transform=number_of)
        of = [{"shuffle": True, "rank": rank, "world_size": 2, "even": even} for rank in range(2)]
        loaders = [data.loader(batch_size=16, **named) for named in of]
        streams = [DataLoader(IterableDataset.from_urls(urls, client=client, transform=number_of, **named), batch_size=16) for named in of]
        for each in (loaders, streams):
            taken = [list(loader) for loader in each]
            assert [len(loader) for loader in taken] == batches
            assert len({number for loader in taken for number in taken_of(loader)}) == samples
        assert [len(loader) for loader in loaders] == batches
    with pytest.raises(flatout.UsageError, match="33 samples for 34 ranks"):
        data.loader(batch_size=1, rank=0, world_size=34, even=True)


def test_spawned_workers_get_the_same(numbers, client):
    spawned = {"num_workers": 2, "multiprocessing_context": "spawn"}
    for make in (of_map, of_iterable):
        assert taken_of(make(numbers, client, **spawned)) == taken_of(make(numbers, client, num_workers=2))


def test_the_order_is_that_of_seed_and_epoch(numbers, client):
    loader = lambda seed: dataset(numbers, client).loader(batch_size=7, shuffle=True, seed=seed)  # noqa: E731
    first, other = loader(1), loader(2)
    epochs = [taken_of(first) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3 and taken_of(other) != epochs[0]
    for batch in first:
        break
    first.batch_sampler.set_epoch(1)
    assert taken_of(first) == epochs[1] and taken_of(first) == epochs[2]
    assert taken_of(dataset(numbers, client).loader(batch_size=7, drop_last=True)) == list(range(84))


def test_samplers_of_pytorch_s_are_read_ahead(numbers, client):
    data = dataset(numbers, client)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, seed=3)
    loader = DataLoader(data, batch_sampler=ReadAhead(BatchSampler(sampler, 8, False)))
    epochs = [taken_of(loader) for _ in range(2)]
    for epoch, taken in enumerate(epochs):
        # It is told which epoch is iterated.
        sampler.set_epoch(epoch)
        assert taken == list(sampler)
    assert epochs[0] != epochs[1]
    order = RandomSampler(data, generator=torch.Generator().manual_seed(5))
    loader = DataLoader(data, batch_sampler=ReadAhead(BatchSampler(order, 8, False), num_workers=2), num_workers=2)
    assert sorted(taken_of(loader)) == list(range(COUNT))


def test_a_loader_of_other_workers_is_refused(numbers, client):
    data = dataset(numbers, client)
    for told, workers in ((2, 0), (0, 2), (3, 2)):
        ahead = ReadAhead(BatchSampler(SequentialSampler(data), 8, False), num_workers=told)
        with pytest.raises(flatout.UsageError, match=f"ReadAhead is for {max(told, 1)} workers in turn, and the loader has {workers}"):
            next(iter(DataLoader(data, batch_sampler=ahead, num_workers=workers)))


# Epochs that go on.


def of_map(numbers, client, **named):
    return dataset(numbers, client).loader(batch_size=8, shuffle=True, seed=4, loader_class=StatefulDataLoader, **named)


def of_iterable(numbers, client, **named):
    return StatefulDataLoader(dataset(numbers, client, IterableDataset, shuffle=True, seed=4), batch_size=8, **named)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [of_map, of_iterable])
def test_a_stateful_loader_goes_on_in_the_middle(numbers, client, make, workers):
    whole = taken_of(make(numbers, client, num_workers=workers))
    assert sorted(whole) == list(range(COUNT)) and whole != sorted(whole)
    batches = -(-COUNT // 8)
    for taken in (0, 1, 6, batches - 1, batches):
        first = make(numbers, client, num_workers=workers)
        stream = iter(first)
        begun = taken_of(next(stream) for _ in range(taken))
        state = pickle.loads(pickle.dumps(first.state_dict()))
        del stream
        again = make(numbers, client, num_workers=workers)
        again.load_state_dict(state)
        assert begun + taken_of(again) == whole, taken


def test_a_resumed_loader_goes_on_with_the_next_epoch(numbers, client):
    for make in (of_map, of_iterable):
        epochs = make(numbers, client)
        wanted = [taken_of(epochs) for _ in range(4)]
        first = make(numbers, client)
        assert taken_of(first) == wanted[0]
        between = pickle.loads(pickle.dumps(first.state_dict()))
        stream = iter(first)
        begun = taken_of(next(stream) for _ in range(3))
        within = pickle.loads(pickle.dumps(first.state_dict()))
        again = make(numbers, client)
        again.load_state_dict(within)
        assert begun + taken_of(again) == wanted[1] and taken_of(again) == wanted[2]
        again = make(numbers, client)
        again.load_state_dict(between)
        assert [taken_of(again) for _ in range(3)] == wanted[1:]


def test_loaders_at_the_same_time_do_not_disturb_each_other(numbers, client):
    loader = of_map(numbers, client, num_workers=0)
    whole = taken_of(loader)
    loader = dataset(numbers, client).loader(batch_size=8, shuffle=True, seed=4)
    pairs = list(zip(loader, loader))
    assert taken_of(first for first, _ in pairs) == taken_of(second for _, second in pairs) == whole
    # A second iterator before anything is taken goes on at the same place.
    ahead = loader.batch_sampler
    ahead.load_state_dict({**ahead.state_dict(), "epoch": 0, "taken": 3})
    iter(loader)
    assert taken_of(loader) == whole[24:]
    data = dataset(numbers, client, IterableDataset)
    data.load_state_dict({**data.state_dict(), "taken": 10})
    loader = DataLoader(data, batch_size=8)
    iter(loader)
    assert taken_of(loader) == list(range(10, COUNT))


def test_a_state_of_another_order_is_refused(numbers, client):
    state = of_map(numbers, client).batch_sampler.state_dict()
    for named in ({"seed": 5}, {"shuffle": False}, {"batch_size": 9}, {"even": True}, {"rank": 1, "world_size": 2}):
        named = {"batch_size": 8, "shuffle": True, "seed": 4, **named}
        with pytest.raises(flatout.UsageError, match="the state is of another"):
            dataset(numbers, client).loader(**named).batch_sampler.load_state_dict(state)


def test_workers_that_have_ended_do_not_begin_the_next_epoch(client, bucket):
    """Of a worker that had ended, a state named the next epoch: resumed, it yielded its samples twice."""
    for shard, count in enumerate((30, 2, 30)):
        bucket.put(f"{shard}.tar", packed([(f"{shard}{number:02}.txt", b"%d" % (shard * 100 + number)) for number in range(count)]))

    def make():
        data = TarDataset.from_prefix(bucket.url(""), client=client, transform=text_of)
        return StatefulDataLoader(data, batch_size=5, num_workers=2)

    whole = taken_of(make())
    assert len(set(whole)) == len(whole) == 62
    for taken in range(len(list(make())) + 1):
        first = make()
        stream = iter(first)
        begun = taken_of(next(stream) for _ in range(taken))
        state = first.state_dict()
        del stream
        again = make()
        again.load_state_dict(state)
        assert begun + taken_of(again) == whole, taken


def text_of(sample):
    return int(sample["txt"])


def test_persistent_workers_begin_the_next_epoch_themselves(numbers, client):
    data = dataset(numbers, client, IterableDataset, shuffle=True, seed=4)
    loader = DataLoader(data, batch_size=8, num_workers=2, persistent_workers=True)
    epochs = [taken_of(loader) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(COUNT)) and epochs[0] != epochs[1]
    loader = dataset(numbers, client).loader(batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    epochs = [taken_of(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs) and epochs[0] != epochs[1]


# Lightning.


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), collections.defaultdict(list)

    def training_step(self, batch, _):
        self.seen[self.current_epoch] += batch.tolist()
        return self.layer(batch.float()[:, None]).pow(2).mean() * 1e-9

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-9)


@pytest.mark.parametrize("make", [of_map, of_iterable])
@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_trains_with_it(numbers, client, tmp_path, make, workers):
    model = Model()
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pytorch_lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    trainer.fit(model, make(numbers, client, num_workers=workers))
    assert [sorted(seen) for seen in model.seen.values()] == [list(range(COUNT))] * 2
    # Only the workers of an IterableDataset know of no epoch before.
    assert (model.seen[0] != model.seen[1]) == (make is of_map or not workers)


def test_lightning_takes_the_batches_of_each_worker_that_are_not_full(numbers, client, tmp_path):
    model = Model()
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pytorch_lightning.Trainer(max_epochs=1, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    urls = [numbers.url(f"{number:04}") for number in range(33)]
    data = IterableDataset.from_urls(urls, client=client, transform=number_of)
    trainer.fit(model, DataLoader(data, batch_size=32, num_workers=3))
    assert sorted(model.seen[0]) == list(range(33))
    with pytest.raises(TypeError):
        len(data)


# Origins that fail, and objects that change.


@pytest.mark.parametrize("workers", [0, 2])
def test_an_origin_that_is_away_for_a_while_is_a_pause(numbers, serve, link, workers):  # noqa: F811
    def of_map(client):
        return dataset(numbers, client).loader(batch_size=3, num_workers=workers)

    def of_iterable(client):
        return DataLoader(dataset(numbers, client, IterableDataset, concurrency=4), batch_size=3, num_workers=workers)

    for make in (of_map, of_iterable):
        ours = link(serve)
        stream = iter(make(flatout.Client(**ours.settings)))
        got = taken_of([next(stream)])
        ours.cut()
        back = threading.Timer(1, ours.mend)
        back.start()
        got += taken_of(stream)
        assert not back.is_alive(), "it was over before the origin was back"
        assert sorted(got) == list(range(COUNT))


def test_an_object_that_is_replaced_is_one_version_or_the_other(client, bucket):
    for number in range(40):
        bucket.put(f"{number:04}", b"a" * 200_000)
    data = MapDataset.from_prefix(bucket.url(""), client=client, transform=lambda sample: bytes(sample.data))
    stream = iter(data.loader(batch_size=4, collate_fn=list))
    got = next(stream)
    for number in range(40):
        bucket.put(f"{number:04}", b"b" * 300_000)
    got += [each for batch in stream for each in batch]
    assert len(got) == 40 and set(got) == {b"a" * 200_000, b"b" * 300_000}


def test_an_interpreter_may_end_in_the_middle_of_an_epoch(numbers, serve, python):
    python(
        """
import sys, flatout
from flatout.torch import MapDataset
client = flatout.Client(endpoint_url=sys.argv[1])
data = MapDataset.from_prefix(sys.argv[2], client=client, transform=lambda sample: sample.index)
stream = iter(data.loader(batch_size=10))
next(stream)
""",
        serve.url,
        numbers.url(""),
    )
