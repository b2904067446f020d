"""The native half: what its classes do, with units, shapes and errors. ``flatout`` shows what is for its users.

Every verb takes a URL, ``s3://BUCKET/KEY``, ``oss://BUCKET/KEY`` or ``http[s]://HOST/PATH``, waits without the interpreter's lock, and
ends within 100 ms of a signal whose handler raises, such as ctrl-C. What goes wrong is a :class:`flatout.FlatoutError`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, SupportsIndex, final, overload

from typing_extensions import Buffer as _Exporter
from typing_extensions import CapsuleType, Self

__all__ = [
    "Buffer",
    "Client",
    "Completions",
    "Fetches",
    "File",
    "Info",
    "Pages",
    "Progress",
    "ReadMany",
    "Version",
    "__version__",
    "_after_fork",
    "_at_exit",
    "safetensors_header",
    "safetensors_header_end",
]

__version__: str

@final
class Buffer:
    """Bytes in memory of their own: writable, aligned to 64 bytes at least, one dimension of unsigned bytes.

    ``memoryview``, ``numpy.frombuffer``, ``torch.frombuffer`` and ``from_dlpack`` of either share the memory, which lives as long as
    any of them. ``len()`` is in bytes, a slice is a memoryview, ``bytes()`` copies, ``==`` compares with any buffer.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __bytes__(self) -> bytes: ...
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
    def __len__(self) -> int: ...
    __hash__: None  # type: ignore[assignment]

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
    ) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __getnewargs__(self) -> tuple[Any, ...]: ...
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
    def storage_class(self) -> str | None: ...
    @property
    def is_prefix(self) -> bool: ...
    @property
    def metadata(self) -> dict[str, str]:
        """The user's own headers without their prefix; empty in a listing."""
    @property
    def content_type(self) -> str | None:
        """None in a listing."""

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
    def is_over(self) -> bool: ...

@final
class File:
    """Reads one version of an object at any place, from any thread: positions and lengths in bytes, counted from 0.

    What is read in a pattern is fetched ahead; a read that follows none is one request of exactly its bytes. Once another version
    stands in the object's place, reads that need the origin raise :class:`flatout.ObjectChanged`.
    """

    @property
    def url(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str | None: ...
    @property
    def modified(self) -> float | None: ...
    @property
    def client(self) -> Client: ...
    @property
    def closed(self) -> bool: ...
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
class ReadMany(Iterator[tuple[int, Any]]):
    """What :meth:`Client.read_many` returns. It is for one thread at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[int, Any]: ...
    def close(self) -> None:
        """Ends what is on its way."""

@final
class Pages(Iterator[list[Info]]):
    """What :meth:`Client.ls_pages` returns. It is for one thread at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> list[Info]: ...

class Client:
    """Reads objects of S3, OSS and plain HTTP; see :class:`flatout.Client`, which is made from keyword arguments."""

    def __new__(cls, settings: dict[str, Any] | None = None, *_args: Any, **_named: Any) -> Self: ...
    def __getnewargs__(self) -> tuple[dict[str, Any]]: ...
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
        progress: Progress | bool | None = None,
    ) -> Buffer:
        """An object, or ``[start:end]`` of it as a slice would cut it, into a new buffer.

        Args:
            url: the object.
            start: the first byte, counted from the end where it is negative; the object's first without it.
            end: the byte behind the last one, in the same way; the object's end without it.
            if_match: only of the version with this ETag.
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
        *,
        offset: int = 0,
        length: int | None = None,
        if_match: str | None = None,
        progress: Progress | bool | None = None,
    ) -> int:
        """Fills ``buffer`` with an object, or ``length`` bytes of it from ``offset`` on, by many ranges at once; how many bytes landed.

        The bytes land where they are wanted, nothing is copied. The buffer is any writable one that is C-contiguous, of whatever
        items; it may be longer than what comes. It is the call's until that returns: nothing writes to it after, also when the
        call was interrupted. What it holds after a call that raised is undefined.

        Args:
            url: the object.
            buffer: where the bytes go, from its first on.
            offset: of the object, in bytes.
            length: in bytes; all that is left without it, which has to fit. Fewer come where the object ends before.
            if_match: only of the version with this ETag.
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
        max_gap: int | None = None,
        out: Sequence[_Exporter],
        progress: Progress | bool | None = None,
    ) -> list[int]:
        """Ranges of one version of an object in one call, in any order, all at once; near ones by one request.

        Args:
            url: the object.
            ranges: pairs ``(start, end)`` as in a slice; they may overlap.
            if_match: only of the version with this ETag.
            max_gap: so many bytes between two small ranges are fetched rather than asked around; 256 KiB without it.
            out: as many writable buffers, to be filled instead of new ones.
            progress: a :class:`Progress` to look at, or True for a bar of tqdm.

        Returns:
            A buffer for each range, in the order of ``ranges``; with ``out`` how many bytes came for each.
        """

    def read_many(
        self,
        urls: Iterable[str | Info | tuple[str, int | None, int | None]],
        *,
        ordered: bool = True,
        concurrency: int | None = None,
        return_exceptions: bool = False,
        progress: Progress | bool | None = None,
    ) -> ReadMany:
        """Many objects, each into a buffer of its own, as many at once as are good and memory allows.

        A small object costs one request, as does one whose size nobody knows; pass entries of a listing where objects may be large, so
        that those come in parts.

        Args:
            urls: URLs, entries of a listing, or ``(url, start, end)``; taken as they are wanted.
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
    ) -> list[Any]:
        """Objects to files, pairs ``(url, path)``, as :meth:`download`; the bytes of each, or with ``return_exceptions`` why not.

        All are tried; without ``return_exceptions`` the first that failed is raised then.
        """

    def ls(self, url: str, *, recursive: bool = False) -> list[Info]:
        """What is under a prefix, up to the next ``/``, or all of it; sorted within a page of the origin's, 1000 entries as a rule."""

    def ls_pages(self, url: str, *, recursive: bool = False) -> Pages:
        """The same page after page, each asked for when it is wanted: for millions of keys."""

    def buckets(self, scheme: str = "s3") -> list[str]:
        """The names of the account's buckets, of ``"s3"`` or ``"oss"``."""

    def stat(self, url: str) -> Info:
        """What the origin says of an object, by one HEAD."""

    def exists(self, url: str) -> bool:
        """Whether there is such an object, by one HEAD. What else goes wrong is raised."""

    def presign(self, url: str, *, expires: int = 3600) -> str:
        """A URL by which anybody may read the object for so many seconds, signed with the keys of now. Nothing is asked.

        Raises:
            AccessDenied: there are no keys to sign with.
            UsageError: plain HTTP has no signatures; longer than the dialect allows.
        """

    def file(
        self, url: str, *, size: int | None = None, etag: str | None = None, modified: float | None = None
    ) -> File:
        """An object to be read here and there. With ``size`` from a listing nothing is asked beforehand; without, one HEAD.

        Args:
            url: the object.
            size: in bytes.
            etag: of the version that is meant.
            modified: when that was made, in seconds since 1970: tells versions apart where there is no strong ETag.
        """

