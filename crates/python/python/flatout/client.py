"""The client, and the default client."""

from __future__ import annotations

import io as _io
import os as _os
import shutil as _shutil
import threading as _threading
import weakref as _weakref

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Self, overload

from . import _native
from ._writer import RemoteWriter, TextWriter, abort_all
from .errors import AlreadyExists
from .io import RemoteFile, check_open, parse_mode, text_of

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import Buffer as _Exporter

    from ._settings import Settings
    from ._write_options import WriteOptions
    from .errors import FlatoutError

__all__ = ["Client", "default_client"]

# Closed when the interpreter ends.
_all: _weakref.WeakSet[Client] = _weakref.WeakSet()


#: What is copied at a time between two services.
PIECE_BYTES = 8 << 20

_READ = Literal["rb", "br"]
_WRITE = Literal["wb", "bw", "ab", "ba", "xb", "bx"]
_READ_TEXT = Literal["r", "rt", "tr"]
_WRITE_TEXT = Literal["w", "wt", "tw", "a", "at", "ta", "x", "xt", "tx"]


class Client(_native.Client):
    """Reads and writes objects of S3 and OSS, and reads those of plain HTTP.

    Keyword arguments are the settings of docs/settings.md with ``_`` for ``-``: ``endpoint_url``, ``region``, ``parallel``,
    ``part_size="16MiB"``. Others come from ``FLATOUT_*``, the config file, and the files of AWS's and Alibaba Cloud's tools.

    Keys come from the environment, profiles, or the machine's role. Or pass ``credentials``: a :class:`flatout.Credentials`, or a
    function that returns one and is called again before it expires. So one process can use several accounts. The function is
    called on a thread of its own, and must not use this client.

    A client is cheap to make, starts nothing before its first use, and may be used from any thread. In a forked child it starts
    threads of the child's own. It pickles as its settings, where a function is pickled by its name and a
    :class:`flatout.Credentials` not at all. ``with Client() as client:`` closes it.
    """

    def __new__(cls, **settings: Unpack[Settings]) -> Self:
        return super().__new__(cls, dict(settings))

    def __init__(self, **settings: Unpack[Settings]) -> None:
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.settings), self.__dict__ or None

    @overload
    def open(
        self,
        url: str,
        mode: _READ = "rb",
        *,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
    ) -> RemoteFile: ...
    @overload
    def open(
        self, url: str, mode: _WRITE, *, progress: _native.Progress | bool | None = None, **options: Unpack[WriteOptions]
    ) -> RemoteWriter: ...
    @overload
    def open(
        self,
        url: str,
        mode: _READ_TEXT,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
    ) -> _io.TextIOWrapper: ...
    @overload
    def open(
        self,
        url: str,
        mode: _WRITE_TEXT,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> TextWriter: ...
    @overload
    def open(self, url: str, mode: str, **named: Any) -> IO[Any]: ...
    def open(
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
    ) -> Any:
        """Opens an object as a file.

        ``"rb"``: a :class:`flatout.RemoteFile`. Sends no request where ``size`` is given, as from a listing. ``"wb"`` and ``"xb"``:
        a :class:`flatout.RemoteWriter`, for a new object that is there once the file is closed; with ``"xb"`` only where none has
        the name. ``"ab"`` goes on with the version that is there, which the origin copies, and fails at ``close()`` where another
        client has replaced it meanwhile; its tags are not kept. Without ``b`` they are files of text, UTF-8 unless ``encoding`` says
        otherwise.

        Args:
            url: the object.
            mode: as of the built-in function; not ``"+"``.
            encoding: of text, and so are ``errors`` and ``newline``.
            size: of reading, as ``etag``, ``modified`` and ``version_id``: what a listing told of the version.
            progress: of writing: a :class:`Progress` to watch, or True for a progress bar by tqdm.
            options: of writing: the keyword arguments of :meth:`write`.

        Raises:
            AlreadyExists: ``"xb"``, and an object has the name: when it is opened, or when it is closed.
            ValueError: the mode is none.
            Unsupported: the mode has ``"+"``.
        """
        does, is_text = parse_mode(url, mode)
        if not is_text and (encoding, errors, newline) != (None, None, None):
            raise ValueError("a file of bytes takes no encoding, errors or newline")
        version = {"size": size, "etag": etag, "modified": modified, "version_id": version_id}
        check_open(does, version, {"progress": progress, **options})
        if does == "r":
            file = RemoteFile(self.file(url, **version), client=self)
            return text_of(file, encoding, errors, newline) if is_text else file
        if does == "x":
            options["overwrite"] = False
            if self.exists(url):
                raise there(url)
        writer = RemoteWriter(_native.Writer(self, url, options, does == "a", progress), f"{does}b")
        return TextWriter(writer, encoding or "utf-8", errors, newline) if is_text else writer

    def write(
        self,
        url: str,
        data: _Exporter,
        *,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> _native.Info:
        """Makes an object of the bytes of any buffer, and returns what the origin says of it. Large ones are sent in parallel parts,
        without a copy: the bytes must not change meanwhile. The object is there, whole, when this returns.

        Args:
            url: the object.
            data: bytes, a bytearray, a memoryview, an array of NumPy, a :class:`Buffer`; C-contiguous.
            progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.
            options: what it is stored with: ``content_type`` (without it by the extension), ``metadata``, ``cache_control``,
                ``content_disposition``, ``content_encoding``, ``content_language``, ``expires``, ``storage_class``, ``acl``, ``sse``,
                ``sse_kms_key_id``, ``tags``; and on which condition: ``overwrite=False`` makes a new object only, ``if_match`` replaces
                only the version with this ETag.

        Raises:
            AlreadyExists: ``overwrite=False``, and an object has the name.
            ObjectChanged: the object is not the version ``if_match``.
            TypeError: ``data`` has no buffer, or there is no such option.
            FlatoutError: as in :meth:`read`. What was there before is unchanged.
        """
        return _native.write(self, url, data, dict(options), progress)

    def upload(
        self,
        path: str | _os.PathLike[str],
        url: str,
        *,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> _native.Info:
        """Uploads a file, and returns what the origin says of the object. One that is called again after a failure goes on where it
        was.

        Raises:
            LocalError: the file cannot be read, or has changed meanwhile.
            FlatoutError: as in :meth:`write`.
        """
        return _native.upload(self, path, url, dict(options), progress)

    @overload
    def upload_many(
        self,
        pairs: Sequence[tuple[str | _os.PathLike[str], str]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: Literal[False] = False,
        **options: Unpack[WriteOptions],
    ) -> list[_native.Info]: ...
    @overload
    def upload_many(
        self,
        pairs: Sequence[tuple[str | _os.PathLike[str], str]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: bool,
        **options: Unpack[WriteOptions],
    ) -> list[_native.Info | FlatoutError]: ...
    def upload_many(
        self,
        pairs: Sequence[tuple[str | _os.PathLike[str], str]],
        *,
        progress: _native.Progress | bool | None = None,
        return_exceptions: bool = False,
        **options: Unpack[WriteOptions],
    ) -> list[Any]:
        """Uploads files, given as pairs ``(path, url)``, like :meth:`upload`. Returns what the origin says of each; with
        ``return_exceptions`` an exception in place of each that failed.

        All are tried. Then, without ``return_exceptions``, the first exception is raised.
        """
        return _native.upload_many(self, pairs, dict(options), progress, return_exceptions)

    def delete(self, url: str, *, version_id: str | None = None, if_match: str | None = None) -> None:
        """Deletes an object. One that is not there counts as deleted. A bucket that keeps versions hides the newest behind a marker.

        Args:
            url: the object.
            version_id: deletes this version for good.
            if_match: deletes the object only while it has this ETag.

        Raises:
            ObjectChanged: it has another ETag.
            FlatoutError: as in :meth:`read`.
        """
        _native.delete(self, url, version_id, if_match)

    @overload
    def delete_many(
        self, urls: Iterable[str | _native.Info], *, return_exceptions: Literal[False] = False
    ) -> list[None]: ...
    @overload
    def delete_many(
        self, urls: Iterable[str | _native.Info], *, return_exceptions: bool
    ) -> list[FlatoutError | None]: ...
    def delete_many(self, urls: Iterable[str | _native.Info], *, return_exceptions: bool = False) -> Sequence[FlatoutError | None]:
        """Deletes objects, given as URLs or as entries of a listing, a thousand with each request where the origin has that.

        All are tried. Then, without ``return_exceptions``, the first exception is raised; with it the result has an exception for
        each that stays, and None for each that is gone.
        """
        return _native.delete_many(self, urls, return_exceptions)

    def copy(
        self,
        source: str,
        target: str,
        *,
        version_id: str | None = None,
        progress: _native.Progress | bool | None = None,
        **options: Unpack[WriteOptions],
    ) -> _native.Info:
        """Copies an object, and returns what the origin says of the copy. Within a service the origin copies; between two the bytes
        pass through here. The copy is described as its source, but for what ``options`` say.

        Args:
            source: the object.
            target: the copy.
            version_id: copies this version of the source.
            progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.
            options: as in :meth:`write`.
        """
        return self._copy(source, target, version_id, progress, options)[0]

    def move(
        self, source: str, target: str, *, progress: _native.Progress | bool | None = None, **options: Unpack[WriteOptions]
    ) -> _native.Info:
        """Copies an object like :meth:`copy`, and then deletes the version that was copied.

        Raises:
            ObjectChanged: the source was replaced meanwhile: it stays, and so does the copy.
        """
        copy, etag = self._copy(source, target, None, progress, options)
        self.delete(source, if_match=etag)
        return copy

    def _copy(
        self,
        source: str,
        target: str,
        version_id: str | None,
        progress: _native.Progress | bool | None,
        options: WriteOptions,
    ) -> tuple[_native.Info, str | None]:
        """The copy, and the ETag of what was copied."""
        copied = _native.copy(self, source, target, version_id, dict(options), progress)
        if copied is not None:
            return copied
        info, stored = _native.described(self, source, version_id)
        named = described(stored, options)
        with self.open(source, size=info.size, etag=info.etag, modified=info.modified, version_id=version_id) as file:
            with RemoteWriter(_native.Writer(self, target, named, False, progress)) as writer:
                _shutil.copyfileobj(file, writer, PIECE_BYTES)
        made = writer.info
        assert made is not None, "it was closed without an exception"
        return made, info.etag

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def there(url: str) -> AlreadyExists:
    """What mode ``"x"`` raises where an object has the name."""
    cause = "an object of that name is there already: it stays as it is"
    return AlreadyExists(kind="changed", doing="upload", object=url, cause=cause)


def described(stored: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
    """What a copy is stored with: as its source, but for what ``options`` say."""
    given = {name: value for name, value in options.items() if value is not None}
    return {**stored, **given, "metadata": {**stored["metadata"], **(options.get("metadata") or {})}}


def _again(cls: type[Client], settings: Settings) -> Client:
    client = cls.__new__(cls, **settings)
    # The attributes of a subclass come with the state.
    Client.__init__(client)
    return client


_default: Client | None = None
_making = _threading.Lock()


def default_client() -> Client:
    """The client that the functions of this package use. Made at the first use, and anew after it was closed, with the settings of
    the environment and the config file.
    """
    global _default
    with _making:
        if _default is None or _default.closed:
            _default = Client()
        return _default


def _after_fork() -> None:
    # The thread that held it is in the process that forked this one.
    global _making
    _making = _threading.Lock()


_os.register_at_fork(after_in_child=_after_fork)


def _close_all() -> None:
    abort_all()
    for client in list(_all):
        client.close()
