"""An object that is written as a file whose writes are awaited."""

from __future__ import annotations

import asyncio as _asyncio
import warnings as _warnings
from types import TracebackType
from typing import TYPE_CHECKING, Self

from . import _native
from ._writer import track

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

    from .aio import AsyncClient

__all__ = ["AsyncWriter"]


class AsyncWriter:
    """A new object, written from its start to its end and sent while it is written; what :meth:`flatout.AsyncClient.open` returns.

    It is :class:`flatout.RemoteWriter` with writes to await: the object is there once ``aclose()`` has returned, and an exception in
    the ``async with`` block publishes nothing. A task that is cancelled in a write or in ``aclose()`` ends the upload. For one task at
    a time.
    """

    def __init__(self, client: AsyncClient, writer: _native.Writer) -> None:
        self._client, self._writer = client, track(writer)
        self._info: _native.Info | None = None
        self._closed = False
        self._is_writing = False

    @property
    def name(self) -> str:
        """The URL."""
        return self._writer.url

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` or :meth:`abort` was called."""
        return self._closed

    @property
    def info(self) -> _native.Info | None:
        """The object as the origin described it, once it is there."""
        return self._info

    def tell(self) -> int:
        """Bytes of the object so far."""
        self._check()
        return self._writer.size

    async def write(self, data: _Exporter, /) -> int:
        """Takes all bytes of ``data``, and returns how many. They are copied piece by piece, where there is room for them."""
        self._check()
        if self._is_writing:
            raise RuntimeError("another task writes to this file")
        self._is_writing = True
        try:
            # As long as it is looked at it keeps its length.
            with memoryview(data) as view:
                at, size = 0, view.nbytes
                while at < size:
                    if taken := self._writer.write_some(view, at):
                        at += taken
                    else:
                        await self._client._run(_native.begin_room, self._writer)
        except BaseException:
            # How much was taken is not known to the caller, who must not go on behind it.
            await self.abort()
            raise
        finally:
            self._is_writing = False
        return size

    async def aclose(self) -> None:
        """Publishes the object. Returns once the origin has it."""
        if self._closed:
            return
        self._closed = True
        try:
            self._info = await self._client._run(_native.begin_commit, self._writer)
        except _asyncio.CancelledError:
            self._writer.cancel()
            raise

    async def abort(self) -> None:
        """Ends the upload; nothing is published. Does nothing once the file is closed."""
        if not self._closed:
            self._closed = True
            self._writer.cancel()
            await self._client._run(_native.begin_abort, self._writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.abort()
        await self.aclose()

    def __del__(self) -> None:
        if hasattr(self, "_closed") and not self._closed:
            _warnings.warn(f"{self!r} was dropped without aclose(): nothing is published", ResourceWarning, source=self)

    def _check(self) -> None:
        if self._closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._writer.size} bytes so far"
        return f"<AsyncWriter {self._writer.url!r}, {state}>"
