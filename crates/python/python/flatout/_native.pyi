"""The native half: what its classes do, with units, shapes and errors. ``flatout`` shows what is for its users.

Every verb takes a URL, ``s3://BUCKET/KEY``, ``oss://BUCKET/KEY`` or ``http[s]://HOST/PATH``, waits without the interpreter's lock, and
ends within 100 ms of a signal whose handler raises, such as ctrl-C. What goes wrong is a :class:`flatout.FlatoutError`.
"""

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any, Generic, Literal, NoReturn, SupportsIndex, TypeVar, final, overload

from typing_extensions import Buffer as _Exporter
from typing_extensions import CapsuleType, Self

from .errors import FlatoutError

__all__ = [
    "Buffer",
    "Client",
    "Completions",
    "Credentials",
    "ReadQueue",
    "File",
    "Index",
    "Info",
    "Pages",
    "Progress",
    "Question",
    "Questions",
    "ReadMany",
    "Version",
    "Watched",
    "Writer",
    "__version__",
    "_after_fork",
    "_at_exit",
    "begin_abort",
    "begin_commit",
    "begin_copy",
    "begin_create_bucket",
    "begin_delete",
    "begin_delete_bucket",
    "begin_delete_many",
    "begin_described",
    "begin_room",
    "begin_upload",
    "begin_write",
    "check_out",
    "copy",
    "create_bucket",
    "delete",
    "delete_bucket",
    "delete_many",
    "described",
    "ends_of",
    "one_range",
    "pairs_of",
    "path_pairs_of",
    "runs_of",
    "safetensors_head",
    "safetensors_header",
    "safetensors_header_end",
    "upload",
    "upload_many",
    "urls_of",
    "write",
]

_Read = TypeVar("_Read", covariant=True)

__version__: str

@final
class Buffer:
    """Bytes in memory of their own: writable, aligned to 64 bytes at least, one dimension of unsigned bytes.

    ``memoryview``, ``numpy.frombuffer``, ``torch.frombuffer`` and ``from_dlpack`` of both share the memory,
    which lives as long as any of them. ``len()`` is in bytes, a slice is a memoryview, ``bytes()`` copies. As
    with bytes, ``==`` compares with any object that has a buffer, ``in`` searches, ``+`` makes bytes, and
    ``decode`` makes text. A Buffer is writable and therefore, like a bytearray, has no hash: use
    ``hash(bytes(buffer))``. It pickles; with protocol 5 and out-of-band buffers without a copy. The unpickled
    Buffer has memory of its own.

    ``Buffer(data)`` copies the bytes of any object that has a buffer.
    """

    def __new__(cls, data: _Exporter | None = None, info: Info | None = None, /) -> Self: ...
    def __add__(self, other: _Exporter, /) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __bytes__(self) -> bytes: ...
    def __contains__(self, item: int | _Exporter, /) -> bool: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A capsule for ``from_dlpack``: one dimension of uint8 on the CPU, writable, not copied."""

    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __eq__(self, other: object, /) -> bool: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> memoryview: ...
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[Any, ...]: ...
    __hash__: None  # type: ignore[assignment]
    @property
    def info(self) -> Info | None:
        """The object that the bytes are of, as the response described it: size, ETag, time of the last change,
        type, metadata, version id.

        None where no request was sent, as for an empty range, and for reads of an open file.
        """

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Decodes the bytes to text, like :meth:`bytes.decode`."""

    def startswith(self, prefix: _Exporter) -> bool:
        """Whether the bytes begin with ``prefix``."""

    def endswith(self, suffix: _Exporter) -> bool:
        """Whether the bytes end with ``suffix``."""

