"""Arrow's interface: ``pyarrow.parquet.read_table("bucket/key", filesystem=flatout.arrow.arrow_fs())``."""

import time as _time

from pyarrow import PythonFile as _PythonFile
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

from . import _tree
from ._at_once import at_once as _at_once
from ._calls import Blocking as _Blocking
from ._calls import now as _now
from ._told import ToldFile
from .client import Client, default_client
from .errors import NotFound, Unsupported, UsageError

__all__ = ["FlatoutHandler", "arrow_fs"]

#: How many objects' entries of listings are kept.
_REMEMBERED = 100_000


def arrow_fs(client: Client | None = None, *, scheme: str = "s3") -> PyFileSystem:
    """A read-only file system for Arrow, over S3 or, with ``scheme="oss"``, over OSS.

    Paths are ``bucket/key``; ``s3://bucket/key``, or ``oss://`` as ``scheme`` says, means the same. What a listing told
    of a file is taken for true for a minute, so that opening it asks nothing; a file that was replaced meanwhile is an
    error when it is read, not a mixture.
    """
    return PyFileSystem(FlatoutHandler(client, scheme=scheme))


class FlatoutHandler(FileSystemHandler):
    """Arrow's side of :func:`arrow_fs`. Methods that write raise :class:`flatout.Unsupported`."""

    def __init__(self, client: Client | None = None, *, scheme: str = "s3"):
        if scheme not in ("s3", "oss"):
            raise UsageError(
                kind="usage",
                doing="arrow_fs",
                object=scheme,
                cause="no scheme of a bucket",
                hint="there are s3 and oss",
            )
        self.client = default_client() if client is None else client
        self.scheme = scheme
        # What listings told of files, and when, for the open that follows.
        self._told: dict = {}

    def __reduce__(self):
        return _again, (self.client, self.scheme)

    def __eq__(self, other):
        if not isinstance(other, FlatoutHandler):
            return NotImplemented
        if self.scheme != other.scheme or self.client is other.client:
            return self.scheme == other.scheme
        try:
            return self.client.settings == other.client.settings
        except UsageError:
            # A password is not told, not even to be compared.
            return False

    __hash__ = None

    def get_type_name(self):
        return f"flatout+{self.scheme}"

    def normalize_path(self, path):
        for scheme in (self.scheme, f"flatout+{self.scheme}", "flatout" if self.scheme == "s3" else "flatoutoss"):
            path = path.removeprefix(f"{scheme}://")
        if "://" in path:
            scheme = path.partition("://")[0]
            hint = f'arrow_fs(scheme="{scheme}")' if scheme in ("s3", "oss") else f"write {self.scheme}://BUCKET/KEY"
            raise UsageError(
                kind="usage", doing="arrow", object=path, cause=f"this file system reads {self.scheme}://", hint=hint
            )
        return path.strip("/")

    # What is there

    def get_file_info(self, paths):
        return _at_once(self._file_info, map(self.normalize_path, paths))

    def _file_info(self, path):
        self._told.pop(path, None)
        if path == "":
            return FileInfo("", FileType.Directory)
        try:
            info = _now(_tree.look_up(_Blocking(self.client), self.scheme, path))
        except NotFound:
            return FileInfo(path, FileType.NotFound)
        return FileInfo(path, FileType.Directory) if info is None else self._told_file(path, info)

    def _told_file(self, path, info):
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told[path] = info.size, info.etag, info.modified, _time.monotonic()
        return FileInfo(path, FileType.File, size=info.size, mtime=info.modified)

    def get_file_info_selector(self, selector):
        base = self.normalize_path(selector.base_dir)
        found: dict = {}
        if base:
            is_there = self._list_below(base, selector.recursive, found)
        else:
            is_there = True
            for bucket in self.client.buckets(self.scheme):
                found[bucket] = FileInfo(bucket, FileType.Directory)
                if selector.recursive:
                    self._list_below(bucket, True, found)
        if not is_there and not selector.allow_not_found:
            raise _tree.missing(self.scheme, base)
        return list(found.values())

    def _list_below(self, base, recursive, found):
        """Fills `found` in, by path, and says whether there is such a folder."""
        bucket = base.partition("/")[0]
        is_there = "/" not in base
        try:
            for page in self.client.ls_pages(f"{self.scheme}://{base}/", recursive=recursive):
                for info in page:
                    is_there = True
                    path = f"{bucket}/{info.key}"
                    folder = _tree.parent(path)
                    # Folders that only keys speak of, from the one right above up to those told of already.
                    while len(folder) > len(base) and folder not in found:
                        found[folder] = FileInfo(folder, FileType.Directory)
                        folder = _tree.parent(folder)
                    if not path.endswith("/"):
                        found[path] = self._told_file(path, info)
        except NotFound:
            return False
        return is_there

    # Bytes

    def open_input_file(self, path):
        path = self.normalize_path(path)
        url = f"{self.scheme}://{path}"
        file = ToldFile(self.client, url, self._known(path), lambda: self._told.pop(path, None))
        return _PythonFile(file, mode="r")

    open_input_stream = open_input_file

    def _known(self, path):
        size, etag, modified, told_s = self._told.get(path, (None, None, None, 0.0))
        # Of an empty object a read asks nothing: that it is no longer empty would not be noticed.
        if not size or _time.monotonic() - told_s > _tree.TRUSTED_S:
            return {}
        return {"size": size, "etag": etag, "modified": modified}

    # Writing

    def _refuse(verb):
        def refuse(self, path="", *args, **kwargs):
            raise Unsupported(
                kind="unsupported",
                doing=verb,
                object=f"{self.scheme}://{path}",
                cause="this version of flatout reads only",
                hint="write with pyarrow.fs.S3FileSystem or boto3 until flatout's uploads are there",
            )

        refuse.__name__ = verb
        return refuse

    copy_file = _refuse("copy_file")
    create_dir = _refuse("create_dir")
    delete_dir = _refuse("delete_dir")
    delete_dir_contents = _refuse("delete_dir_contents")
    delete_file = _refuse("delete_file")
    delete_root_dir_contents = _refuse("delete_root_dir_contents")
    move = _refuse("move")
    open_append_stream = _refuse("open_append_stream")
    open_output_stream = _refuse("open_output_stream")
    del _refuse


def _again(client, scheme):
    return FlatoutHandler(client, scheme=scheme)
