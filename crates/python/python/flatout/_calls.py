"""The client's verbs as coroutines, for callers that block and for asyncio: code over them is written once and serves
both."""

import asyncio as _asyncio
import inspect as _inspect
from functools import wraps as _wraps

from . import _native
from ._at_once import at_once as _at_once
from ._at_once import to_the_end as _to_the_end
from ._native import Progress
from ._telling import EVERY_S as _EVERY_S
from ._telling import Telling
from .aio import AsyncClient, _all, _quiet

__all__ = ["Awaiting", "Blocking", "faces", "now"]

#: How many listings or objects are asked for at a time where the engine has no call for all of them.
_AT_A_TIME = 128

#: What is copied at a time into a file that is open already.
_PIECE_BYTES = 4 << 20


def now(coroutine):
    """The result of a coroutine over :class:`Blocking`, which never suspends, so that it needs no loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for a loop")


class Blocking:
    """For callers that block, on any thread."""

    def __init__(self, client):
        self.client = client

    async def read(self, url, start=None, end=None, version_id=None):
        return self.client.read(url, start, end, version_id=version_id)

    def read_many(self, asked):
        """Pairs of an index and a buffer, or what was raised, as they come."""
        return _Each(self.client.read_many(asked, ordered=False, return_exceptions=True) if asked else iter(()))

    async def read_ranges(self, url, ranges, max_gap=None):
        return self.client.read_ranges(url, ranges, max_gap=max_gap)

    async def stat(self, url, version_id=None):
        return self.client.stat(url, version_id=version_id)

    async def ls(self, url):
        return self.client.ls(url)

    def ls_pages(self, url, recursive=False):
        return _Each(self.client.ls_pages(url, recursive=recursive))

    async def buckets(self, scheme):
        return self.client.buckets(scheme)

    async def download(self, url, path, tell=None, version_id=None):
        """`tell(done, total)` is called about ten times a second; None if nothing is to be called."""
        with Telling(tell) as progress:
            return self.client.download(url, path, progress=progress, version_id=version_id)

    async def copy_into(self, outfile, fs, path, callback, version_id=None):
        """Copies an object into a file that is open already."""
        with fs.open(path, "rb", version_id=version_id) as file:
            callback.set_size(file.size)
            while piece := file.read(_PIECE_BYTES):
                outfile.write(piece)
                callback.relative_update(len(piece))

    async def download_many(self, pairs):
        """Downloads; the exception of each that failed stands in its place."""
        return self.client.download_many(pairs, return_exceptions=True)

    async def write(self, url, data, options):
        return self.client.write(url, data, **options)

    async def upload(self, path, url, options):
        return self.client.upload(path, url, **options)

    async def upload_many(self, pairs, options):
        """Uploads; the exception of each that failed stands in its place."""
        return self.client.upload_many(pairs, return_exceptions=True, **options) if pairs else []

    async def copy(self, source, target, options, version_id=None):
        """The ETag of what was copied."""
        return self.client._copy(source, target, version_id, None, options)[1]

    async def delete(self, url, if_match=None):
        self.client.delete(url, if_match=if_match)

    async def delete_many(self, urls):
        """Deletes; what stands in the result is an exception for each that stays."""
        return self.client.delete_many(urls, return_exceptions=True) if urls else []

    async def create_bucket(self, url):
        _native.create_bucket(self.client, url)

    async def delete_bucket(self, url):
        _native.delete_bucket(self.client, url)

    async def together(self, call, many):
        return _at_once(lambda each: now(call(each)), many)

    async def write_together(self, call, many):
        """As `together`, of calls that write: none goes on behind the caller's back."""
        return _to_the_end(lambda each: now(call(each)), many)

    async def of(self, fs, verb, *args, **named):
        """A verb of a file system's, for callers of this kind."""
        return getattr(fs, verb)(*args, **named)


class _Each:
    """A plain iterator for `async for` and `aclosing`."""

    def __init__(self, iterator):
        self._iterator = iterator

    def __aiter__(self):
        return self

    async def __anext__(self):
        for each in self._iterator:
            return each
        raise StopAsyncIteration

    async def aclose(self):
        # Dropping it cancels what is in flight.
        self._iterator = iter(())


