"""Many objects for asyncio: as many are read ahead as memory and the caller allow."""

from __future__ import annotations

import asyncio as _asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from . import _native
from .errors import FlatoutError, UsageError

if TYPE_CHECKING:
    from .aio import AsyncClient

__all__ = ["AsyncReadMany"]

_T = TypeVar("_T", covariant=True)

_CONCURRENCY = 128
#: An object of unknown size counts for this; one that turns out to be larger is read anew.
_SMALL_BYTES = 8 << 20


class AsyncReadMany(AsyncIterator[tuple[int, _T]], Generic[_T]):
    """What :meth:`flatout.AsyncClient.read_many` returns, for ``async for``. One task takes the objects.

    To break off before the end, call :meth:`aclose` or use ``async with``: that cancels what is in flight.
    """

    def __init__(
        self,
        client: AsyncClient,
        urls: Iterable[Any],
        ordered: bool,
        concurrency: int | None,
        return_exceptions: bool,
        progress: _native.Progress | bool | None,
    ) -> None:
        self._concurrency = _CONCURRENCY if concurrency is None else concurrency
        if self._concurrency < 1:
            cause = f"concurrency is {concurrency}, and has to be 1 or more"
            raise UsageError(kind="usage", doing="read", cause=cause)
        self._client, self._wanted = client, iter(_native.urls_of(urls))
        self._ordered, self._return_exceptions = ordered, return_exceptions
        self._memory_bytes = client.client.memory_limit
        self._watched = _native.Watched(progress, "objects")
        self._begun = 0
        self._is_taken = self._is_over = False
        self._flights: dict[int, _Flight] = {}
        self._ended: _asyncio.Queue[int] = _asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, _T]:
        if self._is_taken:
            cause = "another task waits for the next object of this read_many"
            hint = "take them in one task and hand them out, or call read_many in each"
            raise UsageError(kind="usage", doing="read", cause=cause, hint=hint)
        self._is_taken = True
        try:
            return await self._next()
        except FlatoutError:
            await self.aclose()
            raise
        finally:
            self._is_taken = False

    async def aclose(self) -> None:
        """Cancels what is in flight."""
        self._is_over = True
        flights, self._flights = self._flights, {}
        for flight in flights.values():
            flight.task.cancel()
        await _asyncio.gather(*(flight.task for flight in flights.values()), return_exceptions=True)
        self._watched.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _next(self) -> tuple[int, _T]:
        try:
            self._begin()
        except BaseException:
            await self.aclose()
            raise
        if not self._flights:
            await self.aclose()
            raise StopAsyncIteration
        if self._ordered:
            index = next(iter(self._flights))
            await _asyncio.wait([self._flights[index].task])
        else:
            index = await self._ended.get()
        task = self._flights.pop(index).task
        error = task.exception()
        if error is None:
            return index, task.result()
        if self._return_exceptions and isinstance(error, FlatoutError):
            failed: Any = error
            return index, failed
        raise error

    def _begin(self) -> None:
        """Starts reads as far as memory and the caller allow, in order: one that waits for memory holds up those behind it."""
        held = sum(flight.held for flight in self._flights.values())
        for place, flight in enumerate(list(self._flights.values())):
            if flight.waits():
                if not self._has_room(held, flight, place):
                    return
                held += flight.go()
        while not self._is_over and len(self._flights) < self._concurrency:
            flight = self._take_one()
            if flight is None or not self._has_room(held, flight, len(self._flights) - 1):
                return
            held += flight.go()

    def _has_room(self, held: int, flight: _Flight, place: int) -> bool:
        is_next = held == 0 or (place == 0 and self._ordered)
        return is_next or held + flight.bytes <= self._memory_bytes

    def _take_one(self) -> _Flight | None:
        for item in self._wanted:
            index, self._begun = self._begun, self._begun + 1
            flight = _Flight(self, *_object(index, item))
            self._flights[index] = flight
            if not self._ordered:
                flight.task.add_done_callback(lambda _, index=index: self._ended.put_nowait(index))
            return flight
        return None


class _Flight:
    """The read of one object, in flight or waiting for memory."""

    def __init__(
        self,
        many: AsyncReadMany[Any],
        url: str,
        start: int | None,
        end: int | None,
        size: int | None,
        version_id: str | None,
    ) -> None:
        self._many = many
        self._may_go = _asyncio.Event()
        known = _most(start, end, size)
        # A range may be far longer than its object.
        is_whole = start in (None, 0) and end is None
        self._known = known if is_whole or known is None or known <= many._memory_bytes else None
        self.bytes = _SMALL_BYTES if self._known is None else self._known
        self.held = 0
        self.task = _asyncio.ensure_future(self._read(url, start, end, version_id))

    def waits(self) -> bool:
        """Whether it waits for memory."""
        return not self._may_go.is_set()

    def go(self) -> int:
        """Starts it; how many bytes it holds from now on."""
        self._may_go.set()
        self.held = self.bytes
        return self.held

    async def _read(self, url: str, start: int | None, end: int | None, version_id: str | None) -> _native.Buffer:
        await self._may_go.wait()
        many = self._many
        ends = await many._client._resolved(url, start, end, None, version_id)
        if ends is None:
            return self._landed(None)
        named: Any = {"version_id": version_id, "progress": many._watched}
        got = await many._client._read("read_one", url, *ends, bytes=self._known, **named)
        if isinstance(got, int):
            self._may_go.clear()
            self.bytes, self.held = got, 0
            many._begin()
            await self._may_go.wait()
            got = await many._client._read("read_one", url, *ends, bytes=got, **named)
        return self._landed(got)

    def _landed(self, buffer: _native.Buffer | None) -> _native.Buffer:
        self.held = 0 if buffer is None else len(buffer)
        return _native.Buffer() if buffer is None else buffer


def _object(index: int, item: Any) -> tuple[str, int | None, int | None, int | None, str | None]:
    """The URL, the range, and the size and version id where an Info has them."""
    if isinstance(item, str):
        return item, None, None, None, None
    if isinstance(item, _native.Info):
        return item.url, None, None, item.size, item.version_id
    if isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str):
        url, start, end = item
        return url, *_native.one_range(start, end), None, None
    kinds = "a URL, an Info of a listing, or (url, start, end)"
    raise TypeError(f"urls[{index}]: an object to read is {kinds}, not {type(item).__name__}")


def _most(start: int | None, end: int | None, size: int | None) -> int | None:
    """The most bytes that come, where that is known."""
    if end is None:
        if start is not None and start < 0:
            return -start
        return size if not start else None
    if end < 0 or (start or 0) < 0:
        return None
    return max(end - (start or 0), 0)
