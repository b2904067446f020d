"""The verbs that asyncio wants, awaited: no thread waits for them, and none of the engine's takes the interpreter's lock."""

import asyncio as _asyncio
import atexit as _atexit
import os as _os
import weakref as _weakref

from . import _native
from .client import Client, default_client
from .errors import Unsupported as _Unsupported

__all__ = ["AsyncClient"]

_open: "_weakref.WeakSet[_Loop]" = _weakref.WeakSet()


class AsyncClient:
    """Some of :class:`flatout.Client`'s verbs for asyncio; of ``client``, of one made from ``settings``, or of the default one.

    A task that is cancelled ends its transfer; the await returns when no thread writes to its buffer any more. It may be used
    from several loops. It pickles as its client.
    """

    def __init__(self, client=None, **settings):
        if client is not None and settings:
            raise TypeError("AsyncClient takes a client or settings, not both")
        self._client = client or (Client(**settings) if settings else default_client())
        self._loops = _weakref.WeakKeyDictionary()

    @property
    def client(self):
        """The client whose engine does the work."""
        return self._client

    async def read(self, url, start=None, end=None, *, if_match=None, progress=None):
        """As :meth:`flatout.Client.read`."""
        if start is not None and end is not None and start >= 0 and end >= 0 and end <= start:
            return self._client.read(url, 0, 0)
        if (end is not None and end < 0) or (end is not None and start is not None and start < 0):
            info = await self.stat(url)
            if info.size is None:
                cause, hint = "the origin does not tell the object's size", "read the whole object, or count from its start"
                raise _Unsupported(kind="unsupported", doing="read", object=url, cause=cause, hint=hint)
            start, end, _ = slice(start, end).indices(info.size)
            if end <= start:
                return self._client.read(url, 0, 0)
            if_match = if_match or info.etag
        got = await self._run("read", url, start, end, if_match=if_match, progress=progress)
        return got if await self._has_bytes(got, url, start, end, if_match) else self._client.read(url, 0, 0)

    async def readinto(self, url, buffer, *, offset=0, length=None, if_match=None, progress=None):
        """As :meth:`flatout.Client.readinto`. The buffer is the call's until it returns, or raises."""
        if length == 0:
            return self._client.readinto(url, buffer, length=0)
        got = await self._run(
            "readinto", url, buffer, offset=offset, length=length, if_match=if_match, progress=progress
        )
        end = None if length is None else offset + length
        return got if await self._has_bytes(got, url, offset, end, if_match) else 0

    async def _has_bytes(self, got, url, start, end, if_match):
        """Whether there was something to be read; what a read failed by is its result where that is to be found out."""
        if not isinstance(got, Exception):
            return True
        if await self._run("is_of_nothing", url, start, end, if_match=if_match):
            return False
        raise got

    async def download(self, url, path, *, if_match=None, progress=None):
        """As :meth:`flatout.Client.download`."""
        return await self._run("download", url, path, if_match=if_match, progress=progress)

    async def stat(self, url):
        """As :meth:`flatout.Client.stat`."""
        return await self._run("stat", url)

    async def exists(self, url):
        """As :meth:`flatout.Client.exists`."""
        try:
            await self.stat(url)
        except FileNotFoundError:
            return False
        return True

    async def ls(self, url, *, recursive=False):
        """As :meth:`flatout.Client.ls`."""
        return await self._run("ls", url, recursive=recursive)

    async def _run(self, verb, *args, **named):
        loop = _asyncio.get_running_loop()
        own = self._loops.get(loop)
        if own is None or own.process != _os.getpid():
            own = self._loops[loop] = _Loop(loop)
        return await own.run(verb, self._client, *args, **named)

    def __reduce__(self):
        return AsyncClient, (self._client,)

    def __repr__(self):
        return f"AsyncClient({self._client!r})"


class _Loop:
    """What of one loop is under way."""

    def __init__(self, loop):
        self.process = _os.getpid()
        self._completions = completions = _native.Completions()
        self._futures = futures = {}
        # Nothing here keeps the loop, or is kept by it longer than it lives: it is the key under which this is known.
        loop.add_reader(completions.fileno(), _settle, completions, futures)
        self._loop = _weakref.ref(loop)
        _open.add(self)

    async def run(self, verb, client, *args, **named):
        loop = self._loop()
        ticket = getattr(self._completions, verb)(client, *args, **named)
        future = self._futures[ticket] = loop.create_future()
        try:
            return await _asyncio.shield(future)
        except _asyncio.CancelledError:
            if future.done():
                raise
            if not self._completions.cancel(ticket):
                # Nothing of the caller's is lent to it.
                self._futures.pop(ticket, None)
                raise
            # Its buffer is the engine's until it has ended.
            while not future.done():
                try:
                    await _asyncio.shield(_asyncio.wait([future]))
                except _asyncio.CancelledError:
                    continue
            future.exception()
            raise

    def close(self):
        self._completions.close()


def _settle(completions, futures):
    for ticket, result, error in completions.take():
        future = futures.pop(ticket, None)
        if future is None or future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _close_all():
    for loop in list(_open):
        loop.close()


_atexit.register(_close_all)
