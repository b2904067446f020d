"""Reads objects of S3, OSS and HTTP at the speed of the network.

``flatout.readinto("oss://bucket/model.bin", buffer)`` fills any writable buffer. The functions here are the verbs of
``flatout.Client`` on a default client. The import itself reads nothing, sends nothing and starts nothing.
"""

import atexit as _atexit
import os as _os

from . import _native, safetensors
from ._native import Buffer, Credentials, File, Info, Pages, Progress, ReadMany, __version__
from ._settings import Settings
from .aio import AsyncClient, AsyncFile, AsyncReadMany
from .client import Client, _close_all, default_client
from .errors import (
    AccessDenied,
    Cancelled,
    Corrupt,
    FlatoutError,
    InternalError,
    LocalError,
    NetworkError,
    NotFound,
    ObjectChanged,
    Throttled,
    Timeout,
    Unsupported,
    Untrusted,
    UsageError,
)
from .io import RemoteFile
from .verbs import (
    buckets,
    download,
    download_many,
    exists,
    ls,
    ls_pages,
    open,
    presign,
    read,
    read_many,
    read_ranges,
    readinto,
    stat,
)

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "AsyncFile",
    "AsyncReadMany",
    "Buffer",
    "Cancelled",
    "Client",
    "Corrupt",
    "Credentials",
    "File",
    "FlatoutError",
    "Info",
    "InternalError",
    "LocalError",
    "NetworkError",
    "NotFound",
    "ObjectChanged",
    "Pages",
    "Progress",
    "ReadMany",
    "RemoteFile",
    "Settings",
    "Throttled",
    "Timeout",
    "Unsupported",
    "Untrusted",
    "UsageError",
    "__version__",
    "buckets",
    "default_client",
    "download",
    "download_many",
    "exists",
    "ls",
    "ls_pages",
    "open",
    "presign",
    "read",
    "read_many",
    "read_ranges",
    "readinto",
    "safetensors",
    "stat",
]

_os.register_at_fork(after_in_child=_native._after_fork)
# The last one registered is called first: calls end, then awaits (aio.py), then clients write what they keep for the next run.
_atexit.register(_close_all)
_atexit.register(_native._at_exit)
