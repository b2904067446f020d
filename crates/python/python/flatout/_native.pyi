"""The native half: what its classes do, with units, shapes and errors. ``flatout`` shows what is for its users.

Every verb takes a URL, ``s3://BUCKET/KEY``, ``oss://BUCKET/KEY`` or ``http[s]://HOST/PATH``, waits without the interpreter's lock, and
ends within 100 ms of a signal whose handler raises, such as ctrl-C. What goes wrong is a :class:`flatout.FlatoutError`.
"""

import datetime
import os
from collections.abc import Iterable, Iterator, Sequence
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
    "Info",
    "Pages",
    "Progress",
    "Question",
    "Questions",
    "ReadMany",
    "Version",
    "Watched",
    "__version__",
    "_after_fork",
    "_at_exit",
    "check_out",
    "ends_of",
    "one_range",
    "pairs_of",
    "runs_of",
    "safetensors_header",
    "safetensors_header_end",
    "urls_of",
]

_Read = TypeVar("_Read", covariant=True)

__version__: str

@final
class Buffer:
    """Bytes in memory of their own: writable, aligned to 64 bytes at least, one dimension of unsigned bytes.

    ``memoryview``, ``numpy.frombuffer``, ``torch.frombuffer`` and ``from_dlpack`` of either share the memory, which lives as long as
    any of them. ``len()`` is in bytes, a slice is a memoryview, ``bytes()`` copies. As of bytes, ``==`` compares with whatever has
    bytes, ``in`` looks for some of them, ``+`` makes bytes, and ``decode`` text. It can be written to, and so has no hash, as a
    bytearray has none: ``hash(bytes(buffer))``. It pickles, from protocol 5 on without a copy where whoever pickles takes buffers
    out of band; what is unpickled has memory of its own.

    ``Buffer(data)`` copies the bytes of whatever has some.
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
        """What the answer that brought the bytes told of the object: size, ETag, when it was changed, type, metadata, version id.

        None where nothing was asked, as for an empty range, and of what was read from a file that is open.
        """

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The bytes as text, as :meth:`bytes.decode` has it."""

    def startswith(self, prefix: _Exporter) -> bool:
        """Whether these bytes stand at the beginning."""

    def endswith(self, suffix: _Exporter) -> bool:
        """Whether these bytes stand at the end."""

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
        """What to read it by."""
    @property
    def key(self) -> str:
        """What stands behind the bucket."""
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
        """Where the origin names one."""
    @property
    def is_prefix(self) -> bool:
        """Whether it is a prefix, and no object."""
    @property
    def metadata(self) -> dict[str, str]:
        """The user's own headers without their prefix; empty in a listing."""
    @property
    def content_type(self) -> str | None:
        """None in a listing."""
    @property
    def version_id(self) -> str | None:
        """Which of the object's versions this is, where the bucket keeps them; None in a listing."""

@final
class Progress:
    """How far a call is: handed to it as ``progress=``, looked at from another thread or task. It serves one call."""

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
    """An access key pair of S3's or OSS's, with a token where it is temporary: what a client signs with instead of what it finds around.

    ``Client(credentials=…)`` takes one that stays, or a function that returns one. It shows nothing of what it holds, and is never
    pickled.

    Args:
        access_key_id: the key's name.
        secret_access_key: the secret.
        session_token: of temporary ones.
        expires: when they end: a datetime with its zone, or seconds since 1970. A function is asked again five minutes before,
            or at half of a shorter life.
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
    """Reads one version of an object at any place, from any thread: positions and lengths in bytes, counted from 0.

    What is read in a pattern is fetched ahead; a read that follows none is one request of exactly its bytes. Once another version
    stands in the object's place, reads that need the origin raise :class:`flatout.ObjectChanged`.
    """

    @property
    def url(self) -> str:
        """As it was written."""
    @property
    def size(self) -> int:
        """In bytes."""
    @property
    def etag(self) -> str | None:
        """As sent, with its quotes; None where the origin told none."""
    @property
    def modified(self) -> float | None:
        """Seconds since 1970."""
    @property
    def version_id(self) -> str | None:
        """The version that was asked for by its id, if one was."""
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
        """``n`` bytes from ``offset`` on, fewer where the object ends before; all of them with ``n=-1``."""

    def pread_bytes(self, offset: int, n: int = -1) -> bytes:
        """As :meth:`pread`, into ``bytes``."""

    def preadinto(self, offset: int, buffer: _Exporter) -> int:
        """Fills ``buffer`` from ``offset`` on, as far as the object goes; how many bytes that were.

        Raises:
            BufferError: it is read-only, or not C-contiguous.
        """

    def prefetch(self, ranges: Sequence[tuple[int | None, int | None]]) -> None:
        """Says which ranges will be read, in this order: they are asked for at once as far as memory goes, the others as soon as
        those have been read. Pairs ``(start, end)`` as in a slice. Returns at once.
        """

    def close(self) -> None:
        """Lets go of what is held for it. Calling it again does nothing."""

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
class Pages(Iterator[list[Info]]):
    """What :meth:`Client.ls_pages` returns. It is for one thread at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> list[Info]: ...

