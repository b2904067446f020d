"""Models in safetensors files, of which several ranks each want a part: what the bucket sends is sent once to all of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist

from .. import _native
from .._frameworks import Torch
from .._models import File, Tensor, find
from ..client import Client, default_client
from ..errors import ObjectChanged, UsageError
from ..safetensors import _Ahead, _is_selected, _listed

__all__ = ["load_sharded", "stream_sharded"]

#: Smaller tensors are read whole by each rank, and so are pieces put together that are not shorter: an exchange costs as much.
_ALONE_BYTES = 256 << 10

#: Which dimension of a tensor is cut: by patterns of names, or by a function of the name and the shape.
Cut = Mapping[str, int] | Callable[[str, tuple[int, ...]], "int | None"]


@dataclass
class _Range:
    """Bytes of a file that this rank reads."""

    file: File
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass
class _Part:
    """A tensor, what of it this rank reads, and how that becomes what this rank wants."""

    tensor: Tensor
    shape: tuple[int, ...]
    ranges: list[_Range]
    finish: Callable[[torch.Tensor], torch.Tensor]


def load_sharded(
    urls: str | Iterable[str],
    cut: Cut | None = None,
    *,
    group: Any = None,
    select: Callable[[str], bool] | str | None = None,
    device: Any = "cpu",
    client: Client | None = None,
    progress: _native.Progress | bool | None = None,
) -> dict[str, Any]:
    """What this rank wants of a model, by name. The arguments are those of :func:`stream_sharded`."""
    named = {"group": group, "select": select, "device": device, "client": client, "progress": progress}
    return dict(stream_sharded(urls, cut, **named))


def stream_sharded(
    urls: str | Iterable[str],
    cut: Cut | None = None,
    *,
    group: Any = None,
    select: Callable[[str], bool] | str | None = None,
    device: Any = "cpu",
    memory_limit: int | None = None,
    client: Client | None = None,
    progress: _native.Progress | bool | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yields tensors of a model as ``(name, tensor)``, of each that is cut the part of this rank. Together the ranks fetch each byte
    once.

    A rank fetches the rows of a tensor that is cut along its first dimension, and nothing else of it. Of one that is cut along
    another, or that every rank wants whole, each fetches as many rows as the others, and they exchange them. Tensors of less than
    256 KiB are fetched by each. All ranks have to call this with the same arguments and take the same tensors, as with any
    collective; parts are those of ``torch.tensor_split``.

    Args:
        urls: as in :func:`flatout.safetensors.safe_open`.
        cut: which dimension is cut, as ``{"*.q_proj.weight": 0, "*.o_proj.weight": 1}``, of which the first pattern that matches
            counts; or a function of name and shape that returns it, or None for a tensor that every rank wants whole.
        group: of ``torch.distributed``; by default all ranks. A group of NCCL exchanges on ``device``, others on the CPU. Without
            ``torch.distributed`` there is one rank.
        select, device, memory_limit, client, progress: as in :func:`flatout.safetensors.stream_tensors`.

    Raises:
        UsageError: a tensor has no such dimension, or is of elements that a part would cut.
        InvalidSafetensors, ObjectChanged: as in :func:`flatout.safetensors.load_file`. The other ranks then wait for this one as
            long as the group's timeout says.
    """
    client, made = client or default_client(), Torch(device)
    ranks = _Ranks(group, device)
    model = find(client, _listed(urls))
    parts = deque(
        _part(file, tensor, _dimension(cut, file, tensor), ranks)
        for name, (file, tensor) in model.places.items()
        if _is_selected(name, select)
    )
    ranks.agree(model.files[0].url, [(file.url, str(file.version.etag), file.size) for file in model.files], [part.tensor.name for part in parts])
    if isinstance(cut, Mapping):
        for pattern in cut:
            if not any(fnmatchcase(name, pattern) for name in model.places):
                raise UsageError(kind="usage", doing="load", object=model.files[0].url, cause=f"no tensor matches {pattern!r}, which is to be cut")
    ranges = deque(each for part in parts for each in part.ranges)
    return _stream(_Ahead(client, ranges, memory_limit, False, progress), parts, made)  # type: ignore[arg-type]


def _stream(ahead: _Ahead, parts: deque[_Part], made: Torch) -> Iterator[tuple[str, Any]]:
    try:
        while parts:
            part, pieces = parts.popleft(), []
            for _ in part.ranges:
                each, memory = ahead.next()
                pieces.append(torch.frombuffer(memory, dtype=torch.uint8) if each.nbytes else torch.empty(0, dtype=torch.uint8))
                ahead.on_taken(each)
            read = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            pieces.clear()
            yield part.tensor.name, made.shaped(part.finish(read), part.tensor.dtype, part.shape)
    finally:
        ahead.close()


