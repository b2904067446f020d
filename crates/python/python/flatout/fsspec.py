"""fsspec's interface: ``flatout+s3://bucket/key`` and ``flatout+oss://bucket/key`` for pandas, Dask, pyarrow, DuckDB,
zarr, ….

>>> import fsspec
>>> fs = fsspec.filesystem("flatout+s3", endpoint_url="http://127.0.0.1:9000")   # doctest: +SKIP
>>> fs.cat_ranges(["bucket/a", "bucket/a"], [0, 100], [10, 110])                 # doctest: +SKIP

A file system of fsspec's synchronous kind: no event loop, nothing that a fork breaks. What takes many paths hands the
whole list to the engine. It reads; whatever writes raises :class:`flatout.Unsupported`.
"""

import errno as _errno
import os as _os
import time as _time
import weakref as _weakref
from glob import has_magic as _has_magic
from hashlib import sha256 as _sha256

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, NoOpCallback
from fsspec.implementations.local import make_path_posix as _make_path_posix
from fsspec.registry import known_implementations as _known
from fsspec.registry import register_implementation as _register_implementation
from fsspec.registry import registry as _loaded
from fsspec.utils import isfilelike as _isfilelike
from fsspec.utils import other_paths as _other_paths
from fsspec.utils import stringify_path as _stringify_path

from . import _entries, _storage_options, _tree
from ._at_once import at_once as _at_once
from ._telling import Telling
from ._told import ToldFile
from .client import Client, default_client
from .errors import LocalError, NotFound, Unsupported, UsageError

__all__ = [
    "FlatoutFile",
    "FlatoutFileSystem",
    "OssFileSystem",
    "S3FileSystem",
    "OssTakeover",
    "S3Takeover",
    "register",
]

#: How many files are told of as one step where somebody watches a `get` of many.
_STEP_FILES = 100

#: What fsspec's own files take for a block.
_BLOCK_BYTES = 5 << 20

#: What is copied at a time into a file that is open already.
_PIECE_BYTES = 4 << 20

#: Clients by their settings. fsspec keeps a file system for each thread and each set of options; those with the same
#: settings share an engine.
_clients: "_weakref.WeakValueDictionary[tuple, Client]" = _weakref.WeakValueDictionary()


def _client(settings: dict) -> Client:
    if not settings:
        return default_client()
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    client = _clients.get(key)
    if client is not None and _is_closed(client):
        del _clients[key]
        client = None
    return client if client is not None else _clients.setdefault(key, Client(**settings))


def _is_closed(client: Client) -> bool:
    return getattr(client, "closed", False)


