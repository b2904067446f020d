"""What nginx answers when a client lists the bucket, or asks where it lies, before it gets anything: an answer that was made before."""

import bisect
import os
import time
from pathlib import Path

from content import BUCKET, Content

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
# As many names as Amazon puts into an answer.
PAGE = 1000
NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def write(folder: Path, content: Content):
    """A listing for each prefix that a case asks about, in files that `nginx_map` finds."""
    folder.mkdir()
    write_folders(folder / "folders", content)
    flat = [key for key in content.sha256 if not key.startswith("tree-")]
    groups: dict[str, list[str]] = {"": flat}
    for key in flat:
        start, slash, _ = key.rpartition("/")
        for prefix in {key, start, start + slash} - {""}:
            groups.setdefault(prefix, []).append(key)
    single = {key for key in flat if "/" in key}
    for prefix, keys in groups.items():
        # Of many small objects each would be a file here that nobody asks for.
        if prefix in single:
            continue
        (folder / f"list-{prefix.replace('/', '_2f')}").write_text(result(prefix, keys, content))
    (folder / "empty").write_text(result("", [], content))
    (folder / "location").write_text(f"{HEAD}<LocationConstraint {NAMESPACE}>us-east-1</LocationConstraint>")


def write_folders(root: Path, content: Content):
    """With a delimiter: for each folder what lies there, in pages as Amazon's, and for each name what begins with it. Clients
    write the slashes of a prefix as they are or escaped: nginx looks for the file by the prefix as it came."""
    folders: dict[str, set[str]] = {"": set()}
    for key in content.sha256:
        start, name = "", key
        while "/" in name:
            first, _, name = name.partition("/")
            folders[start].add(f"{start}{first}/")
            start += f"{first}/"
            folders.setdefault(start, set())
        folders[start].add(key)
    for prefix, found in folders.items():
        names = sorted(found)
        for at in range(0, len(names) or 1, PAGE):
            after = at + PAGE if at + PAGE < len(names) else None
            save(root, prefix, listed(prefix, names[at : at + PAGE], content, after), f"@{at}" if at else "")
        if len(names) > 1:
            save(root, prefix, listed(prefix, names[:1], content, 1), "@one")
        for at, name in enumerate(names):
            whole = name.rstrip("/")
            first = bisect.bisect_left(names, whole, 0, at + 1)
            last = next((end for end in range(at, len(names)) if not names[end].startswith(whole)), len(names))
            save(root, whole, listed(whole, names[first:last], content))


def save(root: Path, prefix: str, text: str, page: str = ""):
    path = root / f"{prefix}{page}.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if "/" in prefix:
        (root / f"{prefix.replace('/', '%2F')}{page}.xml").hardlink_to(path)


def listed(prefix: str, names: list[str], content: Content, after: int | None = None) -> str:
    """`after` is the token of the page that follows."""
    rows = "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in names if name.endswith("/"))
    more = f"<NextContinuationToken>{after}</NextContinuationToken>" if after else ""
    keys = [name for name in names if not name.endswith("/")]
    return result(prefix, keys, content, f"<Delimiter>/</Delimiter>{more}{rows}", truncated=bool(after))


def result(prefix: str, keys: list[str], content: Content, more: str = "", truncated: bool = False) -> str:
    rows = "".join(map(row, keys, ((content.bucket / key).stat() for key in keys)))
    return (
        f"{HEAD}<ListBucketResult {NAMESPACE}><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>"
        f"<KeyCount>{len(keys)}</KeyCount><MaxKeys>100000</MaxKeys><IsTruncated>{str(truncated).lower()}</IsTruncated>{rows}{more}</ListBucketResult>"
    )


def row(key: str, stat: os.stat_result) -> str:
    """With the tag that nginx gives the file: modified and size, as it writes them."""
    modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(int(stat.st_mtime)))
    return (
        f"<Contents><Key>{key}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>&quot;{int(stat.st_mtime):x}-{stat.st_size:x}&quot;</ETag><Size>{stat.st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


def nginx_map() -> str:
    """From the query to a file: nginx gives the argument as it came, with / escaped or plain. Whoever looks whether a folder is
    there asks for one key, and is not to read a thousand; a page that is not there is none."""
    return r"""map $args $listing {
        default "list-";
        "~(^|&)location" "location";
        "~(^|&)prefix=(?<folder>[^&/%]+)(/|%2[Ff])(&|$)" "list-${folder}_2f";
        "~(^|&)prefix=(?<whole>[^&/%]+)(&|$)" "list-$whole";
    }
    map $arg_delimiter $answer {
        default "$listing";
        "~." "folders/$arg_prefix$page.xml";
    }
    map $args $page {
        default "";
        "~(^|&)continuation-token=(?<token>[^&]+)(&|$)" "@$token";
        "~(^|&)max-keys=1(&|$)" "@one";
    }
    map $page $only {
        default "none";
        "@one" "folders/$arg_prefix.xml";
    }
    map "$arg_delimiter$page" $otherwise {
        default "none";
        "~^[^@]+(@one)?$" "empty";
    }"""


def nginx_location(folder: Path) -> str:
    return f"location ~ ^/{BUCKET}/?$ {{ root {folder}; default_type application/xml; try_files /$answer /$only /$otherwise =404; }}"
