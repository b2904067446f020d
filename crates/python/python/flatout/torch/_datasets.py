"""Datasets whose samples are objects."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from ..client import Client, default_client
from ..errors import UsageError
from ._keys import KeyTable

if TYPE_CHECKING:
    from .._native import Buffer
    from ..io import RemoteFile

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


class _Source:
    """Where samples are, and what is made of them."""

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
        self.keys = keys
        self._labels = labels
        self._transform = transform
        self._client = client

    @classmethod
    def from_prefix(
        cls,
        url: str,
        *,
        include: str | None = None,
        index: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        **named: Any,
    ) -> Any:
        """The objects below a prefix, in the order of their keys.

        Args:
            url: the prefix.
            include: a pattern, as ``"*.jpg"``, that the key behind the prefix has to match.
            index: a local file to keep the listing in. Ranks of a machine that name the same list once: the first lists, the
                others wait for it, and later runs take it as it is, until somebody removes it.
            client: by default :func:`flatout.default_client`.
            named: ``transform``, and what else the class takes.
        """
        keys = KeyTable.listed(client or default_client(), url, include, index)
        if not len(keys):
            pattern = "" if include is None else f" that matches {include!r}"
            cause = f"no object lies below this prefix{pattern}"
            raise UsageError(kind="usage", doing="dataset", object=url, cause=cause, hint="`flatout.ls` shows what is there")
        return cls(keys, client=client, **named)

    @classmethod
    def from_urls(cls, urls: Iterable[str], *, client: Client | None = None, **named: Any) -> Any:
        """These objects, in this order; ``labels`` may name something for each."""
        return cls(KeyTable.of((url, None) for url in urls), client=client, **named)

    @classmethod
    def from_manifest(
        cls,
        manifest: str | os.PathLike[str],
        *,
        base: str = "",
        parser: Callable[[str], tuple[str, Any]] | None = None,
        client: Client | None = None,
        **named: Any,
    ) -> Any:
        """The objects that the lines of a file name.

        Args:
            manifest: a local file, or the URL of an object.
            base: what comes before each name, as ``"s3://bucket/images/"``.
            parser: makes a name and a label of a line. Without it the label follows a tab, and is None where there is none.
        """
        name = os.fspath(manifest)
        if "://" in name:
            text = (client or default_client()).read(name).decode()
        else:
            with open(name, encoding="utf-8") as file:
                text = file.read()
        parsed = [(parser or _tabbed)(line) for line in text.splitlines() if line.strip()]
        keys = KeyTable.of(((each, None) for each, _ in parsed), base)
        labels = [label for _, label in parsed]
        return cls(keys, labels=labels if any(label is not None for label in labels) else None, client=client, **named)

    @property
    def client(self) -> Client:
        """The client that reads."""
        return self._client or default_client()

    def __len__(self) -> int:
        return len(self.keys)

    def open(self, index: int) -> RemoteFile:
        """The object of a sample as a file."""
        return self.client.open(self.keys.url(index), size=self.keys.size(index))

    def _sample(self, index: int, data: Buffer) -> Any:
        label = None if self._labels is None else self._labels[index]
        sample = Sample(self.keys.url(index), self.keys.name(index), index, label, data)
        return sample if self._transform is None else self._transform(sample)

    def _samples(self, indices: Sequence[int] | Iterator[int], concurrency: int | None = None) -> Iterator[Any]:
        """Samples in this order, which are read ahead."""
        asked: list[int] = []

        def urls() -> Iterator[str]:
            for index in indices:
                asked.append(index)
                yield self.keys.url(index)

        for place, data in self.client.read_many(urls(), concurrency=concurrency):
            index, asked[place] = asked[place], -1
            yield self._sample(index, data)


class MapDataset(_Source, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Objects as samples by number, for any sampler of ``DataLoader``. A batch is read by one call of the engine.

    Made by :meth:`from_prefix`, :meth:`from_urls` or :meth:`from_manifest`. ``transform`` makes of a :class:`Sample` what the loader
    is to get; without it samples are what they are. It pickles without its keys, which are in a mapped file.
    """

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        return self._sample(index, self.client.read(self.keys.url(index)))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch."""
        return list(self._samples([range(len(self))[index] for index in indices]))


class IterableDataset(_Source, torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """Objects as a stream of samples, each in one rank and one worker of ``DataLoader``, and read ahead.

    Args:
        keys, labels, transform, client: as of :class:`MapDataset`.
        shuffle: whether each epoch has another order, which ``seed`` and the epoch determine.
        seed: of the order.
        rank, world_size: which part of the samples is this rank's; by default as ``torch.distributed`` or the variables ``RANK`` and
            ``WORLD_SIZE`` say.
        concurrency: how many samples are read ahead.

    ``state_dict`` and ``load_state_dict`` go on in the middle of an epoch, exact to the sample; ``StatefulDataLoader`` calls them.
    """

    def __init__(
        self,
        keys: KeyTable,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        concurrency: int = 64,
        **named: Any,
    ) -> None:
        _Source.__init__(self, keys, **named)
        self._shuffle, self._seed, self._concurrency = shuffle, seed, concurrency
        given = rank is not None, world_size is not None
        if given[0] != given[1] or (rank is not None and world_size is not None and not 0 <= rank < world_size):
            cause = f"rank {rank} of world_size {world_size}"
            raise UsageError(kind="usage", doing="dataset", object=keys.base, cause=cause, hint="give both, or neither")
        self._rank = (rank, world_size) if rank is not None and world_size is not None else _of_distributed()
        self._epoch = 0
        self._taken = 0
        self._goes_on = False

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next; without it each that has ended is followed by the next."""
        self._epoch, self._taken, self._goes_on = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands: what has been yielded by it."""
        return {"epoch": self._epoch, "taken": self._taken, "shard": self._shard(), **self._order_of()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind what had been yielded.

        Raises:
            UsageError: it is of other samples, another order, or another number of ranks and workers.
        """
        now = {"shard": self._shard(), **self._order_of()}
        differs = [name for name, value in now.items() if _plain(state.get(name)) != _plain(value)]
        if differs:
            name = differs[0]
            cause = f"the state is of another {name}: {state.get(name)}, not {now[name]}"
            raise UsageError(kind="usage", doing="load_state_dict", object=self.keys.base, cause=cause)
        self._epoch, self._taken, self._goes_on = int(state["epoch"]), int(state["taken"]), True

    def _order_of(self) -> dict[str, Any]:
        return {"samples": len(self.keys), "shuffle": self._shuffle, "seed": self._seed}

    def _shard(self) -> tuple[int, int, int, int]:
        """This rank, of how many, and this worker, of how many."""
        worker = torch.utils.data.get_worker_info()
        return *self._rank, *((0, 1) if worker is None else (worker.id, worker.num_workers))

    def __len__(self) -> int:
        """Samples of this rank."""
        rank, ranks = self._rank
        return len(range(rank, len(self.keys), ranks))

    def __iter__(self) -> Iterator[Any]:
        if not self._goes_on:
            self._taken = 0
        self._goes_on = False
        rank, ranks, worker, workers = self._shard()
        order = self._order()[rank::ranks][worker::workers][self._taken :]
        for sample in self._samples(iter(order.tolist()), self._concurrency):
            self._taken += 1
            yield sample
        self._epoch, self._taken = self._epoch + 1, 0

    def _order(self) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(len(self.keys))
        chance = torch.Generator()
        # Epochs of one seed are no epochs of the next.
        chance.manual_seed(random.Random(f"{self._seed} {self._epoch}").getrandbits(63))
        return torch.randperm(len(self.keys), generator=chance)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _of_distributed() -> tuple[int, int]:
    """The rank of this process, and how many there are."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), max(int(os.environ.get("WORLD_SIZE", "1")), 1)


def _tabbed(line: str) -> tuple[str, str | None]:
    name, _, label = line.strip().partition("\t")
    return name, label or None