class FlatoutFileSystem(AbstractFileSystem):
    """What both schemes have in common: make one of :class:`S3FileSystem` or :class:`OssFileSystem`.

    Options are the settings of docs/settings.md with ``_`` for ``-``, and what s3fs and ossfs call by other names and
    means the same: docs/python-fsspec.md has the table. Keys are refused (``key``, ``secret``, ``token``): they come
    from the environment, a profile or the machine's role, and so no pickle, token or JSON of this file system holds a
    secret.

    ``use_listings_cache`` (True), ``listings_expiry_time`` (seconds; None: until :meth:`invalidate_cache`) and
    ``max_paths`` are fsspec's. A name that no kept listing has is asked for, so that a new object is found. An object
    that was replaced is never read as a mixture: what is open stays one version, or raises
    :class:`flatout.ObjectChanged`.
    """

    scheme = ""
    root_marker = ""

    def __init__(self, **options):
        if self._cached:
            return
        super().__init__(**options)
        if not self.scheme:
            raise TypeError("make a S3FileSystem or a OssFileSystem")
        self._settings = _storage_options.settings(options, self.scheme)
        self._client = _client(self._settings)
        # What a HEAD told of a file, for the open that follows it: the entry and when.
        self._told: dict = {}

    @property
    def client(self) -> Client:
        """The client that serves it, shared with whoever has the same settings; another one where it was closed."""
        if _is_closed(self._client):
            self._client = _client(self._settings)
        return self._client

    # Names

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = _stringify_path(path)
        protocols = (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol
        # The origin's own scheme, too: it says the same.
        for protocol in (*protocols, cls.scheme):
            for mark in ("://", "::"):
                if path.startswith(protocol + mark):
                    return path[len(protocol + mark) :].rstrip("/")
        return path.strip("/")

    @classmethod
    def _parent(cls, path):
        return _tree.parent(cls._strip_protocol(path))

    def _url(self, path: str) -> str:
        return f"{self.scheme}://{path}"

    def _object_url(self, doing: str, path: str) -> str:
        if "/" not in path:
            what = "a bucket is no object" if path else "this is no object"
            raise UsageError(kind="usage", doing=doing, object=self._url(path), cause=what, hint="write BUCKET/KEY")
        return self._url(path)

    # What is there

    def ls(self, path, detail=True, refresh=False, **kwargs):
        """What lies in a folder or bucket, sorted; of an object that object alone; of ``""`` the buckets.

        Entries have ``name``, ``size`` (bytes; 0 of a folder), ``type`` (``"file"``, ``"directory"``), and of a file
        ``ETag``, ``LastModified`` (aware, UTC), ``mtime`` (seconds since 1970) and ``StorageClass``. ``refresh`` asks
        anew.

        Raises:
            FileNotFoundError: neither a folder, a bucket nor an object.
        """
        _refuse_versions(kwargs)
        entries = self._ls(self._strip_protocol(path), refresh)
        return [entry.copy() for entry in entries] if detail else [entry["name"] for entry in entries]

    def _ls(self, path: str, refresh: bool = False) -> list:
        kept = None if refresh else self._kept(path)
        if kept is not None and kept["type"] == "file" and path not in self.dircache:
            return [kept]
        entries = self._children(path, refresh)
        return [self._head(path)] if entries is None else entries

    def _children(self, path: str, refresh: bool = False) -> "list | None":
        """The entries of a folder or bucket, None where no key lies below `path`."""
        kept = None if refresh else self.dircache.get(path)
        if kept is not None:
            return kept
        if path == "":
            return self._keep(path, [_entries.folder(bucket) for bucket in sorted(self.client.buckets(self.scheme))])
        infos = self.client.ls(f"{self._url(path)}/")
        # A bucket is there without a key, too.
        return self._keep(path, _entries.entries(path, infos)) if infos or "/" not in path else None

    def _keep(self, path: str, entries: list) -> list:
        self.dircache[path] = listing = _entries.Listing(entries)
        return listing

    def _kept(self, path: str) -> "dict | None":
        """What the listing of the folder around `path` says of it, where one is kept."""
        around = self.dircache.get(_tree.parent(path)) if path else None
        return around.entry(path) if around is not None else None

    def info(self, path, refresh=False, **kwargs):
        """One entry, as :meth:`ls` has them, of an object with ``ContentType`` and ``Metadata`` where a HEAD told it.

        Raises:
            FileNotFoundError: neither an object, a folder nor a bucket.
        """
        _refuse_versions(kwargs)
        path = self._strip_protocol(path)
        if path == "":
            return _entries.folder("")
        kept = None if refresh else self._kept(path)
        if kept is not None:
            return kept.copy()
        return self._look_up(path).copy()

    def _look_up(self, path: str) -> dict:
        self._told.pop(path, None)
        info = _tree.look_up(self.client, self.scheme, path)
        return _entries.folder(path) if info is None else self._tell(path, info)

    def _head(self, path: str) -> dict:
        """The entry of an object, from a HEAD."""
        self._told.pop(path, None)
        return self._tell(path, self.client.stat(self._object_url("info", path)))

    def _tell(self, path: str, info) -> dict:
        entry = _entries.file(path, info)
        entry["ContentType"], entry["Metadata"] = info.content_type, info.metadata
        if self.dircache.use_listings_cache:
            if len(self._told) >= 1024:
                self._told.clear()
            self._told[path] = entry, _time.monotonic()
        return entry

    def exists(self, path, **kwargs):
        """Whether an object, a folder or a bucket is there. What keeps that from being known is raised."""
        try:
            self.info(path, **kwargs)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path):
        """Whether an object is there: a HEAD."""
        path = self._strip_protocol(path)
        kept = self._kept(path)
        if kept is not None:
            return kept["type"] == "file"
        try:
            return "/" in path and self._head(path)["type"] == "file"
        except FileNotFoundError:
            return False

    def isdir(self, path):
        """Whether keys lie below ``path``, or it is a bucket: a page of a listing."""
        path = self._strip_protocol(path)
        if path == "" or path in self.dircache:
            return True
        kept = self.dircache.get(_tree.parent(path))
        if kept is not None and any(each["name"] == path and each["type"] == "directory" for each in kept):
            return True
        return _tree.is_folder(self.client, self.scheme, path)

    def find(self, path, maxdepth=None, withdirs=False, detail=False, prefix="", refresh=False, **kwargs):
        """All objects below ``path``, in one listing of as many pages as it takes; with ``maxdepth`` level by level.

        ``prefix`` keeps to names that begin so behind ``path/``: the origin lists no others. Nothing there is an empty
        answer; what keeps a folder from being listed is raised.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        if maxdepth is not None:
            found = self._find_levels(path, maxdepth, prefix, refresh)
        elif path:
            found = self._find_all(path, prefix)
        else:
            raise UsageError(
                kind="usage",
                doing="find",
                object=self._url(""),
                cause="all buckets are no folder",
                hint="name a bucket",
            )
        if found is None and not prefix:
            # No folder: perhaps an object.
            try:
                found = {path: self._head(path)}
            except FileNotFoundError:
                pass
        elif found is not None and withdirs and path:
            found[path] = _entries.folder(path)
        names = sorted(name for name, entry in (found or {}).items() if withdirs or entry["type"] == "file")
        return {name: found[name].copy() for name in names} if detail else names

    def _find_all(self, path: str, prefix: str) -> "dict | None":
        """Everything below `path`, by name; None where nothing is, and `path` is no bucket."""
        bucket = path.partition("/")[0]
        found: dict = {}
        folders: dict = {path: []}
        is_there = "/" not in path
        for page in self.client.ls_pages(f"{self._url(path)}/{prefix}", recursive=True):
            for info in page:
                is_there = True
                name = f"{bucket}/{info.key}"
                holder = _tree.parent(name)
                _entries.add_folder(holder, folders, found)
                # What ends in '/' is the mark of a folder.
                if not name.endswith("/"):
                    found[name] = entry = _entries.file(name, info)
                    folders[holder].append(entry)
        if is_there and not prefix and self.dircache.use_listings_cache:
            for folder, entries in folders.items():
                self._keep(folder, sorted(entries, key=_entries.name_of))
        return found if is_there else None

    def _find_levels(self, path: str, maxdepth: int, prefix: str, refresh: bool) -> "dict | None":
        begins = f"{path}/{prefix}" if path else prefix
        if prefix and path and (refresh or path not in self.dircache):
            level = [_entries.entries(path, self.client.ls(self._url(begins)))]
        else:
            level = [self._children(path, refresh)]
        if level == [None]:
            return None
        found: dict = {}
        for depth in range(1, maxdepth + 1):
            entries = [each for listing in level for each in listing or () if each["name"].startswith(begins)]
            for entry in entries:
                # A file hides the folder of the same name.
                if entry["type"] == "file" or entry["name"] not in found:
                    found[entry["name"]] = entry
            folders = [each["name"] for each in entries if each["type"] == "directory"]
            if depth == maxdepth or not folders:
                break
            level = _at_once(lambda folder: self._children(folder, refresh), folders)
        return found

    def glob(self, path, maxdepth=None, **kwargs):
        """As fsspec's. What stands before the first wildcard is left to the origin, which lists no other names."""
        pattern = self._strip_protocol(path)
        if _has_magic(pattern):
            literal = min(at for at in map(pattern.find, "*?[") if at >= 0)
            kwargs["prefix"] = pattern[:literal].rpartition("/")[2]
        return super().glob(path, maxdepth=maxdepth, **kwargs)

    def walk(self, path, maxdepth=None, topdown=True, on_error="omit", **kwargs):
        """As fsspec's. A folder that is gone or may not be listed is left out, and what else keeps one from being
        listed is raised: fsspec's own leaves out what it could not reach, too."""
        on_error = _omit if on_error == "omit" else on_error
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **kwargs)

    def du(self, path, total=True, maxdepth=None, withdirs=False, **kwargs):
        """Bytes of all objects below ``path``, or of each by its name: no request beside the listing."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **kwargs)
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    def expand_path(self, path, recursive=False, maxdepth=None, assume_literal=False, **kwargs):
        return sorted(self._expand(path, recursive, maxdepth, assume_literal))

    def _expand(self, path, recursive=False, maxdepth=None, assume_literal=False) -> dict:
        """What patterns and folders stand for, by name; None for the entry of a path that nobody has asked about."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        paths = [path] if isinstance(path, (str, _os.PathLike)) else list(path)
        found: dict = {}
        for each in map(self._strip_protocol, paths):
            if not assume_literal and _has_magic(each):
                matches = self.glob(each, maxdepth=maxdepth, detail=True)
                found.update(matches)
                # The pattern has taken a level.
                if recursive and maxdepth != 1:
                    deeper = None if maxdepth is None else maxdepth - 1
                    for name in [name for name, entry in matches.items() if entry["type"] == "directory"]:
                        found.update(self.find(name, maxdepth=deeper, withdirs=True, detail=True))
                continue
            if recursive:
                found.update(self.find(each, maxdepth=maxdepth, withdirs=True, detail=True))
            if each not in found and (not recursive or self.exists(each)):
                found[each] = None
        if not found:
            raise _tree.missing(self.scheme, self._strip_protocol(paths[0]) if paths else "")
        return found

    # Which version

    def created(self, path):
        """When this version was written. An object is not modified, only replaced: the same as :meth:`modified`."""
        return self.modified(path)

    def modified(self, path):
        """When the object was written, an aware ``datetime``, to the second.

        Raises:
            IsADirectoryError: a folder has no time.
        """
        entry = self.info(path)
        if entry["type"] == "directory":
            raise IsADirectoryError(_errno.EISDIR, "a folder has no time", entry["name"])
        return entry["LastModified"]

    def ukey(self, path):
        """A text that is another one when the object is another version; asked for anew."""
        entry = self.info(path, refresh=True)
        version = [entry.get(each) for each in ("name", "size", "ETag", "mtime")]
        return _sha256(repr(version).encode()).hexdigest()

    def checksum(self, path):
        """:meth:`ukey` as a number."""
        return int(self.ukey(path), 16)

    def sign(self, path, expiration=100, **kwargs):
        """A URL by which anyone may GET the object for so many seconds, signed with the keys of now."""
        url = self._object_url("presign", self._strip_protocol(path))
        return self.client.presign(url, expires=int(expiration))

    def invalidate_cache(self, path=None):
        """Forgets what listings told: of all, or of ``path``, what lies below it, and the folders that hold it."""
        super().invalidate_cache(path)
        path = "" if path is None else self._strip_protocol(path)
        if path == "":
            self.dircache.clear()
            self._told.clear()
            return
        for kept in (self.dircache, self._told):
            for each in list(kept):
                if each in ("", path) or each.startswith(f"{path}/") or path.startswith(f"{each}/"):
                    kept.pop(each, None)

    # Bytes

    def head(self, path, size=1024):
        """The first ``size`` bytes."""
        return self.cat_file(path, end=size)

    def tail(self, path, size=1024):
        """The last ``size`` bytes."""
        return self.cat_file(path, start=-size) if size > 0 else b""

    def cat_file(self, path, start=None, end=None, **kwargs):
        """The bytes of an object, or of a slice of it: ``start`` and ``end`` as in ``data[start:end]``, either alone,
        negative from the end."""
        _refuse_versions(kwargs)
        path = self._strip_protocol(path)
        return _bytes(self.client.read(self._object_url("read", path), start, end))

    def cat(self, path, recursive=False, on_error="raise", **kwargs):
        """The bytes of one object, or a dict of those of many: the engine is given the whole list. A ``path`` that stands
        for itself alone is one object.

        ``on_error``: ``"raise"`` the first, ``"omit"`` what failed, or ``"return"`` exceptions in place of bytes.
        ``start`` and ``end`` cut each as :meth:`cat_file` does.
        """
        if isinstance(path, (str, _os.PathLike)) and not recursive and not _has_magic(self._strip_protocol(path)):
            return self.cat_file(path, **kwargs)
        _refuse_versions(kwargs)
        start, end = kwargs.get("start"), kwargs.get("end")
        entries = self._expand(path, recursive)
        names = [name for name in sorted(entries) if not _entries.is_folder(entries[name])]
        if isinstance(path, (str, _os.PathLike)) and list(entries) == names == [self._strip_protocol(path)]:
            return self.cat_file(names[0], **kwargs)
        out: dict = dict.fromkeys(names)
        for index, got in self._read_many([(name, start, end) for name in names]):
            if not isinstance(got, Exception) or on_error == "return":
                out[names[index]] = got
            elif on_error == "raise":
                raise got
            else:
                del out[names[index]]
        return out

    def _read_many(self, asked: list):
        """Pairs of an index and the bytes, or what was raised, as they come; `asked` are slices of objects by their
        paths."""
        urls = [(self._url(path), start, end) for path, start, end in asked]
        for index, got in self.client.read_many(urls, ordered=False, return_exceptions=True) if urls else ():
            yield index, got if isinstance(got, (Exception, bytes)) else _bytes(got)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        """``[data of paths[i] from starts[i] to ends[i], …]``: one call into the engine for each object, which joins
        what lies closer than ``max_gap`` bytes (None: as it finds best), and one for all objects of which one range is
        wanted.

        Raises:
            ValueError: lists of different lengths. With ``on_error="return"`` other failures stand in the list.
        """
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(starts) == len(ends) == len(paths):
            raise ValueError("paths, starts and ends must be of one length")
        out: list = [None] * len(paths)
        asked: dict = {}
        for index, path in enumerate(paths):
            asked.setdefault(self._strip_protocol(path), []).append(index)
        alone = [(path, indices[0]) for path, indices in asked.items() if len(indices) == 1]
        for at, got in self._read_many([(path, starts[index], ends[index]) for path, index in alone]):
            out[alone[at][1]] = got

        def read_ranges(path):
            indices = asked[path]
            try:
                ranges = [(starts[index], ends[index]) for index in indices]
                got = map(_bytes, self.client.read_ranges(self._url(path), ranges, max_gap=max_gap))
            except Exception as error:
                got = [error] * len(indices)
            for index, each in zip(indices, got):
                out[index] = each

        _at_once(read_ranges, [path for path, indices in asked.items() if len(indices) > 1])
        if on_error == "raise":
            for each in out:
                if isinstance(each, Exception):
                    raise each
        return out

    def get_file(self, rpath, lpath=None, callback=DEFAULT_CALLBACK, outfile=None, **kwargs):
        """Copies an object to a local file, which appears when it is whole and verified, or into an open one. A folder
        is made."""
        _refuse_versions(kwargs)
        path = self._strip_protocol(rpath)
        outfile = lpath if outfile is None and _isfilelike(lpath) else outfile
        if outfile is not None:
            with self.open(path, "rb") as file:
                callback.set_size(file.size)
                while piece := file.read(_PIECE_BYTES):
                    outfile.write(piece)
                    callback.relative_update(len(piece))
            return
        _os.makedirs(_os.path.dirname(_os.path.abspath(lpath)), exist_ok=True)
        try:
            with Telling(_teller(callback)) as progress:
                self.client.download(self._object_url("download", path), _os.fspath(lpath), progress=progress)
        except (LocalError, NotFound, UsageError):
            # A folder is made where it is to be; that there is one already looks like a file's way being barred.
            if self.isfile(path) or not self.isdir(path):
                raise
            _os.makedirs(lpath, exist_ok=True)

    def get(self, rpath, lpath, recursive=False, callback=DEFAULT_CALLBACK, maxdepth=None, **kwargs):
        """Copies objects, patterns or folders to local files as fsspec's rules for names have it; the engine is given
        the whole list. Each file appears when it is whole and verified.

        Raises:
            UsageError: a key whose name would lead out of ``lpath``, or two that would be the same file there, as
            ``a/b`` and ``a//b``; nothing has been copied then.
        """
        _refuse_versions(kwargs)
        rpath, lpath = _stringify_path(rpath), _stringify_path(lpath)
        if isinstance(rpath, list) and isinstance(lpath, list):
            names, targets, entries, makes_folders = self._strip_protocol(rpath), lpath, {}, True
        else:
            entries = self._expand(rpath, recursive, maxdepth)
            makes_folders = not isinstance(rpath, str) or (recursive and maxdepth is None)
            names = [name for name in sorted(entries) if makes_folders or not _entries.is_folder(entries[name])]
            if not names:
                return
            targets = self._targets(rpath, names, lpath)
        callback.set_size(len(names))
        pairs = [(name, _os.fspath(target)) for name, target in zip(names, targets, strict=True)]
        _check_apart(pairs)
        folders = [target for name, target in pairs if _entries.is_folder(entries.get(name))]
        files = [(name, target) for name, target in pairs if not _entries.is_folder(entries.get(name))]
        for folder in {*folders, *(_os.path.dirname(_os.path.abspath(target)) for _, target in files)}:
            _os.makedirs(folder, exist_ok=True)
        callback.relative_update(len(folders))
        step = len(files) if isinstance(callback, NoOpCallback) else _STEP_FILES
        for at in range(0, len(files), max(step, 1)):
            some = files[at : at + step]
            self._download(some, entries, makes_folders)
            callback.relative_update(len(some))

    def _targets(self, rpath, names: list, lpath) -> list:
        if isinstance(lpath, str):
            lpath = _make_path_posix(lpath)
        into_folder = isinstance(lpath, str) and (lpath.endswith("/") or _os.path.isdir(lpath))
        is_one = isinstance(rpath, str)
        if is_one and _has_magic(rpath):
            exists = len(names) == 1
        else:
            exists = is_one and into_folder and not rpath.endswith("/")
        targets = _other_paths(names, lpath, exists=exists, flatten=not is_one)
        if isinstance(lpath, str):
            _check_within(lpath, targets)
        return targets

    def _download(self, files: list, entries: dict, makes_folders: bool) -> None:
        urls = [(self._object_url("download", name), target) for name, target in files]
        # Nobody has asked yet whether what was named is a folder.
        unknown = any(entries.get(name) is None for name, _ in files)
        done = self.client.download_many(urls, return_exceptions=unknown)
        for (name, target), got in zip(files, done):
            # Of what was only named: a folder is no object, and one that stands where it is to be bars a file's way.
            is_odd = isinstance(got, (LocalError, NotFound)) and entries.get(name) is None
            if is_odd and not self.isfile(name) and self.isdir(name):
                if makes_folders:
                    _os.makedirs(target, exist_ok=True)
            elif isinstance(got, Exception):
                raise got

    def _open(
        self,
        path,
        mode="rb",
        block_size=None,
        autocommit=True,
        cache_type=None,
        cache_options=None,
        size=None,
        **kwargs,
    ):
        """A :class:`FlatoutFile`. The engine recognises how it is read, fetches ahead and keeps what was fetched, for
        all readers of an object together: a cache of fsspec's before it would copy everything once more and hide the
        pattern. So ``cache_type`` and ``cache_options`` are taken and have no effect, and ``block_size`` is only what a
        local cache of fsspec's (``blockcache::``) keeps at a time.
        """
        _refuse_versions(kwargs)
        if mode != "rb":
            raise _no_writing(f"open with mode {mode!r}", self._url(path))
        return FlatoutFile(self, path, block_size)

    def _known(self, path: str) -> dict:
        """What a listing or a HEAD told of an object lately: size, ETag and time for the engine, so that it need not
        ask."""
        around = self.dircache.get(_tree.parent(path))
        entry = around.entry(path) if around is not None else None
        told_s = around.told_s if entry is not None else 0.0
        told = self._told.get(path)
        if told is not None and (entry is None or told[1] > told_s):
            entry, told_s = told
        # An empty object is read without a request: that it is no longer empty would not be noticed.
        if entry is None or not entry["size"] or _time.monotonic() - told_s > self._trusted_s:
            return {}
        return {"size": entry["size"], "etag": entry["ETag"], "modified": entry["mtime"]}

    @property
    def _trusted_s(self) -> float:
        expiry_s = self.dircache.listings_expiry_time
        return _tree.TRUSTED_S if expiry_s is None else min(expiry_s, _tree.TRUSTED_S)

    def _forget(self, path: str) -> None:
        self._told.pop(path, None)
        self.dircache.pop(_tree.parent(path), None)

    # Writing

    def _refuse(name):
        def refuse(self, path=None, *args, **kwargs):
            raise _no_writing(name, self._url(self._strip_protocol(path)) if isinstance(path, str) else "")

        refuse.__name__ = name
        refuse.__doc__ = "Raises :class:`flatout.Unsupported`: writing comes with uploads."
        return refuse

    _rm = _refuse("_rm")
    copy = _refuse("copy")
    cp_file = _refuse("cp_file")
    makedirs = _refuse("makedirs")
    mkdir = _refuse("mkdir")
    mv = _refuse("mv")
    pipe = _refuse("pipe")
    pipe_file = _refuse("pipe_file")
    put = _refuse("put")
    put_file = _refuse("put_file")
    rm = _refuse("rm")
    rm_file = _refuse("rm_file")
    rmdir = _refuse("rmdir")
    start_transaction = _refuse("start_transaction")
    touch = _refuse("touch")
    del _refuse

    @property
    def transaction(self):
        """Raises :class:`flatout.Unsupported`: writing comes with uploads."""
        raise _no_writing("transaction", "")


