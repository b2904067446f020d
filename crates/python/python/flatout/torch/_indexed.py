"""The objects of an index: a file that ``flatout volume build`` has written, in place of a listing."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import ObjectChanged
from ..hf import is_url
from ._keys import Keys, remove

if TYPE_CHECKING:
    from .._native import Info
    from ..client import Client

__all__ = ["IndexKeys"]

#: Entries of an index that a process keeps, which a batch asks for several times.
_KEPT = 4096

#: Entries that are made at a time where all are wanted.
_AT_ONCE = 1024

#: Bytes of a place.
_PLACE_BYTES = 4


class IndexKeys(Keys):
    """The objects of an index, in the order of their keys, each with its size and the ETag that reads are held to.

    Entries are read from the index when they are wanted. Beside it lies a mapped temporary file of 4 bytes for each object, which all
    workers share. It pickles as the paths of both, and is there as long as the process that made it keeps it.

    Raises:
        Corrupt: the index is truncated or damaged.
        UsageError: the file is no index, or one of a newer format.
    """

    def __init__(self, name: str, path: str, places: str, identity: tuple[int, int, int, int]) -> None:
        self._name, self._path, self._places_path = name, path, places
        self._index = _native.Index(path)
        if self._index.identity != identity:
            cause, hint = "the index was replaced since the dataset was made", "make the dataset anew"
            raise ObjectChanged(doing="open", object=name, cause=cause, hint=hint)
        with open(places, "rb") as file:
            # Of nothing there is no map.
            self._count = os.fstat(file.fileno()).st_size // _PLACE_BYTES
            found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._count else b""
        self._places = memoryview(found).cast("I")
        # Not of a method: that would hold this object, and the files that go with it.
        self._info = lru_cache(_KEPT)(partial(_entry, self._index, self._places))

    @classmethod
    def of(cls, client: Client, index: str | os.PathLike[str], include: str | None = None) -> IndexKeys:
        """Of an index that is a local file or an object, those files whose key behind its prefix matches ``include``. All of it is
        read and compared with its checksums. What lies in an object is downloaded to a temporary file.
        """
        name, made = os.fspath(index), list[str]()
        path = name
        try:
            if is_url(name):
                path = _temporary("index", made)
                client.download(name, path)
            # What the system refuses is raised as of every local file.
            with open(path, "rb"):
                pass
            path, places = os.path.abspath(path), _temporary("places", made)
            opened = _native.Index(path)
            opened.write_places(places, None if include is None else lambda key: fnmatchcase(key, include))
            keys = cls(name, path, places, opened.identity)
        except BaseException as error:
            for each in made:
                remove(each, os.getpid())
            if made and getattr(error, "object", None) == made[0] and is_url(name):
                error.object = name  # type: ignore[attr-defined]
            raise
        for each in made:
            weakref.finalize(keys, remove, each, os.getpid())
        return keys

    @property
    def base(self) -> str:
        """The URL of the prefix that the index is of."""
        return self._index.source

    @property
    def index(self) -> str:
        """The index: its file or its URL."""
        return self._name

    @property
    def path(self) -> str:
        """The file of the index."""
        return self._path

    def __len__(self) -> int:
        return self._count

    def info(self, index: int) -> Info:
        """An object as a listing would tell of it: URL, size, ETag, time."""
        if not 0 <= index < self._count:
            raise IndexError(f"there are {self._count} objects, and {index} is not among them")
        return self._info(index)

    def infos(self) -> Iterator[Info]:
        """All objects, of which some are in memory at a time."""
        for start in range(0, self._count, _AT_ONCE):
            yield from self._index.infos(self._places[start : start + _AT_ONCE].tolist())

    def url(self, index: int) -> str:
        """Of an object."""
        return self.info(index).url

    def name(self, index: int) -> str:
        """What follows the prefix in the URL of an object."""
        return self.url(index)[len(self.base) :]

    def size(self, index: int) -> int | None:
        """In bytes."""
        return self.info(index).size

    def etag(self, index: int) -> str | None:
        """Of the version that is read; None where the index has none, and any is."""
        return self.info(index).etag

    def __iter__(self) -> Iterator[str]:
        return (info.url for info in self.infos())

    def changed(self, error: ObjectChanged) -> ObjectChanged:
        """Names the index, too."""
        cause = f"it is not the version that the index {self._name} has: {error.cause}"
        hint = "`flatout volume update` lists anew; then make the dataset anew"
        return ObjectChanged(doing=error.doing, object=error.object, cause=cause, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexKeys, (self._name, self._path, self._places_path, self._index.identity)


def _entry(index: _native.Index, places: memoryview, number: int) -> Info:
    return index.infos([places[number]])[0]


def _temporary(what: str, made: list[str]) -> str:
    number, path = tempfile.mkstemp(prefix=f"flatout-{what}-")
    os.close(number)
    made.append(path)
    return path
