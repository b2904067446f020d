"""fsspec's interface: ``flatout://bucket/key`` for S3 and ``flatoutoss://bucket/key`` for OSS, for pandas, xarray, Dask,
pyarrow, DuckDB, zarr, ….

>>> import fsspec
>>> fs = fsspec.filesystem("flatout", endpoint_url="http://127.0.0.1:9000")      # doctest: +SKIP
>>> fs.cat_ranges(["bucket/a", "bucket/a"], [0, 100], [10, 110])                 # doctest: +SKIP

Verbs block their caller, on whatever thread it is: no event loop, nothing that a fork breaks. Those with a ``_`` before
them are awaited, as fsspec has it, on the caller's own loop and without threads: ``await fs._cat_file(path)``. What takes
many paths hands the whole list to the engine.
"""

import errno as _errno
import time as _time
import weakref as _weakref
from hashlib import sha256 as _sha256

from fsspec.asyn import get_loop as _get_loop
from fsspec.compression import compr as _compressions
from fsspec.core import get_compression as _get_compression
from fsspec.registry import known_implementations as _known
from fsspec.registry import register_implementation as _register_implementation
from fsspec.registry import registry as _loaded

from . import _storage_options, _tree
from ._calls import Awaiting
from ._fsspec_files import Compressed, FlatoutFile, FlatoutStream, FlatoutWriter, FlatoutWriteStream, Uncommitted
from ._fsspec_writes import Writes, options
from ._writer import TextWriter
from .client import Client, default_client
from .errors import Unsupported, UsageError

__all__ = [
    "FlatoutFile",
    "FlatoutFileSystem",
    "FlatoutStream",
    "FlatoutWriteStream",
    "FlatoutWriter",
    "OssFileSystem",
    "S3FileSystem",
    "OssTakeover",
    "S3Takeover",
    "register",
]

#: Clients by their settings. fsspec keeps a file system for each set of options, and with ``asynchronous`` for each
#: thread; those with the same settings share an engine.
_clients: "_weakref.WeakValueDictionary[tuple, Client]" = _weakref.WeakValueDictionary()


def _client(settings: dict) -> Client:
    if not settings:
        return default_client()
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    client = _clients.get(key)
    if client is not None and client.closed:
        _clients.pop(key, None)
        client = None
    return client if client is not None else _clients.setdefault(key, Client(**settings))