@final
class Info:
    """An object, or a prefix that keys share up to a ``/``: an entry of a listing, or the answer to a HEAD."""

    def __new__(
        cls,
        url: str,
        key: str,
        name: str,
        size: int | None,
        etag: str | None,
        modified: float | None,
        storage_class: str | None,
        is_prefix: bool,
        metadata: dict[str, str],
        content_type: str | None,
        version_id: str | None = None,
    ) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    __hash__: None  # type: ignore[assignment]
    @property
    def url(self) -> str:
        """The URL to read it by."""
    @property
    def key(self) -> str:
        """The key, without the bucket."""
    @property
    def name(self) -> str:
        """The last part of the key; a prefix's with its ``/``."""
    @property
    def size(self) -> int | None:
        """In bytes; None of a prefix, or where the origin does not say."""
    @property
    def etag(self) -> str | None:
        """As sent, with its quotes."""
    @property
    def modified(self) -> float | None:
        """Seconds since 1970, whole ones."""
    @property
    def storage_class(self) -> str | None:
        """None where the origin names none."""
    @property
    def is_prefix(self) -> bool:
        """Whether it is a prefix and not an object."""
    @property
    def metadata(self) -> dict[str, str]:
        """The user-defined metadata, names without their prefix; empty in a listing."""
    @property
    def content_type(self) -> str | None:
        """None in a listing."""
    @property
    def version_id(self) -> str | None:
        """The id of this version, where the bucket keeps versions; None in a listing."""

@final
class Progress:
    """The progress of a call: passed to it as ``progress=``, watched from another thread or task. It serves one
    call.
    """

    def __new__(cls) -> Self: ...
    @property
    def done(self) -> int:
        """Bytes landed."""
    @property
    def total(self) -> int | None:
        """Bytes that will land; None until that is known."""
    @property
    def elapsed(self) -> float:
        """Seconds from the call's beginning to now, or to its end."""
    @property
    def rate(self) -> float:
        """Bytes a second since the call began."""
    @property
    def limited_by(self) -> str | None:
        """What holds the speed back now, in words and figures; None before there is much to say."""
    @property
    def is_over(self) -> bool:
        """Whether the call has ended."""

@final
class Credentials:
    """An access key pair of S3's or OSS's, with a token where it is temporary: what a client signs with instead
    of what it finds around.

    ``Client(credentials=…)`` takes one that stays, or a function that returns one. It shows nothing of what
    it holds, and is never pickled.

    Args:
        access_key_id: the key's name.
        secret_access_key: the secret.
        session_token: of temporary ones.
        expires: when they end: a datetime with its zone, or seconds since 1970. A function is asked again
            five minutes before, or at half of a shorter life.
    """

    def __new__(
        cls,
        access_key_id: str,
        secret_access_key: str,
        session_token: str | None = None,
        *,
        expires: datetime.datetime | float | None = None,
    ) -> Self: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: Any, /) -> Self: ...
    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn: ...
    @property
    def expires(self) -> float | None:
        """When they end, in seconds since 1970; None of those that stay."""

@final
class File:
    """Reads one version of an object at any place, from any thread. Positions and lengths are in bytes, counted
    from 0.

    Reads that follow a pattern are prefetched; a read that follows none is one request of exactly its bytes.
    Once another version has replaced the object, reads that need the origin raise
    :class:`flatout.ObjectChanged`.
    """

    @property
    def url(self) -> str:
        """The URL as it was written."""
    @property
    def size(self) -> int:
        """In bytes."""
    @property
    def etag(self) -> str | None:
        """As sent, with its quotes; None where the origin sent none."""
    @property
    def modified(self) -> float | None:
        """Seconds since 1970."""
    @property
    def version_id(self) -> str | None:
        """The ``version_id`` that the file was opened with."""
    @property
    def client(self) -> Client:
        """The client whose engine reads."""
    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
    @property
    def stats(self) -> dict[str, int]:
        """``reads`` and ``served_bytes`` so far, of this file in this process."""

    def pread(self, offset: int, n: int = -1) -> Buffer:
        """Reads ``n`` bytes from ``offset`` on, fewer where the object ends before; all that are left with
        ``n=-1``.
        """

    def pread_bytes(self, offset: int, n: int = -1) -> bytes:
        """Reads like :meth:`pread`, into ``bytes``."""

    def preadinto(self, offset: int, buffer: _Exporter) -> int:
        """Fills ``buffer`` from ``offset`` on, as far as the object goes, and returns the number of bytes.

        Raises:
            BufferError: it is read-only, or not C-contiguous.
        """

    def prefetch(self, ranges: Sequence[tuple[int | None, int | None]]) -> None:
        """Announces ranges that will be read, in this order, as pairs ``(start, end)`` like in a slice. They are
        fetched as far as memory goes, and the rest as soon as those have been read. Returns at once.
        """

    def close(self) -> None:
        """Closes the file and frees its memory. Calling it again does nothing."""

