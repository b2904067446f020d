"""The classes of osstorchconnector that need PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Self

import torch.utils.data

from .._log import logger
from ..errors import FlatoutError, NotFound, UsageError
from ..torch._keys import KeyTable, below
from ._oss_account import client_of
from ._oss_objects import DataObject, url_of

if TYPE_CHECKING:
    from .._native import Buffer
    from ..client import Client
    from ..torch.dcp import Reader, Writer

__all__ = ["OssDCPFileSystem", "OssIterableDataset", "OssMapDataset"]

#: Arguments of PyTorch's writer that say how it writes.
_WITHOUT_EFFECT = {"cache_staged_state_dict", "per_thread_copy_ahead", "thread_count"}


class _Objects:
    """Which objects, and what is made of them."""

    def __init__(
        self, client: Client, keys: KeyTable, labels: Sequence[Any] | None, transform: Callable[[Any], Any] | None
    ) -> None:
        self._client, self._keys, self._labels, self._transform = client, keys, labels, transform

    @classmethod
    def from_prefix(
        cls,
        oss_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[Any], Any] | None = None,
        region: str = "",
    ) -> Self:
        """The objects below a prefix, in the order of their keys. They are listed once, here.

        Args:
            oss_uri: the prefix, ``oss://BUCKET/PREFIX`` or ``/BUCKET/PREFIX``.
            endpoint: of OSS, as ``"http://oss-cn-hangzhou-internal.aliyuncs.com"``.
            cred_path: a credentials file; without it and ``cred_provider`` keys are found as by every client.
            cred_provider: of oss2's, in place of ``cred_path``.
            config_path: a configuration file.
            transform: makes of a :class:`DataObject` what the loader is to get; without it the objects are what they are.
            region: without it that of the endpoint's name.

        Raises:
            UsageError: no object lies below the prefix, or an argument is invalid.
        """
        url = url_of(oss_uri)
        client = client_of("datasetConfig", endpoint, cred_path, config_path, cred_provider, region)
        keys = KeyTable.of(below(client, url), url.removeprefix("oss:/"))
        return cls._of(client, keys, None, transform, oss_uri, "no object lies below this prefix")

    @classmethod
    def from_objects(
        cls,
        object_uris: str | Iterable[str],
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[Any], Any] | None = None,
        region: str = "",
    ) -> Self:
        """These objects, in this order. The other arguments are those of :meth:`from_prefix`."""
        uris = [object_uris] if isinstance(object_uris, str) else object_uris
        client = client_of("datasetConfig", endpoint, cred_path, config_path, cred_provider, region)
        return cls._of(client, _table(uris), None, transform, "", "object_uris names no object")

    @classmethod
    def from_manifest_file(
        cls,
        manifest_file_path: str,
        manifest_parser: Callable[[IO[bytes]], Iterable[tuple[str, str]]],
        oss_base_uri: str,
        endpoint: str,
        *,
        cred_path: str = "",
        cred_provider: Any = None,
        config_path: str = "",
        transform: Callable[[Any], Any] | None = None,
        region: str = "",
    ) -> Self:
        """The objects that a manifest names.

        Args:
            manifest_file_path: a local file, or an object, ``oss://BUCKET/KEY``.
            manifest_parser: makes pairs of a name and a label of the manifest, a file of bytes; such as
                :func:`imagenet_manifest_parser`.
            oss_base_uri: what comes before each name.

        The other arguments are those of :meth:`from_prefix`.
        """
        client = client_of("datasetConfig", endpoint, cred_path, config_path, cred_provider, region)
        labels: list[Any] = []
        with _manifest(client, manifest_file_path) as file:
            names = _names(manifest_parser(file), labels, manifest_file_path)
            keys = _table(oss_base_uri + name for name in names)
        return cls._of(client, keys, labels, transform, manifest_file_path, "the manifest names no object")

    @classmethod
    def _of(
        cls,
        client: Client,
        keys: KeyTable,
        labels: Sequence[Any] | None,
        transform: Callable[[Any], Any] | None,
        of: str,
        cause: str,
    ) -> Self:
        if not len(keys):
            raise UsageError(doing="dataset", object=of, cause=cause)
        return cls(client, keys, labels, transform)

    def __len__(self) -> int:
        return len(self._keys)

    def _url(self, index: int) -> str:
        return url_of(self._keys.url(index))

    def _item(self, index: int, data: Buffer) -> Any:
        label = "" if self._labels is None else self._labels[index]
        return self._made(DataObject(self._keys.url(index), data, label))

    def _made(self, found: DataObject | None) -> Any:
        return found if self._transform is None else self._transform(found)


class OssMapDataset(_Objects, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Objects as samples by number, for any sampler of ``DataLoader``. A batch is read by one call of the engine.

    Made by :meth:`from_prefix`, :meth:`from_objects` or :meth:`from_manifest_file`. Of an object that is gone the transform gets
    None, and the log a warning.
    """

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        try:
            data = self._client.read(self._url(index))
        except NotFound as error:
            return self._gone(error)
        return self._item(index, data)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch."""
        asked = [range(len(self))[index] for index in indices]
        batch = []
        for place, found in self._client.read_many([self._url(index) for index in asked], return_exceptions=True):
            if isinstance(found, NotFound):
                batch.append(self._gone(found))
            elif isinstance(found, FlatoutError):
                raise found
            else:
                batch.append(self._item(asked[place], found))
        return batch

    def _gone(self, error: NotFound) -> Any:
        logger.warning("dataset: %s", error)
        return self._made(None)


class OssIterableDataset(_Objects, torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """Objects as a stream of samples, in their order, each in one worker of ``DataLoader``, and read ahead.

    Made by :meth:`from_prefix`, :meth:`from_objects` or :meth:`from_manifest_file`. Each rank reads all objects.
    """

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        mine = range(len(self)) if worker is None else range(worker.id, len(self), worker.num_workers)
        for place, data in self._client.read_many(self._url(index) for index in mine):
            yield self._item(mine[place], data)


class OssDCPFileSystem:
    """Storage of ``torch.distributed.checkpoint`` in OSS.

    ``dcp.save(state, storage_writer=fs.writer("oss://bucket/run/step-100"))`` saves, and ``fs.reader`` loads.

    Args:
        endpoint: of OSS, as ``"http://oss-cn-hangzhou-internal.aliyuncs.com"``.
        cred_path: a credentials file; without it and ``cred_provider`` keys are found as by every client.
        config_path: a configuration file.
        cred_provider: of oss2's, in place of ``cred_path``.
        region: without it that of the endpoint's name.
    """

    def __init__(
        self, endpoint: str, cred_path: str = "", config_path: str = "", cred_provider: Any = None, region: str = ""
    ) -> None:
        self._client = client_of("checkpointConfig", endpoint, cred_path, config_path, cred_provider, region)

    def writer(self, path: str, **options: Any) -> Writer:
        """A :class:`flatout.torch.dcp.Writer` of a checkpoint.

        ``single_file_per_rank`` and ``overwrite`` are taken; ``thread_count``, ``per_thread_copy_ahead`` and
        ``cache_staged_state_dict`` have no effect.
        """
        from ..torch import dcp

        taken = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
        return dcp.Writer(url_of(path), client=self._client, **taken)

    def reader(self, path: str) -> Reader:
        """A :class:`flatout.torch.dcp.Reader` of a checkpoint, also of one that osstorchconnector has written."""
        from ..torch import dcp

        return dcp.Reader(url_of(path), client=self._client)


def _table(uris: Iterable[str]) -> KeyTable:
    def named() -> Iterator[tuple[str, None]]:
        for uri in uris:
            # What names nothing is refused now, and not in a worker.
            url_of(uri)
            yield uri, None

    return KeyTable.of(named())


def _manifest(client: Client, path: str) -> IO[bytes]:
    if path.startswith("oss://"):
        return DataObject(path, client.read(path))
    try:
        return open(path, "rb")
    except OSError as error:
        cause = f"the manifest cannot be read: {error.strerror}"
        raise UsageError(doing="dataset", object=path, cause=cause, hint="it is a local file, or oss://BUCKET/KEY") from error


def _names(parsed: Iterable[Any], labels: list[Any], of: str) -> Iterator[str]:
    """The names of a manifest; their labels go to ``labels``."""
    for pair in parsed:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            cause = f"manifest_parser made {pair!r}, not a name and a label"
            raise UsageError(doing="dataset", object=of, cause=cause)
        labels.append(pair[1])
        yield pair[0]
