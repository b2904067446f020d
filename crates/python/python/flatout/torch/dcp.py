"""Storage of ``torch.distributed.checkpoint``, beside nothing but the object store.

>>> import torch.distributed.checkpoint as dcp                                          # doctest: +SKIP
>>> from flatout.torch.dcp import Reader, Writer                                        # doctest: +SKIP
>>> dcp.save(state, storage_writer=Writer("s3://bucket/run/step-100"))                  # doctest: +SKIP
>>> dcp.load(state, storage_reader=Reader("s3://bucket/run/step-100"))                  # doctest: +SKIP

The layout is PyTorch's own: its ``FileSystemReader`` reads what :class:`Writer` has written, and :class:`Reader` what its
``FileSystemWriter`` has. Each save has names of its own, and its ``.metadata`` comes last: a checkpoint is there whole or not at
all, also where one replaces another. Needs PyTorch 2.3.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import numpy
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .._at_once import to_the_end
from .._in_order import in_order
from .._into import Taken
from .._slices import Selection, select
from ..client import Client, default_client
from ..errors import AlreadyExists, Corrupt, FlatoutError, NotFound, Unsupported, UsageError
from ..hf import is_url
from ._dcp_checkpoints import METADATA, NAME, SAVE, delete, folder, gc_old, latest, note, objects_of, save_of

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem

    from .._writer import RemoteWriter

__all__ = ["Reader", "Writer", "gc_old", "latest"]

#: Objects, or tensors that have to be copied into place, that a rank reads at a time. Ranges of one object are read together.
_AT_ONCE = 4
#: What this process has written: a rank, and its save.
_WRITTEN: set[tuple[int, str]] = set()
#: The option of torch.save is one for the whole process.
_SAVING = threading.Lock()


class _At:
    """A checkpoint's place."""

    def __init__(self, url: str | os.PathLike[str] | None, client: Client | None) -> None:
        self._url = "" if url is None else folder(url)
        self._client = client

    @property
    def client(self) -> Client:
        """The client that reads and writes."""
        return self._client or default_client()

    @property
    def url(self) -> str:
        """Of the checkpoint."""
        return self._url

    @property
    def checkpoint_id(self) -> str:
        """The URL."""
        return self.url

    def _of(self, name: str) -> str:
        if not self.url:
            raise UsageError(kind="usage", doing="checkpoint", object="", cause="no URL was given", hint="name it, or give a checkpoint_id")
        return f"{self.url}/{name}"

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a URL of a bucket."""
        return is_url(os.fspath(checkpoint_id))


_Call = TypeVar("_Call", bound=Callable[..., Any])


def _told(call: _Call) -> _Call:
    """Has a rank say itself why it fails: PyTorch may lose that on its way to the others."""

    @wraps(call)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except FlatoutError as error:
            if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                warnings.warn(f"rank {dist.get_rank()}: {error}", RuntimeWarning, stacklevel=2)
            raise

    return cast(_Call, told)


class Writer(_At, StorageWriter, BlockingAsyncStager):
    """Saves to an object store: ``dcp.save(state, storage_writer=Writer("s3://bucket/run/step-100"))``, and ``dcp.async_save``.

    Each rank sends its tensors while it serialises them. ``.metadata`` comes last, when the objects of all ranks are there; a save
    that fails or is killed leaves the checkpoint before as it was. What it has sent by then :func:`gc_old` removes.

    Args:
        url: of the checkpoint, as ``"s3://bucket/run/step-100"``; without it ``checkpoint_id`` of each save is.
        single_file_per_rank: one object for each rank; otherwise one for each tensor.
        overwrite: whether a checkpoint that is there may be replaced. Its objects are removed when the new one is whole.
        client: by default :func:`flatout.default_client`.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        single_file_per_rank: bool = True,
        overwrite: bool = True,
        client: Client | None = None,
    ) -> None:
        _At.__init__(self, url, client)
        BlockingAsyncStager.__init__(self)
        self._single = single_file_per_rank
        self._overwrite = overwrite
        self._is_coordinator = True
        # Several saves may be under way, each in a thread of its own.
        self._of_save = threading.local()

    @property
    def url(self) -> str:
        """Of the checkpoint."""
        return getattr(self._of_save, "url", self._url)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new save begins."""
        if checkpoint_id is not None:
            self._url = self._of_save.url = folder(checkpoint_id)

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy for ``dcp.async_save``, also of what is on the CPU, which PyTorch's own stager takes as it is."""
        return cast("dict[str, Any]", BlockingAsyncStager.stage(self, _copied(state_dict)))

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Takes note of the role of this rank.

        Raises:
            Unsupported: the ranks do not talk to each other, so that none could know that the checkpoint is whole.
        """
        if not kwargs.get("use_collectives", True):
            cause = "with use_collectives=False no rank knows when the others have ended"
            raise Unsupported(kind="unsupported", doing="save", object=self.url, cause=cause, hint="leave it out")
        self._is_coordinator = is_coordinator

    @_told
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The same plan.

        Raises:
            AlreadyExists: the coordinator found a checkpoint that may not be replaced.
        """
        url = self._of(METADATA)
        if self._is_coordinator and not self._overwrite and self.client.exists(url):
            cause = "a checkpoint is there already, and overwrite=False"
            raise AlreadyExists(kind="changed", doing="save", object=self.url, cause=cause, hint="save to another URL")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """What the objects of each rank are called."""
        self._of_save.name = uuid.uuid4().hex
        return [dataclasses.replace(plan, storage_data=(rank, self.url, self._of_save.name)) for rank, plan in enumerate(plans)]

    @_told
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Sends what is this rank's.

        Raises:
            Unsupported: the plan is that of an earlier save.
        """
        rank, url, save = plan.storage_data
        if (rank, save) in _WRITTEN:
            cause = "the planner gave the plan of an earlier save, whose objects would be replaced"
            raise Unsupported(kind="unsupported", doing="save", object=url, cause=cause, hint="a planner without enable_plan_caching")
        _WRITTEN.add((rank, save))
        results: list[WriteResult] = []
        objects = [plan.items] if self._single else [[item] for item in plan.items]
        with _without_crc():
            for number, items in enumerate(objects):
                if not items:
                    continue
                name = f"__{rank}_{number}-{save}.distcp"
                with self.client.open(f"{url}/{name}", "wb", content_type="application/octet-stream") as file:
                    # What is no tensor first, as PyTorch has it.
                    for item in sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO):
                        results.append(_written(file, name, item, planner.resolve_data(item)))
        return _done(results)

    @_told
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Publishes the checkpoint. Where the objects of the one before cannot be removed there is a warning: it has been replaced.

        Raises:
            AlreadyExists: another one has been published meanwhile, and overwrite=False.
        """
        metadata.storage_data = {result.index: result.storage_data for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        url, save = self._of(METADATA), self._of_save.name
        for stored in metadata.storage_data.values():
            named = NAME.fullmatch(stored.relative_path)
            assert named is not None and named[3] == save, f"{stored.relative_path} is not of the save {save}"
        former = save_of(self.client, self.url)
        noted = {SAVE: note(save, self.url)}
        self.client.write(url, pickle.dumps(metadata), metadata=noted, overwrite=self._overwrite)
        if former is None or former == save:
            return
        try:
            delete(self.client, [each for each, of, _ in objects_of(self.client, self.url) if of == former])
        except FlatoutError as error:
            warnings.warn(f"the checkpoint is saved, but objects of the one before are left: {error}", stacklevel=2)

    def storage_meta(self) -> StorageMeta:
        """Where the checkpoint is, and which save it is of."""
        return StorageMeta(checkpoint_id=self.url, save_id=getattr(self._of_save, "name", None))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.url, self._single, self._overwrite, self._client)


