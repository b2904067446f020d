"""Samples in tar files."""

from __future__ import annotations

import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import FlatoutError, ObjectChanged, Unsupported, UsageError
from ._epochs import Order, Place, Sharded
from ._sources import Source

if TYPE_CHECKING:
    from ..client import Client
    from ..io import RemoteFile
    from ._keys import Keys

__all__ = ["InvalidTar", "TarDataset"]

#: The shards behind the current one are fetched once less than this is left to fetch of it.
AHEAD_BYTES = 64 << 20

#: What follows the end mark is looked at in parts of so many bytes.
_CHUNK_BYTES = 1 << 20

#: WebDataset's: the key ends at the first dot of the last component, and a name that begins with a dot is none.
_NAME = re.compile(r"((?:.*/|)[^./][^./]*)\.([^/]*)", re.DOTALL)

#: What tarfile says of a file that ends too soon.
_ENDS = ("unexpected end of data", "truncated header", "empty header")

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class InvalidTar(FlatoutError, ValueError):
    """Not a tar file, or one that is truncated or damaged. ``object`` names which, ``cause`` says what is wrong."""


class TarDataset(Source, Sharded):
    """Tar files of WebDataset's layout as a stream of samples. Each file, a shard, is in one rank and one worker of ``DataLoader``.

    Members whose names are the same up to the first dot of the last component, and which lie side by side, are a sample: a dict of
    ``"__key__"``, that name, ``"__url__"``, the shard, and the content of each member, bytes, by what follows the dot, in lower case.
    A shard is prefetched from its start to its end, and the next one before it has ended.

    Args:
        keys, client: as of :class:`MapDataset`; made by :meth:`from_prefix`, :meth:`from_urls` or :meth:`from_manifest`.
        transform: makes of the dict what the loader is to get.
        shuffle: whether each epoch has another order of the shards, which ``seed`` and the epoch determine.
        seed, rank, world_size: as of :class:`IterableDataset`.

    ``state_dict`` holds the byte of the shard at which the next sample begins, so that nothing is read again.

    Raises:
        UsageError: there are fewer shards than ranks: a rank without samples would leave the others waiting for it. Of more workers
            than shards of a rank some have nothing to do.
        InvalidTar: while it is iterated: a shard is no tar file, or not whole.
        Unsupported: a shard is compressed, or a member of a sample is a link or a sparse file.
        ObjectChanged: a shard was replaced while it was read, or since the state was taken.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        **named: Any,
    ) -> None:
        Source.__init__(self, keys, **named)
        Sharded.__init__(self, Order(keys.base, len(keys), shuffle=shuffle, seed=seed, rank=rank, world_size=world_size))
        self._transform = transform
        if len(keys) < self._order.world_size:
            cause = f"{len(keys)} shards for {self._order.world_size} ranks: some would have no samples"
            hint = "write more shards, as many as all ranks have workers at least"
            raise UsageError(kind="usage", doing="dataset", object=keys.base, cause=cause, hint=hint)

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands: how many shards it has finished, and where in the next one it goes on."""
        return {**super().state_dict(), "offset": self._at.offset, "etag": self._at.etag}

    def _rest(self, at: Place) -> Iterator[Any]:
        shards = _Shards(self.client, [self.keys.url(number) for number in self._left(at)])
        try:
            while (shard := shards.next(at.offset, at.etag)) is not None:
                at.etag = shard.etag
                for sample, end in _samples(shard, shards):
                    made = sample if self._transform is None else self._transform(sample)
                    # Not before: a sample that could not be made comes again.
                    at.offset = end
                    yield made
                at.taken, at.offset, at.etag = at.taken + 1, 0, None
        finally:
            shards.close()