class S3FileSystem(FlatoutFileSystem):
    """Buckets of S3, and of whatever speaks it: ``flatout+s3://bucket/key``, or ``flatout://bucket/key`` for short."""

    protocol = ("flatout+s3", "flatout")
    scheme = "s3"


class OssFileSystem(FlatoutFileSystem):
    """Buckets of Alibaba Cloud OSS, by its own protocol: ``flatout+oss://bucket/key``."""

    protocol = ("flatout+oss",)
    scheme = "oss"


class S3Takeover(S3FileSystem):
    """The same under ``s3://``, once :func:`register` has been asked to."""

    protocol = ("s3", "s3a")


class OssTakeover(OssFileSystem):
    """The same under ``oss://``, once :func:`register` has been asked to."""

    protocol = ("oss",)


_CLASSES = {
    "flatout": S3FileSystem,
    "flatout+s3": S3FileSystem,
    "flatout+oss": OssFileSystem,
    "s3": S3Takeover,
    "s3a": S3Takeover,
    "oss": OssTakeover,
}


def register(*protocols: str, clobber: bool = False) -> None:
    """Makes fsspec use Flatout for ``protocols``: ``register("s3", "oss", clobber=True)`` takes over what s3fs and
    ossfs have, in this process. Without any: for ``flatout+s3``, ``flatout+oss`` and ``flatout``, which the installed
    package does by itself.

    Raises:
        UsageError: a protocol that Flatout does not speak, or one that is another's while ``clobber`` is false.
    """
    for protocol in protocols or ("flatout", "flatout+s3", "flatout+oss"):
        mine = _CLASSES.get(protocol)
        if mine is None:
            names = ", ".join(_CLASSES)
            raise UsageError(
                kind="usage",
                doing="register",
                object=protocol,
                cause="no protocol of Flatout's",
                hint=f"there are {names}",
            )
        loaded = _loaded.get(protocol)
        named = _known.get(protocol, {}).get("class", "flatout.")
        if not clobber and loaded is not mine and (loaded is not None or not named.startswith("flatout.")):
            raise UsageError(
                kind="usage",
                doing="register",
                object=protocol,
                cause="fsspec has another file system for it",
                hint=f"register({protocol!r}, clobber=True) takes it over",
            )
        _register_implementation(protocol, mine, clobber=True)