class FlatoutFileSystem(Writes):
    """The base of both schemes: make a :class:`S3FileSystem` or :class:`OssFileSystem`.

    Options are the settings of docs/settings.md with ``_`` for ``-``, and what s3fs and ossfs call by other names and
    means the same: docs/python-fsspec.md has the table. Keys are refused (``key``, ``secret``, ``token``): they come
    from the environment, a profile or the machine's role, and so no pickle, token or JSON of this file system holds a
    secret.

    ``use_listings_cache`` (True), ``listings_expiry_time`` (seconds; None: until :meth:`invalidate_cache`) and
    ``max_paths`` are fsspec's. A name that no kept listing has is asked for, so that a new object is found. An object
    that was replaced is never read as a mixture: what is open stays one version, or raises
    :class:`flatout.ObjectChanged`.

    ``asynchronous=True`` tells other libraries, such as zarr, that verbs will be awaited. Both forms of a verb may be
    used of either kind.
    """

    # fsspec would replace verbs that it knows by its own, which wait for a loop in another thread.
    mirror_sync_methods = False

    def __init__(self, *, asynchronous=False, **options):
        if self._cached:
            return
        # Without its loop, which is a thread: see `loop`.
        super().__init__(asynchronous=True, **options)
        self.asynchronous = asynchronous
        if not self.scheme:
            raise TypeError("make a S3FileSystem or a OssFileSystem")
        self._settings = _storage_options.settings(options, self.scheme)
        self._client = _client(self._settings)
        self._awaited: Awaiting | None = None
        # What a HEAD told of a file, for the open that follows it: the entry and when.
        self._told: dict = {}

    @property
    def client(self) -> Client:
        """The client, shared with all file systems of the same settings; a new one where it was closed."""
        if self._client.closed:
            self._client = _client(self._settings)
        return self._client

    @property
    def _awaiting(self) -> Awaiting:
        client, awaited = self.client, self._awaited
        if awaited is None or awaited.client is not client:
            self._awaited = awaited = Awaiting(client)
        return awaited

    @property
    def loop(self):
        """fsspec's own loop and its thread, started on demand. Nothing here needs it."""
        return None if self.asynchronous else _get_loop()

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
        """A text that differs for each version of the object; sends a request."""
        entry = self.info(path, refresh=True)
        version = [entry.get(each) for each in ("name", "size", "ETag", "mtime")]
        return _sha256(repr(version).encode()).hexdigest()

    def checksum(self, path):
        """:meth:`ukey` as a number."""
        return int(self.ukey(path), 16)

    def sign(self, path, expiration=100, version_id=None, **kwargs):
        """A URL by which anyone may GET the object, or its version ``version_id``, for so many seconds, signed with the keys
        of now."""
        url = self._object_url("presign", self._strip_protocol(path))
        return self.client.presign(url, expires=int(expiration), version_id=version_id)

    def invalidate_cache(self, path=None):
        """Forgets cached listings: all, or those of ``path``, of folders below it, and of those that contain it."""
        super().invalidate_cache(path)
        path = "" if path is None else self._strip_protocol(path)
        if path == "":
            self.dircache.clear()
            self._told.clear()
            return
        for kept in (self.dircache, self._told):
            for each in list(kept):
                if each in ("", path) or each.startswith(f"{path}/") or path.startswith(f"{each}/"):
                    _drop(kept, each)

    def _open(
        self,
        path,
        mode="rb",
        block_size=None,
        autocommit=True,
        cache_type=None,
        cache_options=None,
        size=None,
        version_id=None,
        **kwargs,
    ):
        """A :class:`FlatoutFile` of the newest version, or of ``version_id``. The engine recognises how it is read, fetches ahead and keeps what was fetched, for
        all readers of an object together: a cache of fsspec's before it would copy everything once more and hide the
        pattern. So ``cache_type`` and ``cache_options`` are taken and have no effect, and ``block_size`` is only what a
        local cache of fsspec's (``blockcache::``) keeps at a time.

        In the modes ``"wb"``, ``"xb"`` and ``"ab"`` a :class:`FlatoutWriter`, whose object is there once it is closed. In a
        transaction it is kept in local temporary files, and uploaded when that ends.
        """
        if mode == "rb":
            return FlatoutFile(self, path, block_size, version_id)
        stored = options({name: value for name, value in kwargs.items() if name != "mode"})
        if not autocommit:
            if mode == "ab":
                cause, hint = "a transaction cannot add to an object", "open it outside of the transaction"
                raise Unsupported(kind="unsupported", doing="open", object=self._url(path), cause=cause, hint=hint)
            return Uncommitted(self, path, mode, stored)
        return FlatoutWriter(self, path, mode, stored)

    def open(self, path, mode="rb", block_size=None, cache_options=None, compression=None, **kwargs):
        """As fsspec's. Text that is written publishes nothing where its ``with`` block raises."""
        if not any(letter in mode for letter in "wxa"):
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        text = [kwargs.pop(name, None) for name in ("encoding", "errors", "newline")]
        file = super().open(path, mode.replace("t", "").replace("b", "") + "b", block_size, cache_options, None, **kwargs)
        if compression is not None:
            named = _get_compression(self._strip_protocol(path), compression)
            file = Compressed(_compressions[named](file, mode=mode[0]), file) if named is not None else file
        return file if "b" in mode else TextWriter(file, text[0] or "utf-8", *text[1:])

    async def open_async(self, path, mode="rb", version_id=None, **kwargs):
        """A :class:`FlatoutStream`, of which reads are awaited, or to write a :class:`FlatoutWriteStream`."""
        path = self._strip_protocol(path)
        if mode != "rb":
            writer = await self._awaiting.reader.open(self._object_url("upload", path), mode, **options(kwargs))
            return FlatoutWriteStream(self, path, mode, writer)
        told = self._head(self._awaiting, path) if version_id is None else self._info(path, version_id=version_id)
        return FlatoutStream(self, path, await told, version_id)

    def _known(self, path: str) -> dict:
        """Size, ETag and time of an object from a recent listing or HEAD, so that the engine need not ask."""
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
        _drop(self.dircache, _tree.parent(path))


class S3FileSystem(FlatoutFileSystem):
    """Buckets of S3, and of every store that speaks its protocol: ``flatout://bucket/key``. ``flatout+s3://`` means the same, where a
    scheme may have a ``+``."""

    protocol = ("flatout", "flatout+s3")
    scheme = "s3"


class OssFileSystem(FlatoutFileSystem):
    """Buckets of Alibaba Cloud OSS, by its own protocol: ``flatoutoss://bucket/key``. ``flatout+oss://`` means the same,
    where a scheme may have a ``+``."""

    protocol = ("flatoutoss", "flatout+oss")
    scheme = "oss"
    _ls_gives_entries = True


class S3Takeover(S3FileSystem):
    """The same under ``s3://``, once :func:`register` has been asked to."""

    protocol = ("s3", "s3a")


class OssTakeover(OssFileSystem):
    """The same under ``oss://``, once :func:`register` has been asked to."""

    protocol = ("oss",)


_CLASSES = {
    "flatout": S3FileSystem,
    "flatoutoss": OssFileSystem,
    "flatout+s3": S3FileSystem,
    "flatout+oss": OssFileSystem,
    "s3": S3Takeover,
    "s3a": S3Takeover,
    "oss": OssTakeover,
}

_OWN = ("flatout", "flatoutoss", "flatout+s3", "flatout+oss")


def register(*protocols: str, clobber: bool = False) -> None:
    """Makes fsspec use Flatout for ``protocols``: ``register("s3", "oss", clobber=True)`` takes over what s3fs and
    ossfs have, in this process. Without any: for ``flatout``, ``flatoutoss``, ``flatout+s3`` and ``flatout+oss``, which
    the installed package does by itself.

    Raises:
        UsageError: a protocol that Flatout does not speak, or one that is another's while ``clobber`` is false.
    """
    for protocol in protocols or _OWN:
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


def _drop(kept, key) -> None:
    """fsspec's `DirCache` looks before it drops: another thread may be faster, as file systems are shared by threads."""
    try:
        del kept[key]
    except KeyError:
        pass
