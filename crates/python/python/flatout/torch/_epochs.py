"""The order of samples, which part of it belongs to a rank and a worker, and how far an epoch has come."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils.data

from ..errors import UsageError

__all__ = ["Epochs", "Order", "Place", "Sharded"]


class Order:
    """The order of ``count`` samples in each epoch, as far as they are this rank's.

    Args:
        name: what the samples are of, for errors.
        count: how many there are in all ranks.
        shuffle: whether each epoch has another order, which ``seed`` and the epoch determine.
        seed: of the order.
        rank, world_size: by default as ``torch.distributed`` or the variables ``RANK`` and ``WORLD_SIZE`` say.
        in_runs: whether a part is what lies side by side, for samples that are cheaper so, or every n-th one.
        even: whether all ranks have as many: the last ones of the order, fewer than there are ranks, are left out.
    """

    def __init__(
        self,
        name: str,
        count: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        in_runs: bool = False,
        even: bool = False,
    ) -> None:
        hint = "give both, or neither"
        if rank is None and world_size is None:
            rank, world_size = _of_distributed(name)
            hint = "the variables RANK and WORLD_SIZE say so"
        if rank is None or world_size is None or not 0 <= rank < world_size:
            cause = f"rank {rank} of world_size {world_size}"
            raise UsageError(kind="usage", doing="dataset", object=name, cause=cause, hint=hint)
        if even and count < world_size:
            cause = f"{count} samples for {world_size} ranks: with `even` there would be none"
            raise UsageError(kind="usage", doing="dataset", object=name, cause=cause)
        self.name, self._count, self._shuffle, self._seed, self._in_runs = name, count, shuffle, seed, in_runs
        self.rank, self.world_size, self._even = rank, world_size, even

    def __len__(self) -> int:
        """Samples of this rank."""
        return self.count()

    def count(self, worker: int = 0, workers: int = 1) -> int:
        """Samples of this rank; of one worker of several, if any."""
        return len(self._mine(range(self._count), worker, workers))

    def of(self, epoch: int, worker: int = 0, workers: int = 1) -> torch.Tensor:
        """The numbers of this rank's samples; of one worker of several, if any."""
        numbers: torch.Tensor = self._mine(self._whole(epoch), worker, workers)
        return numbers

    def state(self) -> dict[str, Any]:
        """What makes another order."""
        return {"samples": self._count, "shuffle": self._shuffle, "seed": self._seed, "even": self._even}

    def _whole(self, epoch: int) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._count)
        chance = torch.Generator()
        # Epochs of one seed are no epochs of the next.
        chance.manual_seed(random.Random(f"{self._seed} {epoch}").getrandbits(63))
        return torch.randperm(self._count, generator=chance)

    def _mine(self, whole: Any, worker: int, workers: int) -> Any:
        if self._even:
            whole = whole[: len(whole) // self.world_size * self.world_size]
        return self._part(self._part(whole, self.rank, self.world_size), worker, workers)

    def _part(self, whole: Any, number: int, count: int) -> Any:
        if self._in_runs:
            return whole[len(whole) * number // count : len(whole) * (number + 1) // count]
        return whole[number::count]


@dataclass
class Place:
    """Where an epoch stands: what has been taken of it, and for tar files from which byte on which version of the next one goes on."""

    epoch: int = 0
    taken: int = 0
    offset: int = 0
    etag: str | None = None


class Epochs:
    """Something that is iterated once in each epoch: which one is under way, and how much of it has been taken.

    Whatever has been taken of an epoch, the next ``iter`` begins the next one, unless :meth:`set_epoch` or
    :meth:`load_state_dict` came between. Iterators that are used at the same time do not disturb each other.
    """

    _name = ""

    def __init__(self) -> None:
        self._go_to(Place())
        self._is_begun = self._goes_on = False

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next; without it each is followed by the next."""
        if not (self._goes_on and epoch == self._at.epoch):
            self._go_to(Place(epoch))
            self._is_begun = self._goes_on = False

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands: what has been yielded by it, by the iterator that was begun last. Where a loader has workers only
        the state of ``StatefulDataLoader`` says what has been taken: here nothing has, or all that workers were told to read.
        """
        return {"epoch": self._at.epoch, "taken": self._at.taken, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind what had been yielded.

        Raises:
            UsageError: it is of other samples, another order, or another number of ranks and workers.
        """
        now = self._identity()
        differs = [name for name, value in now.items() if _plain(state.get(name)) != _plain(value)]
        if differs:
            name = differs[0]
            cause = f"the state is of another {name}: {state.get(name)}, not {now[name]}"
            raise UsageError(kind="usage", doing="load_state_dict", object=self._name, cause=cause)
        self._go_to(Place(int(state["epoch"]), int(state["taken"]), int(state.get("offset", 0)), state.get("etag")))
        self._is_begun = self._goes_on = True

    def _iterate(self) -> Iterator[Any]:
        """What ``__iter__`` returns. A loader may call it several times before it takes anything: then all begin at one place."""
        if self._is_begun and not self._goes_on:
            self.set_epoch(self._at.epoch + 1)
        elif self._goes_on and self._at.taken >= self._all():
            # By a second iterator StatefulDataLoader leaves an epoch that was over.
            self._goes_on = False
        return self._begin()

    def _begin(self) -> Iterator[Any]:
        self._is_begun, self._goes_on = True, False
        # Its own; the one that is begun last is what a state tells of.
        at: Place = replace(self._start)
        self._at = at
        yield from self._rest(at)

    def _go_to(self, place: Place) -> None:
        """Where iterators begin that have not yet begun."""
        self._start: Place = place
        self._at = place

    def _identity(self) -> dict[str, Any]:
        """What a state has to be of."""
        raise NotImplementedError

    def _all(self) -> int:
        """How much this process takes of an epoch."""
        raise NotImplementedError

    def _rest(self, at: Place) -> Iterator[Any]:
        """What follows a place in its epoch. It moves the place."""
        raise NotImplementedError


class Sharded(Epochs, torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """A stream of samples, each in one rank and one worker of ``DataLoader``."""

    def __init__(self, order: Order) -> None:
        Epochs.__init__(self)
        self._order, self._name = order, order.name

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()

    def _identity(self) -> dict[str, Any]:
        return {"shard": (self._order.rank, self._order.world_size, *_worker()), **self._order.state()}

    def _all(self) -> int:
        return self._order.count(*_worker())

    def _rest(self, at: Place) -> Iterator[Any]:
        for sample in self._samples_of(self._left(at)):
            at.taken += 1
            yield sample

    def _left(self, at: Place) -> list[int]:
        """The numbers that this worker has still to yield."""
        left: list[int] = self._order.of(at.epoch, *_worker())[at.taken :].tolist()
        return left

    def _samples_of(self, numbers: list[int]) -> Iterator[Any]:
        raise NotImplementedError


def _worker() -> tuple[int, int]:
    """This worker, of how many."""
    worker = torch.utils.data.get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _of_distributed(name: str) -> tuple[int, int]:
    """The rank of this process, and how many there are."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    said = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    try:
        return int(said[0]), max(int(said[1]), 1)
    except ValueError:
        cause = f"RANK={said[0]} and WORLD_SIZE={said[1]} are no numbers"
        hint = "set both, or neither, or give `rank` and `world_size`"
        raise UsageError(kind="usage", doing="dataset", object=name, cause=cause, hint=hint) from None
