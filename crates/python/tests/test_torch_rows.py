"""flatout.torch: samples that are rows of tensors in safetensors files."""

import collections
import pickle

import numpy as np
import pytest
import safetensors.numpy

import flatout
import origins
from links import link  # noqa: F401
from models import counting, header, tensor  # noqa: F401
from samples import taken_of

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from flatout.torch import RowIterableDataset, RowMapDataset  # noqa: E402

#: Of each file; one has none.
ROWS = (40, 0, 7, 103)
COUNT = sum(ROWS)


def file_of(first, rows, width=9):
    numbers = np.arange(first, first + rows)
    return safetensors.numpy.save(
        {
            "image": np.repeat(numbers, 3 * width).reshape(rows, 3, width).astype("float32"),
            "label": numbers.astype("int64"),
            "mask": (numbers % 2 == 0)[:, None] & np.ones((rows, 5), bool),
            "none": np.zeros((rows, 0), "int16"),
        }
    )


def put(bucket):
    firsts = [sum(ROWS[:number]) for number in range(len(ROWS))]
    return [bucket.put(f"rows/{number}.safetensors", file_of(first, rows)) for number, (first, rows) in enumerate(zip(firsts, ROWS))]


@pytest.fixture(scope="module")
def files(serve):
    bucket = origins.Bucket(serve, origins.new_name())
    put(bucket)
    return bucket


@pytest.fixture
def client(serve):
    # It goes to workers with the dataset, and stays open for them.
    return flatout.Client(**serve.settings)


def number_of(row):
    number = int(row["label"])
    assert list(row) == ["image", "label", "mask", "none"]
    assert row["image"].shape == (3, 9) and (row["image"] == number).all()
    assert row["mask"].tolist() == [number % 2 == 0] * 5 and row["none"].shape == (0,)
    return number


def dataset(kind, files, client, **named):
    return kind.from_prefix(files.url("rows/"), include="*.safetensors", client=client, transform=number_of, **named)


def test_sample_i_is_row_i_of_all_files(files, client):
    data = dataset(RowMapDataset, files, client)
    assert len(data) == COUNT
    assert [data[0], data[39], data[40], data[47], data[-1]] == [0, 39, 40, 47, COUNT - 1]
    assert data.__getitems__([149, 3, 3, 40, -1, 0]) == [149, 3, 3, 40, 149, 0]
    with pytest.raises(IndexError):
        data[COUNT]
    assert len(pickle.dumps(data)) < 2000
    assert pickle.loads(pickle.dumps(data))[99] == 99
    one = RowMapDataset.from_urls([files.url("rows/2.safetensors")], names=["label"], client=client)
    assert {name: row.item() for name, row in one[6].items()} == {"label": 46}
    # Two samples share no memory.
    first, second = RowMapDataset.from_prefix(files.url("rows/"), client=client).__getitems__([5, 5])
    first["image"][:] = -1
    assert (second["image"] == 5).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_each_row_is_in_one_rank_and_one_worker(files, client, workers):
    for shuffle in (False, True):
        seen = []
        for rank in range(3):
            stream = dataset(RowIterableDataset, files, client, shuffle=shuffle, seed=1, rank=rank, world_size=3)
            loader = DataLoader(stream, batch_size=8, num_workers=workers)
            got = taken_of(loader)
            assert len(got) == COUNT // 3 and not hasattr(stream, "__len__")
            seen += got
        assert sorted(seen) == list(range(COUNT)) and (workers or (seen == sorted(seen)) != shuffle)
        seen = []
        for rank in range(3):
            data = dataset(RowMapDataset, files, client)
            seen += taken_of(data.loader(batch_size=8, shuffle=shuffle, num_workers=workers, rank=rank, world_size=3))
        assert sorted(seen) == list(range(COUNT)) and (seen == sorted(seen)) != shuffle
        of = [{"shuffle": shuffle, "rank": rank, "world_size": 4, "even": True} for rank in range(4)]
        assert [len(list(dataset(RowIterableDataset, files, client, **named))) for named in of] == [COUNT // 4] * 4


def of_map(files, client, **named):
    return dataset(RowMapDataset, files, client).loader(batch_size=8, shuffle=True, seed=4, loader_class=StatefulDataLoader, **named)


def of_iterable(files, client, **named):
    return StatefulDataLoader(dataset(RowIterableDataset, files, client, shuffle=True, seed=4), batch_size=8, **named)


def in_order(files, client, **named):
    return StatefulDataLoader(dataset(RowIterableDataset, files, client), batch_size=8, **named)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [of_map, of_iterable, in_order])
def test_a_stateful_loader_goes_on_in_the_middle(files, client, make, workers):
    whole = taken_of(make(files, client, num_workers=workers))
    assert sorted(whole) == list(range(COUNT))
    for taken in (0, 1, 7, 18):
        first = make(files, client, num_workers=workers)
        stream = iter(first)
        begun = taken_of(next(stream) for _ in range(taken))
        state = pickle.loads(pickle.dumps(first.state_dict()))
        del stream
        again = make(files, client, num_workers=workers)
        again.load_state_dict(state)
        assert begun + taken_of(again) == whole, taken