class FlatoutFile(ToldFile):
    """A :class:`flatout.RemoteFile` with what users of fsspec's files look at: ``fs``, ``path``, ``info()``,
    ``full_name``, ``loc``, ``readuntil``.

    ``cache`` is None, or what fsspec's ``blockcache::`` puts there to be read through.
    """

    def __init__(self, fs, path, block_size=None):
        self.fs, self.path = fs, path
        self.blocksize = _BLOCK_BYTES if block_size in (None, "default") else block_size
        self.cache = None
        super().__init__(fs.client, fs._object_url("read", path), fs._known(path), lambda: fs._forget(path))

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
    def loc(self):
        """Where the file stands, in bytes."""
        return self.tell()

    @property
    def full_name(self):
        """The path with its protocol."""
        return self.fs.unstrip_protocol(self.path)

    @property
    def details(self):
        """The entry of the object as the file system has it."""
        return self.fs.info(self.path)

    def info(self):
        """The same as :attr:`details`."""
        return self.details

    def __reduce__(self):
        self._check()
        file = self._file
        return _open_again, (self.fs, self.path, file.size, file.etag, file.modified, self._at)


def _open_again(fs, path, size, etag, modified, at):
    file = FlatoutFile(fs, path)
    # The same version, whatever is told by now.
    file._file = fs.client.file(fs._url(path), size=size, etag=etag, modified=modified)
    file._is_open_to_change = False
    file.seek(at)
    return file


