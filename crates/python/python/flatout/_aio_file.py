"""An object as a file whose reads are awaited."""

from __future__ import annotations

import operator as _operator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import _native
from .io import NEAR_BYTES as _NEAR_BYTES
from .io import SMALL_BYTES as _SMALL_BYTES
from .io import Positioned as _Positioned

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

    from .aio import AsyncClient

__all__ = ["AsyncFile"]


class AsyncFile(_Positioned):
    """One version of an object, read from the file's position or at any place; what :meth:`flatout.AsyncClient.open` returns.

    It is :class:`flatout.RemoteFile` with reads to await. ``pread`` and ``preadinto`` may run in any number of tasks at once; methods
    that move the position are for one task at a time. Reads raise :class:`flatout.ObjectChanged` once another version has replaced
    the object.
    """

    _shown = "AsyncFile"

    def __init__(self, client: AsyncClient, file: _native.File) -> None:
        self._client = client
        self._start_of(file)

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` was called."""
        return self._file.closed

    async def read(self, size: int | None = -1, /) -> bytes:
        """Reads up to ``size`` bytes from the position on, all that are left without ``size``; ``b""`` at the end."""
        self._check()
        size = -1 if size is None else _operator.index(size)
        data = await self._look(size)
        if data is None:
            data = await self._pread_bytes(self._at, size)
        self._at += len(data)
        return data

    async def readinto(self, buffer: _Exporter, /) -> int:
        """Fills ``buffer`` from the position on, as far as the object goes, and returns the number of bytes."""
        count = await self.preadinto(self._at, buffer)
        self._at += count
        return count

    async def pread(self, offset: int, size: int = -1) -> _native.Buffer:
        """Reads ``size`` bytes from ``offset`` on as a :class:`flatout.Buffer`, fewer where the object ends before. Does not move the
        position."""
        self._check()
        if self._is_nothing(offset, size):
            return _native.Buffer()
        data: _native.Buffer = await self._bring("pread", offset, size)
        return data

    async def preadinto(self, offset: int, buffer: _Exporter) -> int:
        """Fills ``buffer`` from ``offset`` on, as far as the object goes, and returns the number of bytes. Does not move the position."""
        self._check()
        if offset >= self._file.size or memoryview(buffer).nbytes == 0:
            return self._file.preadinto(max(offset, self._file.size), buffer)
        count: int = await self._bring("preadinto", offset, buffer)
        return count

    async def aclose(self) -> None:
        """Closes the file and frees its memory. Calling it again does nothing."""
        self._file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _look(self, size: int) -> bytes | None:
        """The bytes of a small read, or of one that a small read has fetched; None of any other."""
        near = self._nearby(size)
        if near is None and 0 < size <= _SMALL_BYTES:
            near_at = self._at
            self._near, self._near_at = await self._pread_bytes(near_at, _NEAR_BYTES), near_at
            near = self._near[:size]
        return near

    async def _pread_bytes(self, offset: int, size: int) -> bytes:
        if self._is_nothing(offset, size):
            return b""
        data: bytes = await self._bring("pread", offset, size, as_bytes=True)
        return data

    def _is_nothing(self, offset: int, size: int) -> bool:
        """Whether no byte is read; raises for an offset that is wrong."""
        self._file.pread(offset, 0)
        return size == 0 or offset >= self._file.size

    async def _bring(self, verb: str, *args: Any, **named: Any) -> Any:
        got = await self._client._run(verb, self._file, *args, **named)
        # The prefetch failed: the origin is asked again.
        return got if got is not None else await self._client._run(verb, self._file, *args, past=True, **named)
