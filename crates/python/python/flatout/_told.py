"""A file that is opened by what a listing told of it: no HEAD before the first byte."""

import os as _os

from .errors import NotFound, ObjectChanged
from .io import RemoteFile

__all__ = ["ToldFile"]

#: A read of no more than this takes _NEAR_BYTES at once, for the next one: who reads a header reads on from there, and
#: each read of what nobody fetched ahead waits for an answer of its own. A zip's member is one request instead of three.
#: Records read at random, which are rarely so small, cost what they are.
_SMALL_BYTES = 1 << 10
_NEAR_BYTES = 32 << 10


class ToldFile(RemoteFile):
    """A :class:`flatout.RemoteFile` of the version that a listing told of, or of the one that a HEAD finds where none
    is told.

    As long as nobody was told its size and no byte of it has come, a version that went meanwhile is exchanged for the
    one that is there now. From then on it stays, or reads raise :class:`flatout.ObjectChanged`, after ``on_changed()``
    was called, as where the object is gone: whoever keeps the listing forgets it there, so that the next to open the
    object is told what is there.
    """

    def __init__(self, client, url, told, on_changed):
        super().__init__(client.file(url, **told), client=client)
        self._is_open_to_change = bool(told)
        self._on_changed = on_changed
        # What was read last by small reads, and where it begins.
        self._near, self._near_at = b"", 0

    @property
    def size(self) -> int:
        """Of the object, in bytes."""
        self._is_open_to_change = False
        return self._file.size

    def seek(self, offset, whence=_os.SEEK_SET, /):
        if whence == _os.SEEK_END:
            self._is_open_to_change = False
        return super().seek(offset, whence)

    def read(self, size=-1, /):
        """Up to ``size`` bytes from where the file stands, all that are left without one; ``b""`` at the end."""
        size = -1 if size is None else size
        data = self._look(size)
        if data is None:
            data = bytes(self.pread(self._at, size))
        self._at += len(data)
        return data

    def read_buffer(self, size=-1):
        """The same as a buffer: what Arrow takes without a copy."""
        size = -1 if size is None else size
        data = self._look(size)
        if data is None:
            data = self.pread(self._at, size)
        self._at += len(data)
        return data

    def readinto(self, buffer, /):
        view = memoryview(buffer)
        size = view.nbytes
        # What cannot be filled is refused as reads of any length refuse it.
        data = None if view.readonly or not view.c_contiguous else self._look(size)
        if data is None:
            size = self.preadinto(self._at, buffer)
        else:
            size = len(data)
            view.cast("B")[:size] = data
        self._at += size
        return size

    def _look(self, size) -> bytes | None:
        """What a read of `size` bytes gives where it is small, or was read with a small one; None of any other."""
        self._check()
        at = self._at - self._near_at
        if not 0 <= at <= at + size <= len(self._near):
            if not 0 < size <= _SMALL_BYTES:
                return None
            self._near, self._near_at, at = bytes(self.pread(self._at, _NEAR_BYTES)), self._at, 0
        return self._near[at : at + size] if size >= 0 else None

    def pread(self, offset, size=-1):
        return self._reading(lambda: super(ToldFile, self).pread(offset, size), size != 0)

    def preadinto(self, offset, buffer):
        return self._reading(lambda: super(ToldFile, self).preadinto(offset, buffer), memoryview(buffer).nbytes != 0)

    def _reading(self, read, wants):
        """What `read` reads, a count or a buffer."""
        try:
            got = read()
            # Behind the end of what was told nothing was asked for: the object may have grown.
            is_known = got if isinstance(got, int) else len(got)
            if is_known or not wants or not self._is_open_to_change:
                self._is_open_to_change = self._is_open_to_change and not is_known
                return got
        except (NotFound, ObjectChanged) as gone:
            self._on_changed()
            if not self._is_open_to_change or isinstance(gone, NotFound):
                raise
        self._is_open_to_change = False
        self._file = self._client.file(self.name)
        return read()

    def readline(self, size=-1, /):
        """Up to and with the next ``b"\\n"``, or up to ``size`` bytes."""
        return self.readuntil(b"\n", most=None if size is None or size < 0 else size)

    def readuntil(self, char=b"\n", blocks=None, *, most=None):
        """Up to and with the next ``char``, or to the end; ``blocks`` bytes are looked through at a time."""
        self._check()
        found, step = [], max(blocks or _NEAR_BYTES, len(char))
        while most is None or most > 0:
            at = self._at - self._near_at
            if not 0 <= at <= at + len(char) <= len(self._near):
                self._near, self._near_at, at = bytes(self.pread(self._at, step)), self._at, 0
            end = self._near.find(char, at) + len(char)
            is_last = end >= len(char)
            if not is_last:
                is_last = self._near_at + len(self._near) >= self._file.size
                # Of a `char` of several bytes the first ones may stand at the end.
                end = len(self._near) if is_last else len(self._near) - len(char) + 1
            if most is not None and end - at >= most:
                end, is_last = at + most, True
            piece = self._near[at:end]
            self._at += len(piece)
            found.append(piece)
            if is_last:
                break
            most = None if most is None else most - len(piece)
        return b"".join(found)
