"""A file that is opened from the entry of a listing, without a HEAD."""

import os as _os

from .errors import NotFound, ObjectChanged
from .io import RemoteFile

__all__ = ["ToldFile"]


class ToldFile(RemoteFile):
    """A :class:`flatout.RemoteFile` of the version that a listing told of, or of the one that a HEAD finds where none
    is told.

    As long as nobody was told its size and no byte of it has come, a version that went meanwhile is exchanged for the
    one that is there now. From then on it stays, or reads raise :class:`flatout.ObjectChanged`, after ``on_changed()``
    was called, as where the object is gone: whoever keeps the listing forgets it there, so that the next to open the
    object is told what is there.
    """

    def __init__(self, client, url, told, on_changed, version_id=None):
        super().__init__(client.file(url, **told, version_id=version_id), client=client)
        self._is_open_to_change = bool(told) and version_id is None
        self._on_changed = on_changed

    @property
    def size(self) -> int:
        """Of the object, in bytes."""
        self._is_open_to_change = False
        return self._file.size

    def seek(self, offset, whence=_os.SEEK_SET, /):
        if whence == _os.SEEK_END:
            self._is_open_to_change = False
        return super().seek(offset, whence)

    def read_buffer(self, size=-1):
        """What ``read`` gives as a buffer: what Arrow takes without a copy."""
        size = -1 if size is None else size
        data = self._look(size)
        if data is None:
            data = self.pread(self._at, size)
        self._at += len(data)
        return data

    def pread(self, offset, size=-1):
        return self._reading(lambda: super(ToldFile, self).pread(offset, size), size != 0)

    def preadinto(self, offset, buffer):
        return self._reading(lambda: super(ToldFile, self).preadinto(offset, buffer), memoryview(buffer).nbytes != 0)

    def _pread_bytes(self, offset, size):
        return self._reading(lambda: super(ToldFile, self)._pread_bytes(offset, size), size != 0)

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
