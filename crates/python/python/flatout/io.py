"""An object as a file."""

from __future__ import annotations

import io as _io
import operator as _operator
import os as _os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import _native
from .errors import Unsupported

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

    from .client import Client

__all__ = ["RemoteFile"]

#: A read of at most this size fetches NEAR_BYTES, for the reads behind it: a program that reads a header goes on from
#: there, and each read of bytes that were not prefetched is a request of its own. A member of a zip file is one request
#: instead of three. Random reads of records are rarely that small.
SMALL_BYTES = 1 << 10
NEAR_BYTES = 32 << 10


def parse_mode(url: str, mode: str) -> tuple[str, bool]:
    """What a mode does, ``"r"``, ``"w"``, ``"a"`` or ``"x"``, and whether it is of text."""
    letters = sorted(mode) if isinstance(mode, str) else []
    if "+" in letters:
        cause = f"mode {mode!r}: an object is read, or written from its start to its end"
        raise Unsupported(kind="unsupported", doing="open", object=url, cause=cause)
    does = [letter for letter in letters if letter in "rwax"]
    if len(does) != 1 or letters not in (does, sorted(does + ["b"]), sorted(does + ["t"])):
        raise ValueError(f"mode is 'r', 'w', 'a' or 'x', with 'b' for bytes, not {mode!r}")
    return does[0], "b" not in letters


def check_open(does: str, version: dict[str, Any], writing: dict[str, Any]) -> None:
    """Refuses arguments that the mode has no use for."""
    for name, value in (writing if does == "r" else version).items():
        if value is not None:
            raise TypeError(f"{name} is an argument of {'writing' if does == 'r' else 'reading'}, and the mode is {does!r}")


def text_of(file: RemoteFile, encoding: str | None, errors: str | None, newline: str | None) -> _io.TextIOWrapper:
    """An object as text: UTF-8 unless told otherwise, wherever it is read."""
    return _io.TextIOWrapper(_io.BufferedReader(file), encoding or "utf-8", errors, newline)


def place(offset: int, whence: int, at: int, size: int) -> int:
    """The position to which a file of ``size`` bytes at the position ``at`` is moved."""
    if whence not in (_os.SEEK_SET, _os.SEEK_CUR, _os.SEEK_END):
        raise ValueError(f"whence is 0, 1 or 2, not {whence!r}")
    to = _operator.index(offset) + (0, at, size)[whence]
    if to < 0:
        # An OSError as of a raw file, which zipfile takes for a file that is too short, and a ValueError as of BytesIO.
        raise _io.UnsupportedOperation(f"negative seek position {to}")
    return to


class Positioned:
    """What files that block and files that are awaited share: a version of an object, and a position in it."""

    _shown: str

    def _start_of(self, file: _native.File) -> None:
        """Stands at the start of ``file``."""
        self._file = file
        self._at = 0
        # What small reads fetched last, and where it begins.
        self._near, self._near_at = b"", 0

    @property
    def name(self) -> str:
        """The URL."""
        return self._file.url

    @property
    def size(self) -> int:
        """Of the object, in bytes."""
        return self._file.size

    @property
    def etag(self) -> str | None:
        """Of the version that is read, as sent, with its quotes; None where the origin told none."""
        return self._file.etag

    def tell(self) -> int:
        """The position."""
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = _os.SEEK_SET, /) -> int:
        """Moves to ``offset``, counted by ``whence`` from the start, from here or from the end; sends no request."""
        self._check()
        self._at = place(offset, whence, self._at, self._file.size)
        return self._at

    def prefetch(self, ranges: Sequence[tuple[int | None, int | None]]) -> None:
        """Announces ranges that will be read, pairs ``(start, end)``, in this order. Returns at once."""
        self._check()
        self._file.prefetch(ranges)

    def _nearby(self, size: int) -> bytes | None:
        """The bytes of a read of ``size`` bytes, where a small read has fetched them."""
        at = self._at - self._near_at
        return self._near[at : at + size] if 0 <= at <= at + size <= len(self._near) else None

    def _check(self) -> None:
        if self._file.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        state = "closed" if self._file.closed else f"at {self._at} of {self._file.size}"
        return f"<{self._shown} {self._file.url!r}, {state}>"