@final
class ReadMany(Iterator[tuple[int, _Read]], Generic[_Read]):
    """What :meth:`Client.read_many` returns: pairs of an index and what was read. One thread takes them."""

    @classmethod
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[int, _Read]: ...
    def close(self) -> None:
        """Cancels the reads in flight."""

@final
class Index:
    """An index of remote objects: a file that ``flatout volume build`` has written. Only what is asked for is
    read of it, and compared with its checksum.
    """

    def __new__(cls, path: str | os.PathLike[str]) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def source(self) -> str:
        """The URL of the prefix whose objects it has."""

    @property
    def totals(self) -> tuple[int, int, int]:
        """How many files and folders it has, and the bytes of all files."""

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """The file that was opened: device, inode, bytes, and nanoseconds of its last change."""

    def write_places(self, path: str | os.PathLike[str], matches: Callable[[str], bool] | None = None) -> int:
        """Writes to the file ``path`` where the inode of each file is, in the order of keys, as 4 bytes in the
        machine's order. All of the index is read, and an error raised where it is damaged.

        Args:
            path: of a file, which is there.
            matches: is called with what follows the prefix in each key, and returns whether it is wanted.

        Returns:
            How many there are.
        """

    def infos(self, places: Sequence[int]) -> list[Info]:
        """The files whose inodes are at these places, as a listing would tell of them."""

