"""The native half: what its classes do, with units, shapes and errors. ``flatout`` shows all of it; import from there."""

import os
from collections.abc import Buffer as _BufferProtocol  # type: ignore[attr-defined, unused-ignore]
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CapsuleType, TracebackType  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Literal, Protocol, SupportsIndex, final, overload, runtime_checkable

from typing_extensions import Self