def _again(kind: type[Writer], url: str, single: bool, overwrite: bool, client: Client | None) -> Writer:
    return kind(url or None, single_file_per_rank=single, overwrite=overwrite, client=client)


class Reader(_At, StorageReader):
    """Loads from an object store: ``dcp.load(state, storage_reader=Reader("s3://bucket/run/step-100"))``.

    A rank fetches the ranges that it needs, also where it needs other parts than a rank has saved, all at a time, and straight into
    the tensors of ``state``; through memory of its own where a tensor is on a device, of another type or not contiguous. Tensors
    that PyTorch's own writer has saved are fetched whole, since only their content says how they are laid out.

    Args:
        url: of the checkpoint; without it ``checkpoint_id`` of each load is.
        client: by default :func:`flatout.default_client`.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None, *, client: Client | None = None) -> None:
        _At.__init__(self, url, client)
        self._metadata: Metadata | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new load begins."""
        if checkpoint_id is not None:
            self._url = folder(checkpoint_id)
        self._metadata = None

    @_told
    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """What the checkpoint holds. It is unpickled, so load only checkpoints that you trust.

        Raises:
            NotFound: there is none, or its save has not ended.
        """
        try:
            data = self.client.read(self._of(METADATA))
        except NotFound as error:
            if "no such bucket" in str(error.cause):
                raise
            cause = "there is no whole checkpoint"
            hint = "a save that failed leaves no .metadata; `flatout ls` shows what is there"
            raise NotFound(kind="not_found", doing="load", object=self.url, cause=cause, hint=hint) from error
        with _readable(self._of(METADATA)):
            metadata = pickle.loads(data)
        if not isinstance(metadata, Metadata):
            cause = f".metadata holds {type(metadata).__name__}, not that of a checkpoint"
            raise UsageError(kind="usage", doing="load", object=self.url, cause=cause)
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Takes what the checkpoint holds."""
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The same plan."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The same plans."""
        return plans

    @_told
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fetches what is this rank's."""
        assert self._metadata is not None, "the metadata is read before"
        pickled = [item for item in plan.items if item.type == LoadItemType.BYTE_IO]
        for place, data in self.client.read_many([self._place(item.storage_index) for item in pickled], ordered=False):
            with _readable(self._place(pickled[place].storage_index)[0]):
                planner.load_bytes(pickled[place], io.BytesIO(data))
        targets = [(item, planner.resolve_tensor(item)) for item in plan.items if item.type != LoadItemType.BYTE_IO]
        into: dict[str, list[tuple[int, int, memoryview]]] = {}
        copied: list[tuple[int, Callable[[], list[tuple[torch.Tensor, torch.Tensor]]]]] = []
        # Of one slice of a foreign checkpoint several parts may be wanted.
        foreign: dict[MetadataIndex, list[tuple[ReadItem, torch.Tensor]]] = {}
        taken = Taken()
        for item, tensor in targets:
            target, stored = tensor.detach(), self._metadata.storage_data[item.storage_index]
            _check_shape(item, target)
            start = _data_of(stored)
            if start is None:
                foreign.setdefault(item.storage_index, []).append((item, target))
                continue
            url, (selected, dtype) = self._of(stored.relative_path), self._selected(item)
            ranges = _straight(start, selected, target, dtype)
            if ranges is not None and all([taken.is_free(place) for _, _, place in ranges]):
                into.setdefault(url, []).extend(ranges)
            else:
                copied.append((selected.bytes, partial(self._part, target, selected, dtype, url, start)))
        for index, wanted in foreign.items():
            copied.append((2 * self._metadata.storage_data[index].length, partial(self._foreign, index, wanted)))
        to_the_end(lambda each: self._fill(*each), into.items(), at_a_time=_AT_ONCE)
        for parts in in_order(copied, self.client.memory_limit):
            for target, part in parts:
                # By the caller's thread: what it has said of gradients and streams holds here.
                target.copy_(part)
        for item, tensor in targets:
            planner.commit_tensor(item, tensor)
        return _done(None)

    def _place(self, index: MetadataIndex) -> tuple[str, int, int]:
        """Where something was stored: an object, and from where to where in it."""
        assert self._metadata is not None
        stored = self._metadata.storage_data[index]
        return self._of(stored.relative_path), stored.offset, stored.offset + stored.length

    def _selected(self, item: ReadItem) -> tuple[Selection, torch.dtype]:
        """Which bytes of what was stored are wanted."""
        assert self._metadata is not None
        described = cast(Any, self._metadata.state_dict_metadata[item.storage_index.fqn])
        offset = item.storage_index.offset
        sizes = next((chunk.sizes for chunk in described.chunks if offset is None or chunk.offsets == offset), None)
        if sizes is None:
            cause = f"the metadata does not say how large the part of {item.storage_index.fqn!r} at {tuple(offset or ())} is"
            raise UsageError(kind="usage", doing="load", object=self.url, cause=cause)
        dtype = described.properties.dtype
        wanted = tuple(slice(start, start + length) for start, length in zip(item.storage_offsets, item.lengths))
        return select(tuple(sizes), dtype.itemsize, wanted), dtype

    def _fill(self, url: str, ranges: Sequence[tuple[int, int, memoryview]]) -> None:
        """Reads ranges of an object into memory."""
        wanted = [(start, end) for start, end, _ in ranges]
        filled = self.client.read_ranges(url, wanted, out=[place for _, _, place in ranges])
        for (start, end, _), count in zip(ranges, filled):
            if count != end - start:
                cause = f"the object ends before byte {end}, which the checkpoint's metadata says it has"
                raise UsageError(kind="usage", doing="load", object=url, cause=cause)

    def _part(
        self, target: torch.Tensor, selected: Selection, dtype: torch.dtype, url: str, start: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Reads a part that has to be copied to where its tensor is."""
        part = torch.empty(tuple(target.shape), dtype=dtype)
        out, at, item_bytes = _memory(part), 0, selected.item_bytes
        for piece in selected.pieces():
            size = item_bytes
            for count in piece.counts:
                size *= count
            place, at = out[at : at + size], at + size
            if piece.is_dense(item_bytes):
                self._fill(url, [(start + piece.start, start + piece.end, place)])
            else:
                memory = memoryview(self.client.read(url, start + piece.start, start + piece.end))
                apart = tuple(stride // item_bytes for stride in piece.strides)
                items = torch.frombuffer(memory, dtype=dtype).as_strided(piece.counts, apart)
                torch.frombuffer(place, dtype=dtype).view(piece.counts).copy_(items)
        return [(target, part)]

    def _foreign(self, index: MetadataIndex, wanted: Sequence[tuple[ReadItem, torch.Tensor]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Reads a tensor as PyTorch saves it, and takes the parts of it that are wanted."""
        assert self._metadata is not None
        stored = self._metadata.storage_data[index]
        url = self._of(stored.relative_path)
        if getattr(stored, "transform_descriptors", None):
            cause = f"{index.fqn!r} was transformed when it was saved, and only PyTorch can undo that"
            raise Unsupported(kind="unsupported", doing="load", object=url, cause=cause)
        data = self.client.read(*self._place(index))
        with _readable(url):
            whole = cast(torch.Tensor, torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        parts = []
        for item, target in wanted:
            part = whole
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                part = part.narrow(dimension, start, length)
            parts.append((target, part))
        return parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _reader_again, (type(self), self.url, self._client)


def _reader_again(kind: type[Reader], url: str, client: Client | None) -> Reader:
    return kind(url or None, client=client)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _copied(value: Any) -> Any:
    """The same with tensors on the CPU copied; those on a device are copied to the CPU by whoever stages them."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.device.type == "cpu" else value
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


@contextmanager
def _readable(url: str) -> Iterator[None]:
    """Names the object that cannot be unpickled."""
    try:
        yield
    except FlatoutError:
        raise
    except Exception as error:
        cause = f"it is no part of a whole checkpoint: {type(error).__name__}: {error}"
        raise Corrupt(kind="corrupt", doing="load", object=url, cause=cause) from error


@contextmanager
def _without_crc() -> Iterator[None]:
    """Has torch.save leave out its CRC-32, which torch.load does not look at: the origin verifies a checksum of the whole object."""
    serialization = torch.serialization
    if not hasattr(serialization, "set_crc32_options"):
        yield
        return
    with _SAVING:
        before = serialization.get_crc32_options()
        serialization.set_crc32_options(False)
        try:
            yield
        finally:
            serialization.set_crc32_options(before)


class _Found:
    """A file that is written, and where in it the content of a tensor lies."""

    def __init__(self, file: RemoteWriter, address: int, nbytes: int) -> None:
        self._file, self._address, self._nbytes = file, address, nbytes
        self.at: int | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if view.nbytes == self._nbytes and numpy.frombuffer(view, numpy.uint8).ctypes.data == self._address:
            self.at = self._file.tell()
        return self._file.write(data)

    def flush(self) -> None:
        pass


def _written(file: RemoteWriter, name: str, item: WriteItem, data: torch.Tensor | io.BytesIO) -> WriteResult:
    """Writes what was planned as PyTorch does, and notes where the content of a tensor lies."""
    offset, at = file.tell(), None
    if isinstance(data, io.BytesIO):
        file.write(data.getbuffer())
    else:
        tensor = _compact(data)
        found = _Found(file, tensor.data_ptr(), tensor.nbytes) if _is_plain(tensor) else None
        torch.save(tensor, cast(IO[bytes], found or file))
        at = found and found.at
    stored = _StorageInfo(name, offset, file.tell() - offset)
    if at is not None:
        # PyTorch's readers leave it alone.
        stored.flatout_data = at  # type: ignore[attr-defined]
    return WriteResult(index=item.index, size_in_bytes=stored.length, storage_data=stored)


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, with a storage of its own that holds no more than it."""
    tensor = tensor.detach().cpu()
    if tensor.layout != torch.strided or tensor.is_quantized:
        return tensor
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes alone say what it is."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and tensor.nbytes > 0
        and sys.byteorder == "little"
    )


def _data_of(stored: _StorageInfo) -> int | None:
    """Where in its object the content of a tensor lies; None where that is not known."""
    return getattr(stored, "flatout_data", None) if sys.byteorder == "little" else None


def _check_shape(item: ReadItem, target: torch.Tensor) -> None:
    if tuple(target.shape) != tuple(item.lengths):
        cause = f"{item.dest_index.fqn!r} is {tuple(item.lengths)} in the checkpoint and {tuple(target.shape)} here"
        raise UsageError(kind="usage", doing="load", object=item.storage_index.fqn, cause=cause)


def _memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


def _straight(start: int, selected: Selection, target: torch.Tensor, dtype: torch.dtype) -> list[tuple[int, int, memoryview]] | None:
    """The ranges that fill a tensor without a copy; None where there has to be one."""
    if target.device.type != "cpu" or target.dtype != dtype or target.layout != torch.strided or target.is_quantized:
        return None
    pieces = list(selected.pieces())
    if not target.is_contiguous() or target.is_conj() or target.is_neg() or not all(each.is_dense(selected.item_bytes) for each in pieces):
        return None
    memory, at, ranges = _memory(target) if pieces else memoryview(b""), 0, []
    for piece in pieces:
        size = piece.end - piece.start
        ranges.append((start + piece.start, start + piece.end, memory[at : at + size]))
        at += size
    return ranges
