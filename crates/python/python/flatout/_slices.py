"""Which bytes of a tensor an index selects: arithmetic alone, without a framework and without a request."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Iterator, Sequence

# What lies between two runs is fetched along with them where it is less than this: one request more costs about as
# much as these bytes do.
GAP_MOST = 256 << 10

# Of what is fetched for the sake of something in between, and copied out of, this much is held at once.
PIECE_BYTES = 256 << 20


@dataclass(frozen=True)
class Dimension:
    """What is selected along one dimension: `count` indices from `start` on, `step` apart."""

    start: int
    step: int
    count: int
    # An integer selected it: the result does not have this dimension.
    dropped: bool = False


@dataclass(frozen=True)
class Piece:
    """A range of the tensor's bytes, and which items of it are wanted: `counts` of them, `strides` bytes apart."""

    start: int
    end: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]

    def is_dense(self, item_bytes: int) -> bool:
        """Whether all of it is wanted, in the order in which it lies there."""
        return self.end - self.start == math.prod(self.counts) * item_bytes


@dataclass(frozen=True)
class Selection:
    """What an index selects of a tensor."""

    dimensions: tuple[Dimension, ...]
    # Of the whole tensor, in bytes.
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dimension.count for dimension in self.dimensions if not dimension.dropped)

    @property
    def bytes(self) -> int:
        return math.prod(dimension.count for dimension in self.dimensions) * self.item_bytes

    def pieces(self) -> Iterator[Piece]:
        """What to fetch, in the order of the result, of which each piece is the next part.

        From the innermost dimension outwards runs become one piece as long as what lies between them is less than a
        request is worth: rows are one piece, columns are the whole tensor, and a few columns of very long rows are a
        piece for each row.
        """
        if not self.bytes:
            return
        depth, span = len(self.dimensions), self.item_bytes
        while depth:
            dimension, stride = self.dimensions[depth - 1], self.strides[depth - 1]
            if dimension.count > 1 and dimension.step * stride - span > GAP_MOST:
                break
            span += (dimension.count - 1) * dimension.step * stride
            depth -= 1
        inner = self.dimensions[depth:]
        strides = tuple(d.step * s for d, s in zip(inner, self.strides[depth:]))
        counts = tuple(dimension.count for dimension in inner)
        within = sum(d.start * s for d, s in zip(inner, self.strides[depth:]))
        for outer in self._outer(depth):
            piece = Piece(outer + within, outer + within + span, counts, strides)
            yield from [piece] if piece.is_dense(self.item_bytes) else _in_parts(piece)

    def _outer(self, depth: int) -> Iterator[int]:
        """Where each index of the first dimensions begins."""
        starts = [0]
        for dimension, stride in zip(self.dimensions[:depth], self.strides):
            indices = range(dimension.start, dimension.start + dimension.count * dimension.step, dimension.step)
            starts = [start + index * stride for start in starts for index in indices]
        yield from starts


def _in_parts(piece: Piece) -> Iterator[Piece]:
    """The same along its outermost dimension of more than one index, in parts of bounded size."""
    outermost = next((i for i, count in enumerate(piece.counts) if count > 1), None)
    if outermost is None:
        yield piece
        return
    count, stride = piece.counts[outermost], piece.strides[outermost]
    at_once = max(1, PIECE_BYTES // stride)
    last_run = piece.end - piece.start - (count - 1) * stride
    for first in range(0, count, at_once):
        here = min(at_once, count - first)
        counts = piece.counts[:outermost] + (here,) + piece.counts[outermost + 1 :]
        start = piece.start + first * stride
        yield Piece(start, start + (here - 1) * stride + last_run, counts, piece.strides)


def select(shape: Sequence[int], item_bytes: int, index: Any) -> Selection:
    """What `tensor[index]` means: integers, slices of positive step and one ellipsis, as NumPy reads them.

    Raises IndexError for an integer outside of its dimension or more indices than dimensions, TypeError for any other
    index, ValueError for a step that is not positive.
    """
    indices = index if isinstance(index, tuple) else (index,)
    ellipses = sum(1 for one in indices if one is Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can have one ellipsis only")
    given = len(indices) - ellipses
    if given > len(shape):
        raise IndexError(f"{given} indices for a tensor of {len(shape)} dimensions")
    missing = (slice(None),) * (len(shape) - given)
    if ellipses:
        at = next(i for i, one in enumerate(indices) if one is Ellipsis)
        indices = indices[:at] + missing + indices[at + 1 :]
    else:
        indices = indices + missing
    dimensions = tuple(_dimension(axis, size, one) for axis, (size, one) in enumerate(zip(shape, indices)))
    strides = [item_bytes] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return Selection(dimensions, tuple(strides), item_bytes)


def _dimension(axis: int, size: int, index: Any) -> Dimension:
    if isinstance(index, slice):
        start, stop, step = index.indices(size)
        if step < 1:
            raise ValueError(f"the step of a slice must be positive, and that of dimension {axis} is {step}")
        return Dimension(start, step, len(range(start, stop, step)))
    try:
        # To NumPy a bool is a mask, which adds a dimension.
        number = operator.index(None if isinstance(index, bool) else index)
    except TypeError:
        kind = type(index).__name__
        raise TypeError(f"tensors are sliced by integers, slices and an ellipsis, not by {kind}") from None
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of bounds for dimension {axis} of size {size}")
    return Dimension(number % size, 1, 1, dropped=True)
