"""Writing, copying and deleting, for :class:`flatout.fsspec.FlatoutFileSystem`: whatever takes many paths hands the
engine the whole list."""

import errno as _errno
import os as _os
from contextlib import aclosing as _aclosing
from glob import has_magic as _has_magic

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import LocalFileSystem as _LocalFileSystem
from fsspec.implementations.local import make_path_posix as _make_path_posix
from fsspec.implementations.local import trailing_sep as _trailing_sep
from fsspec.utils import other_paths as _other_paths
from fsspec.utils import stringify_path as _stringify_path

from . import _entries, _tree
from ._calls import faces as _faces
from ._fsspec_bytes import Bytes
from .errors import FlatoutError, NotFound, Unsupported, UsageError

__all__ = ["Writes"]

#: Entries that are deleted by one call where a folder has more.
_DELETED_AT_A_TIME = 10_000

#: What users of s3fs and ossfs pass to verbs that write, by our names for it.
_OPTIONS = {
    "content_type": "content_type",
    "ContentType": "content_type",
    "metadata": "metadata",
    "Metadata": "metadata",
    "cache_control": "cache_control",
    "CacheControl": "cache_control",
    "content_disposition": "content_disposition",
    "ContentDisposition": "content_disposition",
    "content_encoding": "content_encoding",
    "ContentEncoding": "content_encoding",
    "content_language": "content_language",
    "ContentLanguage": "content_language",
    "expires": "expires",
    "Expires": "expires",
    "storage_class": "storage_class",
    "StorageClass": "storage_class",
    "acl": "acl",
    "ACL": "acl",
    "sse": "sse",
    "ServerSideEncryption": "sse",
    "sse_kms_key_id": "sse_kms_key_id",
    "SSEKMSKeyId": "sse_kms_key_id",
    "tags": "tags",
    "if_match": "if_match",
    "overwrite": "overwrite",
}

# Of fsspec, s3fs and ossfs: the engine finds how much to send at a time.
_WITHOUT_EFFECT = {"batch_size", "chunksize", "max_concurrency", "callback", "tempdir", "nofiles"}


def options(named: dict, mode: str = "overwrite") -> dict:
    """What an object is stored with.

    Raises:
        TypeError: a name that is none.
        ValueError: ``mode`` is neither ``"overwrite"`` nor ``"create"``.
    """
    if mode not in ("overwrite", "create"):
        raise ValueError(f"mode is 'overwrite' or 'create', not {mode!r}")
    found = {}
    for name, value in named.items():
        if name in _OPTIONS:
            found[_OPTIONS[name]] = value
        elif name not in _WITHOUT_EFFECT:
            raise TypeError(f"no option of a write is called {name!r}; there are {', '.join(sorted(set(_OPTIONS)))}")
    if mode == "create":
        found["overwrite"] = False
    return found


