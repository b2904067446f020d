"""The bytes that are fetched: the same on every machine, no two places alike, in files that the origins serve."""

import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path

from cases import Objects
from sizes import MIB, format_size

BUCKET = "bench"
PIECE_BYTES = MIB


def keys(objects: Objects, many: bool) -> list[str]:
    if not many:
        return [f"big-{format_size(objects.size)}"]
    return [f"{prefix(objects)}{number:05}" for number in range(objects.count)]


def prefix(objects: Objects) -> str:
    """The folder of many objects."""
    return f"small-{format_size(objects.size)}x{objects.count}/"


@dataclass
class Content:
    """A folder with one bucket."""

    www: Path
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def bucket(self) -> Path:
        return self.www / BUCKET

    def has(self, objects: Objects, many: bool) -> bool:
        return keys(objects, many)[0] in self.sha256

    def make(self, objects: Objects, many: bool):
        for key in keys(objects, many):
            path = self.bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            self.sha256[key] = write(path, objects.size)


def write(path: Path, size: int) -> str:
    """Writes pseudo-random bytes, which nothing compresses, and returns their SHA-256. The seed is the name."""
    source = random.Random(path.name)
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for start in range(0, size, PIECE_BYTES):
            piece = source.randbytes(min(PIECE_BYTES, size - start))
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def first_difference(path: Path, other: Path) -> int | None:
    """The offset of the first byte that is not the same in both."""
    offset = 0
    with path.open("rb") as left, other.open("rb") as right:
        while True:
            a, b = left.read(PIECE_BYTES), right.read(PIECE_BYTES)
            if a != b:
                same = next((at for at, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                return offset + same
            if not a:
                return None
            offset += len(a)