def _omit(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, PermissionError)):
        raise error


def _bytes(buffer) -> bytes:
    """fsspec's answers are `bytes`, which users decode, split and hash: the one copy of this road."""
    return bytes(buffer)


def _check_within(folder: str, targets: list) -> None:
    root = _os.path.abspath(folder)
    for target in targets:
        place = _os.path.abspath(target)
        if place != root and not place.startswith(_os.path.join(root, "")):
            raise UsageError(
                kind="usage",
                doing="get",
                object=target,
                cause="the key's name leads out of the target folder",
                hint="copy it by itself, to a name of your own",
            )


def _check_apart(pairs: list) -> None:
    places: dict = {}
    for name, target in pairs:
        other = places.setdefault(_os.path.abspath(target), name)
        # One that ends in '/' is the mark of a folder.
        if other.rstrip("/") != name.rstrip("/"):
            raise UsageError(
                kind="usage",
                doing="get",
                object=target,
                cause=f"both {other!r} and {name!r} would be this file",
                hint="copy one of them by itself, to a name of your own",
            )


def _teller(callback):
    """What tells a callback of fsspec's of bytes; None where nobody listens."""
    if isinstance(callback, NoOpCallback):
        return None
    told = 0

    def tell(done, total):
        nonlocal told
        if callback.size != total:
            callback.set_size(total)
        callback.relative_update(done - told)
        told = done

    return tell


def _refuse_versions(options: dict) -> None:
    """An option of s3fs that would read something else if it were disregarded."""
    if options.get("version_id") is not None:
        raise Unsupported(
            kind="unsupported",
            cause="versions by their id are not read yet",
            hint="leave out version_id for the latest one",
        )


def _no_writing(verb: str, what: str) -> Unsupported:
    return Unsupported(
        kind="unsupported",
        doing=verb,
        object=what,
        cause="this version of flatout reads only",
        hint="write with s3fs, ossfs or boto3 until flatout's uploads are there",
    )
