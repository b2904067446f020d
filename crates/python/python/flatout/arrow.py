"""Arrow's interface: ``pyarrow.parquet.read_table("bucket/key", filesystem=flatout.arrow.arrow_fs())``."""

import time as _time

from pyarrow import PythonFile as _PythonFile
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

from . import _native, _tree
from ._at_once import at_once as _at_once
from ._at_once import to_the_end as _to_the_end
from ._calls import Blocking as _Blocking
from ._calls import now as _now
from ._told import ToldFile
from ._writer import RemoteWriter
from .client import Client, default_client
from .errors import NotFound, UsageError

__all__ = ["FlatoutHandler", "arrow_fs"]

#: How many objects' entries of listings are kept.
_REMEMBERED = 100_000


def arrow_fs(client: Client | None = None, *, scheme: str = "s3") -> PyFileSystem:
    """A file system for Arrow, over S3 or, with ``scheme="oss"``, over OSS.

    Paths are ``bucket/key``; ``s3://bucket/key``, or ``oss://`` as ``scheme`` says, means the same. What a listing told
    of a file is taken for true for a minute, so that opening it asks nothing; a file that was replaced meanwhile is an
    error when it is read, not a mixture.
    """
    return PyFileSystem(FlatoutHandler(client, scheme=scheme))


class FlatoutHandler(FileSystemHandler):
    """Arrow's side of :func:`arrow_fs`."""

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
                kind="usage", doing="arrow", object=path, cause=f"this file system is of {self.scheme}://", hint=hint
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

    def open_output_stream(self, path, metadata=None):
        """A new object, which is there when the stream is closed. Arrow closes it also where a ``with`` block raises."""
        return self._writer(path, metadata, False)

    def open_append_stream(self, path, metadata=None):
        """Goes on with the object that is there."""
        return self._writer(path, metadata, True)

    def _writer(self, path, metadata, appends):
        path = self.normalize_path(path)
        named = {name.decode() if isinstance(name, bytes) else name: value for name, value in dict(metadata or {}).items()}
        named = {name: value.decode() if isinstance(value, bytes) else value for name, value in named.items()}
        writer = _Writer(self.client, self._object_url("upload", path), _options(named), appends)
        self._forget(path)
        return _PythonFile(writer, mode="w")

    def copy_file(self, src, dest):
        source, target = self.normalize_path(src), self.normalize_path(dest)
        self.client.copy(self._object_url("copy", source), self._object_url("copy", target))
        self._forget(target)

    def move(self, src, dest):
        """Moves an object, or all that lies in a folder: nothing is deleted unless everything was copied."""
        source, target = self.normalize_path(src), self.normalize_path(dest)
        self._object_url("move", target)
        if self._file_info(source).type == FileType.File:
            self.client.move(self._object_url("move", source), self._object_url("move", target))
        else:
            self._move_folder(self._object_url("move", source), self._object_url("move", target))
        self._forget(source)
        self._forget(target)

    def _move_folder(self, source, target):
        found = [info for page in self.client.ls_pages(f"{source}/", recursive=True) for info in page]
        if not found:
            raise _tree.missing(self.scheme, source.partition("://")[2])

        def copy(info):
            return info, self.client._copy(info.url, target + info.url[len(source) :], None, None, {})[1]

        for info, etag in _to_the_end(copy, found):
            self.client.delete(info.url, if_match=etag)

    def delete_file(self, path):
        path = self.normalize_path(path)
        if self._file_info(path).type != FileType.File:
            raise _tree.missing(self.scheme, path)
        self.client.delete(self._object_url("delete", path))
        self._forget(path)

    def create_dir(self, path, recursive=True):
        """Makes a bucket. Below it there is nothing to make: a folder is there as long as keys lie in it."""
        path = self.normalize_path(path)
        if path and "/" not in path and self._file_info(path).type == FileType.NotFound:
            _native.create_bucket(self.client, f"{self.scheme}://{path}")

    def delete_dir(self, path):
        """Deletes all that lies in a folder; of a bucket that, too, and then the bucket."""
        path = self.normalize_path(path)
        if not path:
            raise self._all_buckets("delete_dir")
        self._delete_below(path, missing_ok=False)
        if "/" not in path:
            _native.delete_bucket(self.client, f"{self.scheme}://{path}")

    def delete_dir_contents(self, path, missing_dir_ok=False):
        path = self.normalize_path(path)
        if not path:
            raise self._all_buckets("delete_dir_contents")
        self._delete_below(path, missing_ok=missing_dir_ok)

    def delete_root_dir_contents(self):
        raise self._all_buckets("delete_root_dir_contents")

    def _all_buckets(self, verb):
        cause, hint = "it would delete every bucket of the account", "name a bucket"
        return UsageError(kind="usage", doing=verb, object=f"{self.scheme}://", cause=cause, hint=hint)

    def _delete_below(self, path, missing_ok):
        if self._file_info(path).type != FileType.Directory:
            if missing_ok:
                return
            raise _tree.missing(self.scheme, path)
        for page in self.client.ls_pages(f"{self.scheme}://{path}/", recursive=True):
            self.client.delete_many(page)
        self._forget(path)

    def _forget(self, path):
        for each in [each for each in list(self._told) if each == path or each.startswith(f"{path}/")]:
            self._told.pop(each, None)

    def _object_url(self, doing, path):
        if "/" not in path:
            raise UsageError(kind="usage", doing=doing, object=f"{self.scheme}://{path}", cause="this is no object", hint="write BUCKET/KEY")
        return f"{self.scheme}://{path}"


class _Writer(RemoteWriter):
    def __init__(self, client, url, named, appends):
        super().__init__(_native.Writer(client, url, named, appends), "ab" if appends else "wb")


#: What Arrow calls the headers of an object, by our names.
_HEADERS = {
    "Content-Type": "content_type",
    "Cache-Control": "cache_control",
    "Content-Disposition": "content_disposition",
    "Content-Encoding": "content_encoding",
    "Content-Language": "content_language",
    "Expires": "expires",
    "ACL": "acl",
}


def _options(metadata):
    """What an object is stored with: headers by their names, and what is left as metadata."""
    headers = {_HEADERS[name]: value for name, value in metadata.items() if name in _HEADERS}
    left = {name: value for name, value in metadata.items() if name not in _HEADERS}
    return {**headers, "metadata": left}


def _again(client, scheme):
    return FlatoutHandler(client, scheme=scheme)