def test_spawned_workers_get_the_same(files, client):
    data = RowMapDataset.from_prefix(files.url("rows/"), client=client)
    loader = data.loader(batch_size=50, num_workers=2, multiprocessing_context="spawn")
    assert [batch["label"].tolist() for batch in loader] == [list(range(at, at + 50)) for at in range(0, COUNT, 50)]


def test_neighbouring_rows_are_one_request(started):
    origin = started()
    bucket = origins.Bucket(origin, origins.new_name())
    # The first rows of a file's two columns lie near each other, the last ones far apart.
    for number in range(2):
        bucket.put(f"{number}.safetensors", file_of(number * 100, 100, width=2000))
    data = RowMapDataset.from_prefix(bucket.url(""), client=flatout.Client(**origin.settings), names=["image", "label"])

    def asked(call):
        before = len(origin.requests())
        call()
        return collections.Counter(line["key"] for line in origin.requests()[before:])

    assert asked(lambda: data.__getitems__([50, 52, 51, 53])) == {"0.safetensors": 2}
    assert asked(lambda: data.__getitems__(range(98, 103))) == {"0.safetensors": 2, "1.safetensors": 1}
    # The whole of both, in parts of a few MiB.
    stream = RowIterableDataset.from_prefix(bucket.url(""), client=flatout.Client(**origin.settings))
    assert asked(lambda: list(stream)).total() < 12


def test_a_file_that_is_replaced_is_an_error(client, bucket):
    urls = put(bucket)
    data, stream = (dataset(kind, bucket, client) for kind in (RowMapDataset, RowIterableDataset))
    loader = iter(data.loader(batch_size=4))
    next(loader)
    bucket.put("rows/3.safetensors", file_of(1000, 103))
    assert data.__getitems__([0, 1, 46]) == [0, 1, 46]
    for call in (lambda: data[47], lambda: list(loader), lambda: list(stream), lambda: list(data.loader(batch_size=40))):
        with pytest.raises(flatout.ObjectChanged, match=urls[3]):
            call()
    assert dataset(RowMapDataset, bucket, client)


def test_an_origin_without_etags_is_read_and_a_shorter_file_refused(counting):
    url = counting.put("rows.safetensors", file_of(0, 40, width=8000))
    counting.tells_etags = False
    data = RowMapDataset.from_urls([url], client=counting.client, names=["image"])
    assert data[39]["image"][0, 0] == 39
    counting.put("rows.safetensors", file_of(0, 40, width=8000)[:-200_000])
    with pytest.raises(flatout.ObjectChanged, match="it was replaced since the dataset was made"):
        data[39]


@pytest.mark.parametrize("bodies, says", [
    ([file_of(0, 3), safetensors.numpy.save({"label": np.zeros(2)})], "1: there is no tensor 'image'"),
    ([file_of(0, 3), file_of(0, 3, width=8)], "1: a row of 'image' is F32 \\(3, 8\\), and F32 \\(3, 9\\) in s3://"),
    ([safetensors.numpy.save({"a": np.zeros((2, 3)), "b": np.zeros(3)})], "0: its tensors have no common rows: 'a' is \\(2, 3\\), 'b' is \\(3,\\)"),
    ([safetensors.numpy.save({"a": np.array(1.0)})], "0: its tensors have no common rows: 'a' is \\(\\)"),
    ([header({})], "0: there is no tensor"),
    ([header({"a": tensor("F4", (2, 5), (0, 5))}, bytes(5))], "0: a row of 'a', which is F4 \\(5,\\), would begin within a byte"),
])
def test_files_without_common_rows_are_refused(client, bucket, bodies, says):
    urls = [bucket.put(f"{number}", body) for number, body in enumerate(bodies)]
    with pytest.raises(flatout.UsageError, match=says):
        RowMapDataset.from_urls(urls, client=client)


def test_what_names_no_files_is_refused(files, client):
    url = files.url("rows/0.safetensors")
    for urls, says in (([], "no object is named"), ([url, url], "a file is named twice")):
        with pytest.raises(flatout.UsageError, match=says):
            RowMapDataset.from_urls(urls, client=client)
    with pytest.raises(flatout.safetensors.InvalidSafetensors, match="notes"):
        RowMapDataset.from_urls([files.put("notes", b"text")], client=client)


def test_an_origin_that_is_away_for_a_while_is_a_pause(files, serve, link):  # noqa: F811
    ours = link(serve)
    client = flatout.Client(**ours.settings)
    data, stream = (dataset(kind, files, client) for kind in (RowMapDataset, RowIterableDataset))
    cut = ours.away_after(0, 1)
    assert taken_of(data.loader(batch_size=10)) == list(stream) == list(range(COUNT))
    cut.join()
