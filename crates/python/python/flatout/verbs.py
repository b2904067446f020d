"""The client's verbs as functions: with ``client=None`` they use :func:`flatout.default_client`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Literal, overload

from .client import Client, default_client
from .io import RemoteFile

if TYPE_CHECKING:
    from .errors import FlatoutError

    from typing_extensions import Buffer as _Exporter

    from ._native import Buffer, Info, Pages, Progress, ReadMany

__all__ = [
    "buckets",
    "download",
    "download_many",
    "exists",
    "ls",
    "ls_pages",
    "open",
    "presign",
    "read",
    "read_many",
    "read_ranges",
    "readinto",
    "stat",
]

Range = tuple[int | None, int | None]


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
    return (client or default_client()).read(url, start, end, if_match=if_match, version_id=version_id, progress=progress)


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
    return (client or default_client()).readinto(
        url, buffer, start, end, offset=offset, length=length, if_match=if_match, version_id=version_id, progress=progress
    )


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
    read: Any = (client or default_client()).read_ranges
    ranges_read: list[Any] = read(
        url, ranges, if_match=if_match, version_id=version_id, max_gap=max_gap, out=out, progress=progress
    )
    return ranges_read


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
    return (client or default_client()).read_many(
        urls,
        ordered=ordered,
        concurrency=concurrency,
        return_exceptions=return_exceptions,
        progress=progress,
    )


def download(
    url: str,
    path: str | os.PathLike[str],
    *,
    if_match: str | None = None,
    version_id: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> int:
    return (client or default_client()).download(url, path, if_match=if_match, version_id=version_id, progress=progress)


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
    downloaded: list[Any] = (client or default_client()).download_many(
        pairs, progress=progress, return_exceptions=return_exceptions
    )
    return downloaded


def open(
    url: str,
    mode: Literal["rb"] = "rb",
    *,
    size: int | None = None,
    etag: str | None = None,
    modified: float | None = None,
    version_id: str | None = None,
    client: Client | None = None,
) -> RemoteFile:
    return (client or default_client()).open(
        url, mode, size=size, etag=etag, modified=modified, version_id=version_id
    )


def stat(url: str, *, version_id: str | None = None, client: Client | None = None) -> Info:
    return (client or default_client()).stat(url, version_id=version_id)


def exists(url: str, *, version_id: str | None = None, client: Client | None = None) -> bool:
    return (client or default_client()).exists(url, version_id=version_id)


def ls(url: str, *, recursive: bool = False, client: Client | None = None) -> list[Info]:
    return (client or default_client()).ls(url, recursive=recursive)


def ls_pages(url: str, *, recursive: bool = False, client: Client | None = None) -> Pages:
    return (client or default_client()).ls_pages(url, recursive=recursive)


def buckets(scheme: str = "s3", *, client: Client | None = None) -> list[str]:
    return (client or default_client()).buckets(scheme)


def presign(
    url: str,
    *,
    expires: int | timedelta = 3600,
    version_id: str | None = None,
    client: Client | None = None,
) -> str:
    return (client or default_client()).presign(url, expires=expires, version_id=version_id)


_CLIENT = "    client: whose settings count; without it :func:`flatout.default_client`."


def _documented(doc: str) -> str:
    """The client's text, with the argument that its method does not have."""
    head, *sections = doc.split("\n\n")
    at = next((at for at, text in enumerate(sections) if text.startswith("Args:")), None)
    if at is not None:
        sections[at] += f"\n{_CLIENT}"
    else:
        at = next((at for at, text in enumerate(sections) if text.startswith(("Raises:", "Returns:"))), len(sections))
        sections.insert(at, f"Args:\n{_CLIENT}")
    return "\n\n".join([head, *sections])


for _verb in (read, readinto, read_ranges, read_many, download, download_many, open, stat, exists, ls, ls_pages, buckets, presign):
    _verb.__doc__ = _documented(cleandoc(getattr(Client, _verb.__name__).__doc__ or ""))
del _verb