class RemoteFile(Positioned, _io.RawIOBase):
    """One version of an object as a binary file, read from its position or at any place.

    Reads that follow a pattern (forward, in strides, several places in turn) are prefetched, and a short read fetches the bytes
    behind it as well. So it needs no ``io.BufferedReader`` around it, though one works; ``io.TextIOWrapper`` requires one. Lengths
    and positions are in bytes. ``pread`` and ``preadinto`` may be called from any thread; methods that move the position are for
    one thread at a time. Reads raise :class:`flatout.ObjectChanged` once another version has replaced the object.

    A closed file raises ValueError. A file pickles as its version and its position.
    """

    _shown = "RemoteFile"

    def __init__(self, file: _native.File, *, client: Client | None = None) -> None:
        super().__init__()
        self._start_of(file)
        self._client: _native.Client = client if client is not None else file.client

    @property
    def mode(self) -> str:
        return "rb"

    @property
    def stats(self) -> dict[str, int]:
        """Reads of this file in this process so far, and their bytes. A short ``read`` counts with the bytes behind it."""
        return self._file.stats

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads up to ``size`` bytes from the position on, all that are left without ``size``; ``b""`` at the end."""
        size = -1 if size is None else _operator.index(size)
        data = self._look(size)
        if data is None:
            data = self._pread_bytes(self._at, size)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: _Exporter, /) -> int:
        """Fills ``buffer`` from the position on, as far as the object goes, and returns the number of bytes."""
        self._check()
        # Released before an exception can be raised: one that is kept keeps this frame.
        with memoryview(buffer) as view:
            # A buffer that cannot be filled is refused by the read below.
            size = view.nbytes if not view.readonly and view.c_contiguous else 0
        data = self._look(size) if size else None
        if data is None:
            count = self.preadinto(self._at, buffer)
        else:
            count = len(data)
            with memoryview(buffer) as view, view.cast("B") as place:
                place[:count] = data
        self._at += count
        return count

    def _look(self, size: int) -> bytes | None:
        """The bytes of a small read, or of one that a small read has fetched; None of any other."""
        self._check()
        near = self._nearby(size)
        if near is None and 0 < size <= SMALL_BYTES:
            self._near, self._near_at = self._pread_bytes(self._at, NEAR_BYTES), self._at
            near = self._near[:size]
        return near

    def readline(self, size: int | None = -1, /) -> bytes:
        """Reads up to and including the next ``b"\\n"``, at most ``size`` bytes."""
        return self.readuntil(b"\n", most=None if size is None or size < 0 else size)

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None, *, most: int | None = None) -> bytes:
        """Reads up to and including the next ``char``, or to the end, ``blocks`` bytes at a time."""
        self._check()
        found: list[bytes] = []
        step = max(blocks or NEAR_BYTES, len(char))
        while most is None or most > 0:
            at = self._at - self._near_at
            if not 0 <= at <= at + len(char) <= len(self._near):
                self._near, self._near_at, at = self._pread_bytes(self._at, step), self._at, 0
            end = self._near.find(char, at) + len(char)
            is_last = end >= len(char)
            if not is_last:
                is_last = self._near_at + len(self._near) >= self._file.size
                # Of a `char` of several bytes the first ones may stand at the end.
                end = len(self._near) if is_last else len(self._near) - len(char) + 1
            if most is not None and end - at >= most:
                end, is_last = at + most, True
            piece = self._near[at:end]
            self._at += len(piece)
            found.append(piece)
            if is_last:
                break
            most = None if most is None else most - len(piece)
        return b"".join(found)

    def pread(self, offset: int, size: int = -1) -> _native.Buffer:
        """Reads ``size`` bytes from ``offset`` on as a :class:`flatout.Buffer`, fewer where the object ends before. Does not move the
        position."""
        self._check()
        return self._file.pread(offset, size)

    def preadinto(self, offset: int, buffer: _Exporter) -> int:
        """Fills ``buffer`` from ``offset`` on, as far as the object goes, and returns the number of bytes. Does not move the position."""
        self._check()
        return self._file.preadinto(offset, buffer)

    def _pread_bytes(self, offset: int, size: int) -> bytes:
        return self._file.pread_bytes(offset, size)

    def write(self, data: _Exporter, /) -> NoReturn:
        """Raises io.UnsupportedOperation: the file is read-only."""
        self._check()
        raise _io.UnsupportedOperation("not writable: this reads an object")

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check()
        file = self._file
        return _again, (self._client, file.url, file.size, file.etag, file.modified, self._at, file.version_id)


def _again(
    client: Client,
    url: str,
    size: int,
    etag: str | None,
    modified: float | None,
    at: int,
    version_id: str | None = None,
) -> RemoteFile:
    opened = client.file(url, size=size, etag=etag, modified=modified, version_id=version_id)
    file = RemoteFile(opened, client=client)
    file.seek(at)
    return file
