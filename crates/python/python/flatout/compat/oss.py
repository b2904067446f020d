"""Packages of Alibaba Cloud's for OSS, by their names and arguments, over Flatout's engine.

    # from osstorchconnector import OssCheckpoint, OssIterableDataset, OssMapDataset, OssSafetensor, OssDCPFileSystem
    from flatout.compat.oss import OssCheckpoint, OssIterableDataset, OssMapDataset, OssSafetensor, OssDCPFileSystem
    # from ossmodelconnector import OssModelConnector
    from flatout.compat.oss import OssModelConnector

docs/from-osstorchconnector.md says what differs. The datasets and ``OssDCPFileSystem`` need PyTorch, which is imported with them.

The functions are those of the guide to 100 Gbit/s with OSS, a recipe for loading models:

    from flatout.compat.oss import list_remote_models, read_remote_model, get_remote_model_mmtime

The recipe has threads that seek and write in one ``BytesIO`` without a lock, parts that may be of different versions of the
object, and a progress that each thread counts for itself. Here every byte has its place from the start, all are of one version,
and progress is that of the whole. ``OSS_BUCKET_NAME`` names the bucket and ``OSS_BUCKET_ENDPOINT`` the endpoint, as there; keys
come from ``OSS_ACCESS_KEY_ID`` and ``OSS_ACCESS_KEY_SECRET``, or from wherever else Flatout finds them. A model may be named
whole, too: ``oss://bucket/key``.
"""

from __future__ import annotations

import os as _os
from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from io import BytesIO as _BytesIO
from typing import TYPE_CHECKING, Any

from .. import safetensors as _safetensors
from .._telling import Telling
from ..client import Client, default_client
from ..errors import ObjectChanged, UsageError
from ._oss_account import client_of as _client_of
from ._oss_model import OssModelConnector
from ._oss_objects import DataObject, imagenet_manifest_parser
from ._oss_objects import url_of as _url_of

if TYPE_CHECKING:
    from .._writer import RemoteWriter
    from ..io import RemoteFile
    from ._oss_torch import OssDCPFileSystem as OssDCPFileSystem
    from ._oss_torch import OssIterableDataset as OssIterableDataset
    from ._oss_torch import OssMapDataset as OssMapDataset

# Those that need PyTorch are no names of `import *`.
__all__ = [
    "DataObject",
    "OssCheckpoint",
    "OssModel",
    "OssModelConnector",
    "OssSafetensor",
    "get_remote_model_mmtime",
    "imagenet_manifest_parser",
    "list_remote_models",
    "read_remote_model",
]

_OF_TORCH = {"OssDCPFileSystem", "OssIterableDataset", "OssMapDataset"}


