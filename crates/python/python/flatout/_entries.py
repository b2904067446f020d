"""What fsspec calls entries: dicts that say what is there. Pure."""

import datetime as _datetime
import time as _time

from . import _tree

__all__ = ["Listing", "add_folder", "entries", "file", "folder", "is_folder", "name_of"]


class Listing(list):
    """The entries of a folder, as `dircache` keeps them, with the time they were told and a way to find one by its
    name."""

    def __init__(self, entries):
        super().__init__(entries)
        self.told_s = _time.monotonic()
        self._by_name: dict | None = None

    def entry(self, name: str) -> "dict | None":
        """The file of that name, or else the folder."""
        if self._by_name is None:
            # A file hides the folder of the same name: the later of two stays.
            self._by_name = {each["name"]: each for each in sorted(self, key=lambda each: each["type"] == "file")}
        return self._by_name.get(name)


def name_of(entry: dict) -> str:
    return entry["name"]


def is_folder(entry: "dict | None") -> bool:
    return entry is not None and entry["type"] == "directory"


def folder(name: str) -> dict:
    return {"name": name, "size": 0, "type": "directory"}


def file(name: str, info) -> dict:
    modified = None
    if info.modified is not None:
        modified = _datetime.datetime.fromtimestamp(info.modified, _datetime.UTC)
    return {
        "name": name,
        "size": info.size,
        "type": "file",
        "ETag": info.etag,
        "LastModified": modified,
        "mtime": info.modified,
        "StorageClass": info.storage_class,
    }


def entries(path: str, infos) -> list:
    """The entries of a folder, from a listing of what begins with `path/`."""
    bucket = path.partition("/")[0]
    mark = f"{path}/"
    found = []
    for info in infos:
        name = f"{bucket}/{info.key}"
        # The mark of the folder itself, and a name that is empty: fsspec's tree has no place for them.
        if name != mark and name != f"{mark}/":
            found.append(folder(name[:-1]) if info.is_prefix else file(name, info))
    return sorted(found, key=name_of)


def add_folder(name: str, folders: dict, found: dict) -> None:
    """Enters a folder, and those between it and the one that `folders` has, into the folder that holds it."""
    if name in folders:
        return
    holder = _tree.parent(name)
    add_folder(holder, folders, found)
    folders[name] = []
    if not name.endswith("/"):
        entry = folder(name)
        folders[holder].append(entry)
        # A file hides the folder of the same name.
        found.setdefault(name, entry)
