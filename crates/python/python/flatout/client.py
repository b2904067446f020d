"""The client, and the one that is used where none is named."""

from __future__ import annotations

import os as _os
import threading as _threading
import weakref as _weakref

from types import TracebackType
from typing import Any, Literal

from . import _native
from .errors import Unsupported
from .io import RemoteFile

__all__ = ["Client", "default_client"]

# Closed when the interpreter ends.
_all: _weakref.WeakSet[Client] = _weakref.WeakSet()


class Client(_native.Client):
    """Reads objects of S3, OSS and plain HTTP.

    Keyword arguments are the settings of docs/settings.md with ``_`` for ``-``: ``endpoint_url``, ``region``, ``parallel``,
    ``part_size="16MiB"``. What is not given comes from ``FLATOUT_*``, the config file, and what AWS's and Alibaba's own tools
    left. Keys are no settings: they come from the environment, profiles, or the machine's role.

    It is cheap to make and starts nothing before its first use. It may be used from any thread. It pickles as its settings, and
    serves a forked child with threads of the child's own. ``with Client() as client:`` closes it.
    """

    def __new__(cls, **settings: Any) -> Client:
        return super().__new__(cls, settings)

    def __init__(self, **settings: Any) -> None:
        _all.add(self)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), self.settings

    def open(
        self,
        url: str,
        mode: Literal["rb"] = "rb",
        *,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
    ) -> RemoteFile:
        """The object as a :class:`flatout.RemoteFile`. With ``size`` (and ``etag``) from a listing nothing is asked beforehand."""
        if mode not in ("rb", "br"):
            cause = f"mode {mode!r}: objects are read as bytes, 'rb'"
            raise Unsupported(kind="unsupported", doing="open", object=url, cause=cause)
        return RemoteFile(self.file(url, size=size, etag=etag, modified=modified), client=self)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


_default: Client | None = None
_making = _threading.Lock()


def default_client() -> Client:
    """The client of the functions of this package: made at the first use, and anew once it was closed, with no settings but those
    found around.
    """
    global _default
    with _making:
        if _default is None or _default.closed:
            _default = Client()
        return _default


def _after_fork() -> None:
    # Whoever held it is in the process that forked this one.
    global _making
    _making = _threading.Lock()


_os.register_at_fork(after_in_child=_after_fork)


def _close_all() -> None:
    for client in list(_all):
        client.close()
