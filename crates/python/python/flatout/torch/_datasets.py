"""Datasets whose samples are objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ._epochs import Order, Sharded
from ._loaders import Loading, Request
from ._sources import Source

if TYPE_CHECKING:
    from .._native import Buffer
    from ..client import Client
    from ..io import RemoteFile
    from ._keys import KeyTable

__all__ = ["IterableDataset", "MapDataset", "Sample"]


class Sample:
    """An object of a dataset, as its transform gets it.

    Attributes:
        url: of the object.
        name: what follows the prefix in it.
        index: its place in the dataset.
        label: what the manifest says, or None.
        data: its bytes, a :class:`flatout.Buffer`.
    """

    __slots__ = ("url", "name", "index", "label", "data")

    def __init__(self, url: str, name: str, index: int, label: Any, data: Buffer) -> None:
        self.url, self.name, self.index, self.label, self.data = url, name, index, label, data

    def read(self) -> bytes:
        """A copy of the bytes."""
        return bytes(self.data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sample, (self.url, self.name, self.index, self.label, self.data)

    def __repr__(self) -> str:
        return f"Sample({self.url!r}, {len(self.data)} bytes)"


class _Objects(Source):
    """Each object is a sample."""

    def __init__(
        self,
        keys: KeyTable,
        *,
        labels: Sequence[Any] | None = None,
        transform: Callable[[Sample], Any] | None = None,
        client: Client | None = None,
    ) -> None:
        if labels is not None and len(labels) != len(keys):
            cause = f"{len(labels)} labels for {len(keys)} objects"
            raise UsageError(kind="usage", doing="dataset", object=keys.base, cause=cause)
        super().__init__(keys, client=client)
        self._labels = labels
        self._transform = transform

    def open(self, index: int) -> RemoteFile:
        """The object of a sample as a file."""
        return self.client.open(self.keys.url(index), size=self.keys.size(index))

    def _sample(self, index: int, data: Buffer) -> Any:
        label = None if self._labels is None else self._labels[index]
        sample = Sample(self.keys.url(index), self.keys.name(index), index, label, data)
        return sample if self._transform is None else self._transform(sample)


class MapDataset(_Objects, Loading):
    """Objects as samples by number, for any sampler of ``DataLoader``. A batch is read by one call of the engine.

    Made by :meth:`from_prefix`, :meth:`from_urls` or :meth:`from_manifest`. ``transform`` makes of a :class:`Sample` what the loader
    is to get; without it samples are what they are. It pickles without its keys, which are in a mapped file.

    :meth:`loader` makes a ``DataLoader`` whose next batches are read while one is made, and so does :class:`ReadAhead`.
    """

    def __len__(self) -> int:
        return len(self.keys)

    def _requests(self, indices: Sequence[int]) -> list[Request]:
        return [Request(self.keys.url(index), bytes=self.keys.size(index)) for index in indices]

    def _batch(self, indices: Sequence[int], read: Iterator[Buffer]) -> list[Any]:
        return [self._sample(index, data) for data, index in zip(read, indices)]


class IterableDataset(_Objects, Sharded):
    """Objects as a stream of samples, each in one rank and one worker of ``DataLoader``, and read ahead.

    Args:
        keys, labels, transform, client: as of :class:`MapDataset`.
        shuffle: whether each epoch has another order, which ``seed`` and the epoch determine.
        seed: of the order.
        rank, world_size: which part of the samples is this rank's; by default as ``torch.distributed`` or the variables ``RANK`` and
            ``WORLD_SIZE`` say.
        even: as of :meth:`MapDataset.loader`.
        concurrency: how many samples are read ahead.

    Each ``iter`` begins the next epoch. ``state_dict`` and ``load_state_dict`` go on in the middle of one, exact to the sample;
    ``StatefulDataLoader`` calls them. Workers that are made anew for each epoch know of no earlier one: call ``set_epoch``.

    It has no length: each worker ends with a batch of its own that is not full, so that loaders would count too few batches.
    """

    def __init__(
        self,
        keys: KeyTable,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: bool = False,
        concurrency: int = 64,
        **named: Any,
    ) -> None:
        _Objects.__init__(self, keys, **named)
        order = Order(keys.base, len(keys), shuffle=shuffle, seed=seed, rank=rank, world_size=world_size, even=even)
        Sharded.__init__(self, order)
        self._concurrency = concurrency

    def _samples_of(self, numbers: list[int]) -> Iterator[Any]:
        urls = (self.keys.url(number) for number in numbers)
        for place, data in self.client.read_many(urls, concurrency=self._concurrency):
            yield self._sample(numbers[place], data)
