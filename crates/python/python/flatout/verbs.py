"""The client's verbs as functions. With ``client=None`` they use :func:`flatout.default_client`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from inspect import cleandoc
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, overload

from .client import Client, default_client
from .io import RemoteFile

if TYPE_CHECKING:
    from typing import Unpack

    from ._write_options import WriteOptions
    from ._writer import RemoteWriter, TextWriter
    from .errors import FlatoutError

    from typing_extensions import Buffer as _Exporter

    from ._native import Buffer, Info, Pages, Progress, ReadMany

__all__ = [
    "buckets",
    "copy",
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
    "stat",
    "upload",
    "upload_many",
    "write",
]

Range = tuple[int | None, int | None]

_R = TypeVar("_R")


def _call(verb: Callable[..., _R], named: dict[str, Any]) -> _R:
    """Calls a verb of ``client``, or of the default one, by the arguments of the function that has the verb's name."""
    client = named.pop("client") or default_client()
    more = named.pop("options", {})
    result: _R = getattr(client, verb.__name__)(**named, **more)
    return result


def read(
    url: str,
    start: int | None = None,
    end: int | None = None,
    *,
    if_match: str | None = None,
    version_id: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> Buffer:
    return _call(Client.read, locals())


def readinto(
    url: str,
    buffer: _Exporter,
    start: int | None = None,
    end: int | None = None,
    *,
    offset: int | None = None,
    length: int | None = None,
    if_match: str | None = None,
    version_id: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> int:
    return _call(Client.readinto, locals())


@overload
def read_ranges(
    url: str,
    ranges: Sequence[Range],
    *,
    if_match: str | None = None,
    version_id: str | None = None,
    max_gap: int | None = None,
    out: None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> list[Buffer]: ...
@overload
def read_ranges(
    url: str,
    ranges: Sequence[Range],
    *,
    if_match: str | None = None,
    version_id: str | None = None,
    max_gap: int | None = None,
    out: Sequence[_Exporter],
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> list[int]: ...
def read_ranges(
    url: str,
    ranges: Sequence[Range],
    *,
    if_match: str | None = None,
    version_id: str | None = None,
    max_gap: int | None = None,
    out: Sequence[_Exporter] | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> list[Any]:
    return _call(Client.read_ranges, locals())


@overload
def read_many(
    urls: Iterable[str | Info | tuple[str, int | None, int | None]],
    *,
    ordered: bool = True,
    concurrency: int | None = None,
    return_exceptions: Literal[False] = False,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> ReadMany[Buffer]: ...
@overload
def read_many(
    urls: Iterable[str | Info | tuple[str, int | None, int | None]],
    *,
    ordered: bool = True,
    concurrency: int | None = None,
    return_exceptions: bool,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> ReadMany[Buffer | FlatoutError]: ...
def read_many(
    urls: Iterable[str | Info | tuple[str, int | None, int | None]],
    *,
    ordered: bool = True,
    concurrency: int | None = None,
    return_exceptions: bool = False,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> ReadMany[Any]:
    return _call(Client.read_many, locals())


def download(
    url: str,
    path: str | os.PathLike[str],
    *,
    if_match: str | None = None,
    version_id: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> int:
    return _call(Client.download, locals())


@overload
def download_many(
    pairs: Sequence[tuple[str, str | os.PathLike[str]]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: Literal[False] = False,
    client: Client | None = None,
) -> list[int]: ...
@overload
def download_many(
    pairs: Sequence[tuple[str, str | os.PathLike[str]]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: bool,
    client: Client | None = None,
) -> list[int | FlatoutError]: ...
def download_many(
    pairs: Sequence[tuple[str, str | os.PathLike[str]]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: bool = False,
    client: Client | None = None,
) -> list[Any]:
    return _call(Client.download_many, locals())


@overload
def open(
    url: str,
    mode: Literal["rb", "br"] = "rb",
    *,
    size: int | None = None,
    etag: str | None = None,
    modified: float | None = None,
    version_id: str | None = None,
    client: Client | None = None,
) -> RemoteFile: ...
@overload
def open(
    url: str,
    mode: Literal["wb", "bw", "ab", "ba", "xb", "bx"],
    *,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> RemoteWriter: ...
@overload
def open(
    url: str,
    mode: Literal["r", "rt", "tr"],
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    size: int | None = None,
    etag: str | None = None,
    modified: float | None = None,
    version_id: str | None = None,
    client: Client | None = None,
) -> io.TextIOWrapper: ...
@overload
def open(
    url: str,
    mode: Literal["w", "wt", "tw", "a", "at", "ta", "x", "xt", "tx"],
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> TextWriter: ...
@overload
def open(url: str, mode: str, *, client: Client | None = None, **options: Any) -> IO[Any]: ...
def open(
    url: str,
    mode: str = "rb",
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    size: int | None = None,
    etag: str | None = None,
    modified: float | None = None,
    version_id: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Any,
) -> Any:
    return _call(Client.open, locals())


def write(
    url: str,
    data: _Exporter,
    *,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> Info:
    return _call(Client.write, locals())


def upload(
    path: str | os.PathLike[str],
    url: str,
    *,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> Info:
    return _call(Client.upload, locals())


@overload
def upload_many(
    pairs: Sequence[tuple[str | os.PathLike[str], str]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: Literal[False] = False,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> list[Info]: ...
@overload
def upload_many(
    pairs: Sequence[tuple[str | os.PathLike[str], str]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: bool,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> list[Info | FlatoutError]: ...
def upload_many(
    pairs: Sequence[tuple[str | os.PathLike[str], str]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: bool = False,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> list[Any]:
    return _call(Client.upload_many, locals())


def delete(
    url: str, *, version_id: str | None = None, if_match: str | None = None, client: Client | None = None
) -> None:
    _call(Client.delete, locals())


@overload
def delete_many(
    urls: Iterable[str | Info], *, return_exceptions: Literal[False] = False, client: Client | None = None
) -> list[None]: ...
@overload
def delete_many(
    urls: Iterable[str | Info], *, return_exceptions: bool, client: Client | None = None
) -> list[FlatoutError | None]: ...
def delete_many(
    urls: Iterable[str | Info], *, return_exceptions: bool = False, client: Client | None = None
) -> Sequence[FlatoutError | None]:
    return _call(Client.delete_many, locals())


def copy(
    source: str,
    target: str,
    *,
    version_id: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> Info:
    return _call(Client.copy, locals())


def move(
    source: str,
    target: str,
    *,
    progress: Progress | bool | None = None,
    client: Client | None = None,
    **options: Unpack[WriteOptions],
) -> Info:
    return _call(Client.move, locals())


def stat(url: str, *, version_id: str | None = None, client: Client | None = None) -> Info:
    return _call(Client.stat, locals())


def exists(url: str, *, version_id: str | None = None, client: Client | None = None) -> bool:
    return _call(Client.exists, locals())


def ls(url: str, *, recursive: bool = False, client: Client | None = None) -> list[Info]:
    return _call(Client.ls, locals())


def ls_pages(url: str, *, recursive: bool = False, client: Client | None = None) -> Pages:
    return _call(Client.ls_pages, locals())


def buckets(scheme: str = "s3", *, client: Client | None = None) -> list[str]:
    return _call(Client.buckets, locals())


def presign(
    url: str,
    *,
    expires: int | timedelta = 3600,
    version_id: str | None = None,
    client: Client | None = None,
) -> str:
    return _call(Client.presign, locals())


_CLIENT = "    client: whose settings count; without it :func:`flatout.default_client`."


def _documented(doc: str) -> str:
    """The text of the client's method, with the argument ``client``."""
    head, *sections = doc.split("\n\n")
    at = next((at for at, text in enumerate(sections) if text.startswith("Args:")), None)
    if at is not None:
        sections[at] += f"\n{_CLIENT}"
    else:
        at = next((at for at, text in enumerate(sections) if text.startswith(("Raises:", "Returns:"))), len(sections))
        sections.insert(at, f"Args:\n{_CLIENT}")
    return "\n\n".join([head, *sections])


for _verb in (
    read, readinto, read_ranges, read_many, download, download_many, open, stat, exists, ls, ls_pages, buckets, presign,
    write, upload, upload_many, delete, delete_many, copy, move,
):  # fmt: skip
    _verb.__doc__ = _documented(cleandoc(getattr(Client, _verb.__name__).__doc__ or ""))
del _verb