@final
class Pages(Iterator[list[Info]]):
    """What :meth:`Client.ls_pages` returns: pages of entries. One thread takes them."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> list[Info]: ...

class Client:
    """Reads objects of S3, OSS and plain HTTP; see :class:`flatout.Client`, which is made from keyword
    arguments.
    """

    def __new__(cls, settings: dict[str, Any] | None = None, *_args: Any, **_named: Any) -> Self: ...
    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the client was made with, as a new dict.

        Raises:
            UsageError: a setting holds a password, which is not handed out.
        """

    @property
    def memory_limit(self) -> int:
        """The most memory in bytes that the client may use in this process, not counting the caller's buffers
        and what reads return.
        """

    @property
    def stats(self) -> dict[str, int]:
        """Counters of all file reads of this process so far, in bytes or reads, by name."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def close(self) -> None:
        """Closes the client. Its calls that still run raise :class:`flatout.Cancelled`, and so does every later
        one.
        """

    def read(
        self,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: Progress | bool | None = None,
    ) -> Buffer:
        """Reads an object, or its bytes ``[start:end]`` as in a slice, into a new buffer, whose ``info``
        describes the object.

        Args:
            url: the object.
            start: the first byte; a negative one counts from the end. Without it, the object's first byte.
            end: the byte behind the last one, in the same way. Without it, the object's end.
            if_match: reads only the version with this ETag.
            version_id: this version of the object instead of the newest, in a bucket that keeps versions.
            progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.

        Raises:
            NotFound, AccessDenied, Timeout, NetworkError, Throttled: the origin or the network failed.
            ObjectChanged: the object is not the version ``if_match``, or was replaced while it was read.
            Corrupt: the bytes of a whole object do not match the origin's checksum.
            UsageError: the URL names no object.
        """

    def readinto(
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
        progress: Progress | bool | None = None,
    ) -> int:
        """Fills ``buffer`` with an object, or its bytes ``[start:end]``, by parallel range requests, and returns
        how many bytes landed.

        The bytes land in the buffer without a copy. It may be any writable, C-contiguous buffer, of items of
        any type, and longer than what comes. When the call returns, also if it was interrupted, nothing
        writes to the buffer any more. After an exception its content is undefined.

        Args:
            url: the object.
            buffer: the bytes go to its start.
            start: the first byte, as in :meth:`read`.
            end: the byte behind the last one. Without it, the object's end, and all bytes up to there have to
                fit. Fewer come where the object ends before ``end``.
            offset: another way to say ``start``, counted from 0.
            length: another way to say ``end``: the number of bytes from ``offset`` on.
            if_match: reads only the version with this ETag.
            version_id: this version of the object instead of the newest, in a bucket that keeps versions.
            progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.

        Raises:
            TypeError: ``buffer`` has no buffer.
            BufferError: it is read-only, or not C-contiguous.
            UsageError: it is too short.
            FlatoutError: as in :meth:`read`.
        """

    @overload
    def read_ranges(
        self,
        url: str,
        ranges: Sequence[tuple[int | None, int | None]],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        max_gap: int | None = None,
        out: None = None,
        progress: Progress | bool | None = None,
    ) -> list[Buffer]: ...
    @overload
    def read_ranges(
        self,
        url: str,
        ranges: Sequence[tuple[int | None, int | None]],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        max_gap: int | None = None,
        out: Sequence[_Exporter],
        progress: Progress | bool | None = None,
    ) -> list[int]:
        """Reads several ranges of one version of an object in parallel. Near ones are one request.

        Args:
            url: the object.
            ranges: pairs ``(start, end)`` as in a slice, in any order; they may overlap.
            if_match: reads only the version with this ETag.
            version_id: this version of the object instead of the newest, in a bucket that keeps versions.
            max_gap: small ranges with at most this many bytes between them are one request; 256 KiB by
                default.
            out: a writable buffer for each range, to be filled instead of a new one.
            progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.

        Returns:
            A buffer for each range, in the order of ``ranges``; with ``out`` the number of bytes in each.
        """

    @overload
    def read_many(
        self,
        urls: Iterable[str | Info | tuple[str, int | None, int | None]],
        *,
        ordered: bool = True,
        concurrency: int | None = None,
        return_exceptions: Literal[False] = False,
        progress: Progress | bool | None = None,
    ) -> ReadMany[Buffer]: ...
    @overload
    def read_many(
        self,
        urls: Iterable[str | Info | tuple[str, int | None, int | None]],
        *,
        ordered: bool = True,
        concurrency: int | None = None,
        return_exceptions: bool,
        progress: Progress | bool | None = None,
    ) -> ReadMany[Buffer | FlatoutError]:
        """Reads many objects, each into a buffer of its own, in parallel as far as memory allows.

        A small object costs one request, and so does one of unknown size. Where objects may be large, pass
        entries of a listing: their sizes are known, and large ones are read in parallel parts.

        Args:
            urls: URLs, tuples ``(url, start, end)``, or entries of a listing (:class:`Info`), whose version
                is read. Taken from the iterable as they are needed.
            ordered: whether the results come in the order of ``urls``, or as they arrive.
            concurrency: how many objects may be in flight, or read and not yet taken; 128 by default.
            return_exceptions: whether an exception is returned in place of its object, or raised, which ends
                the iteration.
            progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.

        Returns:
            An iterator of pairs ``(index, Buffer)``, where ``index`` counts ``urls`` from 0.
        """

    def download(
        self,
        url: str,
        path: str | os.PathLike[str],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: Progress | bool | None = None,
    ) -> int:
        """Downloads an object to a file and returns its size. The file appears under its name when it is whole
        and verified.

        Raises:
            LocalError: the file cannot be written. As after every failure, a file that was there before is
                unchanged.
            FlatoutError: as in :meth:`read`.
        """

    @overload
    def download_many(
        self,
        pairs: Sequence[tuple[str, str | os.PathLike[str]]],
        *,
        progress: Progress | bool | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[int]: ...
    @overload
    def download_many(
        self,
        pairs: Sequence[tuple[str, str | os.PathLike[str]]],
        *,
        progress: Progress | bool | None = None,
        return_exceptions: bool,
    ) -> list[int | FlatoutError]:
        """Downloads objects to files, given as pairs ``(url, path)``, like :meth:`download`. Returns the size of
        each; with ``return_exceptions`` an exception in place of each that failed.

        All are tried. Then, without ``return_exceptions``, the first exception is raised.
        """

    def ls(self, url: str, *, recursive: bool = False) -> list[Info]:
        """Lists a prefix up to the next ``/``, or recursively. Sorted within each page of the origin's, which
        has 1000 entries as a rule.
        """

    def ls_pages(self, url: str, *, recursive: bool = False) -> Pages:
        """Lists like :meth:`ls`, a page at a time, each requested when it is taken: for millions of keys."""

    def buckets(self, scheme: str = "s3") -> list[str]:
        """The names of the account's buckets, on ``"s3"`` or ``"oss"``."""

    def stat(self, url: str, *, version_id: str | None = None) -> Info:
        """Describes an object; sends one HEAD."""

    def exists(self, url: str, *, version_id: str | None = None) -> bool:
        """Whether the object exists; sends one HEAD. Errors other than NotFound are raised."""

    def presign(self, url: str, *, expires: int | datetime.timedelta = 3600, version_id: str | None = None) -> str:
        """Returns a presigned URL, by which anybody can read the object for ``expires`` seconds, or that
        timedelta. It is signed with the current keys. Sends no request.

        Raises:
            AccessDenied: there are no keys to sign with.
            UsageError: the URL is plain HTTP, which has no signatures, or ``expires`` is longer than the
                origin allows.
        """

    def file(
        self,
        url: str,
        *,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
    ) -> File:
        """Opens an object for reads at any place. Sends no request where ``size`` is given, as from a listing;
        else one HEAD.

        Args:
            url: the object.
            size: in bytes.
            etag: of the version to read.
            modified: when that version was made, in seconds since 1970; tells versions apart where there is
                no strong ETag.
            version_id: this version of the object instead of the newest, in a bucket that keeps versions.
        """

