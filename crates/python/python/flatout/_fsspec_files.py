"""Files of :class:`flatout.fsspec.FlatoutFileSystem`: those that are read and written by blocking calls, and those that
are awaited."""

import sys as _sys
import tempfile as _tempfile
from contextlib import suppress as _suppress

from fsspec.core import OpenFile as _OpenFile

from . import _native
from ._aio_file import AsyncFile
from ._told import ToldFile
from ._writer import RemoteWriter
from .client import there as _there

__all__ = ["FlatoutFile", "FlatoutStream", "FlatoutWriteStream", "FlatoutWriter", "Uncommitted"]

#: What a file of a transaction keeps in memory; more is on local disk.
_KEPT_BYTES = 8 << 20

#: What fsspec's own files take for a block.
_BLOCK_BYTES = 5 << 20


class _Placed:
    """What users of fsspec's files look at beside the file."""

    @property
    def loc(self):
        """Where the file stands, in bytes."""
        return self.tell()

    @property
    def full_name(self):
        """The path with its protocol."""
        return self.fs.unstrip_protocol(self.path)


class FlatoutFile(_Placed, ToldFile):
    """A :class:`flatout.RemoteFile` with what users of fsspec's files look at: ``fs``, ``path``, ``info()``,
    ``full_name``, ``loc``, ``readuntil``.

    ``cache`` is None, or what fsspec's ``blockcache::`` puts there to be read through.
    """

    def __init__(self, fs, path, block_size=None, version_id=None):
        self.fs, self.path = fs, path
        self.blocksize = _BLOCK_BYTES if block_size in (None, "default") else block_size
        self.cache = None
        # What listings told is of the newest version.
        known = fs._known(path) if version_id is None else {}
        super().__init__(fs.client, fs._object_url("read", path), known, lambda: fs._forget(path), version_id)

    def pread(self, offset, size=-1):
        if self.cache is None or offset < 0:
            return super().pread(offset, size)
        self._check()
        return self.cache._fetch(offset, self.size if size < 0 else min(offset + size, self.size))

    def _pread_bytes(self, offset, size):
        return super()._pread_bytes(offset, size) if self.cache is None else bytes(self.pread(offset, size))

    def preadinto(self, offset, buffer):
        if self.cache is None or offset < 0:
            return super().preadinto(offset, buffer)
        with memoryview(buffer) as view:
            size = view.nbytes
        data = self.pread(offset, size)
        with memoryview(buffer) as view, view.cast("B") as place:
            place[: len(data)] = data
        return len(data)

    def _fetch_range(self, start, end):
        return bytes(super().pread(start, end - start))

    @property
    def closed(self):
        return super().closed

    @closed.setter
    def closed(self, is_closed):
        # The block cache says so, after it has closed the file.
        if is_closed and not self.closed:
            super().close()

    @property
    def details(self):
        """The entry of the object as the file system has it."""
        return self.fs.info(self.path, version_id=self._file.version_id)

    def info(self):
        """The same as :attr:`details`."""
        return self.details

    def __reduce__(self):
        self._check()
        file = self._file
        return _open_again, (self.fs, self.path, file.size, file.etag, file.modified, self._at, file.version_id)


def _open_again(fs, path, size, etag, modified, at, version_id=None):
    file = FlatoutFile(fs, path, version_id=version_id)
    # The same version, whatever is told by now.
    file._file = fs.client.file(fs._url(path), size=size, etag=etag, modified=modified, version_id=version_id)
    file._is_open_to_change = False
    file.seek(at)
    return file


class FlatoutStream(AsyncFile):
    """What ``open_async`` gives: a :class:`flatout.AsyncFile` with what users of fsspec's look at: ``fs``, ``path``,
    ``details``, ``loc``, ``close()``."""

    mode = "rb"

    def __init__(self, fs, path, entry, version_id=None):
        calls, url = fs._awaiting, fs._object_url("read", path)
        told = {"size": entry["size"], "etag": entry["ETag"], "modified": entry["mtime"]}
        file = calls.client.file(url, **told, version_id=version_id)
        super().__init__(calls.reader, file)
        self.fs, self.path, self.details = fs, path, entry

    @property
    def loc(self):
        """Where the file stands, in bytes."""
        return self.tell()

    async def close(self):
        """It cannot be read after. Calling it again does nothing."""
        await self.aclose()


