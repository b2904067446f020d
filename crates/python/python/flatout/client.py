"""The client, and the default client."""

from __future__ import annotations

import os as _os
import threading as _threading
import weakref as _weakref

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from . import _native
from .io import RemoteFile, check_mode

if TYPE_CHECKING:
    from typing import Unpack

    from ._settings import Settings

__all__ = ["Client", "default_client"]

# Closed when the interpreter ends.
_all: _weakref.WeakSet[Client] = _weakref.WeakSet()


class Client(_native.Client):
    """Reads objects of S3, OSS and plain HTTP.

    Keyword arguments are the settings of docs/settings.md with ``_`` for ``-``: ``endpoint_url``, ``region``, ``parallel``,
    ``part_size="16MiB"``. Others come from ``FLATOUT_*``, the config file, and the files of AWS's and Alibaba Cloud's tools.

    Keys come from the environment, profiles, or the machine's role. Or pass ``credentials``: a :class:`flatout.Credentials`, or a
    function that returns one and is called again before it expires. So one process can use several accounts. The function is
    called on a thread of its own, and must not use this client.

    A client is cheap to make, starts nothing before its first use, and may be used from any thread. In a forked child it starts
    threads of the child's own. It pickles as its settings, where a function is pickled by its name and a
    :class:`flatout.Credentials` not at all. ``with Client() as client:`` closes it.
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
        """Opens an object as a :class:`flatout.RemoteFile`. Sends no request where ``size`` is given, as from a listing."""
        check_mode(url, mode)
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
    # The attributes of a subclass come with the state.
    Client.__init__(client)
    return client


_default: Client | None = None
_making = _threading.Lock()


def default_client() -> Client:
    """The client that the functions of this package use. Made at the first use, and anew after it was closed, with the settings of
    the environment and the config file.
    """
    global _default
    with _making:
        if _default is None or _default.closed:
            _default = Client()
        return _default


def _after_fork() -> None:
    # The thread that held it is in the process that forked this one.
    global _making
    _making = _threading.Lock()


_os.register_at_fork(after_in_child=_after_fork)


def _close_all() -> None:
    for client in list(_all):
        client.close()