class Awaiting:
    """For tasks of asyncio: no thread waits for a transfer."""

    def __init__(self, client):
        self.client, self.reader = client, AsyncClient(client)

    async def read(self, url, start=None, end=None, version_id=None):
        return await self.reader.read(url, start, end, version_id=version_id)

    def read_many(self, asked):
        """Pairs of an index and a buffer, or what was raised, as they come."""
        return self.reader.read_many(asked, ordered=False, return_exceptions=True)

    async def read_ranges(self, url, ranges, max_gap=None):
        return await self.reader.read_ranges(url, ranges, max_gap=max_gap)

    async def stat(self, url, version_id=None):
        return await self.reader.stat(url, version_id=version_id)

    async def ls(self, url):
        return await self.reader.ls(url)

    def ls_pages(self, url, recursive=False):
        return self.reader.ls_pages(url, recursive=recursive)

    async def buckets(self, scheme):
        return await self.reader.buckets(scheme)

    async def download(self, url, path, tell=None, version_id=None):
        """`tell(done, total)` is called about ten times a second; None where nobody listens."""
        if tell is None:
            return await self.reader.download(url, path, version_id=version_id)
        progress = Progress()
        task = _asyncio.ensure_future(self.reader.download(url, path, progress=progress, version_id=version_id))
        try:
            while not (await _asyncio.wait([task], timeout=_EVERY_S))[0]:
                if progress.total is not None:
                    tell(progress.done, progress.total)
        finally:
            task.cancel()
            await _quiet([task])
        done = task.result()
        tell(progress.done, progress.total)
        return done

    async def copy_into(self, outfile, fs, path, callback, version_id=None):
        """Copies an object into a file that is open already."""
        async with await fs.open_async(path, version_id=version_id) as file:
            callback.set_size(file.size)
            while piece := await file.read(_PIECE_BYTES):
                outfile.write(piece)
                callback.relative_update(len(piece))

    async def download_many(self, pairs):
        """What of each was raised stands in its place."""
        return await self.reader.download_many(pairs, return_exceptions=True)

    async def write(self, url, data, options):
        return await self.reader.write(url, data, **options)

    async def upload(self, path, url, options):
        return await self.reader.upload(path, url, **options)

    async def upload_many(self, pairs, options):
        """Uploads; the exception of each that failed stands in its place."""
        return await self.reader.upload_many(pairs, return_exceptions=True, **options) if pairs else []

    async def copy(self, source, target, options, version_id=None):
        """The ETag of what was copied."""
        return (await self.reader._copy(source, target, version_id, None, options))[1]

    async def delete(self, url, if_match=None):
        await self.reader.delete(url, if_match=if_match)

    async def delete_many(self, urls):
        """Deletes; what stands in the result is an exception for each that stays."""
        return await self.reader.delete_many(urls, return_exceptions=True) if urls else []

    async def create_bucket(self, url):
        await self.reader._run(_native.begin_create_bucket, url)

    async def delete_bucket(self, url):
        await self.reader._run(_native.begin_delete_bucket, url)

    async def together(self, call, many):
        many = list(many)
        results: list = [None] * len(many)

        async def one(index):
            results[index] = await call(many[index])

        await _all((lambda index=index: one(index) for index in range(len(many))), min(_AT_A_TIME, len(many)))
        return results

    write_together = together

    async def of(self, fs, verb, *args, **named):
        """A verb of a file system's, for callers of this kind."""
        return await getattr(fs, f"_{verb}")(*args, **named)


def faces(road):
    """Both forms of a verb that is written once over ``calls``: the one that blocks, and the one that is awaited."""
    shown = _inspect.signature(road)
    itself, _, *arguments = shown.parameters.values()

    @_wraps(road)
    def blocking(self, *args, **named):
        return now(road(self, Blocking(self.client), *args, **named))

    @_wraps(road)
    async def awaited(self, *args, **named):
        return await road(self, self._awaiting, *args, **named)

    awaited.__name__ = f"_{road.__name__}"
    awaited.__qualname__ = f"{road.__qualname__.removesuffix(road.__name__)}_{road.__name__}"
    for face in (blocking, awaited):
        face.__signature__ = shown.replace(parameters=[itself, *arguments])
        del face.__wrapped__
    return blocking, awaited
