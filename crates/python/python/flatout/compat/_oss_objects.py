"""Objects as OSS Connector for AI/ML names and shows them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NoReturn

from ..errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer as _Exporter

__all__ = ["DataObject", "imagenet_manifest_parser", "url_of"]


def url_of(uri: str) -> str:
    """The URL of what is named ``oss://BUCKET/KEY`` or ``/BUCKET/KEY``."""
    rest = uri.removeprefix("oss:/")
    if not rest.startswith("/") or not rest[1:].partition("/")[0]:
        raise UsageError(doing="oss", object=uri, cause="this names no bucket of OSS", hint="write oss://BUCKET/KEY or /BUCKET/KEY")
    return f"oss:/{rest}"


class DataObject(io.BytesIO):
    """An object of a dataset, as its transform gets it: its bytes, in memory, as a file that is read.

    Attributes:
        key: ``/BUCKET/KEY`` of an object that was listed, and the URI of one that was named.
        size: in bytes.
        label: what the manifest says, or ``""``.
    """

    def __init__(self, key: str, data: _Exporter, label: Any = "") -> None:
        content = bytes(data)
        # It shares `content` as long as nobody writes.
        super().__init__(content)
        self.key, self.size, self.label = key, len(content), label

    def copy(self) -> DataObject:
        """Another one, at its start. The bytes are not copied."""
        return DataObject(self.key, self.getvalue(), self.label)

    def writable(self) -> bool:
        return False

    def write(self, data: _Exporter, /) -> NoReturn:
        """Raises io.UnsupportedOperation: the object is for reading."""
        raise io.UnsupportedOperation("not writable: this is an object of a dataset")

    def writelines(self, lines: Iterable[_Exporter], /) -> NoReturn:
        """Raises io.UnsupportedOperation, like :meth:`write`."""
        self.write(b"")

    def truncate(self, size: int | None = None, /) -> NoReturn:
        """Raises io.UnsupportedOperation, like :meth:`write`."""
        self.write(b"")

    def __repr__(self) -> str:
        return f"DataObject({self.key!r}, {self.size} bytes)"


def imagenet_manifest_parser(reader: IO[bytes]) -> Iterator[tuple[str, str]]:
    """The names of a manifest and, behind a tab, their labels; ``""`` where there is none. A parser for ``from_manifest_file``."""
    for line in reader.read().decode().splitlines():
        name, _, rest = line.strip().partition("\t")
        if name:
            yield name, rest.partition("\t")[0]
