"""A file that is opened by what a listing told of it: no HEAD before the first byte."""

import os as _os

from .errors import ObjectChanged
from .io import RemoteFile

__all__ = ["ToldFile"]

#: How much is looked through for the end of a line at a time.
_LINE_BYTES = 32 << 10


class ToldFile(RemoteFile):
    """A :class:`flatout.RemoteFile` of the version that a listing told of, or of the one that a HEAD finds where none
    is told.

    As long as nobody was told its size and no byte of it has come, a version that went meanwhile is exchanged for the
    one that is there now. From then on it stays, or reads raise :class:`flatout.ObjectChanged`, after ``on_changed()``
    was called: whoever keeps the listing forgets it there, so that the next to open the object is told what is there.
    """

    def __init__(self, client, url, told, on_changed):
        super().__init__(client.file(url, **told), client=client)
        self._is_open_to_change = bool(told)
        self._on_changed = on_changed
        self._line, self._line_at = b"", 0

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
        data = bytes(self.pread(self._at, -1 if size is None else size))
        self._at += len(data)
        return data

    def read_buffer(self, size=-1):
        """The same as a :class:`flatout.Buffer`: what Arrow takes without a copy."""
        data = self.pread(self._at, -1 if size is None else size)
        self._at += len(data)
        return data

    def readinto(self, buffer, /):
        count = self.preadinto(self._at, buffer)
        self._at += count
        return count

    def pread(self, offset, size=-1):
        return self._reading(lambda: super(ToldFile, self).pread(offset, size), size != 0)

    def preadinto(self, offset, buffer):
        return self._reading(lambda: super(ToldFile, self).preadinto(offset, buffer), len(buffer) != 0)

    def _reading(self, read, wants):
        """What `read` reads, a count or a buffer."""
        try:
            got = read()
            # Behind the end of what was told nothing was asked for: the object may have grown.
            is_known = got if isinstance(got, int) else len(got)
            if is_known or not wants or not self._is_open_to_change:
                self._is_open_to_change = self._is_open_to_change and not is_known
                return got
        except ObjectChanged:
            self._on_changed()
            if not self._is_open_to_change:
                raise
        self._is_open_to_change = False
        self._file = self._client.file(self.name)
        return read()

    def readline(self, size=-1, /):
        """Up to and with the next ``b"\\n"``, or up to ``size`` bytes."""
        return self.readuntil(b"\n", most=None if size is None or size < 0 else size)

    def readuntil(self, char=b"\n", blocks=None, *, most=None):
        """Up to and with the next ``char``, or to the end; ``blocks`` bytes are looked through at a time."""
        found, step = [], blocks or _LINE_BYTES
        while most is None or most > 0:
            at = self._at - self._line_at
            if not 0 <= at < len(self._line):
                self._line, self._line_at, at = bytes(self.pread(self._at, step)), self._at, 0
            end = self._line.find(char, at) + len(char)
            is_last = end >= len(char)
            end = end if is_last else len(self._line)
            if most is not None and end - at >= most:
                end, is_last = at + most, True
            piece = self._line[at:end]
            self._at += len(piece)
            found.append(piece)
            if is_last or not piece:
                break
            most = None if most is None else most - len(piece)
        return b"".join(found)
