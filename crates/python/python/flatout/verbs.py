"""The client's verbs as functions: with ``client=None`` they use :func:`flatout.default_client`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .client import Client, default_client
from .io import RemoteFile

if TYPE_CHECKING:
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
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> Buffer:
    return (client or default_client()).read(url, start, end, if_match=if_match, progress=progress)


def readinto(
    url: str,
    buffer: _Exporter,
    *,
    offset: int = 0,
    length: int | None = None,
    if_match: str | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> int:
    return (client or default_client()).readinto(
        url, buffer, offset=offset, length=length, if_match=if_match, progress=progress
    )


def read_ranges(
    url: str,
    ranges: Sequence[Range],
    *,
    if_match: str | None = None,
    max_gap: int | None = None,
    out: Sequence[_Exporter] | None = None,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> Any:
    return (client or default_client()).read_ranges(
        url, ranges, if_match=if_match, max_gap=max_gap, out=out, progress=progress
    )


def read_many(
    urls: Iterable[str | Info | tuple[str, int | None, int | None]],
    *,
    ordered: bool = True,
    concurrency: int | None = None,
    return_exceptions: bool = False,
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> ReadMany:
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
    progress: Progress | bool | None = None,
    client: Client | None = None,
) -> int:
    return (client or default_client()).download(url, path, if_match=if_match, progress=progress)


def download_many(
    pairs: Sequence[tuple[str, str | os.PathLike[str]]],
    *,
    progress: Progress | bool | None = None,
    return_exceptions: bool = False,
    client: Client | None = None,
) -> list[Any]:
    return (client or default_client()).download_many(
        pairs, progress=progress, return_exceptions=return_exceptions
    )


def open(
    url: str,
    mode: Literal["rb"] = "rb",
    *,
    size: int | None = None,
    etag: str | None = None,
    modified: float | None = None,
    client: Client | None = None,
) -> RemoteFile:
    return (client or default_client()).open(url, mode, size=size, etag=etag, modified=modified)


def stat(url: str, *, client: Client | None = None) -> Info:
    return (client or default_client()).stat(url)


def exists(url: str, *, client: Client | None = None) -> bool:
    return (client or default_client()).exists(url)


def ls(url: str, *, recursive: bool = False, client: Client | None = None) -> list[Info]:
    return (client or default_client()).ls(url, recursive=recursive)


def ls_pages(url: str, *, recursive: bool = False, client: Client | None = None) -> Pages:
    return (client or default_client()).ls_pages(url, recursive=recursive)


def buckets(scheme: str = "s3", *, client: Client | None = None) -> list[str]:
    return (client or default_client()).buckets(scheme)


def presign(url: str, *, expires: int = 3600, client: Client | None = None) -> str:
    return (client or default_client()).presign(url, expires=expires)


for _verb in (read, readinto, read_ranges, read_many, download, download_many, open, stat, exists, ls, ls_pages, buckets, presign):
    _verb.__doc__ = f"As :meth:`flatout.Client.{_verb.__name__}`."
del _verb