class FlatoutWriter(_Placed, RemoteWriter):
    """A :class:`flatout.RemoteWriter` with what users of fsspec's files look at: ``fs``, ``path``, ``full_name``, ``loc``.

    The block of ``with fsspec.open(…)`` closes its files without a word of an exception in it: it is found there, and
    nothing is published then.
    """

    def __init__(self, fs, path, mode, stored):
        url = fs._object_url("upload", path)
        stored = _new_only(fs, url, stored) if mode == "xb" else stored
        super().__init__(_native.Writer(fs.client, url, stored, mode == "ab"), mode)
        self.fs, self.path = fs, path
        self.blocksize = _BLOCK_BYTES

    def close(self):
        if not self.closed and _is_in_failed_block():
            self.abort()
            return
        super().close()
        self.fs.invalidate_cache(self.path)

    def commit(self):
        """Does nothing: the object is there once the file is closed."""

    def discard(self):
        """Ends the upload; nothing is published."""
        self.abort()


class Uncommitted(_tempfile.SpooledTemporaryFile):
    """A file of a transaction: local until the transaction ends well, and then an object."""

    def __init__(self, fs, path, mode, stored):
        super().__init__(_KEPT_BYTES, "w+b")
        url = fs._object_url("upload", path)
        stored = _new_only(fs, url, stored) if mode == "xb" else stored
        self.fs, self.path, self.mode_asked, self._url, self._stored = fs, path, mode, url, stored

    def close(self):
        """It is kept until :meth:`commit` or :meth:`discard`."""

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.discard()

    def commit(self):
        """Makes it an object, unless its block has raised."""
        if self._file.closed:
            return
        try:
            self.flush()
            if self._rolled:
                self.fs.client.upload(f"/proc/self/fd/{self.fileno()}", self._url, **self._stored)
            else:
                with self._file.getbuffer() as view:
                    self.fs.client.write(self._url, view, **self._stored)
        finally:
            self.discard()
        self.fs.invalidate_cache(self.path)

    def abort(self):
        """The same as :meth:`discard`."""
        self.discard()

    @property
    def info(self):
        """None: the object is not there yet."""
        return None

    def discard(self):
        """Nothing is published."""
        super().close()


class Compressed:
    """What is written is compressed on its way to a writer, which is closed with it."""

    def __init__(self, inner, writer):
        self._inner, self._writer = inner, writer

    def __getattr__(self, name):
        return getattr(self._inner, name)

    @property
    def info(self):
        """The object, once it is there."""
        return self._writer.info

    @property
    def closed(self):
        return self._writer.closed

    def write(self, data):
        """Takes all bytes of ``data``."""
        return self._inner.write(data)

    def abort(self):
        """Ends the upload; nothing is published."""
        self._writer.abort()
        with _suppress(Exception):
            self._inner.close()

    def close(self):
        """Publishes the object."""
        if self.closed:
            return
        try:
            self._inner.close()
        except BaseException:
            self._writer.abort()
            raise
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.abort()
        self.close()


class FlatoutWriteStream:
    """What ``open_async`` gives for writing: a :class:`flatout.AsyncWriter` with what users of fsspec's look at."""

    def __init__(self, fs, path, mode, writer):
        self.fs, self.path, self.mode, self._awaited = fs, path, mode, writer

    def __getattr__(self, name):
        return getattr(self._awaited, name)

    @property
    def loc(self):
        """Bytes of the object so far."""
        return self._awaited.tell()

    async def write(self, data):
        """Takes all bytes of ``data``."""
        return await self._awaited.write(data)

    async def flush(self, force=False):
        """Does nothing: an object is whole or not there."""

    async def close(self):
        """Publishes the object."""
        await self._awaited.aclose()
        self.fs.invalidate_cache(self.path)

    aclose = close

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        if kind is not None:
            await self._awaited.abort()
        await self.close()


def _new_only(fs, url, stored):
    """The options of an object that is made only where none has the name."""
    if fs.client.exists(url):
        raise _there(url)
    return {**stored, "overwrite": False}


def _is_in_failed_block():
    """Whether a block of ``with fsspec.open(…)`` ends by an exception."""
    frame = _sys._getframe(1)
    while frame is not None:
        if frame.f_code is _OpenFile.__exit__.__code__:
            return any(each is not None for each in frame.f_locals.get("args", ()))
        frame = frame.f_back
    return False
