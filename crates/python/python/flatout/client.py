"""The client, and the one that is used where none is named."""

from __future__ import annotations

import os as _os
import threading as _threading
import weakref as _weakref

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from . import _native
from .errors import Unsupported
from .io import RemoteFile

if TYPE_CHECKING:
    from typing import Unpack

    from ._settings import Settings

__all__ = ["Client", "default_client"]

# Closed when the interpreter ends.
_all: _weakref.WeakSet[Client] = _weakref.WeakSet()


class Client(_native.Client):
    """Reads objects of S3, OSS and plain HTTP.

    Keyword arguments are the settings of docs/settings.md with ``_`` for ``-``: ``endpoint_url``, ``region``, ``parallel``,
    ``part_size="16MiB"``. What is not given comes from ``FLATOUT_*``, the config file, and what AWS's and Alibaba's own tools
    left. Keys come from the environment, profiles, or the machine's role, or are given as ``credentials``: a
    :class:`flatout.Credentials`, or a function that returns one and is asked again before it ends. So several accounts live in one
    process. The function is called on a thread of its own, and must not use this client.

    It is cheap to make and starts nothing before its first use. It may be used from any thread. It pickles as its settings, a function
    among them by its name, but not with a :class:`flatout.Credentials`; it serves a forked child with threads of the child's own. ``with Client() as client:`` closes it.
    """

    def __new__(cls, **settings: Unpack[Settings]) -> Self:
        return super().__new__(cls, dict(settings))

    def __init__(self, **settings: Unpack[Settings]) -> None:
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.settings), self.__dict__ or None

    def open(
        self,
        url: str,
        mode: Literal["rb"] = "rb",
        *,
        size: int | None = None,
        etag: str | None = None,
        modified: float | None = None,
        version_id: str | None = None,
    ) -> RemoteFile:
        """The object as a :class:`flatout.RemoteFile`. With ``size`` (and ``etag``) from a listing nothing is asked beforehand."""
        if mode not in ("rb", "br"):
            cause = f"mode {mode!r}: objects are read as bytes, 'rb'"
            raise Unsupported(kind="unsupported", doing="open", object=url, cause=cause)
        file = self.file(url, size=size, etag=etag, modified=modified, version_id=version_id)
        return RemoteFile(file, client=self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def _again(cls: type[Client], settings: Settings) -> Client:
    client = cls.__new__(cls, **settings)
    # Whatever a class of the user's adds comes with its state.
    Client.__init__(client)
    return client


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
