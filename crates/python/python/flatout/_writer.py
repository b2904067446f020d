"""An object that is written as a file."""

from __future__ import annotations

import codecs as _codecs
import io as _io
import os as _os
import warnings as _warnings
import weakref as _weakref
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

    from . import _native

__all__ = ["RemoteWriter"]

# Those that are open when the interpreter ends publish nothing.
_open: _weakref.WeakSet[_native.Writer] = _weakref.WeakSet()


def track(writer: _native.Writer) -> _native.Writer:
    """It is ended with the interpreter."""
    _open.add(writer)
    return writer


class RemoteWriter(_io.RawIOBase):
    """A new object as a binary file, written from its start to its end, and sent while it is written.

    The object is there, whole, once ``close()`` has returned; what was there before stays until then. An exception in the ``with``
    block, ``abort()``, or a writer that is dropped without ``close()`` publish nothing. ``flush()`` does nothing: an object is whole
    or not there. ``write`` takes all bytes of any buffer, and waits where they come faster than they can be sent. After a failure
    every call raises it, ``close()``, too. One thread writes at a time.
    """

    def __init__(self, writer: _native.Writer, mode: str = "wb") -> None:
        super().__init__()
        self._writer = track(writer)
        self._mode = mode
        self._info: _native.Info | None = None

    @property
    def name(self) -> str:
        """The URL."""
        return self._writer.url

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def info(self) -> _native.Info | None:
        """The object as the origin described it, once it is there."""
        return self._info

    def writable(self) -> bool:
        self._check()
        return True

    def tell(self) -> int:
        """Bytes of the object so far."""
        self._check()
        return self._writer.size

    def seek(self, offset: int, whence: int = _os.SEEK_SET, /) -> NoReturn:
        """Raises io.UnsupportedOperation: an object is written from its start to its end."""
        self._check()
        raise _io.UnsupportedOperation("an object is written from its start to its end: it cannot seek")

    def readinto(self, buffer: _Exporter, /) -> NoReturn:
        """Raises io.UnsupportedOperation: the file is for writing."""
        self._check()
        raise _io.UnsupportedOperation("not readable: this writes an object")

    def write(self, data: _Exporter, /) -> int:
        """Takes all bytes of ``data``, and returns how many."""
        self._check()
        return self._writer.write(data)

    def abort(self) -> None:
        """Ends the upload; nothing is published. Does nothing once the file is closed."""
        if not self.closed:
            self._writer.abort()
            self._end()

    def cancel(self) -> None:
        """Has a call of another thread that waits end soon, and every later one fail."""
        self._writer.cancel()

    def close(self) -> None:
        """Publishes the object. Returns once the origin has it."""
        if self.closed:
            return
        try:
            self._info = self._writer.commit()
        finally:
            self._end()

    def _end(self) -> None:
        _open.discard(self._writer)
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()
        self.close()

    def __del__(self) -> None:
        # That of the base class would publish what may be half of it.
        if hasattr(self, "_writer") and not self.closed:
            _warnings.warn(f"{self!r} was dropped without close(): nothing is published", ResourceWarning, source=self)
            self.abort()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._writer.size} bytes so far"
        return f"<RemoteWriter {self._writer.url!r}, {state}>"


class TextWriter(_io.TextIOWrapper):
    """Text for a :class:`RemoteWriter`: an exception in the ``with`` block publishes nothing here either."""

    buffer: RemoteWriter  # type: ignore[assignment]

    def __init__(self, writer: RemoteWriter, encoding: str, errors: str | None, newline: str | None) -> None:
        codec, is_begun = _codecs.lookup(encoding).name, writer.tell() > 0
        # A text that goes on has its mark already.
        super().__init__(writer, "utf-8" if is_begun and codec == "utf-8-sig" else encoding, errors, newline)
        if not is_begun and codec in ("utf-16", "utf-32"):
            # The base class leaves the mark out where it cannot seek.
            writer.write("".encode(encoding))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()
        self.close()

    def abort(self) -> None:
        """Ends the upload; nothing is published. Does nothing once the file is closed."""
        self.buffer.abort()

    def close(self) -> None:
        """Publishes the object, unless what is left of the text cannot be written."""
        if not self.closed:
            try:
                self.flush()
            except BaseException:
                self.abort()
                raise
        super().close()

    @property
    def info(self) -> _native.Info | None:
        """The object as the origin described it, once it is there."""
        return self.buffer.info

    def __del__(self) -> None:
        # Nothing is written out: the file below says that it was dropped.
        pass


def abort_all() -> None:
    """Ends uploads that nobody has closed, when the interpreter ends."""
    for writer in list(_open):
        writer.cancel()
    for writer in list(_open):
        writer.abort()