class Writes(Bytes):
    """Verbs that write objects: ``pipe_file`` blocks, ``_pipe_file`` is awaited."""

    # Bytes and files

    async def pipe_file(self, calls, path, value, mode="overwrite", **kwargs):
        """Makes an object of bytes, or of any buffer. ``mode="create"``: only where none has the name."""
        path = self._strip_protocol(path)
        await calls.write(self._object_url("upload", path), value, options(kwargs, mode))
        self.invalidate_cache(path)

    pipe_file, _pipe_file = _faces(pipe_file)

    async def pipe(self, calls, path, value=None, **kwargs):
        """Makes an object of ``value``, or objects of a dict of bytes by path."""
        if isinstance(path, (str, _os.PathLike)):
            path = {path: value}
        elif not isinstance(path, dict):
            raise ValueError("path must be str or dict")
        many = list(path.items())

        async def one(item):
            await calls.of(self, "pipe_file", *item, **kwargs)

        await calls.write_together(one, many)

    pipe, _pipe = _faces(pipe)

    async def put_file(self, calls, lpath, rpath, callback=DEFAULT_CALLBACK, mode="overwrite", **kwargs):
        """Copies a local file to an object. Of a folder nothing is made: there are no empty ones."""
        lpath, path = _os.fspath(lpath), self._strip_protocol(rpath)
        if _os.path.isdir(lpath):
            return
        callback.set_size(_os.path.getsize(lpath))
        info = await calls.upload(lpath, self._object_url("upload", path), options(kwargs, mode))
        callback.relative_update(info.size)
        self.invalidate_cache(path)

    put_file, _put_file = _faces(put_file)

    async def put(self, calls, lpath, rpath, recursive=False, callback=DEFAULT_CALLBACK, maxdepth=None, **kwargs):
        """Copies local files, patterns or folders to objects as fsspec's rules for names have it; the engine is given the
        whole list. All are tried; then the first that failed is raised."""
        mode = kwargs.pop("mode", "overwrite")
        stored = options(kwargs, mode)
        lpath, rpath = _stringify_path(lpath), _stringify_path(rpath)
        if isinstance(lpath, list) and isinstance(rpath, list):
            sources, targets = lpath, self._strip_protocol(rpath)
        else:
            sources = _local(lpath, recursive, maxdepth)
            if not sources:
                return
            source = _make_path_posix(lpath) if isinstance(lpath, str) else lpath
            exists = await self._is_into(calls, source, sources, rpath)
            targets = _other_paths(sources, self._strip_protocol(rpath), exists=exists, flatten=not isinstance(source, str))
        pairs = [(source, target) for source, target in zip(sources, targets, strict=True) if not _os.path.isdir(source)]
        callback.set_size(len(pairs))
        urls = [(source, self._object_url("upload", self._strip_protocol(target))) for source, target in pairs]
        done = await calls.upload_many(urls, stored)
        for _, target in pairs:
            self.invalidate_cache(target)
        callback.relative_update(sum(not isinstance(each, Exception) for each in done))
        _raise_first(done)

    put, _put = _faces(put)

    async def _is_into(self, calls, source, sources: list, target) -> bool:
        """Whether what is copied goes into the folder ``target``, under its own name."""
        if not isinstance(source, str):
            return False
        if _has_magic(source):
            return len(sources) == 1
        is_folder = isinstance(target, str) and (_trailing_sep(target) or await calls.of(self, "isdir", target))
        return is_folder and not _trailing_sep(source)

    async def touch(self, calls, path, truncate=True, data=None, **kwargs):
        """Makes an empty object.

        Raises:
            Unsupported: one is there and ``truncate`` is false: an object has no time of its own.
        """
        if not truncate and await calls.of(self, "exists", path):
            cause, hint = "an object has no time that could be set", "touch with truncate=True empties it"
            raise Unsupported(kind="unsupported", doing="touch", object=self._url(path), cause=cause, hint=hint)
        await calls.of(self, "pipe_file", path, b"" if data is None else data, **kwargs)

    touch, _touch = _faces(touch)

    # Folders

    async def mkdir(self, calls, path, create_parents=True, **kwargs):
        """Makes a bucket. Below it there is nothing to make: a folder is there as long as keys lie in it.

        Raises:
            FileExistsError: the bucket is there.
        """
        path = self._strip_protocol(path)
        if path and "/" not in path:
            if await calls.of(self, "exists", path):
                raise FileExistsError(_errno.EEXIST, "there is a bucket of that name", path)
            await calls.create_bucket(self._url(path))
            self.invalidate_cache("")

    mkdir, _mkdir = _faces(mkdir)

    async def makedirs(self, calls, path, exist_ok=False):
        """As :meth:`mkdir`, and with ``exist_ok`` no failure where it is there."""
        path = self._strip_protocol(path)
        if "/" in path or not exist_ok or not await calls.of(self, "exists", path):
            await calls.of(self, "mkdir", path)

    makedirs, _makedirs = _faces(makedirs)

    async def rmdir(self, calls, path):
        """Deletes an empty bucket, or the mark of an empty folder.

        Raises:
            OSError: keys lie in it.
        """
        path = self._strip_protocol(path)
        if await calls.of(self, "ls", path, detail=False, refresh=True):
            raise OSError(_errno.ENOTEMPTY, _os.strerror(_errno.ENOTEMPTY), path)
        if "/" not in path:
            await calls.delete_bucket(self._url(path))
            self.invalidate_cache("")
            return
        await calls.delete(f"{self._object_url('delete', path)}/")
        self.invalidate_cache(path)

    rmdir, _rmdir = _faces(rmdir)

    # Copies

    async def cp_file(self, calls, path1, path2, **kwargs):
        """Copies an object, within a service by the origin itself. Of a folder nothing is made."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        version_id = kwargs.pop("version_id", None)
        try:
            await calls.copy(self._object_url("copy", source), self._object_url("copy", target), options(kwargs), version_id)
        except NotFound:
            if await calls.of(self, "isdir", source) and not await calls.of(self, "isfile", source):
                return
            raise
        self.invalidate_cache(target)

    cp_file, _cp_file = _faces(cp_file)

    async def copy(self, calls, path1, path2, recursive=False, maxdepth=None, on_error=None, **kwargs):
        """Copies objects, patterns or folders as fsspec's rules for names have it, many at a time.

        ``on_error``: ``"raise"`` the first when all have been tried, or ``"ignore"`` objects that are gone, which is the
        default with ``recursive``.
        """
        on_error = on_error or ("ignore" if recursive else "raise")
        pairs = await self._pairs(calls, path1, path2, recursive, maxdepth)

        async def one(pair):
            try:
                await calls.of(self, "cp_file", *pair, **kwargs)
            except FlatoutError as error:
                return error

        done = await calls.write_together(one, pairs)
        gone = FileNotFoundError if on_error == "ignore" else ()
        _raise_first([each for each in done if not isinstance(each, gone)])

    copy, _copy = _faces(copy)

    async def _pairs(self, calls, path1, path2, recursive, maxdepth) -> list:
        """Names of objects, and what they are to be called."""
        path1, path2 = _stringify_path(path1), _stringify_path(path2)
        if isinstance(path1, list) and isinstance(path2, list):
            return list(zip(self._strip_protocol(path1), self._strip_protocol(path2), strict=True))
        entries = await self._expanded(calls, path1, recursive, maxdepth)
        names = sorted(entries)
        if isinstance(path1, str) and (not recursive or maxdepth is not None):
            names = [name for name in names if not await self._is_only_folder(calls, name, entries[name])]
            if not names:
                return []
        exists = await self._is_into(calls, path1, names, path2)
        targets = _other_paths(names, self._strip_protocol(path2), exists=exists, flatten=not isinstance(path1, str))
        pairs = zip(names, targets, strict=True)
        return [(name, target) for name, target in pairs if not _entries.is_folder(entries[name])]

    async def _is_only_folder(self, calls, name, entry) -> bool:
        if entry is not None:
            return _entries.is_folder(entry)
        return not await calls.of(self, "isfile", name) and await calls.of(self, "isdir", name)

    async def mv(self, calls, path1, path2, recursive=False, maxdepth=None, **kwargs):
        """Copies, and then deletes what was copied: of each object the version that it was. Nothing is deleted unless
        everything was copied."""
        if path1 == path2:
            return
        pairs = await self._pairs(calls, path1, path2, recursive, maxdepth)
        if not pairs and not recursive:
            raise _tree.missing(self.scheme, self._strip_protocol(path1) if isinstance(path1, str) else "")
        if len({target for _, target in pairs}) < len(pairs):
            cause = "several of these would have one name there"
            raise UsageError(kind="usage", doing="move", object=str(path2), cause=cause, hint="move them one by one")
        stored = options(kwargs)

        async def copy(pair):
            source, target = (self._object_url("move", path) for path in pair)
            try:
                return source, await calls.copy(source, target, stored)
            except FlatoutError as error:
                return error

        async def delete(copied):
            source, etag = copied
            try:
                await calls.delete(source, etag)
            except FlatoutError as error:
                return error

        done = await calls.write_together(copy, pairs)
        for pair in pairs:
            for path in pair:
                self.invalidate_cache(path)
        _raise_first(done)
        _raise_first(await calls.write_together(delete, done))

    mv, _mv = _faces(mv)

    # Deletions

    async def rm_file(self, calls, path):
        """Deletes an object.

        Raises:
            FileNotFoundError: there is none.
        """
        path = self._strip_protocol(path)
        if not await calls.of(self, "isfile", path):
            raise _tree.missing(self.scheme, path)
        await calls.delete(self._object_url("delete", path))
        self.invalidate_cache(path)

    rm_file, _rm_file = _faces(rm_file)

    async def rm(self, calls, path, recursive=False, maxdepth=None, **kwargs):
        """Deletes objects, patterns or, with ``recursive``, folders with all that lies in them, a thousand with each
        request. All are tried; then the first that failed is raised.

        Raises:
            FileNotFoundError: nothing is there.
            IsADirectoryError: a folder, without ``recursive``.
        """
        paths = [path] if isinstance(path, (str, _os.PathLike)) else list(path)
        failed: list = []
        for each in map(self._strip_protocol, paths):
            if recursive and maxdepth is None and not _has_magic(each):
                failed += await self._rm_below(calls, each)
                continue
            entries = await self._expanded(calls, each, recursive, maxdepth)
            names = []
            for name in sorted(entries):
                entry = entries[name]
                if entry is None:
                    entry = await calls.of(self, "info", name)
                if not _entries.is_folder(entry):
                    names.append(name)
                elif not recursive:
                    raise IsADirectoryError(_errno.EISDIR, "a folder is deleted with recursive=True", name)
            failed += await calls.delete_many([self._object_url("delete", name) for name in names])
            for name in names:
                self.invalidate_cache(name)
        _raise_first(failed)

    rm, _rm = _faces(rm)

    async def _rm_below(self, calls, path: str) -> list:
        """Deletes an object and what lies below its name, the marks of folders, too; what failed."""
        is_there, failed, some = False, [], []
        if "/" in path and await calls.of(self, "isfile", path):
            is_there, some = True, [self._url(path)]
        elif "/" not in path:
            # A bucket stays.
            is_there = await calls.of(self, "exists", path)
        async with _aclosing(calls.ls_pages(f"{self._url(path)}/", recursive=True)) as pages:
            async for page in pages:
                is_there = is_there or bool(page)
                some += page
                if len(some) >= _DELETED_AT_A_TIME:
                    failed += await calls.delete_many(some)
                    some = []
        if not is_there:
            raise _tree.missing(self.scheme, path)
        failed += await calls.delete_many(some)
        self.invalidate_cache(path)
        return failed


def _local(lpath, recursive: bool, maxdepth) -> list:
    """The local files that patterns and folders stand for, and with ``recursive`` the folders."""
    is_one = isinstance(lpath, str)
    fs = _LocalFileSystem()
    found = fs.expand_path(_make_path_posix(lpath) if is_one else lpath, recursive=recursive, maxdepth=maxdepth)
    if is_one and (not recursive or maxdepth is not None):
        return [path for path in found if not (_trailing_sep(path) or fs.isdir(path))]
    return found


def _raise_first(done) -> None:
    for each in done:
        if isinstance(each, Exception):
            raise each


