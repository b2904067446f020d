"""Objects of S3, OSS and HTTP at the speed of the network, where Python wants them.

>>> import flatout                                                          # doctest: +SKIP
>>> flatout.readinto("oss://bucket/model.bin", buffer)                      # doctest: +SKIP
"""

import atexit as _atexit
import os as _os

from . import _native
from ._native import Buffer, File, Info, Progress, __version__
from .aio import AsyncClient
from .client import Client, default_client
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
    read,
    read_many,
    read_ranges,
    readinto,
    stat,
)

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "Buffer",
    "Cancelled",
    "Client",
    "Corrupt",
    "File",
    "FlatoutError",
    "Info",
    "InternalError",
    "LocalError",
    "NetworkError",
    "NotFound",
    "ObjectChanged",
    "Progress",
    "RemoteFile",
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
    "read",
    "read_many",
    "read_ranges",
    "readinto",
    "stat",
]

_os.register_at_fork(after_in_child=_native._after_fork)
_atexit.register(_native._at_exit)