def _dimension(cut: Cut | None, file: File, tensor: Tensor) -> int | None:
    if cut is None:
        return None
    if callable(cut):
        dimension = cut(tensor.name, tensor.shape)
    else:
        dimension = next((to for pattern, to in cut.items() if fnmatchcase(tensor.name, pattern)), None)
    if dimension is None:
        return None
    if not -len(tensor.shape) <= dimension < len(tensor.shape):
        cause = f"{tensor.name!r} is {tensor.shape}: it has no dimension {dimension} to be cut along"
        raise UsageError(kind="usage", doing="load", object=file.url, cause=cause)
    if tensor.bits % 8:
        cause = f"{tensor.name!r} is of {tensor.dtype}, whose elements are shorter than a byte: it cannot be cut"
        raise UsageError(kind="usage", doing="load", object=file.url, cause=cause)
    return dimension % len(tensor.shape)


def _part(file: File, tensor: Tensor, dimension: int | None, ranks: _Ranks) -> _Part:
    size = tensor.nbytes

    def bytes_of(start: int, end: int) -> _Range:
        return _Range(file, tensor.start + start, tensor.start + end)

    if dimension is None or ranks.count == 1:
        if ranks.count == 1 or size < _ALONE_BYTES:
            return _Part(tensor, tensor.shape, [bytes_of(0, size)], lambda read: read)
        each = -(-size // ranks.count)
        start = min(ranks.rank * each, size)
        mine = bytes_of(start, min(start + each, size))
        return _Part(tensor, tensor.shape, [mine], lambda read: ranks.gathered(read, each)[:size])

    outer, length = math.prod(tensor.shape[:dimension]), tensor.shape[dimension]
    inner = math.prod(tensor.shape[dimension + 1 :]) * tensor.bits // 8
    first, last = ranks.share(length)
    shape = (*tensor.shape[:dimension], last - first, *tensor.shape[dimension + 1 :])
    row = length * inner
    # As large as the smallest part is: all ranks have to go the same way.
    if outer == 1 or length // ranks.count * inner >= _ALONE_BYTES:
        pieces = [bytes_of(at * row + first * inner, at * row + last * inner) for at in range(outer)]
        return _Part(tensor, shape, pieces or [bytes_of(0, 0)], lambda read: read)
    if size < _ALONE_BYTES or outer < ranks.count:
        whole = [bytes_of(0, size)]
        return _Part(tensor, shape, whole, lambda read: read.view(outer, length, inner)[:, first:last].reshape(-1))
    top, bottom = ranks.share(outer)
    rows = [bytes_of(top * row, bottom * row)]
    return _Part(tensor, shape, rows, lambda read: ranks.exchanged(read.view(bottom - top, length, inner), outer))


class _Ranks:
    """Those that load together."""

    def __init__(self, group: Any, device: Any) -> None:
        self._group = group
        self.rank, self.count, self._device = 0, 1, torch.device("cpu")
        if dist.is_available() and dist.is_initialized():
            self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
            if self.rank < 0:
                cause = "this process is no member of the group"
                raise UsageError(kind="usage", doing="load", object="", cause=cause)
            if "nccl" in dist.get_backend(group):
                self._device = torch.device(device)

    def agree(self, url: str, files: list[tuple[str, str, int]], names: list[str]) -> None:
        """Sees that all ranks have found the same.

        Raises:
            ObjectChanged: some have found another version of a file.
            UsageError: some have been given other arguments.
        """
        if self.count == 1:
            return
        told: list[Any] = [None] * self.count
        dist.all_gather_object(told, (files, names), group=self._group)
        if any(theirs[0] != files for theirs in told):
            cause = "ranks have found different versions of the model: it was replaced while they opened it"
            raise ObjectChanged(kind="changed", doing="load", object=url, cause=cause, hint="load it again")
        if any(theirs[1] != names for theirs in told):
            raise UsageError(kind="usage", doing="load", object=url, cause="ranks were given different arguments")

    def share(self, length: int, rank: int | None = None) -> tuple[int, int]:
        """Which indices of so many are a rank's, by default this one's: as ``torch.tensor_split`` has it."""
        each, more = divmod(length, self.count)
        rank = self.rank if rank is None else rank
        start = rank * each + min(rank, more)
        return start, start + each + (rank < more)

    def gathered(self, mine: torch.Tensor, each: int) -> torch.Tensor:
        """The bytes of all ranks, of which each has so many, but for the last ones."""
        if len(mine) < each:
            mine = torch.cat([mine, mine.new_zeros(each - len(mine))])
        out = torch.empty(each * self.count, dtype=torch.uint8, device=self._device)
        dist.all_gather_into_tensor(out, mine.to(self._device), group=self._group)
        return out

    def exchanged(self, rows: torch.Tensor, outer: int) -> torch.Tensor:
        """Of rows that each rank has some of, the columns of this rank in all of them."""
        _, length, inner = rows.shape
        columns = [self.share(length, rank) for rank in range(self.count)]
        sent = torch.cat([rows[:, first:last].reshape(-1) for first, last in columns]).to(self._device)
        mine = (columns[self.rank][1] - columns[self.rank][0]) * inner
        heights = [last - first for first, last in (self.share(outer, rank) for rank in range(self.count))]
        out = torch.empty(outer * mine, dtype=torch.uint8, device=self._device)
        received = [height * mine for height in heights]
        given = [len(rows) * (last - first) * inner for first, last in columns]
        dist.all_to_all_single(out, sent, received, given, group=self._group)
        return out
