"""The client's verbs as functions: with ``client=None`` they use :func:`flatout.default_client`."""

from .client import default_client

__all__ = ["buckets", "exists", "ls", "ls_pages", "read", "readinto", "stat"]


def read(url, start=None, end=None, *, if_match=None, progress=None, client=None):
    return (client or default_client()).read(url, start, end, if_match=if_match, progress=progress)


def readinto(url, buffer, *, offset=0, length=None, if_match=None, progress=None, client=None):
    return (client or default_client()).readinto(
        url, buffer, offset=offset, length=length, if_match=if_match, progress=progress
    )


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
