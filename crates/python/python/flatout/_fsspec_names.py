"""What is there, for :class:`flatout.fsspec.FlatoutFileSystem`: lookups, listings that are kept, patterns."""

import os as _os
import time as _time
from contextlib import aclosing as _aclosing
from glob import has_magic as _has_magic

from fsspec.asyn import AsyncFileSystem
from fsspec.utils import stringify_path as _stringify_path

from . import _entries, _tree
from ._calls import faces as _faces
from .errors import Unsupported, UsageError

__all__ = ["Names", "refuse_versions"]


class Names(AsyncFileSystem):
    """Verbs that read no bytes. Each is written once, over ``calls``, and has two forms: ``info`` blocks, ``_info`` is
    awaited. Paths are ``bucket/key``."""

    scheme = ""
    root_marker = ""

    #: Whether `ls` gives entries unless it is told.
    _ls_gives_entries = False

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

    # Listings

    async def ls(self, calls, path, detail=None, refresh=False, **kwargs):
        """What lies in a folder or bucket, sorted; of an object that object alone; of ``""`` the buckets.

        Names, or with ``detail`` entries. Without it: names on S3 as s3fs has it, entries on OSS as ossfs has it.
        Entries have ``name``, ``size`` (bytes; 0 of a folder), ``type`` (``"file"``, ``"directory"``), and of a file
        ``ETag``, ``LastModified`` (aware, UTC) and ``mtime`` (seconds since 1970); ``Key``, ``Size`` and
        ``StorageClass`` are s3fs's. Where keys lie below the name of an object, these are listed. ``refresh`` asks
        anew.

        Raises:
            FileNotFoundError: neither a folder, a bucket nor an object.
        """
        refuse_versions(kwargs)
        entries = await self._listed(calls, self._strip_protocol(path), refresh)
        detail = self._ls_gives_entries if detail is None else detail
        return [dict(entry) for entry in entries] if detail else [entry["name"] for entry in entries]

    ls, _ls = _faces(ls)

    async def _listed(self, calls, path: str, refresh: bool) -> list:
        kept = None if refresh else self._kept(path)
        if kept is not None and not _entries.has_folder(kept) and path not in self.dircache:
            return [kept]
        entries = await self._children(calls, path, refresh)
        return [await self._head(calls, path)] if entries is None else entries

    async def _children(self, calls, path: str, refresh: bool = False) -> "list | None":
        """The entries of a folder or bucket, None where no key lies below `path`."""
        kept = None if refresh else self.dircache.get(path)
        if kept is not None:
            return kept
        if path == "":
            return self._keep(path, [_entries.bucket(name) for name in sorted(await calls.buckets(self.scheme))])
        infos = await calls.ls(f"{self._url(path)}/")
        # A bucket is there without a key, too.
        return self._keep(path, _entries.entries(path, infos)) if infos or "/" not in path else None

    def _keep(self, path: str, entries: list) -> list:
        self.dircache[path] = listing = _entries.Listing(entries)
        return listing

    def _kept(self, path: str) -> "dict | None":
        """What the listing of the folder around `path` says of it, where one is kept."""
        around = self.dircache.get(_tree.parent(path)) if path else None
        return around.entry(path) if around is not None else None

    # One name

    async def info(self, calls, path, refresh=False, version_id=None, **kwargs):
        """One entry, as :meth:`ls` has them, of an object with ``ContentType``, ``Metadata`` and ``VersionId`` where a HEAD
        told it. Where keys lie below the name of an object, the object is told of. ``version_id`` asks for one version.

        Raises:
            FileNotFoundError: neither an object, a folder nor a bucket.
        """
        path = self._strip_protocol(path)
        if version_id is not None:
            return _entries.headed(path, await calls.stat(self._object_url("info", path), version_id))
        if path == "":
            return _entries.bucket("")
        kept = None if refresh else self._kept(path)
        return dict(kept if kept is not None else await self._look_up(calls, path))

    info, _info = _faces(info)

    async def metadata(self, calls, path, refresh=False, version_id=None, **kwargs):
        """The metadata of an object's own, by name: a HEAD, whatever is kept. As s3fs has it, names have ``-`` for ``_``.

        Raises:
            FileNotFoundError: no object.
        """
        path = self._strip_protocol(path)
        if version_id is None:
            entry = await self._head(calls, path)
        else:
            entry = await calls.of(self, "info", path, version_id=version_id)
        return {name.replace("_", "-"): value for name, value in (entry["Metadata"] or {}).items()}

    metadata, _metadata = _faces(metadata)

    async def getxattr(self, calls, path, attr_name, **kwargs):
        """One of :meth:`metadata`, None where the object has none of that name."""
        return (await calls.of(self, "metadata", path, **kwargs)).get(attr_name.replace("_", "-"))

    getxattr, _getxattr = _faces(getxattr)

    async def _look_up(self, calls, path: str) -> dict:
        self._told.pop(path, None)
        info = await _tree.look_up(calls, self.scheme, path)
        if info is not None:
            return self._tell(path, info)
        return _entries.folder(path) if "/" in path else _entries.bucket(path)

    async def _head(self, calls, path: str) -> dict:
        """The entry of an object, from a HEAD."""
        self._told.pop(path, None)
        return self._tell(path, await calls.stat(self._object_url("info", path)))

    def _tell(self, path: str, info) -> dict:
        entry = _entries.headed(path, info)
        if self.dircache.use_listings_cache:
            if len(self._told) >= 1024:
                self._told.clear()
            self._told[path] = entry, _time.monotonic()
        return entry

    async def exists(self, calls, path, **kwargs):
        """Whether an object, a folder or a bucket is there. What keeps that from being known is raised."""
        try:
            await calls.of(self, "info", path, **kwargs)
        except FileNotFoundError:
            return False
        return True

    exists, _exists = _faces(exists)

    async def isfile(self, calls, path):
        """Whether an object is there: a HEAD."""
        path = self._strip_protocol(path)
        kept = self._kept(path)
        if kept is not None:
            return kept["type"] == "file"
        try:
            return "/" in path and (await self._head(calls, path))["type"] == "file"
        except FileNotFoundError:
            return False

    isfile, _isfile = _faces(isfile)

    async def isdir(self, calls, path):
        """Whether keys lie below ``path``, or it is a bucket: a page of a listing."""
        path = self._strip_protocol(path)
        if path == "" or path in self.dircache:
            return True
        kept = self._kept(path)
        if kept is not None:
            return _entries.has_folder(kept)
        return await _tree.is_folder(calls, self.scheme, path)

    isdir, _isdir = _faces(isdir)

    # Trees

    async def find(
        self, calls, path, maxdepth=None, withdirs=False, detail=False, prefix="", refresh=False, **kwargs
    ):
        """All objects below ``path``, in one listing of as many pages as it takes; with ``maxdepth`` level by level.

        ``prefix`` keeps to names that begin so behind ``path/``: the origin lists no others. Nothing there is an empty
        answer; what keeps a folder from being listed is raised.
        """
        found = await self._found(calls, path, maxdepth, withdirs, prefix or "", refresh)
        names = sorted(name for name, entry in found.items() if withdirs or entry["type"] == "file")
        return {name: found[name].copy() for name in names} if detail else names

    find, _find = _faces(find)

    async def _found(self, calls, path, maxdepth, withdirs: bool, prefix: str, refresh: bool) -> dict:
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        if maxdepth is not None:
            found = await self._find_levels(calls, path, maxdepth, prefix, refresh)
        elif path:
            found = await self._find_all(calls, path, prefix)
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
                found = {path: await self._head(calls, path)}
            except FileNotFoundError:
                pass
        elif found is not None and withdirs and path:
            found[path] = _entries.folder(path)
        return found or {}

    async def _find_all(self, calls, path: str, prefix: str) -> "dict | None":
        """Everything below `path`, by name; None where nothing is, and `path` is no bucket."""
        bucket = path.partition("/")[0]
        found: dict = {}
        folders: dict = {path: []}
        is_there = "/" not in path
        async with _aclosing(calls.ls_pages(f"{self._url(path)}/{prefix}", recursive=True)) as pages:
            async for page in pages:
                for info in page:
                    is_there = True
                    name = f"{bucket}/{info.key}"
                    holder = _tree.parent(name)
                    _entries.add_folder(holder, folders, found)
                    # What ends in '/' is the mark of a folder.
                    if not name.endswith("/"):
                        entry = _entries.file(name, info)
                        folders[holder].append(entry)
                        _entries.meet(found, entry)
        if is_there and not prefix and self.dircache.use_listings_cache:
            for folder, entries in folders.items():
                self._keep(folder, sorted(entries, key=_entries.name_of))
        return found if is_there else None

    async def _find_levels(self, calls, path: str, maxdepth: int, prefix: str, refresh: bool) -> "dict | None":
        begins = f"{path}/{prefix}" if path else prefix
        if prefix and path and (refresh or path not in self.dircache):
            level = [_entries.entries(path, await calls.ls(self._url(begins)))]
        else:
            level = [await self._children(calls, path, refresh)]
        if level == [None]:
            return None
        found: dict = {}
        for depth in range(1, maxdepth + 1):
            entries = [each for listing in level for each in listing or () if each["name"].startswith(begins)]
            for entry in entries:
                _entries.meet(found, entry)
            folders = [each["name"] for each in entries if each["type"] == "directory"]
            if depth == maxdepth or not folders:
                break
            level = await calls.together(lambda folder: self._children(calls, folder, refresh), folders)
        return found

    def glob(self, path, maxdepth=None, **kwargs):
        """As fsspec's. What stands before the first wildcard is left to the origin, which lists no other names."""
        return super().glob(path, maxdepth=maxdepth, **self._begun(path, kwargs))

    async def _glob(self, path, maxdepth=None, **kwargs):
        return await super()._glob(path, maxdepth=maxdepth, **self._begun(path, kwargs))

    def _begun(self, path, options: dict) -> dict:
        """`options` with what names have to begin with."""
        pattern = self._strip_protocol(path)
        if _has_magic(pattern):
            literal = min(at for at in map(pattern.find, "*?[") if at >= 0)
            options["prefix"] = pattern[:literal].rpartition("/")[2]
        return options

    def walk(self, path, maxdepth=None, topdown=True, on_error="omit", **kwargs):
        """As fsspec's. A folder that is gone or may not be listed is left out, and what else keeps one from being
        listed is raised: fsspec's own leaves out what it could not reach, too."""
        on_error = _omit if on_error == "omit" else on_error
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **kwargs)

    async def _walk(self, path, maxdepth=None, topdown=True, on_error="omit", **kwargs):
        on_error = _omit if on_error == "omit" else on_error
        async for each in super()._walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **kwargs):
            yield each

    async def du(self, calls, path, total=True, maxdepth=None, withdirs=False, **kwargs):
        """Bytes of all objects below ``path``, or of each by its name: no request beside the listing."""
        found = await calls.of(self, "find", path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **kwargs)
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    du, _du = _faces(du)

    async def expand_path(self, calls, path, recursive=False, maxdepth=None, assume_literal=False, **kwargs):
        """The names that patterns and, with ``recursive``, folders stand for, sorted.

        Raises:
            FileNotFoundError: there are none.
        """
        return sorted(await self._expanded(calls, path, recursive, maxdepth, assume_literal))

    expand_path, _expand_path = _faces(expand_path)

    async def _expanded(self, calls, path, recursive=False, maxdepth=None, assume_literal=False) -> dict:
        """What patterns and folders stand for, by name; None for the entry of a path that nobody has asked about."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        paths = [path] if isinstance(path, (str, _os.PathLike)) else list(path)
        found: dict = {}
        for each in map(self._strip_protocol, paths):
            if not assume_literal and _has_magic(each):
                matches = await calls.of(self, "glob", each, maxdepth=maxdepth, detail=True)
                # The pattern has taken a level.
                if recursive and maxdepth != 1:
                    deeper = None if maxdepth is None else maxdepth - 1
                    for name in [name for name, entry in matches.items() if _entries.has_folder(entry)]:
                        below = await calls.of(self, "find", name, maxdepth=deeper, withdirs=True, detail=True)
                        found.update(below)
                found.update(matches)
                continue
            if recursive:
                found.update(await calls.of(self, "find", each, maxdepth=maxdepth, withdirs=True, detail=True))
            if each not in found and (not recursive or await calls.of(self, "exists", each)):
                found[each] = None
        if not found:
            raise _tree.missing(self.scheme, self._strip_protocol(paths[0]) if paths else "")
        return found


def refuse_versions(options: dict) -> None:
    """An option that would read something else if it were disregarded."""
    if options.get("version_id") is not None:
        raise Unsupported(
            kind="unsupported",
            cause="a version is one of a single object",
            hint="leave out version_id, or use info, open, cat_file or get_file",
        )


def _omit(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, PermissionError)):
        raise error