@final
class Completions:
    """The calls of one loop that are awaited: see :class:`flatout.AsyncClient`. Each verb returns a ticket."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int:
        """A descriptor that is readable when calls have ended."""

    def take(self) -> list[tuple[int, Any, BaseException | None]]:
        """The calls that have ended since: ``(ticket, result, exception)``."""

    def cancel(self, ticket: int) -> bool:
        """Cancels a call, which then ends like any other; whether its end has to be waited for."""

    def close(self) -> None:
        """Cancels all calls, and returns when no thread writes to their buffers."""

    def read(
        self,
        client: Client,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: Progress | Watched | bool | None = None,
    ) -> int: ...
    def read_one(
        self,
        client: Client,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        bytes: int | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: Progress | Watched | bool | None = None,
    ) -> int:
        """One of many objects, of which at most ``bytes`` bytes come; without it as many as a small object has.
        The result is the size, an int, where the object is larger.
        """

    def is_of_nothing(
        self,
        client: Client,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> int:
        """Whether a read, whose result was an exception, failed only because the object has no bytes there."""

    def readinto(
        self,
        client: Client,
        url: str,
        buffer: _Exporter,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: Progress | Watched | bool | None = None,
    ) -> int:
        """The result is how many bytes landed, and the object's Info."""

    def download(
        self,
        client: Client,
        url: str,
        path: str | os.PathLike[str],
        *,
        if_match: str | None = None,
        version_id: str | None = None,
        progress: Progress | Watched | bool | None = None,
    ) -> int: ...
    def stat(self, client: Client, url: str, *, version_id: str | None = None) -> int: ...
    def ls(self, client: Client, url: str, *, recursive: bool = False) -> int: ...
    def page(self, client: Client, pages: Pages) -> int:
        """The next page of a listing; None is awaited behind the last."""

    def buckets(self, client: Client, scheme: str) -> int: ...
    def presign(
        self, client: Client, url: str, *, expires: int | datetime.timedelta, version_id: str | None = None
    ) -> int: ...
    def pread(
        self, client: Client, file: File, offset: int, n: int, *, as_bytes: bool = False, past: bool = False
    ) -> int:
        """A range of a file that is not empty, as a Buffer or as bytes; None is awaited where what is ahead has
        failed.
        """

    def preadinto(self, client: Client, file: File, offset: int, buffer: _Exporter, *, past: bool = False) -> int:
        """Fills ``buffer`` from ``offset`` of a file on, where there is something of it; how many bytes, or None
        as of ``pread``.
        """

