"""The client's verbs for asyncio: no thread waits for a transfer, and none of the engine's takes the interpreter's lock."""

from __future__ import annotations

import asyncio as _asyncio
import atexit as _atexit
import os as _os
import weakref as _weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from functools import partial as _partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from . import _native
from ._aio_file import AsyncFile
from ._aio_many import AsyncReadMany
from ._aio_writer import AsyncWriter
from .client import PIECE_BYTES, Client, default_client, described, there
from .errors import FlatoutError, ObjectChanged, Unsupported
from .io import check_open, parse_mode

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import Buffer as _Exporter

    from ._settings import Settings
    from ._write_options import WriteOptions

__all__ = ["AsyncClient", "AsyncFile", "AsyncReadMany", "AsyncWriter"]

_T = TypeVar("_T")
_W = TypeVar("_W")

#: How many ranges of an object, or files, are in flight at a time; the engine itself decides how many requests are.
_AT_A_TIME = 128
#: A request for several ranges is no longer than this.
_TOGETHER_BYTES = 8 << 20

#: What stands for a result that has not come.
_PENDING: Any = None

_open: _weakref.WeakSet[_Loop] = _weakref.WeakSet()


class AsyncClient:
    """The verbs of :class:`flatout.Client` for asyncio: of ``client``, of a client made from ``settings``, or of the default one.

    Cancelling a task cancels its transfer; the await returns when no thread writes to its buffer any more. An AsyncClient may be
    used from several loops, and pickles as its client. ``async with AsyncClient(…) as client:`` closes a client that was made from
    settings; one that was passed, and the default one, stay open.
    """

    def __init__(self, client: Client | None = None, **settings: Unpack[Settings]) -> None:
        if client is not None and settings:
            raise TypeError("AsyncClient takes a client or settings, not both")
        self._is_own = client is None and bool(settings)
        self._client = client or (Client(**settings) if settings else default_client())
        self._loops: _weakref.WeakKeyDictionary[_asyncio.AbstractEventLoop, _Loop] = _weakref.WeakKeyDictionary()

    @property
    def client(self) -> Client:
        """The client whose engine does the work."""
        return self._client

    async def read(
        self,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: _native.Progress | bool | None = None,
    ) -> _native.Buffer:
        ends = await self._resolved(url, *_native.one_range(start, end), if_match, version_id)
        if ends is None:
            return _native.Buffer()
        got: _native.Buffer | None
        got = await self._read("read", url, *ends, version_id=version_id, progress=progress)
        return _native.Buffer() if got is None else got

    async def readinto(
        self,
        url: str,
        buffer: _Exporter,
        start: int | None = None,
        end: int | None = None,
        *,
        offset: int | None = None,
        length: int | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: _native.Progress | bool | None = None,
    ) -> int:
        ends = await self._resolved(url, *_native.one_range(start, end, offset, length), if_match, version_id)
        if ends is None:
            # Also of an empty range: a buffer that cannot be filled is refused.
            return self._client.readinto(url, buffer, 0, 0)
        filled = await self._fill(url, buffer, *ends, version_id=version_id, progress=progress)
        return 0 if filled is None else filled[0]

    @overload
    async def read_ranges(
        self,
        url: str,
        ranges: Sequence[tuple[int | None, int | None]],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        max_gap: int | None = None,
        out: None = None,
        progress: _native.Progress | bool | None = None,
    ) -> list[_native.Buffer]: ...
    @overload
    async def read_ranges(
        self,
        url: str,
        ranges: Sequence[tuple[int | None, int | None]],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        max_gap: int | None = None,
        out: Sequence[_Exporter],
        progress: _native.Progress | bool | None = None,
    ) -> list[int]: ...
    async def read_ranges(
        self,
        url: str,
        ranges: Sequence[tuple[int | None, int | None]],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        max_gap: int | None = None,
        out: Sequence[_Exporter] | None = None,
        progress: _native.Progress | bool | None = None,
    ) -> list[_native.Buffer] | list[int]:
        wanted, if_match = await self._places(url, _native.ends_of(ranges), if_match, version_id)
        if out is not None:
            _native.check_out(wanted, list(out))
        reads = _RangeReads(self, url, if_match, version_id, wanted, out)
        runs = _native.runs_of(wanted, max_gap)
        at_a_time = min(_AT_A_TIME, max(self._client.memory_limit // _TOGETHER_BYTES, 1))
        watched = _native.Watched(progress, url.rpartition("/")[2])
        try:
            await _all((lambda run=run: reads.read(*run, watched) for run in runs), at_a_time)
        finally:
            watched.end()
        return reads.filled if out is not None else reads.buffers

    @overload
    def read_many(
        self,
        urls: Iterable[str | _native.Info | tuple[str, int | None, int | None]],
        *,
        ordered: bool = True,
        concurrency: int | None = None,
        return_exceptions: Literal[False] = False,
        progress: _native.Progress | bool | None = None,
    ) -> AsyncReadMany[_native.Buffer]: ...
    @overload
    def read_many(
        self,
        urls: Iterable[str | _native.Info | tuple[str, int | None, int | None]],
        *,
        ordered: bool = True,
        concurrency: int | None = None,
        return_exceptions: bool,
        progress: _native.Progress | bool | None = None,
    ) -> AsyncReadMany[_native.Buffer | FlatoutError]: ...
    def read_many(
        self,
        urls: Iterable[str | _native.Info | tuple[str, int | None, int | None]],
        *,
        ordered: bool = True,
        concurrency: int | None = None,
        return_exceptions: bool = False,
        progress: _native.Progress | bool | None = None,
    ) -> AsyncReadMany[Any]:
        return AsyncReadMany(self, urls, ordered, concurrency, return_exceptions, progress)

    async def download(
        self,
        url: str,
        path: str | _os.PathLike[str],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: _native.Progress | bool | None = None,
    ) -> int:
        named = {"if_match": if_match, "version_id": version_id, "progress": progress}
        count: int = await self._run("download", url, path, **named)
        return count

    @overload
    async def download_many(
        self,
        pairs: Sequence[tuple[str, str | _os.PathLike[str]]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[int]: ...
    @overload
    async def download_many(
        self,
        pairs: Sequence[tuple[str, str | _os.PathLike[str]]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: bool,
    ) -> list[int | FlatoutError]: ...
    async def download_many(
        self,
        pairs: Sequence[tuple[str, str | _os.PathLike[str]]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: bool = False,
    ) -> Sequence[int | FlatoutError]:
        wanted = _native.pairs_of(pairs)

        async def one(pair: tuple[str, str | _os.PathLike[str]], watched: _native.Watched) -> int:
            count: int = await self._run("download", *pair, progress=watched)
            return count

        return await _each(wanted, one, progress, return_exceptions)

    async def stat(self, url: str, *, version_id: str | None = None) -> _native.Info:
        info: _native.Info = await self._run("stat", url, version_id=version_id)
        return info

    async def exists(self, url: str, *, version_id: str | None = None) -> bool:
        try:
            await self.stat(url, version_id=version_id)
        except FileNotFoundError:
            return False
        return True

    async def ls(self, url: str, *, recursive: bool = False) -> list[_native.Info]:
        entries: list[_native.Info] = await self._run("ls", url, recursive=recursive)
        return entries

    async def ls_pages(self, url: str, *, recursive: bool = False) -> AsyncIterator[list[_native.Info]]:
        pages = self._client.ls_pages(url, recursive=recursive)
        while (page := await self._run("page", pages)) is not None:
            yield page

    async def buckets(self, scheme: str = "s3") -> list[str]:
        names: list[str] = await self._run("buckets", scheme)
        return names

    async def presign(self, url: str, *, expires: int | timedelta = 3600, version_id: str | None = None) -> str:
        presigned: str = await self._run("presign", url, expires=expires, version_id=version_id)
        return presigned

    @overload
    async def open(
        self,
        url: str,
        mode: Literal["rb", "br"] = "rb",
        *,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
    ) -> AsyncFile: ...
    @overload
    async def open(
        self,
        url: str,
        mode: Literal["wb", "bw", "ab", "ba", "xb", "bx"],
        *,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> AsyncWriter: ...
    async def open(
        self,
        url: str,
        mode: str = "rb",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
        progress: _native.Progress | bool | None = None,
        **options: Any,
    ) -> AsyncFile | AsyncWriter:
        """Opens an object as a :class:`flatout.AsyncFile`, or as a :class:`flatout.AsyncWriter` in the modes ``"wb"``, ``"xb"`` and
        ``"ab"``, as :meth:`flatout.Client.open` does. Reading sends no request where ``size`` is given, as from a listing.
        """
        does, is_text = parse_mode(url, mode)
        if is_text or (encoding, errors, newline) != (None, None, None):
            cause = f"mode {mode!r}: here objects are read and written as bytes, '{does}b'"
            raise Unsupported(kind="unsupported", doing="open", object=url, cause=cause)
        version = {"size": size, "etag": etag, "modified": modified, "version_id": version_id}
        check_open(does, version, {"progress": progress, **options})
        if does == "r":
            return await self._file(url, size=size, etag=etag, modified=modified, version_id=version_id)
        if does == "x":
            options["overwrite"] = False
            if await self.exists(url):
                raise there(url)
        if does == "a":
            # It looks at the object.
            writer = await _asyncio.to_thread(_native.Writer, self._client, url, options, True, progress)
        else:
            writer = _native.Writer(self._client, url, options, False, progress)
        return AsyncWriter(self, writer)

    async def _file(
        self,
        url: str,
        *,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
    ) -> AsyncFile:
        if size is None:
            info = await self.stat(url, version_id=version_id)
            if etag is not None and _bare(etag) != _bare(info.etag):
                cause = f"the ETag is {info.etag or 'none'}, not {etag}"
                raise ObjectChanged(kind="changed", doing="read", object=url, cause=cause)
            size, etag, modified = _size(url, info), info.etag, info.modified
        file = self._client.file(url, size=size, etag=etag, modified=modified, version_id=version_id)
        return AsyncFile(self, file)

    async def write(
        self,
        url: str,
        data: _Exporter,
        *,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> _native.Info:
        info: _native.Info = await self._run(_native.begin_write, url, data, dict(options), progress)
        return info

    async def upload(
        self,
        path: str | _os.PathLike[str],
        url: str,
        *,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> _native.Info:
        info: _native.Info = await self._run(_native.begin_upload, path, url, dict(options), progress)
        return info

    @overload
    async def upload_many(
        self,
        pairs: Sequence[tuple[str | _os.PathLike[str], str]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: Literal[False] = False,
        **options: Unpack[WriteOptions],
    ) -> list[_native.Info]: ...
    @overload
    async def upload_many(
        self,
        pairs: Sequence[tuple[str | _os.PathLike[str], str]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: bool,
        **options: Unpack[WriteOptions],
    ) -> list[_native.Info | FlatoutError]: ...
    async def upload_many(
        self,
        pairs: Sequence[tuple[str | _os.PathLike[str], str]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: bool = False,
        **options: Unpack[WriteOptions],
    ) -> Sequence[_native.Info | FlatoutError]:
        wanted = _native.path_pairs_of(pairs)
        named = dict(options)

        async def one(pair: tuple[str | _os.PathLike[str], str], watched: _native.Watched) -> _native.Info:
            info: _native.Info = await self._run(_native.begin_upload, *pair, named, watched)
            return info

        return await _each(wanted, one, progress, return_exceptions)

    async def delete(self, url: str, *, version_id: str | None = None, if_match: str | None = None) -> None:
        await self._run(_native.begin_delete, url, version_id, if_match)

    @overload
    async def delete_many(
        self, urls: Iterable[str | _native.Info], *, return_exceptions: Literal[False] = False
    ) -> list[None]: ...
    @overload
    async def delete_many(
        self, urls: Iterable[str | _native.Info], *, return_exceptions: bool
    ) -> list[FlatoutError | None]: ...
    async def delete_many(
        self, urls: Iterable[str | _native.Info], *, return_exceptions: bool = False
    ) -> Sequence[FlatoutError | None]:
        outcomes: list[FlatoutError | None] = await self._run(_native.begin_delete_many, urls, return_exceptions)
        return outcomes

    async def copy(
        self,
        source: str,
        target: str,
        *,
        version_id: str | None = None,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> _native.Info:
        return (await self._copy(source, target, version_id, progress, options))[0]

    async def move(
        self, source: str, target: str, *, progress: _native.Progress | bool | None = None, **options: Unpack[WriteOptions]
    ) -> _native.Info:
        copy, etag = await self._copy(source, target, None, progress, options)
        await self.delete(source, if_match=etag)
        return copy

    async def _copy(
        self,
        source: str,
        target: str,
        version_id: str | None,
        progress: _native.Progress | bool | None,
        options: WriteOptions,
    ) -> tuple[_native.Info, str | None]:
        """The copy, and the ETag of what was copied."""
        copied: tuple[_native.Info, str | None] | None
        copied = await self._run(_native.begin_copy, source, target, version_id, dict(options), progress)
        if copied is not None:
            return copied
        info, stored = await self._run(_native.begin_described, source, version_id)
        file = await self._file(source, size=info.size, etag=info.etag, modified=info.modified, version_id=version_id)
        named = described(stored, options)
        async with file, AsyncWriter(self, _native.Writer(self._client, target, named, False, progress)) as writer:
            while piece := await file.read(PIECE_BYTES):
                await writer.write(piece)
        made = writer.info
        assert made is not None, "it was closed without an exception"
        return made, info.etag

    async def aclose(self) -> None:
        """Closes the client if it was made from settings: calls in flight raise :class:`flatout.Cancelled`."""
        if self._is_own:
            self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _resolved(
        self, url: str, start: int | None, end: int | None, if_match: str | None, version_id: str | None
    ) -> tuple[int | None, int | None, str | None] | None:
        """The range counted from the start, and the ETag where a HEAD had to be sent; None where the range is empty."""
        if end is None:
            return start, end, if_match
        if end >= 0 and (start is None or start >= 0):
            return (start, end, if_match) if end > (start or 0) else None
        info = await self.stat(url, version_id=version_id)
        start, end, _ = slice(start, end).indices(_size(url, info))
        return (start, end, if_match or info.etag) if end > start else None

    async def _places(
        self,
        url: str,
        ranges: list[tuple[int | None, int | None]],
        if_match: str | None,
        version_id: str | None,
    ) -> tuple[list[tuple[int, int]], str | None]:
        """Ranges as they lie in the object, and the ETag; a HEAD is sent only where they depend on the size."""
        if all(end is not None and end >= 0 and (start or 0) >= 0 for start, end in ranges):
            return [(start or 0, max(end or 0, start or 0)) for start, end in ranges], if_match
        info = await self.stat(url, version_id=version_id)
        places = [slice(*ends).indices(_size(url, info)) for ends in ranges]
        return [(start, max(start, end)) for start, end, _ in places], if_match or info.etag

    async def _read(
        self,
        verb: str,
        url: str,
        start: int | None,
        end: int | None,
        if_match: str | None,
        *,
        version_id: str | None = None,
        **named: Any,
    ) -> Any:
        """The result of a read; None where the object has no bytes there."""
        if version_id is not None:
            named["version_id"] = version_id
        got = await self._run(verb, url, start, end, if_match=if_match, **named)
        return await self._unless_nothing(got, url, start, end, if_match, version_id)

    async def _fill(
        self,
        url: str,
        buffer: _Exporter,
        start: int | None,
        end: int | None,
        if_match: str | None,
        *,
        version_id: str | None,
        progress: _native.Progress | _native.Watched | bool | None,
    ) -> tuple[int, _native.Info | None] | None:
        named = {"if_match": if_match, "version_id": version_id, "progress": progress}
        got = await self._run("readinto", url, buffer, start, end, **named)
        filled: tuple[int, _native.Info | None] | None
        filled = await self._unless_nothing(got, url, start, end, if_match, version_id)
        return filled

    async def _unless_nothing(
        self, got: Any, url: str, start: int | None, end: int | None, if_match: str | None, version_id: str | None
    ) -> Any:
        """Looks into a read whose result is an exception: None where the object has no bytes there, else it is raised."""
        if not isinstance(got, Exception):
            return got
        if await self._run("is_of_nothing", url, start, end, if_match=if_match, version_id=version_id):
            return None
        raise got

    async def _run(self, verb: str | Callable[..., int], *args: Any, **named: Any) -> Any:
        loop = _asyncio.get_running_loop()
        own = self._loops.get(loop)
        if own is None or own.process != _os.getpid():
            own = self._loops[loop] = _Loop(loop)
        return await own.run(verb, self._client, *args, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return AsyncClient, (self._client,)

    def __repr__(self) -> str:
        return f"AsyncClient({self._client!r})"


for _verb in ("read", "readinto", "read_ranges", "read_many", "download", "download_many", "stat", "exists", "ls", "ls_pages", "buckets", "presign", "write", "upload", "upload_many", "delete", "delete_many", "copy", "move"):
    getattr(AsyncClient, _verb).__doc__ = getattr(Client, _verb).__doc__
del _verb


def _size(url: str, info: _native.Info) -> int:
    if info.size is None:
        cause, hint = "the origin does not tell the object's size", "read the whole object, or count from its start"
        raise Unsupported(kind="unsupported", doing="read", object=url, cause=cause, hint=hint)
    return info.size


def _bare(etag: str | None) -> str | None:
    return None if etag is None else etag.strip('"')


class _RangeReads:
    """Reads the ranges of one object, all of one version."""

    def __init__(
        self,
        client: AsyncClient,
        url: str,
        if_match: str | None,
        version_id: str | None,
        ranges: list[tuple[int, int]],
        out: Sequence[_Exporter] | None,
    ) -> None:
        self._client, self._url, self._if_match, self._version_id = client, url, if_match, version_id
        self._ranges, self._out = ranges, out
        self._version: tuple[Any, ...] | None = None
        self.filled = [0] * len(ranges)
        self.buffers = [_native.Buffer() for _ in ranges]

    async def read(self, start: int, end: int, of: list[int], watched: _native.Watched) -> None:
        """Reads `start` to `end`, in which the ranges with the indices `of` lie."""
        ends = (start, end, self._if_match)
        if self._out is not None and len(of) == 1:
            buffer = self._out[of[0]]
            filled = await self._client._fill(
                self._url, buffer, *ends, version_id=self._version_id, progress=watched
            )
            if filled is not None:
                self.filled[of[0]], info = filled
                self._check_version(info)
            return
        got = await self._client._read("read", self._url, *ends, version_id=self._version_id, progress=watched)
        if got is None:
            return
        self._check_version(got.info)
        for index in of:
            self._put(index, got if len(of) == 1 else _native.Buffer(self._part(index, got, start), got.info))

    def _part(self, index: int, got: _native.Buffer, start: int) -> memoryview:
        first, end = self._ranges[index]
        return memoryview(got)[first - start : max(first, end) - start]

    def _put(self, index: int, buffer: _native.Buffer) -> None:
        if self._out is None:
            self.buffers[index] = buffer
            return
        self.filled[index] = len(buffer)
        with memoryview(self._out[index]) as view, view.cast("B") as place:
            place[: len(buffer)] = memoryview(buffer)

    def _check_version(self, info: _native.Info | None) -> None:
        """Raises where a range is not of the version that came first."""
        if info is None:
            return
        version = (info.etag, info.size, info.modified)
        if self._version is None:
            self._version = version
        elif self._version != version:
            cause = f"the object was replaced: ETag {self._version[0] or 'none'} and {info.etag or 'none'}"
            raise ObjectChanged(kind="changed", doing="read", object=self._url, cause=cause)


async def _each(
    wanted: Sequence[_W],
    call: Callable[[_W, _native.Watched], Coroutine[Any, Any, _T]],
    progress: _native.Progress | bool | None,
    return_exceptions: bool,
) -> list[_T | FlatoutError]:
    """Calls for files, many at a time: the result of each, or the exception of each that failed, or the first one raised."""
    outcomes: list[_T | FlatoutError] = [_PENDING] * len(wanted)
    watched = _native.Watched(progress, f"{len(wanted)} files")

    async def one(index: int) -> None:
        try:
            outcomes[index] = await call(wanted[index], watched)
        except FlatoutError as error:
            outcomes[index] = error

    try:
        await _all((lambda index=index: one(index) for index in range(len(wanted))), _AT_A_TIME)
    finally:
        watched.end()
    for outcome in outcomes:
        if isinstance(outcome, FlatoutError) and not return_exceptions:
            raise outcome
    return outcomes


async def _all(jobs: Iterable[Callable[[], Coroutine[Any, Any, None]]], at_a_time: int) -> None:
    """Runs jobs, `at_a_time` at once. The first that fails cancels the others, and is raised when they have ended."""
    left = iter(jobs)

    async def work() -> None:
        for job in left:
            await job()

    workers = [_asyncio.ensure_future(work()) for _ in range(at_a_time)]
    try:
        await _asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        # From here on nothing writes to their buffers.
        await _quiet(workers)


async def _quiet(tasks: Iterable[_asyncio.Future[Any]]) -> None:
    """Waits until cancelled tasks have ended, even if the waiting task itself is cancelled meanwhile."""
    left = [task for task in tasks if not task.done()]
    cancelled = False
    while left:
        try:
            await _asyncio.wait(left)
        except _asyncio.CancelledError:
            cancelled = True
        left = [task for task in left if not task.done()]
    if cancelled:
        raise _asyncio.CancelledError


class _Loop:
    """The calls of one loop."""

    def __init__(self, loop: _asyncio.AbstractEventLoop) -> None:
        self.process = _os.getpid()
        self._completions = completions = _native.Completions()
        self._futures: dict[int, _asyncio.Future[Any]] = {}
        # A weak reference, because the loop is the weak key under which this is known.
        loop.add_reader(completions.fileno(), _settle, completions, self._futures)
        self._loop = _weakref.ref(loop)
        _open.add(self)

    async def run(self, verb: str | Callable[..., int], client: Client, *args: Any, **named: Any) -> Any:
        """A method of the completions by its name, or a function of them."""
        loop = self._loop()
        assert loop is not None, "it runs this"
        begin = getattr(self._completions, verb) if isinstance(verb, str) else _partial(verb, self._completions)
        ticket: int = begin(client, *args, **named)
        future = self._futures[ticket] = loop.create_future()
        try:
            return await _asyncio.shield(future)
        except _asyncio.CancelledError:
            if future.done():
                raise
            if not self._completions.cancel(ticket):
                # It has no buffer of the caller's.
                self._futures.pop(ticket, None)
                raise
            # The engine may write to its buffer until it has ended.
            while not future.done():
                try:
                    await _asyncio.shield(_asyncio.wait([future]))
                except _asyncio.CancelledError:
                    continue
            future.exception()
            raise

    def close(self) -> None:
        self._completions.close()


def _settle(completions: _native.Completions, futures: dict[int, _asyncio.Future[Any]]) -> None:
    for ticket, result, error in completions.take():
        future = futures.pop(ticket, None)
        if future is None or future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _close_all() -> None:
    for loop in list(_open):
        loop.close()


_atexit.register(_close_all)
