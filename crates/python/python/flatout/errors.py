"""What is raised: the engine's kinds of errors, each also one of Python's own exceptions where there is one for it.

``str(error)`` is what was being done, to what, why it failed, and a hint where there is one.
"""

from __future__ import annotations

import errno as _errno
from typing import Any

__all__ = [
    "AccessDenied",
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
    """Anything that went wrong. ``except flatout.FlatoutError`` catches them all.

    Attributes:
        kind: ``"not_found"``, ``"denied"``, …: the names that the command line's JSON has.
        doing: what was being done: ``"read"``, ``"stat"``, ``"list"``, ``"settings"``; empty where that says nothing.
        object: what it was done to, without secrets; empty where there is none.
        cause: why it failed.
        hint: what to do about it, or None.
    """

    kind: str
    doing: str
    object: str
    cause: str
    hint: str | None
    _errno: int | None = None

    def __init__(
        self, *, kind: str = "internal", doing: str = "", object: str = "", cause: str = "", hint: str | None = None
    ) -> None:
        super().__init__(cause)
        self.kind, self.doing, self.object, self.cause, self.hint = kind, doing, object, cause, hint
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
    """What code that knows OSError alone looks at."""
    error.errno, error.strerror, error.filename = number, cause, name


def _again(cls: type[FlatoutError], told: dict[str, Any]) -> FlatoutError:
    return cls(**told)


class NotFound(FlatoutError, FileNotFoundError):
    """No such object or bucket."""

    _errno = _errno.ENOENT


class AccessDenied(FlatoutError, PermissionError):
    """The origin refuses access: mend the keys or the policy."""

    _errno = _errno.EACCES


class Timeout(FlatoutError, TimeoutError):
    """The origin let a deadline pass."""

    _errno = _errno.ETIMEDOUT


class NetworkError(FlatoutError, ConnectionError):
    """The origin could not be reached, broke off, or answered nonsense."""

    _errno = _errno.EIO


class Throttled(NetworkError):
    """The origin kept asking for less until retries ran out: come back later."""

    _errno = _errno.EAGAIN


class Untrusted(FlatoutError, ConnectionError):
    """The origin could not prove by its certificate who it is."""

    _errno = _errno.EIO


class ObjectChanged(FlatoutError, OSError):
    """Another version of the object stands in its place: start over."""

    _errno = _errno.ESTALE


class Corrupt(FlatoutError, OSError):
    """The bytes are not those that the origin states."""

    _errno = _errno.EIO


class LocalError(FlatoutError, OSError):
    """A local file, disk or memory refused."""

    _errno = _errno.EIO


class UsageError(FlatoutError, ValueError):
    """The call makes no sense: a URL, a setting, a range, a buffer that is too short."""


class Unsupported(FlatoutError, NotImplementedError):
    """Something that this version, or this origin, cannot do."""


class Cancelled(FlatoutError):
    """The call was ended from elsewhere: its client was closed, or the interpreter ends."""


class InternalError(FlatoutError, RuntimeError):
    """A defect of flatout."""
