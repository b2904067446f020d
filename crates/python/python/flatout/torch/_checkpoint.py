"""Checkpoints that are written and read as files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..client import Client, default_client
from ..errors import UsageError
from ..hf import is_url

if TYPE_CHECKING:
    from typing import Unpack

    from .._write_options import WriteOptions
    from .._writer import RemoteWriter
    from ..io import RemoteFile

__all__ = ["Checkpoint"]


class Checkpoint:
    """Checkpoints below a prefix, for ``torch.save`` and ``torch.load``.

    ``with Checkpoint("s3://bucket/run").writer("step-100.pt") as file: torch.save(state, file)``: the checkpoint is sent while it is
    written, and there when the block has ended well. One that a failed or killed save has begun is not seen by anybody.

    Args:
        url: the prefix; without it names are URLs.
        client: by default :func:`flatout.default_client`.
    """

    def __init__(self, url: str = "", *, client: Client | None = None) -> None:
        if url and not is_url(url):
            hint = "write s3://bucket/prefix, or oss://bucket/prefix"
            raise UsageError(kind="usage", doing="checkpoint", object=url, cause="this is no URL of a bucket", hint=hint)
        self._folder = url if not url or url.endswith("/") else f"{url}/"
        self._client = client

    @property
    def client(self) -> Client:
        """The client that reads and writes."""
        return self._client or default_client()

    def writer(self, name: str, **options: Unpack[WriteOptions]) -> RemoteWriter:
        """A new checkpoint as a file; ``options`` are those of :func:`flatout.write`."""
        return self.client.open(self._of(name), "wb", **options)

    def reader(self, name: str) -> RemoteFile:
        """A checkpoint as a file, in one version."""
        return self.client.open(self._of(name))

    def _of(self, name: str) -> str:
        if is_url(name) and not self._folder:
            return name
        if not name or is_url(name) or not self._folder or {"", ".", ".."} & set(name.split("/")):
            cause = f"{name!r} is no name below it" if self._folder else f"{name!r} is no URL of a bucket"
            hint = 'give the checkpoint a name, as "step-100.pt", or leave out the prefix and give URLs'
            raise UsageError(kind="usage", doing="checkpoint", object=self._folder or name, cause=cause, hint=hint)
        return self._folder + name

    def save(self, state: Any, name: str, **options: Unpack[WriteOptions]) -> None:
        """``torch.save`` to a new checkpoint."""
        import torch

        with self.writer(name, **options) as file:
            torch.save(state, file)

    def load(self, name: str, **named: Any) -> Any:
        """``torch.load`` of a checkpoint, with its arguments."""
        import torch

        with self.reader(name) as file:
            return torch.load(file, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._folder, self._client)


def _again(folder: str, client: Client | None) -> Checkpoint:
    return Checkpoint(folder, client=client)
