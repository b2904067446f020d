"""Which checkpoints of :mod:`flatout.torch.dcp` are there, and what of them is to go."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable

from ..client import Client, default_client
from ..errors import NotFound, UsageError
from ..hf import is_url

__all__ = ["gc_old", "latest"]

METADATA = ".metadata"
#: What an object of a save is called: its rank, its number there, and the save.
NAME = re.compile(r"__(\d+)_(\d+)-([0-9a-f]{32})\.distcp")
#: In the metadata of the object `.metadata`: which save it is of, and where it was saved to. A copy elsewhere is somebody else's.
SAVE = "flatout-save"


def latest(url: str | os.PathLike[str], *, client: Client | None = None) -> str | None:
    """The checkpoint below a prefix whose save ended last; None where there is none.

    Args:
        url: the prefix that the checkpoints are in, as ``"s3://bucket/run/"``. Those that :class:`Writer` has saved there count.
        client: by default :func:`flatout.default_client`.
    """
    found = _whole(client or default_client(), folder(url))
    return found[-1][0] if found else None


def gc_old(url: str, keep: int, *, unfinished_after: float = 86400, client: Client | None = None) -> list[str]:
    """Removes all checkpoints below a prefix but the newest ones, and what failed saves have left.

    Only what :class:`Writer` has written goes: objects that are named as its are, and ``.metadata`` that names its save.
    ``.metadata`` goes first, so no checkpoint is ever there in part.

    Args:
        url: the prefix that the checkpoints are in, as ``"s3://bucket/run/"``.
        keep: how many stay; those whose ``.metadata`` was written last.
        unfinished_after: objects of saves that no ``.metadata`` names go when they are so many seconds old. A younger save may
            still be running.
        client: by default :func:`flatout.default_client`.

    Returns:
        The URLs of the checkpoints that were removed, the oldest first.
    """
    if keep < 0:
        raise UsageError(kind="usage", doing="gc_old", object=url, cause=f"keep={keep} is less than 0")
    client, below = client or default_client(), folder(url)
    # Before any .metadata is looked at: a save that ends meanwhile has its own by then.
    objects = [(each, save) for each, save, modified in objects_of(client, below) if modified < time.time() - unfinished_after]
    whole = _whole(client, below)
    gone = whole[: max(len(whole) - keep, 0)]
    for checkpoint, save in gone:
        # Another one may have replaced it.
        if save_of(client, checkpoint) == save:
            delete(client, [f"{checkpoint}/{METADATA}"])
            delete(client, [each for each, of, _ in objects_of(client, checkpoint) if of == save])
    of_folder: dict[str, list[tuple[str, str]]] = {}
    for each, save in objects:
        of_folder.setdefault(each.rpartition("/")[0], []).append((each, save))
    for checkpoint, found in of_folder.items():
        named = save_of(client, checkpoint)
        # A .metadata without our note, such as that of a copy, may name any of these objects.
        if named is not None or not client.exists(f"{checkpoint}/{METADATA}"):
            delete(client, [each for each, save in found if save != named])
    return [checkpoint for checkpoint, _ in gone]


def _whole(client: Client, below: str) -> list[tuple[str, str]]:
    """The checkpoints and their saves, the oldest first; of the same second the one whose number is lower."""
    found = []
    for info in client.ls(f"{below}/", recursive=True):
        if not info.is_prefix and info.name == METADATA:
            checkpoint = info.url.removesuffix(f"/{METADATA}")
            save = save_of(client, checkpoint)
            if save is not None:
                numbers = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", checkpoint)]
                found.append((info.modified or 0.0, numbers, checkpoint, save))
    return [(checkpoint, save) for _, _, checkpoint, save in sorted(found, key=lambda each: each[:2])]


def folder(url: str | os.PathLike[str]) -> str:
    """A prefix without the last slash.

    Raises:
        UsageError: it is no URL of a bucket.
    """
    text = os.fspath(url)
    if not is_url(text):
        raise UsageError(kind="usage", doing="checkpoint", object=text, cause="this is no URL of a bucket", hint="s3://bucket/prefix")
    return text.rstrip("/")


def note(save: str, url: str) -> str:
    """What is noted at the `.metadata` of a save to a URL."""
    return f"{save} {hashlib.sha256(url.partition('://')[2].encode()).hexdigest()[:16]}"


def save_of(client: Client, url: str) -> str | None:
    """Which save a checkpoint is of; None where there is none, it is not ours, or it was copied there."""
    try:
        noted = client.stat(f"{url}/{METADATA}").metadata.get(SAVE, "")
    except NotFound:
        return None
    save = noted.partition(" ")[0]
    return save if save and noted == note(save, url) else None


def objects_of(client: Client, url: str) -> list[tuple[str, str, float]]:
    """The objects below a URL that are named as ours, with their save and the time that they were written."""
    found = []
    for info in client.ls(f"{url}/", recursive=True):
        named = NAME.fullmatch(info.name)
        if named is not None and info.modified is not None:
            found.append((info.url, named[3], info.modified))
    return found


def delete(client: Client, urls: Iterable[str]) -> None:
    client.delete_many(list(urls))
