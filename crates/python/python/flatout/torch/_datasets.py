"""Datasets whose samples are objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..client import default_client
from ..errors import ObjectChanged, UsageError
from ._epochs import Order, Sharded
from ._indexed import IndexKeys
from ._loaders import Loading, Request
from ._sources import Source, refuse_none

if TYPE_CHECKING:
    from .._native import Buffer
    from ..client import Client
    from ..io import RemoteFile
    from ._keys import Keys

_T = TypeVar("_T")

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
        keys: Keys,
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
        return self.client.open(self.keys.url(index), size=self.keys.size(index), etag=self.keys.etag(index))

    @classmethod
    def from_index(
        cls,
        index: str | os.PathLike[str],
        *,
        include: str | None = None,
        client: Client | None = None,
        **named: Any,
    ) -> Any:
        """The objects of an index, as ``flatout volume build`` writes it, in the order of their keys: nothing is listed. Reads are
        held to the ETags that the index has. A key that no file can stand for is in no index.

        Args:
            index: a local file, or the URL of an object, which is downloaded to a temporary file.
            include: a pattern, as ``"*.jpg"``, that the key behind the prefix has to match.
            client: by default :func:`flatout.default_client`.
            named: ``transform``, and what else the class takes.

        Raises:
            Corrupt: the index is truncated or damaged.
            UsageError: it is no index, is of a newer format, or has no such object.
            ObjectChanged: while samples are read: an object was replaced since the index was built.
        """
        keys = IndexKeys.of(client or default_client(), index, include)
        pattern = "" if include is None else f" that matches {include!r}"
        refuse_none(keys, keys.index, f"the index has no file{pattern}", "`flatout volume ls` shows what is there")
        return cls(keys, client=client, **named)

    def _request(self, index: int) -> Request:
        """The read of a sample. URL, ETag and size say which bytes are wanted: what a cache would be asked for."""
        return Request(self.keys.url(index), bytes=self.keys.size(index), etag=self.keys.etag(index))

    def _held(self, read: Iterator[_T]) -> Iterator[_T]:
        """What is read, and the error of an object that has another version than is wanted."""
        try:
            yield from read
        except ObjectChanged as error:
            raise self.keys.changed(error) from error

    def _sample(self, index: int, data: Buffer) -> Any:
        label = None if self._labels is None else self._labels[index]
        sample = Sample(self.keys.url(index), self.keys.name(index), index, label, data)
        return sample if self._transform is None else self._transform(sample)


class MapDataset(_Objects, Loading):
    """Objects as samples by number, for any sampler of ``DataLoader``. A batch is read by one call of the engine.

    Made by :meth:`from_prefix`, :meth:`from_index`, :meth:`from_urls` or :meth:`from_manifest`. ``transform`` makes of a :class:`Sample` what the loader
    is to get; without it samples are what they are. It pickles without its keys, which are in a mapped file.

    :meth:`loader` makes a ``DataLoader`` whose next batches are read while one is made, and so does :class:`ReadAhead`.
    """

    def __len__(self) -> int:
        return len(self.keys)

    def _requests(self, indices: Sequence[int]) -> list[Request]:
        return [self._request(index) for index in indices]

    def _batch(self, indices: Sequence[int], read: Iterator[Buffer]) -> list[Any]:
        return [self._sample(index, data) for data, index in zip(self._held(read), indices)]


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
        keys: Keys,
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
        requests = (self._request(number) for number in numbers)
        # A tuple with a size and an ETag is what the stubs do not show.
        read = self.client.read_many(cast(Any, requests), concurrency=self._concurrency)
        for place, data in self._held(read):
            yield self._sample(numbers[place], data)
