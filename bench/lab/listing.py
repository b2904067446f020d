"""What nginx answers when a client lists the bucket, or asks where it lies, before it gets anything: an answer that was made before."""

from pathlib import Path

from content import BUCKET, Content

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def write(folder: Path, content: Content):
    """A listing for each prefix that a case asks about, in files that `nginx_map` finds."""
    folder.mkdir()
    groups: dict[str, list[str]] = {"": list(content.sha256)}
    for key in content.sha256:
        start, slash, _ = key.rpartition("/")
        for prefix in {key, start, start + slash} - {""}:
            groups.setdefault(prefix, []).append(key)
    single = {key for key in content.sha256 if "/" in key}
    for prefix, keys in groups.items():
        # Of many small objects each would be a file here that nobody asks for.
        if prefix in single:
            continue
        (folder / f"list-{prefix.replace('/', '_2f')}").write_text(result(prefix, keys, content))
    (folder / "list-top").write_text(top(content))
    (folder / "location").write_text(f"{HEAD}<LocationConstraint {NAMESPACE}>us-east-1</LocationConstraint>")


def top(content: Content) -> str:
    """With a delimiter, and no prefix: what lies in folders is one row a folder."""
    folders = sorted({key.partition("/")[0] + "/" for key in content.sha256 if "/" in key})
    rows = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
    return result("", [key for key in content.sha256 if "/" not in key], content, "<Delimiter>/</Delimiter>" + rows)


def result(prefix: str, keys: list[str], content: Content, more: str = "") -> str:
    rows = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;{content.sha256[key][:32]}&quot;</ETag><Size>{(content.bucket / key).stat().st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for key in keys
    )
    return (
        f"{HEAD}<ListBucketResult {NAMESPACE}><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>"
        f"<KeyCount>{len(keys)}</KeyCount><MaxKeys>100000</MaxKeys><IsTruncated>false</IsTruncated>{rows}{more}</ListBucketResult>"
    )


def nginx_map() -> str:
    """From the query to a file: nginx gives the argument as it came, with / escaped or plain."""
    return r"""map $args $listing {
        default "list-";
        "~(^|&)location" "location";
        "~(^|&)prefix=(?<folder>[^&/%]+)(/|%2[Ff])(&|$)" "list-${folder}_2f";
        "~(^|&)prefix=(?<whole>[^&/%]+)(&|$)" "list-$whole";
        "~(^|&)delimiter=(/|%2[Ff])(&|$)" "list-top";
    }"""


def nginx_location(folder: Path) -> str:
    return f"location ~ ^/{BUCKET}/?$ {{ root {folder}; default_type application/xml; try_files /$listing =404; }}"
