"""Reads models in safetensors files straight from the object store to tensors, and writes them: no local copy, no second
pass.

>>> import flatout.safetensors
>>> tensors = flatout.safetensors.load_file("s3://models/llama/model.safetensors")              # doctest: +SKIP
>>> with flatout.safetensors.safe_open("s3://models/llama/", framework="pt") as model:          # doctest: +SKIP
...     rows = model.get_slice("model.embed_tokens.weight")[:1024]

The official crate parses the headers, so every file that the ``safetensors`` package accepts is accepted here. Each file is read
in one version; one that is replaced meanwhile raises :class:`flatout.ObjectChanged`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence

from . import _native
from . import _saving
from ._frameworks import NumPy, RawTensor, Torch, framework as _framework
from ._models import File, InvalidSafetensors, Model, Tensor, UnknownTensor, fetch, fetch_into, find, open_files
from ._slices import Dimension, Selection, select as _select
from .client import Client, default_client
from .errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from ._write_options import WriteOptions

__all__ = [
    "InvalidSafetensors",
    "RawTensor",
    "UnknownTensor",
    "load_file",
    "load_model",
    "safe_open",
    "save_file",
    "save_model",
    "stream_tensors",
]

# Whole files read at once. A large one keeps the network busy on its own.
FILES_AT_ONCE = 8

# A tensor of at least this size is fetched alone, straight into the memory that it keeps. Smaller ones that lie side by side are
# fetched together, up to the second figure, and copied from there.
ALONE_BYTES = 1 << 20
TOGETHER_BYTES = 8 << 20


def load_file(
    filename: str,
    device: Any = "cpu",
    *,
    framework: str = "np",
    client: Client | None = None,
    progress: _native.Progress | bool | None = None,
) -> dict[str, Any]:
    """Reads every tensor of a file, by name, in the order of the file.

    One transfer reads the file into one piece of memory, which the tensors show: they are writable, nothing is copied, and the
    memory is freed with the last of them. The bytes are verified against the origin's checksum. Exception: where the length of
    the header is no multiple of 8 bytes, which the official package never writes, only the part behind the header is read, so
    that it is aligned, and a part of an object has no checksum.

    Args:
        filename: the URL of the file.
        device: where the tensors go: a device of torch for ``"pt"``, ``"cpu"`` for ``"np"``.
        framework: ``"np"`` for NumPy arrays, ``"pt"`` for PyTorch tensors. A tensor of a type that it lacks comes as a
            :class:`RawTensor`.
        client: by default :func:`flatout.default_client`.
        progress: a :class:`flatout.Progress` to watch, or True for a progress bar.

    Raises:
        InvalidSafetensors: the file is no safetensors file.
        ObjectChanged: it was replaced between the reads of its header and its data.
    """
    client, made = client or default_client(), _framework(framework, device)
    return _load(client, open_files(client, {filename: None}), made, progress)


def load_model(
    url: str,
    device: Any = "cpu",
    *,
    framework: str = "np",
    client: Client | None = None,
    progress: _native.Progress | bool | None = None,
) -> dict[str, Any]:
    """Reads every tensor of a model in several files, which are read in parallel.

    Args:
        url: a folder or an index (``….json``). Of a folder the files of its ``model.safetensors.index.json`` are read, or of the
            one other index there, or without an index every ``*.safetensors`` directly in it.

    The other arguments, the result and the exceptions are those of :func:`load_file`.
    """
    client, made = client or default_client(), _framework(framework, device)
    is_one = url.endswith((".json", ".safetensors", "/"))
    return _load(client, find(client, [url if is_one else url + "/"]), made, progress)


def save_file(
    tensors: Mapping[str, Any],
    filename: str,
    metadata: Mapping[str, str] | None = None,
    *,
    client: Client | None = None,
    progress: _native.Progress | bool | None = None,
    **options: Unpack[WriteOptions],
) -> _native.Info:
    """Writes tensors to a file, byte for byte as the official package does, and returns what the origin says of the object. It is
    there when it is whole. Tensors on a device, or not laid out in C order, are copied one at a time.

    Args:
        tensors: arrays of NumPy, tensors of PyTorch, or :class:`RawTensor`, by name.
        filename: the URL of the file.
        metadata: text of the user's, by name.
        client: by default :func:`flatout.default_client`.
        progress: a :class:`flatout.Progress` to watch, or True for a progress bar.
        options: what the object is stored with, as in :func:`flatout.write`.

    Raises:
        UsageError: something is no tensor, of a type that no safetensors file has, sparse, or shares memory with another.
    """
    saved = _saving.describe(tensors)
    return _saving.write_file(client or default_client(), filename, saved, metadata, progress, options)


def save_model(
    tensors: Any,
    url: str,
    metadata: Mapping[str, str] | None = None,
    *,
    max_shard_size: int = _saving.SHARD_BYTES,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> list[str]:
    """Writes a model into a folder: to ``model.safetensors``, or to several files in parallel with an index, which comes last, so
    that :func:`load_model` and Hugging Face's libraries find it. Of tensors that are the very same, such as tied weights, one is
    written, and the others are named in the metadata, as the official package has it.

    Args:
        tensors: a module of PyTorch, or tensors by name.
        url: the folder.
        metadata: text of the user's, by name, for each file.
        max_shard_size: bytes of tensors in a file at most; a larger tensor has a file of its own.
        client, options: as in :func:`save_file`.

    Returns:
        The URLs of the files, and of the index where there is one.
    """
    if max_shard_size < 1:
        raise UsageError(kind="usage", doing="save", object=url, cause=f"max_shard_size is {max_shard_size} bytes")
    named = tensors if isinstance(tensors, Mapping) else tensors.state_dict()
    return _saving.write_model(client or default_client(), url, named, metadata, max_shard_size, options)


class safe_open:
    """Opens a file, several files, or a model, to read single tensors and parts of tensors.

    Like ``safetensors.safe_open`` a context manager with ``keys``, ``offset_keys``, ``metadata``, ``get_tensor`` and ``get_slice``.
    Making it reads the headers, one request each; each tensor then costs one request.

    Args:
        filename: the URL of a file, several of them, the URL of an index (``….json``), or of a folder (which ends with ``/``).
        framework, device, client: as in :func:`load_file`.

    Raises:
        InvalidSafetensors: a file is no safetensors file, or two have a tensor of the same name.
    """

    def __init__(
        self,
        filename: str | Sequence[str],
        framework: str = "np",
        device: Any = "cpu",
        *,
        client: Client | None = None,
    ):
        self._framework = _framework(framework, device)
        self._client = client or default_client()
        self._model: Model | None = find(self._client, _listed(filename))

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._model = None

    def keys(self) -> list[str]:
        """The names of all tensors, sorted."""
        return sorted(self._opened().places)

    def offset_keys(self) -> list[str]:
        """The names of all tensors, in the order of the file."""
        return list(self._opened().places)

    def metadata(self) -> dict[str, str] | None:
        """The metadata of the header, or None. Where several files differ, the first one counts."""
        said = [file.metadata for file in self._opened().files if file.metadata is not None]
        return {key: value for one in reversed(said) for key, value in one.items()} if said else None

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor, which owns its memory.

        Raises UnknownTensor (a KeyError) for an unknown name, and ObjectChanged where the file was replaced.
        """
        file, tensor = self._opened().place(name)
        memory = fetch(self._client, file, tensor.start, tensor.end)
        return self._framework.tensor(memory, 0, tensor.nbytes, tensor.dtype, tensor.shape)

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor to be sliced. Nothing is read before it is indexed."""
        file, tensor = self._opened().place(name)
        return TensorSlice(self._client, self._framework, file, tensor)

    def get_shape(self, name: str) -> list[int]:
        """The shape of a tensor, in elements."""
        return list(self._opened().place(name)[1].shape)

    def get_dtype(self, name: str) -> str:
        """The name of a tensor's type in safetensors, such as ``"BF16"``."""
        return self._opened().place(name)[1].dtype

    def _opened(self) -> Model:
        if self._model is None:
            raise UsageError(kind="usage", doing="read", cause="this safe_open has been closed")
        return self._model


