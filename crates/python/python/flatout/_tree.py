"""Keys as a tree of files and folders, as fsspec and Arrow have it. Paths are ``bucket/key``, without a ``/`` at either
end."""

from contextlib import aclosing as _aclosing

from .errors import NotFound

__all__ = ["TRUSTED_S", "is_folder", "look_up", "missing", "parent"]

#: For how many seconds what a listing told of an object is taken for true when it is opened: the mount's
#: --attribute-lifetime. Reads carry If-Match, so a version that went meanwhile is an error and never a mixture.
TRUSTED_S = 60.0


def parent(path: str) -> str:
    """The folder that holds it; of a bucket the root, ``""``."""
    return path.rpartition("/")[0]


async def look_up(calls, scheme: str, path: str):
    """The ``Info`` of the object at ``path``, or None where a folder or bucket is there.

    Raises:
        NotFound: neither is there.
    """
    if "/" in path:
        try:
            return await calls.stat(f"{scheme}://{path}")
        except NotFound:
            pass
    if not await is_folder(calls, scheme, path):
        raise missing(scheme, path)
    return None


async def is_folder(calls, scheme: str, path: str) -> bool:
    """Whether keys lie below ``path``, or a bucket is there."""
    try:
        async with _aclosing(calls.ls_pages(f"{scheme}://{path}/")) as pages:
            async for page in pages:
                return bool(page) or "/" not in path
    except NotFound:
        return False
    # A bucket is there without a key, too.
    return "/" not in path


def missing(scheme: str, path: str) -> NotFound:
    """What says that neither an object nor a folder is at ``path``."""
    return NotFound(kind="not_found", object=f"{scheme}://{path}", cause="no such object or folder")
