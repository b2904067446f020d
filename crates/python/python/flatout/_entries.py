"""What fsspec calls entries: dicts that say what is there. Pure."""

import datetime as _datetime
import time as _time

from . import _tree

__all__ = [
    "FileAndFolder",
    "Listing",
    "add_folder",
    "bucket",
    "entries",
    "file",
    "folder",
    "has_folder",
    "headed",
    "is_folder",
    "meet",
    "name_of",
]


#: S3 leaves the storage class out of the answer to a HEAD where it is this one.
_UNTOLD = "STANDARD"


class FileAndFolder(dict):
    """The entry of a file that has the name of a folder, where only one of the two can be told of."""

    def copy(self):
        return FileAndFolder(self)


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
            by_name: dict = {}
            for each in self:
                meet(by_name, each)
            self._by_name = by_name
        return self._by_name.get(name)


def meet(found: dict, entry: dict) -> None:
    """Enters `entry` by its name. Of a file and a folder of one name the file is told of, as that of both."""
    name = entry["name"]
    other = found.setdefault(name, entry)
    if other["type"] != entry["type"]:
        found[name] = FileAndFolder(other if other["type"] == "file" else entry)


def name_of(entry: dict) -> str:
    return entry["name"]


def is_folder(entry: "dict | None") -> bool:
    """Whether that is no file."""
    return entry is not None and entry["type"] == "directory"


def has_folder(entry: dict) -> bool:
    """Whether keys lie below that name."""
    return entry["type"] == "directory" or isinstance(entry, FileAndFolder)


def folder(name: str) -> dict:
    return _no_file(name, "DIRECTORY")


def bucket(name: str) -> dict:
    return _no_file(name, "BUCKET")


def _no_file(name: str, storage_class: str) -> dict:
    return {
        "name": name,
        "size": 0,
        "type": "directory",
        "Key": name,
        "Size": 0,
        "StorageClass": storage_class,
    }


def file(name: str, info) -> dict:
    modified = None
    if info.modified is not None:
        modified = _datetime.datetime.fromtimestamp(info.modified, _datetime.UTC)
    return {
        "name": name,
        "size": info.size,
        "type": "file",
        "Key": name,
        "Size": info.size,
        "ETag": info.etag,
        "LastModified": modified,
        "mtime": info.modified,
        "StorageClass": info.storage_class or (_UNTOLD if info.url.startswith("s3:") else None),
    }


def headed(name: str, info) -> dict:
    """With what only a HEAD tells."""
    told = {"ContentType": info.content_type, "Metadata": info.metadata, "VersionId": info.version_id}
    return file(name, info) | told


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
        meet(found, entry)