class Client:
    """Reads objects of S3, OSS and plain HTTP; see :class:`flatout.Client`, which is made from keyword arguments."""

    def __new__(cls, settings: dict[str, Any] | None = None, *_args: Any, **_named: Any) -> Self: ...
    @property
    def settings(self) -> dict[str, Any]:
        """What it was made with, as a new dict.

        Raises:
            UsageError: one of them holds a password, which is not handed on.
        """

    @property
    def memory_limit(self) -> int:
        """The most memory that its engine may take in this process, in bytes; buffers of the caller's and what reads return are no
        part of it.
        """

    @property
    def stats(self) -> dict[str, int]:
        """What reading files has come to so far, of all of them in this process: counts by name, in bytes or reads."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def close(self) -> None:
        """Ends what runs on it: whoever waits is told by :class:`flatout.Cancelled`. It cannot be used after."""

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
        """An object, or ``[start:end]`` of it as a slice would cut it, into a new buffer; its ``info`` says what was told of the object.

        Args:
            url: the object.
            start: the first byte, counted from the end where it is negative; the object's first without it.
            end: the byte behind the last one, in the same way; the object's end without it.
            if_match: only of the version with this ETag.
            version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
            progress: a :class:`Progress` to look at, or True for a bar of tqdm.

        Raises:
            NotFound, AccessDenied, Timeout, NetworkError, Throttled: what the origin or the network refused.
            ObjectChanged: another version is there than ``if_match`` says, or came while it was read.
            Corrupt: the bytes of a whole object are not those that the origin states.
            UsageError: this names no object.
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
        """Fills ``buffer`` with an object, or with ``[start:end]`` of it, by many ranges at once; how many bytes landed.

        The bytes land where they are wanted, nothing is copied. The buffer is any writable one that is C-contiguous, of whatever
        items; it may be longer than what comes. It is the call's until that returns: nothing writes to it after, also when the
        call was interrupted. What it holds after a call that raised is undefined.

        Args:
            url: the object.
            buffer: where the bytes go, from its first on.
            start: the first byte, as of :meth:`read`.
            end: the byte behind the last one; the object's end without it, and then all that is left has to fit. Fewer come where
                the object ends before.
            offset: another way to say ``start``, counted from 0.
            length: another way to say ``end``: so many bytes from ``offset`` on.
            if_match: only of the version with this ETag.
            version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
            progress: a :class:`Progress` to look at, or True for a bar of tqdm.

        Raises:
            TypeError: this has no buffer.
            BufferError: it is read-only, or not C-contiguous.
            UsageError: it is too short.
            FlatoutError: as :meth:`read`.
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
        """Ranges of one version of an object in one call, in any order, all at once; near ones by one request.

        Args:
            url: the object.
            ranges: pairs ``(start, end)`` as in a slice; they may overlap.
            if_match: only of the version with this ETag.
            version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
            max_gap: so many bytes between two small ranges are fetched rather than asked around; 256 KiB without it.
            out: as many writable buffers, to be filled instead of new ones.
            progress: a :class:`Progress` to look at, or True for a bar of tqdm.

        Returns:
            A buffer for each range, in the order of ``ranges``; with ``out`` how many bytes came for each.
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
        """Many objects, each into a buffer of its own, as many at once as are good and memory allows.

        A small object costs one request, as does one whose size nobody knows; pass entries of a listing where objects may be large, so
        that those come in parts.

        Args:
            urls: URLs, ``(url, start, end)``, or an :class:`Info`, of the version that it names; taken as they are wanted.
            ordered: in the order of ``urls``; else as they come.
            concurrency: how many may be on their way or wait to be taken; 128 without it.
            return_exceptions: what went wrong is handed on in its place, else it is raised and ends all.
            progress: a :class:`Progress` to look at, or True for a bar of tqdm.

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
        """An object to a file, which appears under its name when it is whole and verified; its bytes.

        Raises:
            LocalError: the file cannot be written. What stood there before stays, as after every failure.
            FlatoutError: as :meth:`read`.
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
        """Objects to files, pairs ``(url, path)``, as :meth:`download`; the bytes of each, or with ``return_exceptions`` why not.

        All are tried; without ``return_exceptions`` the first that failed is raised then.
        """

    def ls(self, url: str, *, recursive: bool = False) -> list[Info]:
        """What is under a prefix, up to the next ``/``, or all of it; sorted within a page of the origin's, 1000 entries as a rule."""

    def ls_pages(self, url: str, *, recursive: bool = False) -> Pages:
        """The same page after page, each asked for when it is wanted: for millions of keys."""

    def buckets(self, scheme: str = "s3") -> list[str]:
        """The names of the account's buckets, of ``"s3"`` or ``"oss"``."""

    def stat(self, url: str, *, version_id: str | None = None) -> Info:
        """What the origin says of an object, by one HEAD."""

    def exists(self, url: str, *, version_id: str | None = None) -> bool:
        """Whether there is such an object, by one HEAD. What else goes wrong is raised."""

    def presign(self, url: str, *, expires: int | datetime.timedelta = 3600, version_id: str | None = None) -> str:
        """A URL by which anybody may read the object for so many seconds, or that time, signed with the keys of now. Nothing is asked.

        Raises:
            AccessDenied: there are no keys to sign with.
            UsageError: plain HTTP has no signatures; longer than the dialect allows.
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
        """An object to be read here and there. With ``size`` from a listing nothing is asked beforehand; without, one HEAD.

        Args:
            url: the object.
            size: in bytes.
            etag: of the version that is meant.
            modified: when that was made, in seconds since 1970: tells versions apart where there is no strong ETag.
            version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
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
        """One of many objects, of which at most ``bytes`` bytes come; without it as many as a small object has. The result is the size, an
        int, where the object is larger.
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
        """A range of a file that is not empty, as a Buffer or as bytes; None is awaited where what is ahead has failed."""

    def preadinto(self, client: Client, file: File, offset: int, buffer: _Exporter, *, past: bool = False) -> int:
        """Fills ``buffer`` from ``offset`` of a file on, where there is something of it; how many bytes, or None as of ``pread``."""

@final
class Watched:
    """The progress of several calls that are one to their caller, handed to each as ``progress=``."""

    def __new__(cls, progress: Progress | bool | None, title: str) -> Self: ...
    def end(self) -> None:
        """They are over."""

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
    """Refuses buffers that do not fit their ranges, or share bytes: for asyncio, which fills them later, one after the other."""

def ends_of(ranges: Sequence[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """For asyncio: ranges, checked."""

def one_range(
    start: int | None, end: int | None, offset: int | None = None, length: int | None = None
) -> tuple[int | None, int | None]:
    """For asyncio: the ends of what a read is to bring, however the caller names them."""

def pairs_of(
    pairs: Sequence[tuple[str, str | os.PathLike[str]]],
) -> list[tuple[str, str | os.PathLike[str]]]:
    """For asyncio: pairs of URL and path, checked."""

_Iterable = TypeVar("_Iterable", bound=Iterable[Any])

def urls_of(urls: _Iterable) -> _Iterable:
    """For asyncio: what holds many URLs, checked."""

def runs_of(ranges: Sequence[tuple[int, int]], max_gap: int | None = None) -> list[tuple[int, int, list[int]]]:
    """What is asked for together, as (start, end, which of the ranges lie in it)."""

def _at_exit() -> None: ...
def _after_fork() -> None: ...

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
        """Starts to read ``start..end``, which is not empty, as far as the object goes; of the version ``of``, if one is named."""

    def next(self) -> tuple[int, Buffer, Version]:
        """Waits for a read to end: its number, its bytes, and the version that was read.

        Raises the error of a read that failed; the others go on. ValueError where nothing has been started.
        """

    def close(self) -> None:
        """Cancels the reads in flight. When it returns, no thread writes to their memory."""

def safetensors_header_end(head: _Exporter, file_bytes: int) -> int:
    """Where the header of a file of so many bytes ends, which begins with ``head``.

    Raises ValueError where no safetensors file begins so.
    """

def safetensors_header(
    head: _Exporter, file_bytes: int
) -> tuple[dict[str, str] | None, list[tuple[str, str, int, tuple[int, ...], int, int]]]:
    """Metadata, and tensors in the order of the file: (name, dtype, bits of an element, shape, start, end), within the file.

    Raises ValueError that says what is wrong with it. ``head`` goes to the header's end at least.
    """