class TensorSlice:
    """A tensor of which parts are read: ``model.get_slice(name)[:1024, ::2]``.

    Integers, slices of positive step and an ellipsis mean the same as in NumPy. Adjacent rows are one request. Gaps of less than
    256 KiB between parts are fetched as well, because that costs less than another request. So columns cost the whole tensor,
    which is held in pieces of 256 MiB only while they are copied from it.
    """

    def __init__(self, client: Client, made: NumPy | Torch, file: File, tensor: Tensor):
        self._client, self._framework, self._file, self._tensor = client, made, file, tensor

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor, in elements."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The name of its type in safetensors, such as ``"BF16"``."""
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        """Reads the part, which owns its memory.

        Raises IndexError, TypeError or ValueError for an invalid index; ValueError also for one that would cut a byte, where elements
        are smaller than a byte.
        """
        tensor, made = self._tensor, self._framework
        selected, shape = _selected(tensor, index)
        memory = self._read(selected)
        return made.tensor(memory, 0, selected.bytes, tensor.dtype, shape)

    def _read(self, selected: Selection) -> memoryview:
        start, item_bytes = self._tensor.start, selected.item_bytes
        pieces = list(selected.pieces())
        if len(pieces) == 1 and pieces[0].is_dense(item_bytes):
            return fetch(self._client, self._file, start + pieces[0].start, start + pieces[0].end)
        out, at = memoryview(bytearray(selected.bytes)), 0
        dense, places = [], []
        for piece in pieces:
            place = out[at : at + math.prod(piece.counts) * item_bytes]
            at += len(place)
            if piece.is_dense(item_bytes):
                dense.append((start + piece.start, start + piece.end))
                places.append(place)
            else:
                memory = fetch(self._client, self._file, start + piece.start, start + piece.end)
                self._framework.gather(place, memory, piece.counts, piece.strides, item_bytes)
        fetch_into(self._client, self._file, dense, places)
        return out


