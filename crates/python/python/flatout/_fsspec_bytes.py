"""Bytes and copies of objects, for :class:`flatout.fsspec.FlatoutFileSystem`: whatever takes many paths hands the
engine the whole list."""

import os as _os
from contextlib import aclosing as _aclosing
from glob import has_magic as _has_magic

from fsspec.callbacks import DEFAULT_CALLBACK, NoOpCallback
from fsspec.implementations.local import make_path_posix as _make_path_posix
from fsspec.utils import isfilelike as _isfilelike
from fsspec.utils import other_paths as _other_paths
from fsspec.utils import stringify_path as _stringify_path

from . import _entries
from ._calls import faces as _faces
from ._fsspec_names import Names, refuse_versions
from .errors import LocalError, NotFound, UsageError

__all__ = ["Bytes"]

#: How many files are told of as one step where somebody watches a `get` of many.
_STEP_FILES = 100


class Bytes(Names):
    """Verbs that read objects: ``cat_file`` blocks, ``_cat_file`` is awaited."""

    def head(self, path, size=1024):
        """The first ``size`` bytes."""
        return self.cat_file(path, end=size)

    def tail(self, path, size=1024):
        """The last ``size`` bytes."""
        return self.cat_file(path, start=-size) if size > 0 else b""

    async def cat_file(self, calls, path, start=None, end=None, version_id=None, **kwargs):
        """The bytes of an object, or of a slice of it: ``start`` and ``end`` as in ``data[start:end]``, either alone,
        negative from the end; of the newest version, or of ``version_id``."""
        path = self._strip_protocol(path)
        return _bytes(await calls.read(self._object_url("read", path), start, end, version_id))

    cat_file, _cat_file = _faces(cat_file)

    async def cat(self, calls, path, recursive=False, on_error="raise", **kwargs):
        """The bytes of one object, or a dict of those of many: the engine is given the whole list. A ``path`` that stands
        for itself alone is one object.

        ``on_error``: ``"raise"`` the first, ``"omit"`` what failed, or ``"return"`` exceptions in place of bytes.
        ``start`` and ``end`` cut each as :meth:`cat_file` does.
        """
        if isinstance(path, (str, _os.PathLike)) and not recursive and not _has_magic(self._strip_protocol(path)):
            return await calls.of(self, "cat_file", path, **kwargs)
        refuse_versions(kwargs)
        start, end = kwargs.get("start"), kwargs.get("end")
        entries = await self._expanded(calls, path, recursive)
        names = [name for name in sorted(entries) if not _entries.is_folder(entries[name])]
        if isinstance(path, (str, _os.PathLike)) and list(entries) == names == [self._strip_protocol(path)]:
            return await calls.of(self, "cat_file", names[0], **kwargs)
        out: dict = dict.fromkeys(names)
        urls = [(self._url(name), start, end) for name in names]
        async with _aclosing(calls.read_many(urls)) as reading:
            async for index, got in reading:
                if not isinstance(got, Exception):
                    out[names[index]] = _bytes(got)
                elif on_error == "raise":
                    raise got
                elif on_error == "return":
                    out[names[index]] = got
                else:
                    del out[names[index]]
        return out

    cat, _cat = _faces(cat)

    async def cat_ranges(self, calls, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        """``[data of paths[i] from starts[i] to ends[i], …]``: one call into the engine for each object, which joins
        what lies closer than ``max_gap`` bytes (None: as it finds best), and one for all objects of which one range is
        wanted.

        Raises:
            ValueError: lists of different lengths. With ``on_error="return"`` other failures stand in the list.
        """
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = list(starts) if hasattr(starts, "__iter__") else [starts] * len(paths)
        ends = list(ends) if hasattr(ends, "__iter__") else [ends] * len(paths)
        if not len(starts) == len(ends) == len(paths):
            raise ValueError("paths, starts and ends must be of one length")
        refuse_versions(kwargs)
        out: list = [None] * len(paths)
        asked: dict = {}
        for index, path in enumerate(paths):
            asked.setdefault(self._strip_protocol(path), []).append(index)
        alone = [indices[0] for indices in asked.values() if len(indices) == 1]
        urls = [(self._url(self._strip_protocol(paths[index])), starts[index], ends[index]) for index in alone]
        async with _aclosing(calls.read_many(urls)) as reading:
            async for at, got in reading:
                out[alone[at]] = got if isinstance(got, Exception) else _bytes(got)

        async def read_ranges(path):
            indices = asked[path]
            try:
                ranges = [(starts[index], ends[index]) for index in indices]
                got = map(_bytes, await calls.read_ranges(self._url(path), ranges, max_gap=max_gap))
            except Exception as error:
                got = [error] * len(indices)
            for index, each in zip(indices, got):
                out[index] = each

        await calls.together(read_ranges, [path for path, indices in asked.items() if len(indices) > 1])
        if on_error == "raise":
            for each in out:
                if isinstance(each, Exception):
                    raise each
        return out

    cat_ranges, _cat_ranges = _faces(cat_ranges)

    # Copies

    async def get_file(
        self, calls, rpath, lpath=None, callback=DEFAULT_CALLBACK, outfile=None, version_id=None, **kwargs
    ):
        """Copies an object, or its version ``version_id``, to a local file, which appears when it is whole and verified, or
        into an open one. A folder is made."""
        path = self._strip_protocol(rpath)
        outfile = lpath if outfile is None and _isfilelike(lpath) else outfile
        if outfile is not None:
            await calls.copy_into(outfile, self, path, callback, version_id)
            return
        _os.makedirs(_os.path.dirname(_os.path.abspath(lpath)), exist_ok=True)
        try:
            url = self._object_url("download", path)
            await calls.download(url, _os.fspath(lpath), _teller(callback), version_id)
        except (LocalError, NotFound, UsageError):
            # A folder is made where it is to be; that there is one already looks like a file's way being barred.
            if version_id is not None or await calls.of(self, "isfile", path) or not await calls.of(self, "isdir", path):
                raise
            _os.makedirs(lpath, exist_ok=True)

    get_file, _get_file = _faces(get_file)

    async def get(self, calls, rpath, lpath, recursive=False, callback=DEFAULT_CALLBACK, maxdepth=None, **kwargs):
        """Copies objects, patterns or folders to local files as fsspec's rules for names have it; the engine is given
        the whole list. Each file appears when it is whole and verified. Of an object and a folder of the same name the
        folder is copied.

        Raises:
            UsageError: a key whose name would lead out of ``lpath``, or two that would be the same file there, as
            ``a/b`` and ``a//b``; nothing has been copied then.
        """
        refuse_versions(kwargs)
        rpath, lpath = _stringify_path(rpath), _stringify_path(lpath)
        if isinstance(rpath, list) and isinstance(lpath, list):
            names, targets, entries, makes_folders = self._strip_protocol(rpath), lpath, {}, True
        else:
            entries = await self._expanded(calls, rpath, recursive, maxdepth)
            makes_folders = not isinstance(rpath, str) or (recursive and maxdepth is None)
            names = [name for name in sorted(entries) if makes_folders or not _entries.is_folder(entries[name])]
            if not names:
                return
            targets = self._targets(rpath, names, lpath)
            holders = _holders(targets)
            clash = [name for name, target in zip(names, targets) if _os.path.abspath(target) in holders]
            entries.update((name, _entries.folder(name)) for name in clash)
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
            await self._download(calls, some, entries, makes_folders)
            callback.relative_update(len(some))

    get, _get = _faces(get)

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

    async def _download(self, calls, files: list, entries: dict, makes_folders: bool) -> None:
        pairs = [(self._object_url("download", name), target) for name, target in files]
        for (name, target), got in zip(files, await calls.download_many(pairs)):
            # Nobody has asked yet whether what was only named is a folder: that is no object, and one that stands where
            # it is to be bars a file's way.
            is_odd = isinstance(got, (LocalError, NotFound)) and entries.get(name) is None
            if is_odd and not await calls.of(self, "isfile", name) and await calls.of(self, "isdir", name):
                if makes_folders:
                    _os.makedirs(target, exist_ok=True)
            elif isinstance(got, Exception):
                raise got


def _bytes(buffer) -> bytes:
    """fsspec's answers are `bytes`, which users decode, split and hash: the one copy of this road."""
    return bytes(buffer)


def _holders(targets: list) -> set:
    """The local folders that hold one of them, at any depth."""
    holders: set = set()
    for target in targets:
        holder = _os.path.dirname(_os.path.abspath(target))
        while holder not in holders:
            holders.add(holder)
            holder = _os.path.dirname(holder)
    return holders


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
