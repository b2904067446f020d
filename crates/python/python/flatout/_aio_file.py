"""An object as a file whose reads are awaited."""

from __future__ import annotations

import operator as _operator
import os as _os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import _native
from .io import NEAR_BYTES as _NEAR_BYTES
from .io import SMALL_BYTES as _SMALL_BYTES
from .io import place as _place

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

    from .aio import AsyncClient

__all__ = ["AsyncFile"]


class AsyncFile:
    """One version of an object, read from where the file stands or at any place; what :meth:`flatout.AsyncClient.open` returns.

    It is :class:`flatout.RemoteFile` with reads to await: what is read in a pattern is fetched ahead, and a short read takes what lies
    behind it along. ``pread`` and ``preadinto`` may run in any number of tasks at once; what moves the position is for one at a time.
    Reads raise :class:`flatout.ObjectChanged` once another version stands in the object's place.
    """

    def __init__(self, client: AsyncClient, file: _native.File) -> None:
        self._client, self._file = client, file
        self._at = 0
        # What was read last by small reads, and where it begins.
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

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` was called."""
        return self._file.closed

    def tell(self) -> int:
        """Where the file stands."""
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = _os.SEEK_SET, /) -> int:
        """Moves to ``offset``, counted by ``whence`` from the start, from here or from the end. Nothing is asked."""
        self._check()
        self._at = _place(offset, whence, self._at, self._file.size)
        return self._at

    async def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from where the file stands, all that are left without one; ``b""`` at the end."""
        self._check()
        size = -1 if size is None else _operator.index(size)
        data = await self._look(size)
        if data is None:
            data = await self._pread_bytes(self._at, size)
        self._at += len(data)
        return data

    async def readinto(self, buffer: _Exporter, /) -> int:
        """Fills ``buffer`` from where the file stands, as far as the object goes; how many bytes that were."""
        count = await self.preadinto(self._at, buffer)
        self._at += count
        return count

    async def pread(self, offset: int, size: int = -1) -> _native.Buffer:
        """``size`` bytes from ``offset`` on as a :class:`flatout.Buffer`, fewer where the object ends before; moves nothing."""
        self._check()
        if self._is_nothing(offset, size):
            return _native.Buffer()
        data: _native.Buffer = await self._bring("pread", offset, size)
        return data

    async def preadinto(self, offset: int, buffer: _Exporter) -> int:
        """Fills ``buffer`` from ``offset`` on, as far as the object goes; how many bytes that were. Moves nothing."""
        self._check()
        if offset >= self._file.size or memoryview(buffer).nbytes == 0:
            return self._file.preadinto(max(offset, self._file.size), buffer)
        count: int = await self._bring("preadinto", offset, buffer)
        return count

    def prefetch(self, ranges: Sequence[tuple[int | None, int | None]]) -> None:
        """Says that these ranges will be read, pairs ``(start, end)``, in this order. Returns at once."""
        self._check()
        self._file.prefetch(ranges)

    async def aclose(self) -> None:
        """Lets go of what is held for it. Calling it again does nothing."""
        self._file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _look(self, size: int) -> bytes | None:
        """What a read of `size` bytes gives where it is small, or was read with a small one; None of any other."""
        at = self._at - self._near_at
        if not 0 <= at <= at + size <= len(self._near):
            if not 0 < size <= _SMALL_BYTES:
                return None
            near_at = self._at
            self._near, self._near_at, at = await self._pread_bytes(near_at, _NEAR_BYTES), near_at, 0
        return self._near[at : at + size] if size >= 0 else None

    async def _pread_bytes(self, offset: int, size: int) -> bytes:
        if self._is_nothing(offset, size):
            return b""
        data: bytes = await self._bring("pread", offset, size, as_bytes=True)
        return data

    def _is_nothing(self, offset: int, size: int) -> bool:
        """Also says what is wrong with an offset."""
        self._file.pread(offset, 0)
        return size == 0 or offset >= self._file.size

    async def _bring(self, verb: str, *args: Any, **named: Any) -> Any:
        got = await self._client._run(verb, self._file, *args, **named)
        # What was fetched ahead failed: it is asked for anew, and fails then if it must.
        return got if got is not None else await self._client._run(verb, self._file, *args, past=True, **named)

    def _check(self) -> None:
        if self._file.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self._at} of {self._file.size}"
        return f"<AsyncFile {self._file.url!r}, {state}>"