def stream_tensors(
    urls: str | Iterable[str],
    *,
    order: str = "file",
    select: Callable[[str], bool] | str | None = None,
    memory_limit: int | None = None,
    into: Mapping[str, Any] | None = None,
    framework: str = "np",
    device: Any = "cpu",
    client: Client | None = None,
    progress: _native.Progress | bool | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yields tensors one by one, as (name, tensor), while the next ones are fetched. Each tensor owns its memory.

    The headers are read when this is called. Closing the iterator cancels what is in flight.

    Args:
        urls: as in :class:`safe_open`.
        order: ``"file"``, the order of the files; ``"names"``, sorted; ``"completion"``, as they arrive.
        select: which tensors: a pattern such as ``"model.layers.3.*"``, or a function of the name.
        memory_limit: bytes that may be in flight, or fetched and not yet taken; a larger tensor comes alone. By default the
            client's setting ``memory``.
        into: tensors by name that are there already: these alone are read, straight into them where they are contiguous, on the
            CPU and of the type of the file, by a copy otherwise. They are yielded as they are filled, in the order of the file or
            of the names, and are nobody else's until the iterator has ended. Without a bar.
        framework, device, client, progress: as in :func:`load_file`.

    Raises:
        InvalidSafetensors, ObjectChanged: as in :func:`load_file`.
    """
    if order not in ("file", "names", "completion"):
        hint = "order='file', order='names' or order='completion'"
        raise UsageError(kind="usage", cause=f"there is no order {order!r}", hint=hint)
    if memory_limit is not None and memory_limit <= 0:
        raise UsageError(kind="usage", cause=f"a memory_limit of {memory_limit} bytes")
    client = client or default_client()
    if into is not None:
        # Not before something needs NumPy.
        from . import _into

        if progress:
            raise UsageError(kind="usage", cause="into= has no progress", hint="leave progress= out")
        made = _into.framework_of(into)
    else:
        made = _framework(framework, device)
    model = find(client, _listed(urls))
    if into is not None:
        _into.check(model.places, into, made)
    places = [place for name, place in model.places.items() if _is_selected(name, select) and (into is None or name in into)]
    if isinstance(select, str) and not places:
        raise UsageError(kind="usage", doing="read", object=model.files[0].url, cause=f"no tensor matches {select!r}")
    if order == "names":
        places.sort(key=lambda place: place[1].name)
    if into is not None:
        return _into.fill(client, places, into, made, memory_limit)
    batches = _batches(places, min(TOGETHER_BYTES, memory_limit or TOGETHER_BYTES))
    return _stream(_Ahead(client, batches, memory_limit, order == "completion", progress), made)


def _stream(ahead: _Ahead, made: NumPy | Torch) -> Iterator[tuple[str, Any]]:
    try:
        while ahead:
            batch, memory = ahead.next()
            for tensor in batch.tensors:
                # Keep no reference to a tensor that was yielded.
                pair = [(tensor.name, batch.tensor(tensor, memory, made))]
                if tensor is batch.tensors[-1]:
                    del memory
                    ahead.on_taken(batch)
                yield pair.pop()
    finally:
        ahead.close()


@dataclass
class _Batch:
    """Tensors that lie side by side and are fetched together."""

    file: File
    tensors: list[Tensor]

    @property
    def start(self) -> int:
        return self.tensors[0].start

    @property
    def end(self) -> int:
        return self.tensors[-1].end

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    def takes(self, file: File, tensor: Tensor, most: int) -> bool:
        """Whether a further tensor belongs to it."""
        is_next = file is self.file and tensor.start == self.end
        is_small = max(self.tensors[0].nbytes, tensor.nbytes) < ALONE_BYTES
        return is_next and is_small and self.nbytes + tensor.nbytes <= most

    def tensor(self, tensor: Tensor, memory: memoryview, made: NumPy | Torch) -> Any:
        """One of its tensors, made from the fetched bytes; it owns its memory."""
        if len(self.tensors) > 1:
            start = tensor.start - self.start
            memory = memoryview(bytearray(memory[start : start + tensor.nbytes]))
        return made.tensor(memory, 0, tensor.nbytes, tensor.dtype, tensor.shape)


def _batches(places: Iterable[tuple[File, Tensor]], most: int) -> deque[_Batch]:
    batches: deque[_Batch] = deque()
    for file, tensor in places:
        if batches and batches[-1].takes(file, tensor, most):
            batches[-1].tensors.append(tensor)
        else:
            batches.append(_Batch(file, [tensor]))
    return batches


class _Ahead:
    """Batches in flight or fetched, as many as the limit allows. A batch that was taken is forgotten."""

    def __init__(
        self,
        client: Client,
        batches: deque[_Batch],
        limit: int | None,
        as_they_arrive: bool,
        progress: _native.Progress | bool | None,
    ):
        self._waiting, self._as_they_arrive = batches, as_they_arrive
        self._reads = _native.ReadQueue(client, progress, "tensors")
        self._limit = limit or self._reads.memory_bytes
        self._begun: dict[int, _Batch] = {}
        self._arrived: dict[int, memoryview] = {}
        self._held = self._numbers = 0
        self._begin()

    def __bool__(self) -> bool:
        return bool(self._begun)

    def next(self) -> tuple[_Batch, memoryview]:
        """Waits for the next batch."""
        while True:
            number = next(iter(self._arrived if self._as_they_arrive else self._begun), None)
            if number in self._arrived:
                return self._begun.pop(number), self._arrived.pop(number)
            ended, buffer, _ = self._reads.next()
            self._arrived[ended] = memoryview(buffer)

    def on_taken(self, batch: _Batch) -> None:
        self._held -= batch.nbytes
        self._begin()

    def close(self) -> None:
        self._reads.close()

    def _begin(self) -> None:
        while self._waiting and (not self._held or self._held + self._waiting[0].nbytes <= self._limit):
            batch = self._waiting.popleft()
            number, self._numbers = self._numbers, self._numbers + 1
            here = batch.file.at_hand(batch.start, batch.end)
            if here is None:
                file = batch.file
                self._reads.start(number, file.url, batch.start, batch.end, file.version)
            else:
                self._arrived[number] = here
            self._begun[number] = batch
            self._held += batch.nbytes


def _load(
    client: Client, model: Model, made: NumPy | Torch, progress: _native.Progress | bool | None
) -> dict[str, Any]:
    """Whole files, each in one transfer."""
    loaded: dict[int, dict[str, Any]] = {}
    waiting, running = iter(enumerate(model.files)), 0
    title = model.files[0].url if len(model.files) == 1 else f"{len(model.files)} files"
    reads = _native.ReadQueue(client, progress, title)
    try:
        while len(loaded) < len(model.files):
            for number, file in islice(waiting, FILES_AT_ONCE - running):
                begin = file.load_from()
                here = file.at_hand(begin, file.size)
                if here is None:
                    reads.start(number, file.url, begin, file.size, file.version)
                    running += 1
                else:
                    loaded[number] = _tensors(file, here, made)
            if running:
                number, buffer, _ = reads.next()
                running -= 1
                loaded[number] = _tensors(model.files[number], memoryview(buffer), made)
    finally:
        reads.close()
    return {name: tensor for _, tensors in sorted(loaded.items()) for name, tensor in tensors.items()}


def _tensors(file: File, memory: memoryview, made: NumPy | Torch) -> dict[str, Any]:
    begin = file.size - len(memory)
    return {t.name: made.tensor(memory, t.start - begin, t.nbytes, t.dtype, t.shape) for t in file.served()}


def _listed(urls: str | Iterable[str]) -> list[str]:
    return [urls] if isinstance(urls, str) else list(urls)


def _is_selected(name: str, select: Callable[[str], bool] | str | None) -> bool:
    if select is None:
        return True
    return fnmatchcase(name, select) if isinstance(select, str) else bool(select(name))


def _selected(tensor: Tensor, index: Any) -> tuple[Selection, tuple[int, ...]]:
    """Which bytes an index selects, and the shape that it gives."""
    if tensor.bits % 8 == 0:
        selected = _select(tensor.shape, tensor.bits // 8, index)
        return selected, selected.shape
    # Elements that are smaller than a byte: a row is one of bytes, and what is selected of it must begin and end with one.
    selected = _select(tensor.shape, 1, index)
    *outer, last = selected.dimensions
    start, count = last.start * tensor.bits, last.count * tensor.bits
    row = tensor.shape[-1] * tensor.bits
    whole = all(d.count == size and d.step == 1 for d, size in zip(selected.dimensions, tensor.shape))
    if whole:
        return _select((tensor.nbytes,), 1, ...), selected.shape
    if last.step != 1 and last.count > 1 or start % 8 or count % 8 or row % 8:
        raise ValueError(f"elements of {tensor.dtype} have {tensor.bits} bits, and this slice would cut a byte")
    in_bytes = _select((*tensor.shape[:-1], row // 8), 1, ...)
    dimensions = (*outer, Dimension(start // 8, 1, count // 8))
    return Selection(dimensions, in_bytes.strides, 1), selected.shape
