"""What an origin stored of what a client sent: looked at and deleted outside the clock, over one connection, by requests that
the lab signs by itself, so that no client under measurement judges another one, or itself."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import ssl
import subprocess
import xml.etree.ElementTree
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

import content
from content import BUCKET, PIECE_BYTES, Content, Objects
from origins import ACCESS_KEY, SECRET_KEY, Origin
from process import RunFailed

# One object gets this name, many get one each below it.
KEY = "sent"
PREFIX = f"{KEY}/"
REGION = "us-east-1"
# As many as S3 lists in one answer, and deletes by one request.
PAGE = 1000
TIMEOUT_S = 60.0
UNSIGNED = "UNSIGNED-PAYLOAD"


def source(objects: Objects, form: str, made: Content) -> Path:
    """The file that is sent, or the folder of many."""
    return made.bucket / (content.keys(objects, form)[0] if form == "one" else content.prefix(objects, form))


def files_sent(objects: Objects, form: str) -> dict[str, str]:
    """By the name that it gets at the origin: the key of the file in `sources`."""
    if form == "one":
        return {KEY: content.keys(objects, form)[0]}
    return {PREFIX + key.removeprefix(content.prefix(objects, form)): key for key in content.keys(objects, form)}


def delete_all(origin: Origin):
    """Nothing that a client sent is left, in the name of one object or below it. Raises RunFailed."""
    with Asker(origin) as asker:
        names = list(asker.sizes())
        for start in range(0, len(names), PAGE):
            asker.delete(names[start : start + PAGE])


def check_sizes(origin: Origin, objects: Objects, form: str):
    """That every file is there, whole as far as its size tells, and nothing else. Raises RunFailed."""
    with Asker(origin) as asker:
        stored = asker.sizes()
    wanted = files_sent(objects, form)
    for name, key in wanted.items():
        if name not in stored:
            raise RunFailed(f"it ended well, and the origin has no {name}{among(stored)}")
        if stored[name] != (size := content.size_of(objects, key)):
            raise RunFailed(f"the origin has {stored[name]} bytes of {name}, and {size} were to be sent")
    if len(stored) != len(wanted):
        other = next(name for name in stored if name not in wanted)
        raise RunFailed(f"the origin has {len(stored)} objects, and {len(wanted)} were to be sent: {other} is none of them")


def among(stored: dict[str, int]) -> str:
    return f"; it has {next(iter(stored))}" if stored else ""


def check_bytes(origin: Origin, objects: Objects, form: str, made: Content):
    """In the check: every byte of what is stored, by the origin's own CRC-64 where it forgets the bytes, else by reading
    them. Raises RunFailed."""
    wanted = files_sent(objects, form)
    sums = crc64s(origin.site.flatout, [made.bucket / key for key in wanted.values()]) if origin.forgets else []
    with Asker(origin) as asker:
        if origin.forgets:
            for name, crc64 in zip(wanted, sums):
                compare(name, "CRC-64", asker.crc64(name), crc64)
        else:
            for name, key in wanted.items():
                compare(name, "SHA-256", asker.sha256(name), made.sha256[key])


def compare(name: str, algorithm: str, found: str, wanted: str):
    if found != wanted:
        raise RunFailed(f"wrong bytes: the {algorithm} of {name} at the origin is {found[:20]}, not {wanted[:20]}")


def crc64s(flatout: str, paths: list[Path]) -> list[str]:
    """CRC-64/XZ of files, as OSS writes it: in decimal."""
    found = []
    for start in range(0, len(paths), PAGE):
        command = [flatout, "hash", "--algorithm", "crc64xz", "--json", *map(str, paths[start : start + PAGE])]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise RunFailed(f"flatout hash: {done.stderr.strip()}")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        found += [event["checksums"][0]["value"] for event in events if event["event"] == "hash"]
    return found


class Asker:
    """One connection to an origin, as a context. What goes wrong there is a RunFailed."""

    def __init__(self, origin: Origin):
        self.origin = origin
        self.host = f"127.0.0.1:{origin.port}"

    def __enter__(self) -> "Asker":
        if self.origin.tls:
            trust = ssl.create_default_context(cafile=self.origin.ca)
            self.connection = http.client.HTTPSConnection(self.host, timeout=TIMEOUT_S, context=trust)
        else:
            self.connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)
        return self

    def __exit__(self, *_):
        self.connection.close()

    def sizes(self) -> dict[str, int]:
        """By name, of all that begins with `KEY`."""
        found, query = {}, {"list-type": "2", "prefix": KEY}
        while True:
            page = self.parsed(self.by_s3("GET", f"/{BUCKET}", query))
            for row in (each for each in page if each.tag == "Contents"):
                found[row.findtext("Key")] = int(row.findtext("Size"))
            if page.findtext("IsTruncated") != "true":
                return found
            query["continuation-token"] = page.findtext("NextContinuationToken")

    def delete(self, names: list[str]):
        keys = "".join(f"<Object><Key>{name}</Key></Object>" for name in names)
        body = f"<Delete><Quiet>true</Quiet>{keys}</Delete>".encode()
        digest = base64.b64encode(hashlib.md5(body).digest()).decode()
        answer = self.parsed(self.by_s3("POST", f"/{BUCKET}", {"delete": ""}, body, {"content-md5": digest}))
        error = answer.find("Error")
        if error is not None:
            raise RunFailed(f"origin {self.origin.name}: {error.findtext('Key')} cannot be deleted: {error.findtext('Message')}")

    def sha256(self, name: str) -> str:
        """Of its bytes, which are read."""
        digest = hashlib.sha256()
        with self.by_s3("GET", f"/{BUCKET}/{name}", {}) as answer:
            while piece := self.read(answer, PIECE_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def crc64(self, name: str) -> str:
        """As the origin states it, in the dialect of OSS: of the whole object, however it was sent."""
        path, date = f"/{BUCKET}/{name}", formatdate(usegmt=True)
        signed = hmac.digest(SECRET_KEY.encode(), f"HEAD\n\n\n{date}\n{path}".encode(), "sha1")
        headers = {"date": date, "authorization": f"OSS {ACCESS_KEY}:{base64.b64encode(signed).decode()}"}
        with self.ask("HEAD", path, None, headers) as answer:
            return answer.headers.get("x-oss-hash-crc64ecma", "none")

    def by_s3(self, method: str, path: str, query: dict[str, str], body: bytes | None = None, more: dict[str, str] = {}):
        """Signed after version 4; the body is not."""
        now = datetime.now(timezone.utc)
        at, scope = now.strftime("%Y%m%dT%H%M%SZ"), f"{now:%Y%m%d}/{REGION}/s3/aws4_request"
        words = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
        headers = {"host": self.host, "x-amz-content-sha256": UNSIGNED, "x-amz-date": at, **more}
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = f"{method}\n{quote(path)}\n{words}\n{lines}\n{names}\n{UNSIGNED}"
        key = f"AWS4{SECRET_KEY}".encode()
        for step in scope.split("/"):
            key = hmac.digest(key, step.encode(), "sha256")
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        signed = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
        return self.ask(method, f"{quote(path)}?{words}" if words else quote(path), body, {**headers, "authorization": signed})

    def ask(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        with self.failures():
            self.connection.request(method, target, body, headers)
            answer = self.connection.getresponse()
            if answer.status == 200:
                return answer
            reason = answer.read().decode(errors="replace")
        raise RunFailed(f"origin {self.origin.name}: {method} {target} was answered with {answer.status}: {reason[:200]}")

    def parsed(self, answer: http.client.HTTPResponse) -> xml.etree.ElementTree.Element:
        """Without the namespace, which differs."""
        text = self.read(answer)
        root = xml.etree.ElementTree.fromstring(text) if text else xml.etree.ElementTree.Element("none")
        for each in root.iter():
            each.tag = each.tag.rpartition("}")[2]
        return root

    def read(self, answer: http.client.HTTPResponse, most: int | None = None) -> bytes:
        with self.failures():
            return answer.read(most)

    @contextlib.contextmanager
    def failures(self):
        try:
            yield
        except (http.client.HTTPException, OSError) as error:
            raise RunFailed(f"origin {self.origin.name}: what it stored cannot be looked at: {error or type(error).__name__}") from None
