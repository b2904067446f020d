"""Samples that are rows of tensors in safetensors files."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _native
from .._frameworks import Torch
from .._models import read_headers
from ..errors import ObjectChanged, UsageError
from ._epochs import Order, Sharded
from ._loaders import Batches, Loading, Request
from ._sources import Source

if TYPE_CHECKING:
    from .._models import File, Tensor
    from .._native import Buffer
    from ._keys import Keys

__all__ = ["RowIterableDataset", "RowMapDataset"]

#: What an iterable dataset reads at once: so many bytes, and in a shuffled order so many rows; and how often that ahead.
AT_ONCE_BYTES, AT_ONCE_ROWS, AHEAD = 8 << 20, 256, 3

_FRAMEWORK = Torch("cpu")


class _Column(NamedTuple):
    """A tensor that all files have, as far as a row of it goes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class _Rows(Source):
    """Where the rows of all files are."""

    def __init__(
        self,
        keys: Keys,
        *,
        names: Sequence[str] | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        **named: Any,
    ) -> None:
        Source.__init__(self, keys, **named)
        self._transform = transform
        urls = list(keys)
        if not urls or len(set(urls)) < len(urls):
            cause = "a file is named twice" if urls else "there is no file"
            raise UsageError(doing="dataset", object=keys.base, cause=cause)
        files: dict[int, File] = {}
        for number, file in read_headers(self.client, dict.fromkeys(urls)):
            # Of a small file the rest has come too, which is not kept.
            file.data, files[number] = None, file
        names = names or sorted(tensor.name for tensor in files[0].tensors)
        # Of each file: the number of the row behind its last one, where its tensors begin, and its version.
        self._ends, self._starts, self._etags = array("Q"), list[tuple[int, ...]](), list[str | None]()
        for number in range(len(urls)):
            file = files[number]
            tensors = _wanted(file, names)
            columns = [_column(file, tensor) for tensor in tensors]
            if number == 0:
                self._columns = columns
            for column, first in zip(columns, self._columns):
                if column != first:
                    cause = f"a row of {column.name!r} is {column.dtype} {column.shape}, and {first.dtype} {first.shape} in {urls[0]}"
                    raise UsageError(doing="dataset", object=file.url, cause=cause)
            self._ends.append((self._ends[-1] if self._ends else 0) + tensors[0].shape[0])
            self._starts.append(tuple(tensor.start for tensor in tensors))
            self._etags.append(file.version.etag)

    def _requests(self, indices: Sequence[int]) -> list[Request]:
        return [request for request, _ in self._runs(indices)]

    def _runs(self, indices: Sequence[int]) -> Iterator[tuple[Request, list[tuple[int, _Column, int]]]]:
        """What to read for these rows, near ones together, and what lies where in it: which row, which column, from which byte on."""
        of_file: dict[int, list[tuple[int, _Column, int]]] = {}
        for place, index in enumerate(indices):
            number = bisect_right(self._ends, index)
            row = index - (self._ends[number - 1] if number else 0)
            for column, start in zip(self._columns, self._starts[number]):
                of_file.setdefault(number, []).append((place, column, start + row * column.bytes))
        for number, parts in of_file.items():
            url, etag = self.keys.url(number), self._etags[number]
            for start, end, of in _native.runs_of([(at, at + column.bytes) for _, column, at in parts]):
                inside = [(place, column, at - start) for place, column, at in map(parts.__getitem__, of)]
                yield Request(url, start, end, end - start, etag), inside

    def _batch(self, indices: Sequence[int], read: Iterator[Buffer]) -> list[Any]:
        empty = {column.name: _tensor(memoryview(b""), column) if not column.bytes else None for column in self._columns}
        rows: list[dict[str, Any]] = [dict(empty) for _ in indices]
        for data, (request, inside) in zip(read, self._runs(indices)):
            if len(data) != request.bytes:
                cause = f"it ends before byte {request.end}: it was replaced since the dataset was made"
                raise ObjectChanged(doing="read", object=request.url, cause=cause, hint="make the dataset anew")
            memory = memoryview(data)
            for place, column, at in inside:
                # Each row owns its memory.
                own = memory if len(inside) == 1 else memoryview(bytearray(memory[at : at + column.bytes]))
                rows[place][column.name] = _tensor(own, column)
        return rows if self._transform is None else [self._transform(row) for row in rows]


