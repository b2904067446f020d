"""Batches that are read before a loader asks for them."""

from __future__ import annotations

import os
import select
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.utils.data

from .. import _native
from ..errors import UsageError
from ._epochs import Epochs, Order, Place

if TYPE_CHECKING:
    from .._native import Buffer
    from ..client import Client
    from ._keys import Keys

__all__ = ["Batches", "Loading", "ReadAhead", "Request"]

#: What an object of unknown size counts for.
_SMALL_BYTES = 8 << 20


class ReadAhead(Epochs, torch.utils.data.Sampler):  # type: ignore[type-arg]
    """A batch sampler that tells a :class:`MapDataset` with each batch which ones the same worker gets next, so that their reads are
    begun before it waits for its own. ``dataset.loader(…)`` makes a loader with one.

    Args:
        batch_sampler: as ``DataLoader`` takes it. Where it, or the sampler in it, has ``set_epoch``, each ``iter`` names the next epoch.
        num_workers: as of the ``DataLoader``, which hands batches to workers in turn.
        batches: how many a worker begins before it needs them, as far as the client's memory goes.

    ``state_dict`` and ``load_state_dict`` go on in the middle of an epoch, if the order is that of the epoch, or is always the same.
    Without workers, that is: with workers batches count that they have only been told to read, and ``StatefulDataLoader`` knows better.
    """

    def __init__(self, batch_sampler: Any, *, num_workers: int = 0, batches: int = 2) -> None:
        if batches < 0 or num_workers < 0:
            cause = f"batches={batches}, num_workers={num_workers}"
            raise UsageError(kind="usage", doing="dataset", cause=cause, hint="neither is less than 0")
        Epochs.__init__(self)
        self._batches, self._turn, self._ahead = batch_sampler, max(num_workers, 1), batches
        order = getattr(batch_sampler, "sampler", None)
        self._order = order.order if isinstance(order, Sampled) else None
        self._name = "" if self._order is None else self._order.name

    @property
    def sampler(self) -> ReadAhead:
        """Whose ``set_epoch`` Lightning calls."""
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        return self._iterate()

    def _identity(self) -> dict[str, Any]:
        order = self._order
        return {"batches": len(self), **({} if order is None else {"rank": (order.rank, order.world_size), **order.state()})}

    def _all(self) -> int:
        return len(self)

    def _rest(self, at: Place) -> Iterator[Announced]:
        for each in (self._batches, getattr(self._batches, "sampler", None)):
            if hasattr(each, "set_epoch"):
                each.set_epoch(at.epoch)
        source, waiting, epoch = iter(self._batches), deque[list[int]](), _Epoch()
        for _ in range(at.taken):
            next(source, None)
        while True:
            while len(waiting) <= self._ahead * self._turn and (batch := next(source, None)) is not None:
                waiting.append(batch)
            if not waiting:
                return
            batch = waiting.popleft()
            at.taken += 1
            yield Announced(batch, list(waiting)[self._turn - 1 :: self._turn], self._turn, epoch)