@final
class Watched:
    """The progress of several calls that their caller sees as one; passed to each as ``progress=``."""

    def __new__(cls, progress: Progress | bool | None, title: str) -> Self: ...
    def end(self) -> None:
        """Ends the progress: all calls are over."""

@final
class Question:
    """Somebody wants keys of a function."""

    def answer(self, returned: object) -> None:
        """Answers it with what the function returned."""

    def refuse(self, why: str) -> None:
        """Says why there are none."""

@final
class Questions:
    """What is asked of a function that returns keys."""

    def next(self) -> Question | None:
        """Waits for the next one; None when nobody asks any more."""

def check_out(ranges: Sequence[tuple[int, int]], out: Sequence[_Exporter]) -> None:
    """Refuses buffers that do not fit their ranges, or share bytes: for asyncio, which fills them later, one
    after the other.
    """

def ends_of(ranges: Sequence[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """For asyncio: checks ranges."""

def one_range(
    start: int | None, end: int | None, offset: int | None = None, length: int | None = None
) -> tuple[int | None, int | None]:
    """For asyncio: the ends of the range of a read, however the caller names them."""

def pairs_of(
    pairs: Sequence[tuple[str, str | os.PathLike[str]]],
) -> list[tuple[str, str | os.PathLike[str]]]:
    """For asyncio: checks pairs of URL and path."""

_Iterable = TypeVar("_Iterable", bound=Iterable[Any])

def path_pairs_of(
    pairs: Sequence[tuple[str | os.PathLike[str], str]],
) -> list[tuple[str | os.PathLike[str], str]]:
    """For asyncio: checks pairs of path and URL."""

def urls_of(urls: _Iterable) -> _Iterable:
    """For asyncio: checks an iterable of URLs."""

def runs_of(ranges: Sequence[tuple[int, int]], max_gap: int | None = None) -> list[tuple[int, int, list[int]]]:
    """Merges ranges into requests: tuples of start, end, and the indices of the ranges within."""

def _at_exit() -> None: ...
def _after_fork() -> None: ...

@final
class Writer:
    """An object that is written from its start to its end. It is there once :meth:`commit` has returned; dropped
    before, nothing is.
    """

    def __new__(
        cls,
        client: Client,
        url: str,
        options: dict[str, Any] | None = None,
        appends: bool = False,
        progress: Progress | bool | None = None,
    ) -> Self: ...
    @property
    def url(self) -> str:
        """As it was written."""
    @property
    def size(self) -> int:
        """Bytes of the object so far."""
    @property
    def is_open(self) -> bool:
        """Whether bytes are taken."""

    def write(self, data: _Exporter) -> int:
        """Takes all bytes of ``data``, and waits where they come faster than they can be sent."""

    def write_some(self, data: _Exporter, at: int) -> int:
        """Takes bytes of ``data`` from ``at`` on as far as that needs no wait, and returns how many."""

    def commit(self) -> Info:
        """Publishes the object."""

    def cancel(self) -> None:
        """Has the upload end soon, without waiting for that."""

    def abort(self) -> None:
        """Ends the upload without an object. Does nothing once it is over."""

def write(
    client: Client,
    url: str,
    data: _Exporter,
    options: dict[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Info: ...
def upload(
    client: Client,
    path: str | os.PathLike[str],
    url: str,
    options: dict[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Info: ...
def upload_many(
    client: Client,
    pairs: Sequence[tuple[str | os.PathLike[str], str]],
    options: dict[str, Any] | None = None,
    progress: Progress | bool | None = None,
    return_exceptions: bool = False,
) -> list[Any]: ...
def delete(client: Client, url: str, version_id: str | None = None, if_match: str | None = None) -> None: ...
def delete_many(
    client: Client, urls: Iterable[str | Info], return_exceptions: bool = False
) -> list[FlatoutError | None]: ...
def copy(
    client: Client,
    source: str,
    target: str,
    version_id: str | None = None,
    options: dict[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> tuple[Info, str | None] | None:
    """None where the two are of different services."""

def described(client: Client, url: str, version_id: str | None = None) -> tuple[Info, dict[str, Any]]:
    """An object, and the options that one which is stored as it is made with."""

def create_bucket(client: Client, url: str) -> None: ...
def delete_bucket(client: Client, url: str) -> None: ...
def begin_create_bucket(calls: Completions, client: Client, url: str) -> int: ...
def begin_delete_bucket(calls: Completions, client: Client, url: str) -> int: ...
def begin_write(
    calls: Completions,
    client: Client,
    url: str,
    data: _Exporter,
    options: dict[str, Any] | None = None,
    progress: Progress | Watched | bool | None = None,
) -> int: ...
def begin_upload(
    calls: Completions,
    client: Client,
    path: str | os.PathLike[str],
    url: str,
    options: dict[str, Any] | None = None,
    progress: Progress | Watched | bool | None = None,
) -> int: ...
def begin_delete(
    calls: Completions, client: Client, url: str, version_id: str | None = None, if_match: str | None = None
) -> int: ...
def begin_delete_many(
    calls: Completions, client: Client, urls: Iterable[str | Info], return_exceptions: bool = False
) -> int: ...
def begin_copy(
    calls: Completions,
    client: Client,
    source: str,
    target: str,
    version_id: str | None = None,
    options: dict[str, Any] | None = None,
    progress: Progress | Watched | bool | None = None,
) -> int:
    """The result is None where the two are of different services."""

def begin_described(calls: Completions, client: Client, url: str, version_id: str | None = None) -> int: ...
def begin_room(calls: Completions, client: Client, writer: Writer) -> int:
    """Ends when the writer takes bytes, or has failed."""

def begin_commit(calls: Completions, client: Client, writer: Writer) -> int: ...
def begin_abort(calls: Completions, client: Client, writer: Writer) -> int: ...

@final
class Version:
    """The version of an object that was read, as far as the origin tells."""

    @property
    def size(self) -> int | None:
        """Bytes of the whole object."""
    @property
    def etag(self) -> str | None:
        """As sent, quotes included."""
    @property
    def modified(self) -> str | None:
        """The Last-Modified header as sent."""

@final
class ReadQueue:
    """Reads of ranges of several objects at once, for one thread: started by number, taken as they end."""

    def __new__(cls, client: Client, progress: Progress | bool | None = None, title: str = "") -> Self: ...
    @property
    def memory_bytes(self) -> int:
        """The client's memory limit, which bounds what has landed and has not been taken."""

    def start(self, number: int, url: str, start: int, end: int, of: Version | None = None) -> None:
        """Starts to read ``start..end``, which is not empty, as far as the object goes; of the version ``of``,
        if one is named.
        """

    def next(self) -> tuple[int, Buffer, Version]:
        """Waits for a read to end: its number, its bytes, and the version that was read.

        Raises the error of a read that failed; the others go on. ValueError where nothing has been started.
        """

    def close(self) -> None:
        """Cancels the reads in flight. When it returns, no thread writes to their memory."""

def safetensors_head(
    tensors: Sequence[tuple[str, str, Sequence[int], int]], metadata: dict[str, str] | None
) -> tuple[bytes, list[int]]:
    """The head of a file of these tensors, with its length before it, and the order in which their bytes follow.

    Raises ValueError, which says what is wrong.
    """

def safetensors_header_end(head: _Exporter, file_bytes: int) -> int:
    """The offset at which the header of a file of ``file_bytes`` bytes ends, which begins with ``head``.

    Raises ValueError where that is no safetensors file.
    """

def safetensors_header(
    head: _Exporter, file_bytes: int
) -> tuple[dict[str, str] | None, list[tuple[str, str, int, tuple[int, ...], int, int]]]:
    """Metadata, and tensors in the order of the file: (name, dtype, bits of an element, shape, start, end),
    within the file.

    Raises ValueError, which says what is wrong. ``head`` has to contain the whole header.
    """