class RowMapDataset(_Rows, Loading):
    """Rows of safetensors files as samples by number: sample i is the i-th row of all files, in their order, as a dict of tensors by
    name, which own their memory. A batch is read by one call of the engine, in which rows that lie side by side are one request.

    Made by :meth:`from_prefix`, :meth:`from_urls` or :meth:`from_manifest`, which read the headers, and take:

    Args:
        names: the tensors that are wanted; by default all. Each file has them, of one type and of one shape but for the number of rows.
        transform: makes of the dict what the loader is to get.

    :meth:`loader` makes a ``DataLoader`` whose next batches are read while one is made. In a shuffled order each row is a request, or
    several where it has several tensors.

    Raises:
        InvalidSafetensors: a file is no safetensors file.
        UsageError: its tensors have no common rows, or are not those of the first file.
        ObjectChanged: while rows are read: a file was replaced since the dataset was made.
    """

    _in_runs = True

    def __len__(self) -> int:
        return self._ends[-1]


class RowIterableDataset(_Rows, Sharded):
    """The same rows as a stream, each in one rank and one worker of ``DataLoader``, and read ahead. Ranks and workers get rows that lie
    side by side.

    Args:
        keys, names, transform, client: as of :class:`RowMapDataset`.
        shuffle, seed, rank, world_size, even: as of :class:`IterableDataset`, and so are ``state_dict`` and ``load_state_dict``.
            It has no length either.
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
        **named: Any,
    ) -> None:
        _Rows.__init__(self, keys, **named)
        count = self._ends[-1]
        order = Order(keys.base, count, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size, even=even, in_runs=True)
        Sharded.__init__(self, order)
        fits = AT_ONCE_BYTES // max(sum(column.bytes for column in self._columns), 1)
        self._at_once = max(min(fits, AT_ONCE_ROWS if shuffle else fits), 1)

    def _samples_of(self, numbers: list[int]) -> Iterator[Any]:
        batches = Batches(self.client)
        parts = [numbers[at : at + self._at_once] for at in range(0, len(numbers), self._at_once)]
        for place, part in enumerate(parts):
            yield from self._batch(part, batches.read(parts[place : place + 1 + AHEAD], self._requests))


def _wanted(file: File, names: Sequence[str]) -> list[Tensor]:
    """Those tensors of a file, which have as many rows as each other."""
    there = {tensor.name: tensor for tensor in file.tensors}
    missing = [name for name in names if name not in there]
    if missing or not names:
        cause = f"there is no tensor {missing[0]!r}" if missing else "there is no tensor"
        raise UsageError(doing="dataset", object=file.url, cause=cause)
    tensors = [there[name] for name in names]
    if len({tensor.shape[:1] for tensor in tensors} | {()}) != 2:
        said = ", ".join(f"{tensor.name!r} is {tensor.shape}" for tensor in tensors[:5])
        hint = "`names` says which tensors are wanted"
        raise UsageError(doing="dataset", object=file.url, cause=f"its tensors have no common rows: {said}", hint=hint)
    return tensors


def _column(file: File, tensor: Tensor) -> _Column:
    shape = tensor.shape[1:]
    bits = math.prod(shape) * tensor.bits
    if bits % 8:
        cause = f"a row of {tensor.name!r}, which is {tensor.dtype} {shape}, would begin within a byte"
        raise UsageError(doing="dataset", object=file.url, cause=cause)
    return _Column(tensor.name, tensor.dtype, shape, bits // 8)


def _tensor(memory: memoryview, column: _Column) -> Any:
    return _FRAMEWORK.tensor(memory, 0, column.bytes, column.dtype, column.shape)
