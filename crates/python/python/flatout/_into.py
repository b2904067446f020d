"""Tensors of safetensors files, read into memory that the caller has already."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy

from ._frameworks import NumPy, RawTensor, Torch
from ._in_order import in_order
from ._models import File, Tensor, UnknownTensor, fetch, fetch_into
from .client import Client
from .errors import UsageError

#: Tensors of one file are read by one call up to so many bytes.
_GROUP_BYTES = 64 << 20

_Place = tuple[File, Tensor]


def framework_of(into: Mapping[str, Any]) -> NumPy | Torch:
    """That of the tensors."""
    torch = sys.modules.get("torch")
    has_torch = torch is not None and any(isinstance(target, torch.Tensor) for target in into.values())
    return Torch("cpu") if has_torch else NumPy("cpu")


def check(places: Mapping[str, _Place], into: Mapping[str, Any], made: NumPy | Torch) -> None:
    """Sees that every tensor can be filled.

    Raises:
        UnknownTensor: the files have none of that name.
        UsageError: the shapes differ, or one is no tensor that can be written.
    """
    for name, target in into.items():
        if name not in places:
            raise UnknownTensor(kind="usage", doing="read", object=name, cause=f"there is no tensor {name!r}")
        file, tensor = places[name]
        wanted = _shape(made, tensor)
        if tuple(getattr(target, "shape", ())) != wanted or not hasattr(target, "dtype"):
            cause = f"the tensor {name!r} is {wanted}, and what it is to go into {tuple(getattr(target, 'shape', ())) or target!r}"
            raise UsageError(kind="usage", doing="read", object=file.url, cause=cause)
        if isinstance(made, Torch) != hasattr(target, "data_ptr"):
            cause = f"{name!r} is to go into {type(target).__name__}, and others into another framework's"
            raise UsageError(kind="usage", doing="read", object=file.url, cause=cause, hint="call it for each framework")
        if isinstance(made, NumPy) and not target.flags.writeable:
            raise UsageError(kind="usage", doing="read", object=file.url, cause=f"the array for {name!r} is read-only")


def fill(client: Client, places: Iterable[_Place], into: Mapping[str, Any], made: NumPy | Torch, limit: int | None) -> Iterator[tuple[str, Any]]:
    """Fills tensors in this order, several calls ahead; each comes when it is filled. Those that need a copy are held up to the limit.
    When this ends, also if it is closed or raises, nothing is written to any of them any more."""
    groups = list(_groups(places, into, made))
    calls = ((0 if views else group[0][1].nbytes, partial(_read, client, group, views, made)) for group, views in groups)
    for (group, _), read in zip(groups, in_order(calls, limit or client.memory_limit)):
        if read is not None:
            # By the caller's thread: what it has said of gradients and streams holds here.
            _copy(group[0], into[group[0][1].name], read, made)
            del read
        for _, tensor in group:
            yield tensor.name, into[tensor.name]


def _groups(places: Iterable[_Place], into: Mapping[str, Any], made: NumPy | Torch) -> Iterator[tuple[list[_Place], list[memoryview]]]:
    """Tensors that one call reads, and where they go; nowhere yet where one needs a copy, which is alone."""
    group: list[_Place] = []
    views: list[memoryview] = []
    held = 0
    taken = Taken()
    for file, tensor in places:
        view = _view(into[tensor.name], made.dtype(tensor.dtype))
        is_straight = view is not None and taken.is_free(view)
        if group and (not is_straight or group[-1][0] is not file or held + tensor.nbytes > _GROUP_BYTES):
            yield group, views
            group, views, held = [], [], 0
        if is_straight:
            assert view is not None
            group.append((file, tensor))
            views.append(view)
            held += tensor.nbytes
        else:
            yield [(file, tensor)], []
    if group:
        yield group, views


class Taken:
    """Memory that is filled by now: one call may not write what another writes, as tied weights would have it."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def is_free(self, view: memoryview) -> bool:
        """Whether none of these bytes is taken; they are from now on."""
        start = numpy.frombuffer(view, numpy.uint8).ctypes.data
        end, at = start + view.nbytes, bisect_right(self._starts, start)
        if (at and self._ends[at - 1] > start) or (at < len(self._starts) and self._starts[at] < end):
            return False
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        return True


def _read(client: Client, group: list[_Place], views: list[memoryview], made: NumPy | Torch) -> Any:
    file = group[0][0]
    if views:
        fetch_into(client, file, [(tensor.start, tensor.end) for _, tensor in group], views)
        return None
    tensor = group[0][1]
    return made.tensor(fetch(client, file, tensor.start, tensor.end), 0, tensor.nbytes, tensor.dtype, tensor.shape)


def _copy(place: _Place, target: Any, read: Any, made: NumPy | Torch) -> None:
    file, tensor = place
    if isinstance(read, RawTensor):
        cause = f"{tensor.name!r} is of {tensor.dtype}, which nothing here converts"
        raise UsageError(kind="usage", doing="read", object=file.url, cause=cause, hint="load_file gives its bytes")
    if isinstance(made, NumPy):
        target[...] = read
    else:
        target.detach().copy_(read)


def _view(target: Any, dtype: Any) -> memoryview | None:
    """The bytes of a tensor that can be filled as it lies; None where it needs a copy."""
    if dtype is None or target.dtype != dtype or sys.byteorder != "little":
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.Tensor):
        is_plain = target.device.type == "cpu" and target.layout == torch.strided and target.is_contiguous()
        if not is_plain or target.is_conj() or target.is_neg() or not target.numel():
            return None
        return memoryview(target.detach().reshape(-1).view(torch.uint8).numpy())
    if not target.flags.c_contiguous or not target.size:
        return None
    return memoryview(target.reshape(-1).view("uint8"))


def _shape(made: NumPy | Torch, tensor: Tensor) -> tuple[int, ...]:
    """As the framework has it: two elements of four bits are one there."""
    if isinstance(made, Torch) and tensor.dtype == "F4" and tensor.shape and made.dtype("F4") is not None:
        return (*tensor.shape[:-1], tensor.shape[-1] // 2)
    return tuple(tensor.shape)