class Sampled(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """The samples of a rank, in the order of an epoch."""

    def __init__(self, order: Order) -> None:
        self.order, self._epoch = order, 0

    def set_epoch(self, epoch: int) -> None:
        """Which order comes next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        yield from self.order.of(self._epoch).tolist()


class _Epoch:
    """What is begun for an epoch does not outlive it where it is iterated."""


class Announced(list[int]):
    """A batch, and those that come behind it where ``turn`` workers get batches in turn."""

    def __init__(self, batch: Sequence[int], ahead: Sequence[Sequence[int]], turn: int, epoch: _Epoch | None = None) -> None:
        super().__init__(batch)
        self.ahead, self.turn, self.epoch = ahead, turn, epoch

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker ends with its epoch, or hears of other batches.
        return Announced, (list(self), self.ahead, self.turn)


class Request(NamedTuple):
    """A read: of ``bytes`` bytes, where that is known."""

    url: str
    start: int | None = None
    end: int | None = None
    bytes: int | None = None
    etag: str | None = None

    def read(self, client: Client) -> Buffer:
        return client.read(self.url, self.start, self.end, if_match=self.etag)


class Loading(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A map dataset whose batches are read by one call of the engine, those that are announced before they are asked for."""

    _begun: Batches | None = None
    _of: weakref.ref[_Epoch] | None = None

    keys: Keys
    _in_runs = False

    def __len__(self) -> int:
        raise NotImplementedError

    def _requests(self, indices: Sequence[int]) -> list[Request]:
        """What has to be read for a batch."""
        raise NotImplementedError

    def _batch(self, indices: Sequence[int], read: Iterator[Buffer]) -> list[Any]:
        """The samples of a batch, made of what was read."""
        raise NotImplementedError

    @property
    def client(self) -> Client:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """A sample."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch."""
        numbers = range(len(self))
        wanted = [[numbers[index] for index in batch] for batch in (indices, *getattr(indices, "ahead", ()))]
        batches = self._announced_to(indices) if isinstance(indices, Announced) else Batches(self.client)
        return self._batch(wanted[0], batches.read(wanted, self._requests))

    def _announced_to(self, batch: Announced) -> Batches:
        """What begins the batches that are announced, until the epoch is over."""
        worker = torch.utils.data.get_worker_info()
        if batch.turn != (1 if worker is None else worker.num_workers):
            cause = f"ReadAhead is for {batch.turn} workers in turn, and the loader has {worker.num_workers if worker else 0}"
            raise UsageError(doing="dataset", object=self.keys.base, cause=cause, hint="give both the same `num_workers`")
        batches, epoch = self._begun, batch.epoch
        if batches is None or not batches.is_of(self.client):
            batches = self._begun = Batches(self.client)
        if epoch is not None and (self._of is None or self._of() is not epoch):
            self._of = weakref.ref(epoch, lambda _, begun=weakref.ref(batches): _drop(begun))
        return batches

    def loader(
        self,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        num_workers: int = 0,
        drop_last: bool = False,
        batches: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
        even: bool = False,
        loader_class: Any = torch.utils.data.DataLoader,
        **named: Any,
    ) -> Any:
        """A ``DataLoader`` of this dataset that reads ahead.

        Args:
            batch_size, num_workers, drop_last: as of ``DataLoader``.
            shuffle: whether each epoch has another order, which ``seed`` and the epoch determine; each ``iter`` begins the next one.
                ``loader.batch_sampler.set_epoch`` names the epoch.
            seed: of the order.
            batches: how many a worker begins before it needs them.
            rank, world_size: which part of the samples is this rank's; by default as ``torch.distributed`` or the variables ``RANK``
                and ``WORLD_SIZE`` say.
            even: whether all ranks have as many samples, and so as many batches: of those that come last in an epoch's order fewer
                than there are ranks are left out. Without it each sample is in one rank, and some have one more.
            loader_class: of the loader, as torchdata's ``StatefulDataLoader``.
            named: what else it takes.
        """
        of: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "rank": rank, "world_size": world_size, "even": even}
        order = Order(self.keys.base, len(self), in_runs=self._in_runs, **of)
        sampler = torch.utils.data.BatchSampler(Sampled(order), batch_size, drop_last)
        ahead = ReadAhead(sampler, num_workers=num_workers, batches=batches)
        return loader_class(self, batch_sampler=ahead, num_workers=num_workers, **named)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_begun", "_of")}


def _drop(batches: weakref.ref[Batches]) -> None:
    begun = batches()
    if begun is not None:
        begun.drop()


class _Flight:
    """A read that has been begun, or waits for memory."""

    def __init__(self, request: Request) -> None:
        self.request, self.ticket = request, 0
        self.bytes = _SMALL_BYTES if request.bytes is None else request.bytes


class Batches:
    """Batches that have been begun, in the order in which they will be taken. For one thread and one process."""

    def __init__(self, client: Client) -> None:
        self._client, self._process = client, os.getpid()
        self._limit, self._held = client.memory_limit, 0
        self._begun: deque[tuple[list[int], deque[_Flight]]] = deque()
        self.drop()

    def is_of(self, client: Client) -> bool:
        """Whether it serves this client in this process."""
        return self._client is client and self._process == os.getpid()

    def drop(self) -> None:
        """Cancels everything, and gives the memory back."""
        self._begun.clear()
        self._held = 0
        # Of those that are cancelled one by one the memory is held until they are taken.
        self._calls, self._landed = _native.Completions(), dict[int, tuple[Any, BaseException | None]]()
        self._poll = select.poll()
        self._poll.register(self._calls.fileno(), select.POLLIN)

    def read(self, wanted: list[list[int]], requests: Callable[[Sequence[int]], list[Request]]) -> Iterator[Buffer]:
        """What was read for the first batch, in order, while the others are begun."""
        if any(begun[0] != batch for begun, batch in zip(self._begun, wanted)) or len(self._begun) > len(wanted):
            self.drop()
        for batch in wanted[len(self._begun) :]:
            self._begun.append((batch, deque(map(_Flight, requests(batch)))))
        flights = self._begun[0][1]
        try:
            self._begin()
            while flights:
                flight = flights[0]
                buffer = self._take(flight)
                flights.popleft()
                self._held -= flight.bytes
                self._begin()
                yield buffer
                del buffer
        except BaseException:
            # Also of a transform's, and of a batch that nobody takes to its end.
            self.drop()
            raise
        self._begun.popleft()

    def _begin(self) -> None:
        """Begins reads in order, as far as memory goes."""
        for _, flights in self._begun:
            for flight in flights:
                if flight.ticket:
                    continue
                if self._held and self._held + flight.bytes > self._limit:
                    return
                url, start, end, known, etag = flight.request
                flight.ticket = self._calls.read_one(self._client, url, start, end, bytes=known, if_match=etag)
                self._held += flight.bytes

    def _take(self, flight: _Flight) -> Buffer:
        while flight.ticket not in self._landed:
            self._poll.poll()
            self._landed.update((ticket, (result, error)) for ticket, result, error in self._calls.take())
        result, error = self._landed.pop(flight.ticket)
        if error is not None:
            raise error
        # It is larger than what is read at once, or may have no bytes.
        return result if isinstance(result, _native.Buffer) else flight.request.read(self._client)
