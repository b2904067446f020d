"""The client's verbs as functions: with ``client=None`` they use :func:`flatout.default_client`."""

from .client import default_client

__all__ = [
    "buckets",
    "download",
    "download_many",
    "exists",
    "ls",
    "ls_pages",
    "open",
    "read",
    "read_many",
    "read_ranges",
    "readinto",
    "stat",
]


def read(url, start=None, end=None, *, if_match=None, progress=None, client=None):
    return (client or default_client()).read(url, start, end, if_match=if_match, progress=progress)


def readinto(url, buffer, *, offset=0, length=None, if_match=None, progress=None, client=None):
    return (client or default_client()).readinto(
        url, buffer, offset=offset, length=length, if_match=if_match, progress=progress
    )


def read_ranges(url, ranges, *, if_match=None, max_gap=None, out=None, progress=None, client=None):
    return (client or default_client()).read_ranges(
        url, ranges, if_match=if_match, max_gap=max_gap, out=out, progress=progress
    )


def read_many(
    urls, *, ordered=True, concurrency=None, return_exceptions=False, progress=None, client=None
):
    return (client or default_client()).read_many(
        urls,
        ordered=ordered,
        concurrency=concurrency,
        return_exceptions=return_exceptions,
        progress=progress,
    )


def download(url, path, *, if_match=None, progress=None, client=None):
    return (client or default_client()).download(url, path, if_match=if_match, progress=progress)


def download_many(pairs, *, progress=None, return_exceptions=False, client=None):
    return (client or default_client()).download_many(
        pairs, progress=progress, return_exceptions=return_exceptions
    )


def open(url, mode="rb", *, size=None, etag=None, modified=None, client=None):
    return (client or default_client()).open(url, mode, size=size, etag=etag, modified=modified)


def stat(url, *, client=None):
    return (client or default_client()).stat(url)


def exists(url, *, client=None):
    return (client or default_client()).exists(url)


def ls(url, *, recursive=False, client=None):
    return (client or default_client()).ls(url, recursive=recursive)


def ls_pages(url, *, recursive=False, client=None):
    return (client or default_client()).ls_pages(url, recursive=recursive)


def buckets(scheme="s3", *, client=None):
    return (client or default_client()).buckets(scheme)