def __getattr__(name: str) -> Any:
    if name in _OF_TORCH:
        from . import _oss_torch

        return getattr(_oss_torch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


#: The short name of :class:`OssModelConnector`.
OssModel = OssModelConnector


class OssCheckpoint:
    """Checkpoints in OSS as files, for ``torch.save`` and ``torch.load``.

    Args:
        endpoint: of OSS, as ``"http://oss-cn-hangzhou-internal.aliyuncs.com"``.
        cred_path: a credentials file; without it and ``cred_provider`` keys are found as by every client.
        config_path: a configuration file.
        cred_provider: of oss2's, in place of ``cred_path``.
        region: without it that of the endpoint's name.

    Raises:
        UsageError: an argument or the configuration file is invalid.
        AccessDenied: the credentials file cannot be used.
    """

    def __init__(
        self, endpoint: str, cred_path: str = "", config_path: str = "", cred_provider: Any = None, region: str = ""
    ) -> None:
        self._client = _client_of("checkpointConfig", endpoint, cred_path, config_path, cred_provider, region)

    def reader(self, oss_uri: str) -> RemoteFile:
        """A checkpoint as a file, in one version."""
        return self._client.open(_url_of(oss_uri))

    def writer(self, oss_uri: str) -> RemoteWriter:
        """A new checkpoint as a file. It is there when its ``with`` block has ended well."""
        return self._client.open(_url_of(oss_uri), "wb")


class OssSafetensor:
    """Files of safetensors in OSS as tensors of PyTorch. The arguments and exceptions are those of :class:`OssCheckpoint`."""

    def __init__(
        self, endpoint: str, cred_path: str = "", config_path: str = "", cred_provider: Any = None, region: str = ""
    ) -> None:
        self._client = _client_of("checkpointConfig", endpoint, cred_path, config_path, cred_provider, region)

    def safe_open(self, oss_uri: str, device: str | int = "cpu") -> _safetensors.safe_open:
        """Opens a file, to read single tensors; see :class:`flatout.safetensors.safe_open`."""
        return _safetensors.safe_open(_url_of(oss_uri), "pt", device, client=self._client)

    def load_file(self, oss_uri: str, device: str | int = "cpu") -> dict[str, Any]:
        """Reads every tensor of a file, by name; see :func:`flatout.safetensors.load_file`."""
        return _safetensors.load_file(_url_of(oss_uri), device, framework="pt", client=self._client)

    def save_file(self, tensors: _Mapping[str, Any], oss_uri: str, metadata: _Mapping[str, str] | None = None) -> None:
        """Writes tensors to a file; see :func:`flatout.safetensors.save_file`."""
        _safetensors.save_file(tensors, _url_of(oss_uri), metadata, client=self._client)


def read_remote_model(
    checkpoint_file: str,
    start: int = 0,
    size: int = -1,
    read_chunk_size: int = 2 * 1024 * 1024,
    part_size: int = 256 * 1024 * 1024,
    progress_callback: _Callable[[int, int], object] | None = None,
) -> _BytesIO:
    """The bytes of a model object from ``start`` on, ``size`` of them or, with -1, all that follow, as a ``BytesIO`` at
    its beginning.

    ``read_chunk_size`` and ``part_size`` are taken and have no effect: the engine cuts the object by how fast the
    connections turn out to be. ``progress_callback(downloaded, total)`` is called about ten times a second from another
    thread, with bytes of the whole, and once more from the caller's at the end; what it raises is raised here, when the
    read has ended.

    Raises:
        FileNotFoundError: no such object.
        UsageError: ``start`` lies behind the object's end, or a count is negative.
        ObjectChanged: the object was replaced meanwhile.
    """
    url, client = _locate(checkpoint_file)
    if start < 0 or size < -1:
        raise UsageError(
            kind="usage", doing="read", object=url, cause="start and size count bytes, from 0 on", hint="size=-1 is all"
        )
    told = client.stat(url)
    if start > told.size:
        raise UsageError(
            kind="usage", doing="read", object=url, cause=f"start {start} lies behind the end, {told.size}"
        )
    total = told.size - start if size == -1 else min(size, told.size - start)
    # What it begins with and nobody else has becomes its memory: zeros that were never touched.
    loaded = _BytesIO(bytes(total))
    if total:
        with loaded.getbuffer() as memory, Telling(progress_callback) as progress:
            count = client.readinto(url, memory, offset=start, length=total, if_match=told.etag, progress=progress)
        if count != total:
            # Without an ETag nothing else tells.
            raise ObjectChanged(
                kind="changed",
                doing="read",
                object=url,
                cause=f"{count} bytes are left of {total}",
                hint="it was replaced meanwhile: start over",
            )
    elif progress_callback is not None:
        progress_callback(0, 0)
    return loaded


def list_remote_models(ext_filter: tuple[str, ...] = (".ckpt",)) -> list[str]:
    """The keys at the top of the bucket whose extension, in lower case, is one of ``ext_filter``."""
    url, client = _locate("")
    keys = (info.key for info in client.ls(url) if not info.is_prefix)
    return [key for key in keys if _os.path.splitext(key)[1].lower() in ext_filter]


def get_remote_model_mmtime(model_name: str) -> int:
    """When the model object was written, in whole seconds since 1970."""
    url, client = _locate(model_name)
    return int(client.stat(url).modified)


_clients: dict = {}


def _locate(name):
    """The URL of an object, and the client that asks the recipe's endpoint for it."""
    endpoint = _os.environ.get("OSS_BUCKET_ENDPOINT")
    client = default_client() if not endpoint else _clients.get(endpoint)
    if client is None or getattr(client, "closed", False):
        client = _clients[endpoint] = Client(oss_endpoint=endpoint)
    if "://" in name:
        return name, client
    bucket = _os.environ.get("OSS_BUCKET_NAME")
    if not bucket:
        raise UsageError(
            kind="usage",
            doing="read",
            object=name,
            cause="no bucket: OSS_BUCKET_NAME is not set",
            hint="set it, or name the object whole: oss://BUCKET/KEY",
        )
    return f"oss://{bucket}/{name}", client
