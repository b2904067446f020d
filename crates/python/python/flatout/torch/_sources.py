"""Where samples are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..client import Client, default_client
from ..errors import UsageError
from ._keys import Keys, KeyTable

__all__ = ["Source", "refuse_none"]


class Source:
    """Objects by name. What is made of them is up to the datasets."""

    def __init__(self, keys: Keys, *, labels: Sequence[Any] | None = None, client: Client | None = None) -> None:
        if labels is not None:
            cause, hint = "labels are of objects, and here each object has many samples", "name only the objects in the manifest"
            raise UsageError(kind="usage", doing="dataset", object=keys.base, cause=cause, hint=hint)
        self.keys = keys
        self._client = client

    @classmethod
    def from_prefix(
        cls,
        url: str,
        *,
        include: str | None = None,
        index: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        **named: Any,
    ) -> Any:
        """The objects below a prefix, in the order of their keys.

        Args:
            url: the prefix.
            include: a pattern, as ``"*.jpg"``, that the key behind the prefix has to match.
            index: a local file to keep the listing in. Ranks of a machine that name the same list once: the first lists, the
                others wait for it, and later runs take it as it is, until somebody removes it.
            client: by default :func:`flatout.default_client`.
            named: ``transform``, and what else the class takes.
        """
        keys = KeyTable.listed(client or default_client(), url, include, index)
        pattern = "" if include is None else f" that matches {include!r}"
        refuse_none(keys, url, f"no object lies below this prefix{pattern}", "`flatout.ls` shows what is there")
        return cls(keys, client=client, **named)

    @classmethod
    def from_urls(cls, urls: Iterable[str], *, client: Client | None = None, **named: Any) -> Any:
        """These objects, in this order; ``labels`` may name something for each."""
        if isinstance(urls, str):
            raise UsageError(kind="usage", doing="dataset", object=urls, cause="this is one URL", hint="put it in a list")
        keys = KeyTable.of((url, None) for url in urls)
        refuse_none(keys, "", "no object is named")
        return cls(keys, client=client, **named)

    @classmethod
    def from_manifest(
        cls,
        manifest: str | os.PathLike[str],
        *,
        base: str = "",
        parser: Callable[[str], tuple[str, Any]] | None = None,
        client: Client | None = None,
        **named: Any,
    ) -> Any:
        """The objects that the lines of a file name.

        Args:
            manifest: a local file, or the URL of an object. It is UTF-8. Lines without anything but space name nothing.
            base: what comes before each name, as ``"s3://bucket/images/"``.
            parser: makes a name and a label of a line. Without it the label follows a tab, and is None where there is none.
        """
        name = os.fspath(manifest)
        if "://" in name:
            data = bytes((client or default_client()).read(name))
        else:
            with open(name, "rb") as file:
                data = file.read()
        # Whatever else ends a line to `splitlines` may be in a name, and so may spaces around it.
        lines = (line.removesuffix("\r") for line in data.decode("utf-8-sig").split("\n"))
        parsed = [(parser or _tabbed)(line) for line in lines if line.strip()]
        keys = KeyTable.of(((each, None) for each, _ in parsed), base)
        refuse_none(keys, name, "the manifest names no object")
        labels = [label for _, label in parsed]
        return cls(keys, labels=labels if any(label is not None for label in labels) else None, client=client, **named)

    @property
    def client(self) -> Client:
        """The client that reads."""
        return self._client or default_client()


def refuse_none(keys: Keys, named_by: str, cause: str, hint: str | None = None) -> None:
    """Refuses a dataset without samples."""
    if not len(keys):
        raise UsageError(kind="usage", doing="dataset", object=named_by, cause=cause, hint=hint)


def _tabbed(line: str) -> tuple[str, str | None]:
    name, _, label = line.partition("\t")
    return name, label or None
