"""Reads and writes objects of S3 and OSS at the speed of the network, and reads those of HTTP.

``flatout.readinto("oss://bucket/model.bin", buffer)`` fills any writable buffer, ``flatout.write("oss://bucket/key", buffer)`` sends
one. The functions here are the verbs of
``flatout.Client`` on a default client. The import itself reads nothing, sends nothing and starts nothing.
"""

import atexit as _atexit
import os as _os

from . import _native, safetensors
from ._native import Buffer, Credentials, File, Info, Pages, Progress, ReadMany, __version__
from ._settings import Settings
from ._write_options import WriteOptions
from ._writer import RemoteWriter, TextWriter
from .aio import AsyncClient, AsyncFile, AsyncReadMany, AsyncWriter
from .client import Client, _close_all, default_client
from .errors import (
    AccessDenied,
    AlreadyExists,
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
    copy,
    delete,
    delete_many,
    download,
    download_many,
    exists,
    ls,
    ls_pages,
    move,
    open,
    presign,
    read,
    read_many,
    read_ranges,
    readinto,
    stat,
    upload,
    upload_many,
    write,
)

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "AsyncClient",
    "AsyncFile",
    "AsyncReadMany",
    "AsyncWriter",
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
    "RemoteWriter",
    "Settings",
    "TextWriter",
    "Throttled",
    "Timeout",
    "Unsupported",
    "Untrusted",
    "UsageError",
    "WriteOptions",
    "__version__",
    "buckets",
    "copy",
    "default_client",
    "delete",
    "delete_many",
    "download",
    "download_many",
    "exists",
    "ls",
    "ls_pages",
    "move",
    "open",
    "presign",
    "read",
    "read_many",
    "read_ranges",
    "readinto",
    "safetensors",
    "stat",
    "upload",
    "upload_many",
    "write",
]

_os.register_at_fork(after_in_child=_native._after_fork)
# The last one registered is called first: calls end, then awaits (aio.py), then clients write what they keep for the next run.
_atexit.register(_close_all)
_atexit.register(_native._at_exit)
