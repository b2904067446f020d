"""Models in OSS for frameworks that read them from a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from ..errors import LocalError, NotFound, ObjectChanged, UsageError
from ._oss_account import client_of
from ._oss_objects import url_of

if TYPE_CHECKING:
    from .._native import Info

__all__ = ["OssModelConnector"]


class OssModelConnector:
    """Models in OSS, by the names and arguments of the package ``ossmodelconnector``.

    Args:
        endpoint: of OSS, as ``"http://oss-cn-hangzhou-internal.aliyuncs.com"``.
        cred_path: a credentials file; without it and ``cred_provider`` keys are found as by every client.
        config_path: a configuration file.
        cred_provider: of oss2's, in place of ``cred_path``.
        region: without it that of the endpoint's name.
    """

    def __init__(
        self, endpoint: str, cred_path: str = "", config_path: str = "", cred_provider: Any = None, region: str = ""
    ) -> None:
        self._client = client_of("prefetch", endpoint, cred_path, config_path, cred_provider, region)

    def open(self, uri: str, binary: bool = True) -> IO[Any]:
        """An object as a file: a :class:`flatout.RemoteFile`, or with ``binary=False`` one of UTF-8 text."""
        return self._client.open(url_of(uri), "rb" if binary else "r")

    def list(self, bucket: str, prefix: str, fast: bool = False) -> list[Info]:
        """The objects whose keys begin with ``prefix``, in their order: each has ``key``, without the bucket, and ``size``.

        ``fast`` is taken and has no effect: every listing asks for many pages at a time.
        """
        return self._client.ls(url_of(f"oss://{bucket}/{prefix}"), recursive=True)

    def prepare_directory(self, uri: str, dir: str, libc_hook: bool = False) -> None:
        """Downloads the objects below ``uri`` into the folder ``dir``, so that every program finds the model there.

        Each file appears when it is whole and verified. One that has the size and the time of its object already is left as it is,
        and so are files that the model does not have. Processes that prepare the same folder download once. After a failure a second
        call fetches only what the first did not.

        ``libc_hook`` is taken and has no effect: the files are there for every program.

        Raises:
            NotFound: there is no object below ``uri``.
            ObjectChanged: the model was replaced meanwhile: call again.
            UsageError: a key is no name of a file.
            LocalError: a file or a folder cannot be written.
        """
        url = url_of(uri).rstrip("/") + "/"
        _make(dir)
        with _locked(dir):
            files = self._files(url)
            stale = [(path, info) for path, info in files.items() if not _is_current(os.path.join(dir, path), info)]
            for folder in {os.path.dirname(path) for path, _ in stale}:
                _make(os.path.join(dir, folder))
            before = {path: _written_ns(os.path.join(dir, path)) for path, _ in stale}
            versions, latest = _versions(files), None
            try:
                self._client.download_many([(info.url, os.path.join(dir, path)) for path, info in stale])
                latest = _versions(self._files(url)) if stale else versions
            finally:
                for path, info in stale:
                    target = os.path.join(dir, path)
                    if latest is None:
                        is_kept = _written_ns(target) not in (None, before[path])
                    else:
                        is_kept = latest.get(path) == versions[path]
                    if is_kept and info.modified is not None:
                        os.utime(target, (info.modified, info.modified))
            if latest != versions:
                cause = "the model was replaced while it was downloaded"
                raise ObjectChanged(doing="download", object=url, cause=cause, hint="call again: what is current is kept")

    def _files(self, url: str) -> dict[str, Info]:
        """The objects below a prefix, by the path below the folder that they go to."""
        files = {}
        for info in self._client.ls(url, recursive=True):
            path = info.url.removeprefix(url)
            # The mark of a folder.
            if not path or path.endswith("/"):
                continue
            if any(part in ("", ".", "..") for part in path.split("/")):
                cause = f"{path!r} is no path below a folder"
                raise UsageError(doing="download", object=info.url, cause=cause, hint="rename the object")
            files[path] = info
        if not files:
            cause = "no object lies below this prefix"
            raise NotFound(doing="download", object=url, cause=cause, hint="`flatout ls` shows what is there")
        return files

    def close(self) -> None:
        """Closes the client. Files that are open can be read no more."""
        self._client.close()


def _make(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        hint = "no file may be where the model has a folder; check the permissions"
        raise LocalError(doing="download", object=folder, cause=f"the folder cannot be made: {error.strerror}", hint=hint) from error


def _is_current(path: str, info: Info) -> bool:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (found.st_size, found.st_mtime) == (info.size, info.modified)


def _written_ns(path: str) -> int | None:
    """When the file was written; None where there is none. A download replaces it by a new one."""
    try:
        return os.stat(path).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None


def _versions(files: dict[str, Info]) -> dict[str, tuple[Any, ...]]:
    return {path: (info.size, info.etag, info.modified) for path, info in files.items()}


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Only one process of this machine at a time."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # NFS cannot lock folders: there each process downloads.
        with contextlib.suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
