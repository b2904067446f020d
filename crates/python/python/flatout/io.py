"""An object as a file that Python's own code can read."""

from __future__ import annotations

import io as _io
import operator as _operator
import os as _os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import _native

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

    from .client import Client

__all__ = ["RemoteFile"]

#: A read of no more than this takes NEAR_BYTES at once, for the next one: who reads a header reads on from there, and
#: each read of what nobody fetched ahead waits for an answer of its own. A zip's member is one request instead of three.
#: Records read at random, which are rarely so small, cost what they are.
SMALL_BYTES = 1 << 10
NEAR_BYTES = 32 << 10


def place(offset: int, whence: int, at: int, size: int) -> int:
    """Where a file of ``size`` bytes that stands ``at`` is moved to."""
    if whence not in (_os.SEEK_SET, _os.SEEK_CUR, _os.SEEK_END):
        raise ValueError(f"whence is 0, 1 or 2, not {whence!r}")
    to = _operator.index(offset) + (0, at, size)[whence]
    if to < 0:
        # An OSError as of a raw file, which zipfile takes for a file that is too short, and a ValueError as of BytesIO.
        raise _io.UnsupportedOperation(f"negative seek position {to}")
    return to


class RemoteFile(_io.RawIOBase):
    """One version of an object as a binary file: reads and seeks, from where it stands or at any place.

    What is read in a pattern (forward, in strides, several places in turn) is fetched ahead, and a short read takes what lies
    behind it along, so it needs no ``io.BufferedReader`` around it, though one works; ``io.TextIOWrapper`` wants one. Lengths and positions are in bytes.
    ``pread`` and ``preadinto`` may be called from any thread; what moves the position is for one thread at a time, as with every
    file. Reads raise :class:`flatout.ObjectChanged` once another version stands in the object's place.

    A closed file raises ValueError. It pickles as what it reads, with where it stands.
    """

    def __init__(self, file: _native.File, *, client: Client | None = None) -> None:
        super().__init__()
        self._file = file
        self._client: _native.Client = client if client is not None else file.client
        self._at = 0
        # What was read last by small reads, and where it begins.
        self._near, self._near_at = b"", 0

    @property
    def name(self) -> str:
        """The URL."""
        return self._file.url

    @property
    def mode(self) -> str:
        return "rb"

    @property
    def size(self) -> int:
        """Of the object, in bytes."""
        return self._file.size

    @property
    def etag(self) -> str | None:
        """Of the version that is read, as sent, with its quotes; None where the origin told none."""
        return self._file.etag

    @property
    def stats(self) -> dict[str, int]:
        """What was asked of the engine so far, of this file in this process: reads and their bytes. A short ``read`` asks for what
        lies behind it as well."""
        return self._file.stats

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def tell(self) -> int:
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = _os.SEEK_SET, /) -> int:
        """Moves to ``offset``, counted by ``whence`` from the start, from here or from the end; behind the end nothing is read."""
        self._check()
        self._at = place(offset, whence, self._at, self._file.size)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from where the file stands, all that are left without one; ``b""`` at the end."""
        size = -1 if size is None else _operator.index(size)
        data = self._look(size)
        if data is None:
            data = self._pread_bytes(self._at, size)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: _Exporter, /) -> int:
        """Fills ``buffer`` from where the file stands, as far as the object goes; how many bytes that were."""
        self._check()
        # Let go of before anything can be raised: an exception that is kept keeps this frame.
        with memoryview(buffer) as view:
            # What cannot be filled is refused as reads of any length refuse it.
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
        """What a read of `size` bytes gives where it is small, or was read with a small one; None of any other."""
        self._check()
        at = self._at - self._near_at
        if not 0 <= at <= at + size <= len(self._near):
            if not 0 < size <= SMALL_BYTES:
                return None
            self._near, self._near_at, at = self._pread_bytes(self._at, NEAR_BYTES), self._at, 0
        return self._near[at : at + size] if size >= 0 else None

    def readline(self, size: int | None = -1, /) -> bytes:
        """Up to and with the next ``b"\\n"``, or up to ``size`` bytes."""
        return self.readuntil(b"\n", most=None if size is None or size < 0 else size)

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None, *, most: int | None = None) -> bytes:
        """Up to and with the next ``char``, or to the end; ``blocks`` bytes are looked through at a time."""
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
        """``size`` bytes from ``offset`` on as a :class:`flatout.Buffer`, fewer where the object ends before; moves nothing."""
        self._check()
        return self._file.pread(offset, size)

    def preadinto(self, offset: int, buffer: _Exporter) -> int:
        """Fills ``buffer`` from ``offset`` on, as far as the object goes; how many bytes that were. Moves nothing."""
        self._check()
        return self._file.preadinto(offset, buffer)

    def _pread_bytes(self, offset: int, size: int) -> bytes:
        return self._file.pread_bytes(offset, size)

    def prefetch(self, ranges: Sequence[tuple[int | None, int | None]]) -> None:
        """Says that these ranges will be read, pairs ``(start, end)``, in this order. Returns at once."""
        self._check()
        self._file.prefetch(ranges)

    def write(self, data: _Exporter, /) -> NoReturn:
        """Objects are read here: raises io.UnsupportedOperation."""
        self._check()
        raise _io.UnsupportedOperation("not writable: this reads an object")

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __reduce__(self) -> tuple[Any, ...]:
        self._check()
        file = self._file
        return _again, (self._client, file.url, file.size, file.etag, file.modified, self._at, file.version_id)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self._at} of {self._file.size}"
        return f"<RemoteFile {self._file.url!r}, {state}>"


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
