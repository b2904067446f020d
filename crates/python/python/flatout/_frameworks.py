"""Tensors as NumPy and PyTorch have them, made over memory that is there already."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

# The names of safetensors, and those of NumPy, of ml_dtypes or of torch. What is missing here, or in the version at hand, is
# a RawTensor: F4 of NumPy's friends takes a byte for each element, and nobody has F6.
_NUMPY = {
    "BOOL": "bool_",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_TORCH = {**_NUMPY, **_ML_DTYPES, "BOOL": "bool", "F4": "float4_e2m1fn_x2"}


@dataclass(frozen=True)
class RawTensor:
    """A tensor of a type that the framework at hand does not have: its bytes, as they lie in the file.

    Attributes:
        dtype: the type's name in safetensors, such as ``"BF16"`` or ``"F8_E4M3"``.
        shape: in elements, whatever an element takes.
        data: one dimension of uint8, a ``numpy.ndarray`` or a ``torch.Tensor``, writable.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Any


class NumPy:
    """Arrays of NumPy."""

    def __init__(self, device: Any):
        if str(device) != "cpu":
            raise UsageError(
                kind="usage",
                cause=f"NumPy has no device {device!r}",
                hint="leave it out, or use framework='pt'",
            )
        import numpy

        self.numpy = numpy
        self._dtypes: dict[str, Any] = {name: numpy.dtype(getattr(numpy, its)) for name, its in _NUMPY.items()}

    def dtype(self, name: str) -> Any:
        if name not in self._dtypes:
            # Not before something needs it.
            try:
                import ml_dtypes
            except ImportError:
                its = None
            else:
                its = getattr(ml_dtypes, _ML_DTYPES.get(name, ""), None)
            self._dtypes[name] = None if its is None else self.numpy.dtype(its)
        return self._dtypes[name]

    def tensor(self, memory: memoryview, at: int, nbytes: int, dtype: str, shape: tuple[int, ...]) -> Any:
        """The tensor that lies in `memory` from `at` on: shown there, or copied where that is no place for its type."""
        known = self.dtype(dtype)
        if known is None:
            return RawTensor(dtype, shape, self._flat(memory, at, nbytes, self.numpy.dtype("uint8")))
        array = self._flat(memory, at, nbytes, known).reshape(shape)
        return array if array.flags.aligned else array.copy()

    def _flat(self, memory: memoryview, at: int, nbytes: int, dtype: Any) -> Any:
        # ndarray(buffer=) would refer to the memory without holding it, so that it could be released under the array.
        if not nbytes:
            return self.numpy.empty(0, dtype)
        return self.numpy.frombuffer(memory, dtype, nbytes // dtype.itemsize, at)

    def gather(self, out: memoryview, memory: Any, counts: Any, strides: Any, item_bytes: int) -> None:
        """Copies items of `memory`, so many of them so many bytes apart, to `out`, one behind the other."""
        item = self.numpy.dtype(f"u{item_bytes}")
        self.numpy.ndarray(counts, item, out)[...] = self.numpy.ndarray(counts, item, memory, 0, strides)


class Torch:
    """Tensors of PyTorch."""

    def __init__(self, device: Any):
        import torch

        self.torch = torch
        self.device = torch.device(device)

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, _TORCH.get(name, ""), None)

    def tensor(self, memory: memoryview, at: int, nbytes: int, dtype: str, shape: tuple[int, ...]) -> Any:
        """As :meth:`NumPy.tensor`, and then on its device."""
        return self.shaped(self._bytes(memory, at, nbytes), dtype, shape)

    def shaped(self, flat: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        """The tensor whose bytes these are, on its device."""
        known = self.dtype(dtype)
        # Two of them are an element there, and rows are of whole elements.
        is_half = dtype == "F4" and shape[-1] % 2
        if known is None or is_half:
            return RawTensor(dtype, shape, self._on_device(flat))
        if dtype == "F4":
            shape = (*shape[:-1], shape[-1] // 2)
        if not len(flat):
            return self._on_device(self.torch.empty(shape, dtype=known))
        element = max(len(flat) // math.prod(shape), 1)
        if flat.data_ptr() % element:
            flat = flat.clone()
        return self._on_device(flat.view(known).view(shape))

    def _bytes(self, memory: memoryview, at: int, nbytes: int) -> Any:
        if not nbytes:
            return self.torch.empty(0, dtype=self.torch.uint8)
        return self.torch.frombuffer(memory, dtype=self.torch.uint8, count=nbytes, offset=at)

    def _on_device(self, tensor: Any) -> Any:
        return tensor.to(self.device)

    def gather(self, out: memoryview, memory: Any, counts: Any, strides: Any, item_bytes: int) -> None:
        """As :meth:`NumPy.gather`."""
        item = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[item_bytes]
        item = getattr(self.torch, item)
        apart = tuple(stride // item_bytes for stride in strides)
        items = self.torch.frombuffer(memory, dtype=item).as_strided(counts, apart)
        self.torch.frombuffer(out, dtype=item).view(counts).copy_(items)


def framework(name: str, device: Any) -> NumPy | Torch:
    """The framework by the names that the safetensors package gives it."""
    if name in ("np", "numpy"):
        return NumPy(device)
    if name in ("pt", "torch", "pytorch"):
        return Torch(device)
    raise UsageError(
        kind="usage", cause=f"there is no framework {name!r} here", hint="framework='np' or framework='pt'"
    )
