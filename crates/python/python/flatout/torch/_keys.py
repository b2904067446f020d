"""The names of many objects in a file that is mapped: all workers and ranks of a machine share one, and none is pickled."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..client import Client
    from ..errors import ObjectChanged

__all__ = ["KeyTable", "Keys"]

_MAGIC = b"flatout keys 2\n\0"
#: Magic, how many there are, bytes of the base, of the pattern, and of the names.
_HEAD = struct.Struct("<16sQQQQ")
#: The pattern that all names match.
_ALL = "*"
#: The size of an object that is not known.
_UNKNOWN = 2**64 - 1


class Keys:
    """Objects by number, in the order in which a dataset has them."""

    @property
    def base(self) -> str:
        """What all URLs begin with."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def name(self, index: int) -> str:
        """What follows the base in the URL of an object."""
        raise NotImplementedError

    def size(self, index: int) -> int | None:
        """In bytes; None where nothing told it."""
        raise NotImplementedError

    def etag(self, index: int) -> str | None:
        """Of the version that is read; None where any is."""
        return None

    def url(self, index: int) -> str:
        """Of an object."""
        return self.base + self.name(index)

    def __iter__(self) -> Iterator[str]:
        return (self.url(index) for index in range(len(self)))

    def changed(self, error: ObjectChanged) -> ObjectChanged:
        """What is raised where an object has another version than :meth:`etag` names."""
        return error


class KeyTable(Keys):
    """URLs and sizes of objects, in the order in which they were given, over a file of 16 bytes and the name for each.

    It pickles as the path of its file. One of a temporary file is there as long as the process that made it keeps it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._open()

    def _open(self) -> None:
        with open(self._path, "rb") as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                cause, hint = "this is no table of keys", "remove it, and it is made anew"
                raise UsageError(kind="usage", doing="open", object=self._path, cause=cause, hint=hint)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _, self._count, base_bytes, include_bytes, names_bytes = _HEAD.unpack(head)
        at = _HEAD.size
        if at + 16 * self._count + base_bytes + include_bytes + names_bytes != len(self._map):
            cause, hint = "this table of keys is not whole", "remove it, and it is made anew"
            raise UsageError(kind="usage", doing="open", object=self._path, cause=cause, hint=hint)
        table = memoryview(self._map)
        self._sizes, at = table[at : at + 8 * self._count].cast("Q"), at + 8 * self._count
        self._ends, at = table[at : at + 8 * self._count].cast("Q"), at + 8 * self._count
        self._base, at = bytes(table[at : at + base_bytes]).decode(), at + base_bytes
        self._include, at = bytes(table[at : at + include_bytes]).decode(), at + include_bytes
        self._names = table[at:]

    @classmethod
    def of(
        cls,
        urls: Iterable[tuple[str, int | None]],
        base: str = "",
        path: str | os.PathLike[str] | None = None,
        include: str | None = None,
    ) -> KeyTable:
        """Of pairs of what follows ``base`` in a URL, and the size, to the file ``path`` or a temporary one, which a table without
        keys always gets. ``include`` says by which pattern they were chosen.
        """
        sizes, ends, names, at = array("Q"), array("Q"), [], 0
        for name, size in urls:
            name_bytes = name.encode()
            at += len(name_bytes)
            names.append(name_bytes)
            sizes.append(_UNKNOWN if size is None else size)
            ends.append(at)
        # Later runs would find nothing for ever.
        path = path if sizes else None
        folder = None if path is None else os.path.dirname(os.path.abspath(path))
        number, new = tempfile.mkstemp(prefix="flatout-keys-", dir=folder)
        try:
            with open(number, "wb") as file:
                texts = base.encode(), (_ALL if include is None else include).encode()
                file.write(_HEAD.pack(_MAGIC, len(sizes), *map(len, texts), at))
                for each in (sizes, ends):
                    file.write(memoryview(each).cast("B") if len(each) else b"")
                file.writelines((*texts, *names))
            if path is not None:
                os.replace(new, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
        if path is not None:
            return cls(path)
        table = cls(new)
        weakref.finalize(table, remove, new, os.getpid())
        return table

    @classmethod
    def listed(
        cls,
        client: Client,
        url: str,
        include: str | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> KeyTable:
        """The objects below a prefix, sorted, those whose key behind it matches the pattern ``include``. With ``path`` the table is
        kept there: the first process lists, those that come meanwhile wait, and later ones take what it has found.
        """
        if path is None:
            return cls.of(below(client, url, include), url)
        lock = os.open(f"{os.fspath(path)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(path):
                table = cls(path)
                pattern = _ALL if include is None else include
                if (table.base, table.include) != (url, pattern):
                    cause = f"the table of keys there is that of {table.base}, {table.include!r}, and not of {url}, {pattern!r}"
                    hint = "name another file, or remove it"
                    raise UsageError(kind="usage", doing="open", object=os.fspath(path), cause=cause, hint=hint)
                return table
            return cls.of(below(client, url, include), url, path, include)
        finally:
            os.close(lock)

    @property
    def base(self) -> str:
        """What all URLs begin with."""
        return self._base

    @property
    def include(self) -> str:
        """The pattern that what follows it matches."""
        return self._include

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def __len__(self) -> int:
        return self._count

    def name(self, index: int) -> str:
        """What follows the base in the URL of an object."""
        if not 0 <= index < self._count:
            raise IndexError(f"there are {self._count} objects, and {index} is not among them")
        start = self._ends[index - 1] if index else 0
        return bytes(self._names[start : self._ends[index]]).decode()

    def size(self, index: int) -> int | None:
        """In bytes; None where nothing told it."""
        size = self._sizes[index]
        return None if size == _UNKNOWN else size

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyTable, (self._path,)


def below(client: Client, url: str, include: str | None = None) -> Iterator[tuple[str, int | None]]:
    """The objects below a prefix, sorted: what follows the prefix in each URL, and the size."""
    for page in client.ls_pages(url, recursive=True):
        for info in page:
            name = info.url[len(url) :]
            # What ends in '/' is the mark of a folder.
            if not info.url.endswith("/") and (include is None or fnmatchcase(name, include)):
                yield name, info.size


def remove(path: str, process: int) -> None:
    """Removes the file that this process has made."""
    # A forked child is not the one that made it.
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.unlink(path)
