"""Tensors of safetensors files, read into memory that the caller has already."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._frameworks import NumPy, RawTensor, Torch
from ._models import File, Tensor, UnknownTensor, fetch, fetch_into
from .client import Client
from .errors import UsageError

#: Tensors of one file that lie side by side are read by one call up to so many bytes, and so many calls run at a time.
_GROUP_BYTES = 64 << 20
_GROUPS_AT_ONCE = 8

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
        if isinstance(made, NumPy) and not target.flags.writeable:
            raise UsageError(kind="usage", doing="read", object=file.url, cause=f"the array for {name!r} is read-only")


def fill(client: Client, places: Iterable[_Place], into: Mapping[str, Any], made: NumPy | Torch) -> Iterator[tuple[str, Any]]:
    """Fills tensors in this order, several calls ahead; each comes when it is filled. When this ends, also if it is closed or
    raises, nothing is written to any of them any more."""
    waiting, running = deque(_groups(places)), deque[tuple[list[_Place], "Future[None]"]]()
    pool = ThreadPoolExecutor(_GROUPS_AT_ONCE, "flatout-into")
    try:
        while waiting or running:
            while waiting and len(running) < _GROUPS_AT_ONCE:
                group = waiting.popleft()
                running.append((group, pool.submit(_fill, client, group, into, made)))
            group, ended = running.popleft()
            ended.result()
            for _, tensor in group:
                yield tensor.name, into[tensor.name]
    finally:
        pool.shutdown(cancel_futures=True)


def _groups(places: Iterable[_Place]) -> Iterator[list[_Place]]:
    group: list[_Place] = []
    held = 0
    for file, tensor in places:
        if group and (group[-1][0] is not file or held + tensor.nbytes > _GROUP_BYTES):
            yield group
            group, held = [], 0
        group.append((file, tensor))
        held += tensor.nbytes
    if group:
        yield group


def _fill(client: Client, group: list[_Place], into: Mapping[str, Any], made: NumPy | Torch) -> None:
    file = group[0][0]
    ranges, views = [], []
    for _, tensor in group:
        target = into[tensor.name]
        view = _view(target, made.dtype(tensor.dtype))
        if view is not None:
            ranges.append((tensor.start, tensor.end))
            views.append(view)
        elif tensor.nbytes:
            _copy(client, file, tensor, target, made)
    fetch_into(client, file, ranges, views)


def _copy(client: Client, file: File, tensor: Tensor, target: Any, made: NumPy | Torch) -> None:
    memory = fetch(client, file, tensor.start, tensor.end)
    read = made.tensor(memory, 0, tensor.nbytes, tensor.dtype, tensor.shape)
    if isinstance(read, RawTensor):
        cause = f"{tensor.name!r} is of {tensor.dtype}, which nothing here converts"
        raise UsageError(kind="usage", doing="read", object=file.url, cause=cause, hint="load_file gives its bytes")
    if isinstance(made, NumPy):
        target[...] = read
    else:
        target.copy_(read)


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
