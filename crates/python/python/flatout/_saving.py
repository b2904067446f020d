"""Tensors to safetensors files, straight to the object store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _native
from ._at_once import to_the_end
from ._frameworks import _ML_DTYPES, _NUMPY, _TORCH, RawTensor
from ._models import INDEX
from ._writer import RemoteWriter
from .client import Client
from .errors import AlreadyExists, UsageError

#: The largest file of a model, as Hugging Face's libraries have it.
SHARD_BYTES = 5_000_000_000


@dataclass
class Saved:
    """A tensor that is to be saved."""

    name: str
    tensor: Any
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    def data(self) -> memoryview:
        """Its bytes in C order, little-endian; copied where it is laid out otherwise, or on a device."""
        tensor = self.tensor.data if isinstance(self.tensor, RawTensor) else self.tensor
        if not self.nbytes:
            return memoryview(b"")
        if _is_torch(tensor):
            import torch

            flat = tensor.detach().to("cpu").contiguous().reshape(-1)
            # The view of some types as bytes is refused where there is no dimension to halve.
            return memoryview(flat.view(torch.uint8).numpy())
        import numpy

        array = numpy.ascontiguousarray(tensor)
        if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
            array = array.byteswap()
        return memoryview(array.reshape(-1).view(numpy.uint8))


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def describe(tensors: Mapping[str, Any]) -> list[Saved]:
    """What is known of each without a look at its bytes.

    Raises:
        UsageError: something is no tensor, or is of a type or layout that no safetensors file has, or two share memory.
    """
    if not isinstance(tensors, Mapping):
        raise _refused("", f"tensors are a dict of tensors by name, not {type(tensors).__name__}")
    saved = [_described(name, tensor) for name, tensor in tensors.items()]
    shared = _shared(saved)
    if shared:
        names = ", ".join(repr(name) for name in shared)
        raise _refused(
            shared[0],
            f"the tensors {names} share memory: a file would hold it several times, and loading would part them",
            "save_model keeps one of those that are the same; or save a .clone()",
        )
    return saved


def _described(name: str, tensor: Any) -> Saved:
    if not isinstance(name, str):
        raise _refused(repr(name), "names of tensors are str")
    if isinstance(tensor, RawTensor):
        data = tensor.data
        nbytes = data.numel() * data.element_size() if _is_torch(data) else data.nbytes
        return Saved(name, tensor, tensor.dtype, tuple(tensor.shape), nbytes)
    if _is_torch(tensor):
        import torch

        dtype = _of_torch().get(tensor.dtype)
        if tensor.layout != torch.strided:
            raise _refused(name, "a sparse tensor", "save its indices and values")
        if dtype is None:
            raise _refused(name, f"safetensors has no type for {tensor.dtype}")
        shape = tuple(tensor.shape)
        if dtype == "F4" and shape:
            # Two of them are an element there.
            shape = (*shape[:-1], shape[-1] * 2)
        return Saved(name, tensor, dtype, shape, tensor.numel() * tensor.element_size())
    import numpy

    if not isinstance(tensor, numpy.ndarray):
        raise _refused(name, f"{type(tensor).__name__} is no tensor of PyTorch or NumPy")
    its = {its: ours for ours, its in (*_NUMPY.items(), *_ML_DTYPES.items())}
    dtype = its.get(tensor.dtype.name) or its.get(f"{tensor.dtype.name}_")
    if dtype is None:
        raise _refused(name, f"safetensors has no type for {tensor.dtype}")
    return Saved(name, tensor, dtype, tensor.shape, tensor.nbytes)


def _of_torch() -> dict[Any, str]:
    import torch

    return {getattr(torch, its): ours for ours, its in _TORCH.items() if hasattr(torch, its)}


def _place(tensor: Any) -> tuple[Any, int, int] | None:
    """The storage of a tensor of PyTorch, and the bytes of it that the tensor reaches; None where it has none."""
    if not _is_torch(tensor) or not tensor.numel() or tensor.device.type == "meta":
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    start = tensor.data_ptr()
    return tensor.device, start, start + (last + 1) * tensor.element_size()


def _shared(saved: Iterable[Saved]) -> list[str]:
    """The names of the first tensors that share memory."""
    places = sorted((*place[1:], str(place[0]), each.name) for each in saved if (place := _place(each.tensor)))
    for one, other in zip(places, places[1:]):
        if one[2] == other[2] and other[0] < one[1]:
            return [one[3], other[3]]
    return []


def without_twins(tensors: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors with each that is the very same as another left out, and the names of those: of which they are."""
    kept: dict[str, Any] = {}
    known: dict[Any, str] = {}
    twins: dict[str, str] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        place = _place(tensor)
        key = None if place is None else (str(place[0]), place[1], tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key is not None and key in known:
            twins[name] = known[key]
            continue
        if key is not None:
            known[key] = name
        kept[name] = tensor
    return kept, twins


def write_file(
    client: Client,
    url: str,
    saved: list[Saved],
    metadata: Mapping[str, str] | None,
    progress: _native.Progress | _native.Watched | bool | None,
    options: Mapping[str, Any],
    running: list[RemoteWriter] | None = None,
) -> _native.Info:
    """A file of these tensors, which is there when it is whole. It is among ``running`` while it is written."""
    told = [(each.name, each.dtype, each.shape, each.nbytes) for each in saved]
    try:
        header, order = _native.safetensors_head(told, None if metadata is None else dict(metadata))
    except ValueError as wrong:
        raise _refused(url, str(wrong)) from None
    with RemoteWriter(_native.Writer(client, url, dict(options), False, progress)) as writer:
        if running is not None:
            running.append(writer)
        writer.write(header)
        for index in order:
            writer.write(saved[index].data())
    info = writer.info
    assert info is not None, "it was closed without an exception"
    return info


def shards(saved: list[Saved], most: int) -> list[list[Saved]]:
    """Tensors in their order, in files of at most ``most`` bytes; a larger one has a file of its own."""
    files: list[list[Saved]] = [[]]
    held = 0
    for each in saved:
        if files[-1] and held + each.nbytes > most:
            files.append([])
            held = 0
        files[-1].append(each)
        held += each.nbytes
    return files


def write_model(
    client: Client,
    folder: str,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None,
    most: int,
    options: Mapping[str, Any],
) -> list[str]:
    """The URLs of the files of a model, and of their index, which comes last."""
    kept, twins = without_twins(tensors)
    said = {"format": "pt" if any(map(_is_torch, kept.values())) else "np", **twins, **(metadata or {})}
    saved = describe(kept)
    files = shards(saved, most)
    folder = folder if folder.endswith("/") else f"{folder}/"
    names = [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    if len(files) == 1:
        names = ["model.safetensors"]
    is_new = options.get("overwrite", True) is False
    if is_new and client.exists(folder + INDEX):
        cause = "a model is there already, and overwrite=False"
        raise AlreadyExists(kind="changed", doing="save", object=folder + INDEX, cause=cause, hint="save to another folder")
    running: list[RemoteWriter] = []

    def one(at: int) -> None:
        write_file(client, folder + names[at], files[at], said, None, options, running)

    to_the_end(one, range(len(files)), stop=lambda: [writer.cancel() for writer in list(running)])
    urls = [folder + name for name in names]
    # One that an earlier model has left would name its files.
    if len(files) > 1 or client.exists(folder + INDEX):
        index = {
            "metadata": {"total_size": sum(each.nbytes for each in saved)},
            "weight_map": {each.name: name for name, file in zip(names, files) for each in file},
        }
        # It is of a type of its own, and the condition was one for a file.
        left = {name: value for name, value in options.items() if name not in ("if_match", "content_type")}
        client.write(folder + INDEX, json.dumps(index, indent=2).encode(), **left)
        urls.append(folder + INDEX)
    return urls


def _refused(what: str, cause: str, hint: str | None = None) -> UsageError:
    return UsageError(kind="usage", doing="save", object=what, cause=cause, hint=hint)