@final
class Completions:
    """Calls that are awaited, of one loop: see :class:`flatout.AsyncClient`. Each verb returns a ticket."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int:
        """A descriptor that is readable when calls have ended."""

    def take(self) -> list[tuple[int, Any, BaseException | None]]:
        """What has ended since: ``(ticket, result, exception)``."""

    def cancel(self, ticket: int) -> bool:
        """Asks for the end of a call, which ends as any other; whether that is to be waited for."""

    def close(self) -> None:
        """Ends all calls, and returns when nothing touches their buffers any more."""

    def read(
        self,
        client: Client,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
        progress: Progress | bool | None = None,
    ) -> int: ...
    def is_of_nothing(
        self,
        client: Client,
        url: str,
        start: int | None = None,
        end: int | None = None,
        *,
        if_match: str | None = None,
    ) -> int:
        """Whether a read failed since the object has no bytes there; that of a read whose result is an exception."""

    def readinto(
        self,
        client: Client,
        url: str,
        buffer: _Exporter,
        *,
        offset: int = 0,
        length: int | None = None,
        if_match: str | None = None,
        progress: Progress | bool | None = None,
    ) -> int: ...
    def download(
        self,
        client: Client,
        url: str,
        path: str | os.PathLike[str],
        *,
        if_match: str | None = None,
        progress: Progress | bool | None = None,
    ) -> int: ...
    def stat(self, client: Client, url: str) -> int: ...
    def ls(self, client: Client, url: str, *, recursive: bool = False) -> int: ...

def _at_exit() -> None: ...
def _after_fork() -> None: ...

@final
class Version:
    """Which version of an object was read, as far as the origin tells."""

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
class Fetches:
    """Reads of ranges of several objects at once, for one thread: begun by number, handed over as they end."""

    def __new__(cls, client: Client, progress: Progress | bool | None = None, title: str = "") -> Self: ...
    @property
    def memory_bytes(self) -> int:
        """What may have landed and not been taken, by the client's settings."""

    def start(self, number: int, url: str, start: int, end: int, of: Version | None = None) -> None:
        """Begins to read ``start..end``, which is not empty, or what there is of it: of that version, if one is named."""

    def next(self) -> tuple[int, Buffer, Version]:
        """Waits for one that ends: its number, what came, and the version that was read.

        Raises what went wrong with it; the others go on. ValueError where nothing has been started.
        """

    def close(self) -> None:
        """Cancels what still runs. When it returns no thread writes to any of its memory."""

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
