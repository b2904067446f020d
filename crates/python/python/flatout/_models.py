"""What a model is made of: files, their headers, the index that says which of them has what. And how their bytes come."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

from . import _native
from .client import Client
from .errors import FlatoutError, NotFound, Unsupported, UsageError

# What is asked for before anything is known of a file. Headers have about 120 bytes a tensor: those of four thousand fit.
# More would cost a new connection round trips while its window opens.
HEAD_BYTES = 512 << 10
HEADS_AT_ONCE = 64
# Ranges of a file that are asked for at once where each is a read of its own.
RANGES_AT_ONCE = 64
# No type of safetensors asks for more.
ALIGN = 8

INDEX = "model.safetensors.index.json"


class InvalidSafetensors(FlatoutError, ValueError):
    """Not a safetensors file, or an index that does not fit its files. ``object`` names which, ``cause`` says what is wrong."""


class UnknownTensor(UsageError, KeyError):
    """There is no tensor of that name."""


# Where they are to be imported from.
InvalidSafetensors.__module__ = UnknownTensor.__module__ = "flatout.safetensors"


class Tensor(NamedTuple):
    """Where a tensor lies: `start..end` of its file."""

    name: str
    dtype: str
    bits: int
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass
class File:
    """A safetensors file whose header has been read."""

    url: str
    version: Any
    size: int
    data_start: int
    metadata: Mapping[str, str] | None
    tensors: Sequence[Tensor]
    # Of a small file: what follows the header, which all came with it.
    data: bytearray | None = None
    # Of an index: those of its tensors that it is to serve.
    wanted: set[str] | None = None

    def at_hand(self, start: int, end: int) -> memoryview | None:
        """Those bytes, copied, if they came with the header."""
        if start == end:
            return memoryview(bytearray())
        if self.data is None:
            return None
        return memoryview(self.data[start - self.data_start : end - self.data_start])

    def load_from(self) -> int:
        """Where to begin when all tensors are wanted: a whole object is verified, while a part of it has no checksum. But where
        the header has an odd length they would not lie where their types may lie."""
        return 0 if self.data is None and self.data_start % ALIGN == 0 else self.data_start

    def served(self) -> Iterator[Tensor]:
        """Its tensors, but for those that an index has from elsewhere."""
        return (t for t in self.tensors if self.wanted is None or t.name in self.wanted)


@dataclass
class Model:
    """Files, and which of them has which tensor."""

    files: list[File]
    places: dict[str, tuple[File, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file in self.files:
            for tensor in file.served():
                other = self.places.setdefault(tensor.name, (file, tensor))[0]
                if other is not file:
                    raise _invalid(file.url, f"it has a tensor {tensor.name!r}, and so has {other.url}")

    def place(self, name: str) -> tuple[File, Tensor]:
        try:
            return self.places[name]
        except KeyError:
            urls = ", ".join(file.url for file in self.files[:3]) + (" …" if len(self.files) > 3 else "")
            raise UnknownTensor(kind="usage", doing="read", object=urls, cause=f"there is no tensor {name!r}") from None


def fetch(client: Client, file: File, start: int, end: int) -> memoryview:
    """Bytes of a file, in memory of their own."""
    here = file.at_hand(start, end)
    if here is not None:
        return here
    reads = _native.ReadQueue(client)
    try:
        reads.start(0, file.url, start, end, file.version)
        return memoryview(reads.next()[1])
    finally:
        reads.close()


def fetch_into(client: Client, file: File, ranges: list[tuple[int, int]], places: list[memoryview]) -> None:
    """The same of several ranges, each straight to its place."""
    if file.data is not None:
        for (start, end), place in zip(ranges, places):
            place[:] = file.data[start - file.data_start : end - file.data_start]
    elif ranges and file.version.etag is not None:
        client.read_ranges(file.url, ranges, if_match=file.version.etag, max_gap=0, out=places)
    elif ranges:
        _fetch_held(client, file, ranges, places)


def _fetch_held(client: Client, file: File, ranges: list[tuple[int, int]], places: list[memoryview]) -> None:
    """The same one by one, each held against the version of the header: without an ETag no condition does that."""
    waiting, running = iter(enumerate(ranges)), 0
    reads = _native.ReadQueue(client)
    try:
        for _ in ranges:
            for number, (start, end) in islice(waiting, RANGES_AT_ONCE - running):
                reads.start(number, file.url, start, end, file.version)
                running += 1
            number, buffer, _ = reads.next()
            running -= 1
            places[number][:] = memoryview(buffer)
    finally:
        reads.close()


def open_files(client: Client, files: Mapping[str, set[str] | None]) -> Model:
    """Reads the headers of files; of each it is said which tensors are wanted, where not all."""
    return Model([file for _, file in sorted(read_headers(client, files), key=itemgetter(0))])


def read_headers(client: Client, files: Mapping[str, set[str] | None]) -> Iterator[tuple[int, File]]:
    """The same, each file with its number, as they arrive."""
    urls: list[str] = list(files)
    waiting, running = iter(enumerate(urls)), 0
    reads = _native.ReadQueue(client)
    try:
        while True:
            for number, url in islice(waiting, HEADS_AT_ONCE - running):
                reads.start(number, url, 0, HEAD_BYTES)
                running += 1
            if not running:
                return
            try:
                number, buffer, version = reads.next()
            except UsageError as refused:
                # An empty object has no first bytes to ask for.
                if refused.object in files and client.stat(refused.object).size == 0:
                    raise _invalid(refused.object, "it is empty") from None
                raise
            url, head = urls[number], memoryview(buffer)
            missing = _missing(url, head, version)
            if missing:
                reads.start(number, url, 0, missing, version)
            else:
                running -= 1
                yield number, _read_header(url, head, version, files[url])
    finally:
        reads.close()


def _missing(url: str, head: memoryview, version: Any) -> int | None:
    """Where the header ends, if not all of it is there."""
    if version.size is None:
        raise Unsupported(kind="unsupported", doing="read", object=url, cause="the origin does not say how long it is")
    try:
        end = _native.safetensors_header_end(head, version.size)
    except ValueError as wrong:
        raise _invalid(url, str(wrong)) from None
    return end if end > len(head) else None


def _read_header(url: str, head: memoryview, version: Any, wanted: set[str] | None) -> File:
    try:
        data_start = _native.safetensors_header_end(head, version.size)
        metadata, rows = _native.safetensors_header(head, version.size)
    except ValueError as wrong:
        raise _invalid(url, str(wrong)) from None
    tensors = [Tensor(*row) for row in rows]
    unknown = (wanted or set()).difference(tensor.name for tensor in tensors)
    if unknown:
        raise _invalid(url, f"its index says that it has a tensor {min(unknown)!r}, and it has none of that name")
    data = bytearray(head[data_start:]) if len(head) == version.size else None
    return File(url, version, version.size, data_start, metadata, tensors, data, wanted)


def find(client: Client, urls: Iterable[str]) -> Model:
    """The files that are meant by URLs of files, folders and indices."""
    files: dict[str, set[str] | None] = {}
    for url in urls:
        found: Mapping[str, set[str] | None] = {url: None}
        if url.endswith("/"):
            found = _folder(client, url)
        elif url.endswith(".json"):
            found = _index(client, url)
        for file, wanted in found.items():
            before = files.get(file, wanted)
            # Two indices may name the same file; where one asks for all of it, the other adds nothing.
            files[file] = None if wanted is None or before is None else before | wanted
    return open_files(client, files)


def _folder(client: Client, url: str) -> Mapping[str, set[str] | None]:
    try:
        return _index(client, url + INDEX)
    except NotFound:
        pass
    there = [entry.url for entry in client.ls(url) if not entry.is_prefix]
    indices = [one for one in there if one.endswith(".safetensors.index.json")]
    if len(indices) > 1:
        names = ", ".join(one.rpartition("/")[2] for one in indices)
        raise UsageError(
            kind="usage", doing="read", object=url, cause=f"there are several indices: {names}", hint="name one"
        )
    if indices:
        return _index(client, indices[0])
    files = sorted(one for one in there if one.endswith(".safetensors"))
    if not files:
        raise NotFound(kind="not_found", doing="read", object=url, cause="there is no *.safetensors in this folder")
    return dict.fromkeys(files)


def _index(client: Client, url: str) -> Mapping[str, set[str] | None]:
    """Which tensors of which files an index names."""
    text = bytes(client.read(url))
    try:
        index = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise _invalid(url, f"this index is not JSON: {wrong}") from None
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict):
        raise _invalid(url, 'this index has no "weight_map"')
    if not names:
        raise _invalid(url, 'the "weight_map" of this index names no tensor')
    folder = url.rpartition("/")[0]
    files: dict[str, set[str]] = {}
    for tensor, name in names.items():
        if not isinstance(name, str) or not _stays_within(name):
            raise _invalid(url, f"the file of tensor {tensor!r} is {name!r}, which is no name below this folder")
        files.setdefault(f"{folder}/{name}", set()).add(tensor)
    return files


def _stays_within(name: str) -> bool:
    return all(part not in ("", ".", "..") for part in name.split("/")) and "\\" not in name


def _invalid(url: str, cause: str) -> InvalidSafetensors:
    return InvalidSafetensors(kind="invalid", doing="read", object=url, cause=cause)
