"""The exceptions of the package. Each is also the matching exception of Python, where there is one.

``str(error)`` says what was being done, to which object, why it failed, and, where there is one, a hint what to do.
"""

from __future__ import annotations

import errno as _errno
from typing import Any

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "Cancelled",
    "Corrupt",
    "FlatoutError",
    "InternalError",
    "LocalError",
    "NetworkError",
    "NotFound",
    "ObjectChanged",
    "Throttled",
    "Timeout",
    "Unsupported",
    "Untrusted",
    "UsageError",
]


class FlatoutError(Exception):
    """The base of all exceptions: ``except flatout.FlatoutError`` catches every failure.

    Attributes:
        kind: ``"not_found"``, ``"denied"``, …, as in the JSON output of the command line.
        doing: what was being done: ``"read"``, ``"stat"``, ``"list"``, ``"settings"``; may be empty.
        object: the object of it, without secrets; may be empty.
        cause: why it failed.
        hint: what to do about it, or None.
    """

    kind: str
    doing: str
    object: str
    cause: str
    hint: str | None
    _errno: int | None = None
    _kind = "internal"

    def __init__(
        self,
        *,
        kind: str | None = None,
        doing: str = "",
        object: str = "",
        cause: str = "",
        hint: str | None = None,
        message: str | None = None,
    ) -> None:
        # PyTorch raises an exception of a worker anew by the text that the worker has made of it.
        cause = cause if message is None else message
        super().__init__(cause)
        self.kind, self.doing, self.object, self.cause, self.hint = kind or self._kind, doing, object, cause, hint
        if isinstance(self, OSError):
            _fill(self, self._errno, cause, object or None)

    @property
    def message(self) -> str:
        """What was being done, to what, and why it failed; without the hint."""
        return ": ".join(part for part in (self.doing, self.object, self.cause) if part)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        told = {name: getattr(self, name) for name in ("kind", "doing", "object", "cause", "hint")}
        return _again, (type(self), told)


def _fill(error: OSError, number: int | None, cause: str, name: str | None) -> None:
    """Sets the attributes of OSError."""
    error.errno, error.strerror, error.filename = number, cause, name


def _again(cls: type[FlatoutError], told: dict[str, Any]) -> FlatoutError:
    return cls(**told)


class NotFound(FlatoutError, FileNotFoundError):
    """No such object or bucket."""

    _kind = "not_found"
    _errno = _errno.ENOENT


class AccessDenied(FlatoutError, PermissionError):
    """The origin refuses access: correct the keys or the policy."""

    _kind = "denied"
    _errno = _errno.EACCES


class Timeout(FlatoutError, TimeoutError):
    """The origin did not answer in time."""

    _kind = "timeout"
    _errno = _errno.ETIMEDOUT


class NetworkError(FlatoutError, ConnectionError):
    """The origin could not be reached, closed the connection, or sent a response that is no HTTP."""

    _kind = "network"
    _errno = _errno.EIO


class Throttled(NetworkError):
    """The origin throttled requests until the retries ran out: try again later."""

    _kind = "throttled"
    _errno = _errno.EAGAIN


class Untrusted(FlatoutError, ConnectionError):
    """The certificate of the origin is not trusted."""

    _kind = "untrusted"
    _errno = _errno.EIO


class ObjectChanged(FlatoutError, OSError):
    """Another version has replaced the object: start over."""

    _kind = "changed"
    _errno = _errno.ESTALE


class AlreadyExists(ObjectChanged, FileExistsError):
    """An object of that name is there, and was to stay: ``overwrite=False``, mode ``"xb"``."""
    _errno = _errno.EEXIST


class Corrupt(FlatoutError, OSError):
    """The bytes do not match the checksum of the origin."""

    _kind = "corrupt"
    _errno = _errno.EIO


class LocalError(FlatoutError, OSError):
    """A local file, disk or memory failed."""

    _kind = "local_io"
    _errno = _errno.EIO


class UsageError(FlatoutError, ValueError):
    """The call is invalid: a URL, a setting, a range, a buffer that is too short."""

    _kind = "usage"


class Unsupported(FlatoutError, NotImplementedError):
    """This version of flatout, or this origin, cannot do it."""

    _kind = "unsupported"


class Cancelled(FlatoutError):
    """The client of the call was closed, or the interpreter ends."""

    _kind = "cancelled"


class InternalError(FlatoutError, RuntimeError):
    """A bug in flatout."""