class _Shards:
    """Shards in order, which are opened and prefetched before they are wanted."""

    def __init__(self, client: Client, urls: list[str]) -> None:
        self._client, self._waiting = client, deque(urls)
        self._current: RemoteFile | None = None
        self._opened: deque[RemoteFile] = deque()

    def next(self, offset: int = 0, etag: str | None = None) -> RemoteFile | None:
        """The next one, to be read from ``offset`` on; None behind the last."""
        if self._current is not None:
            self._current.close()
            self._current = None
        if not self._opened and self._waiting:
            self._open(offset)
        if self._opened:
            self._current = shard = self._opened.popleft()
            if etag is not None and shard.etag != etag:
                cause, hint = "it was replaced since the state was taken", "begin the epoch anew: `set_epoch`"
                raise ObjectChanged(doing="load_state_dict", object=shard.name, cause=cause, hint=hint)
            shard.seek(offset)
        return self._current

    def on_read(self, left_bytes: int) -> None:
        """So much is left of the current one."""
        while self._waiting and left_bytes + sum(shard.size for shard in self._opened) < AHEAD_BYTES:
            self._open(0)

    def close(self) -> None:
        for shard in self._opened if self._current is None else (self._current, *self._opened):
            shard.close()

    def _open(self, offset: int) -> None:
        # Without a size that a listing told: the answer to a HEAD names the version, which then stays the same.
        shard = self._client.open(self._waiting.popleft())
        self._opened.append(shard)
        shard.prefetch([(offset, shard.size)])


def _samples(shard: RemoteFile, shards: _Shards) -> Iterator[tuple[dict[str, Any], int]]:
    """Samples of a shard from its position on, each with the offset of what follows it."""
    sample: dict[str, Any] = {}
    end = shard.tell()
    for member, offset in _members(shard):
        shards.on_read(shard.size - offset)
        name = _NAME.fullmatch(member.name)
        if name is not None and (member.islnk() or member.issym()):
            cause, hint = f"member {member.name!r} is a link", "write the shard again: `tar --dereference --hard-dereference`"
            raise Unsupported(doing="read", object=shard.name, cause=cause, hint=hint)
        if name is None or not member.isreg():
            continue
        key, extension = name[1], name[2].lower()
        if sample and sample["__key__"] != key:
            yield sample, offset
            sample = {}
        if extension in sample:
            raise _invalid(shard, f"sample {key!r} has two members {extension!r}")
        sample.setdefault("__key__", key)
        sample.setdefault("__url__", shard.name)
        sample[extension] = _content(shard, member)
        end = member.offset_data + (member.size + tarfile.BLOCKSIZE - 1) // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE
    if sample:
        yield sample, end


def _content(shard: RemoteFile, member: tarfile.TarInfo) -> bytes:
    if member.issparse():
        raise Unsupported(doing="read", object=shard.name, cause=f"member {member.name!r} is a sparse file")
    shard.seek(member.offset_data)
    data = shard.read(member.size)
    if len(data) < member.size:
        raise _truncated(shard)
    return data


def _members(shard: RemoteFile) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Members from the position on, each with where its first header is: names that are long have one of their own."""
    start = shard.tell()
    try:
        tar = tarfile.TarFile(fileobj=shard)
        while (member := tar.next()) is not None:
            # It would keep all of them.
            tar.members.clear()
            yield member, member.offset
    except tarfile.TarError as wrong:
        raise _no_tar(shard, start, str(wrong)) from None
    # To tarfile whatever is no header is the end.
    shard.seek(tar.offset)
    mark = shard.read(tarfile.BLOCKSIZE)
    if len(mark) < tarfile.BLOCKSIZE:
        raise _truncated(shard)
    if any(mark):
        raise _invalid(shard, f"there is no header of a member at byte {tar.offset}")
    while rest := shard.read(_CHUNK_BYTES):
        if rest.strip(b"\0"):
            raise _invalid(shard, f"it goes on behind the mark that ends it, at byte {tar.offset}, like several tar files in one")


def _no_tar(shard: RemoteFile, start: int, wrong: str) -> FlatoutError:
    shard.seek(0)
    begins = shard.read(8)
    for magic, name in _COMPRESSED.items():
        if begins.startswith(magic):
            hint = "store the shard as it is; its members may be compressed"
            return Unsupported(doing="read", object=shard.name, cause=f"it is compressed by {name}", hint=hint)
    if shard.size > tarfile.BLOCKSIZE and wrong in _ENDS:
        return _truncated(shard)
    return _invalid(shard, f"this is no tar file: {wrong}" if start == 0 else f"a header behind byte {start} is damaged: {wrong}")


def _truncated(shard: RemoteFile) -> InvalidTar:
    return _invalid(shard, f"it is truncated: its {shard.size} bytes end without the mark that ends a tar file")


def _invalid(shard: RemoteFile, cause: str) -> InvalidTar:
    return InvalidTar(kind="invalid", doing="read", object=shard.name, cause=cause, hint="write this shard again, whole")


# Where it is to be imported from.
InvalidTar.__module__ = "flatout.torch"
