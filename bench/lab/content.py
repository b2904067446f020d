"""The bytes that are fetched: the same on every machine, no two places alike, in files that the origins serve."""

import hashlib
import random
import json
from dataclasses import dataclass, field
from pathlib import Path

from sizes import MIB, format_size

BUCKET = "bench"
PIECE_BYTES = MIB
# One object; many in one folder; one that is a model (safetensors); many in a folder for each hundred.
FORMS = ("one", "many", "model", "tree")
# Of a model: seed 003's are of some hundred.
TENSORS = 300
FILES_IN_A_FOLDER = 100


@dataclass(frozen=True)
class Objects:
    """What is fetched; cases of the same size and number share them."""

    size: int
    count: int
    # In a mount: how many bytes its reader reads, where that is not all of them once.
    read: int | None = None

    @property
    def bytes(self) -> int:
        return self.size * self.count

    @property
    def delivered(self) -> int:
        return self.bytes if self.read is None else self.read


def keys(objects: Objects, form: str) -> list[str]:
    if form == "one":
        return [f"big-{format_size(objects.size)}"]
    if form == "model":
        return [f"model-{format_size(objects.size)}.safetensors"]
    if form == "tree":
        return [f"{prefix(objects, form)}{number // FILES_IN_A_FOLDER:05}/{number:06}" for number in range(objects.count)]
    return [f"{prefix(objects, form)}{number:05}" for number in range(objects.count)]


def prefix(objects: Objects, form: str) -> str:
    """The folder of many objects."""
    return f"{'tree' if form == 'tree' else 'small'}-{format_size(objects.size)}x{objects.count}/"


@dataclass
class Content:
    """A folder with one bucket."""

    www: Path
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def bucket(self) -> Path:
        return self.www / BUCKET

    def has(self, objects: Objects, form: str) -> bool:
        return keys(objects, form)[0] in self.sha256

    def make(self, objects: Objects, form: str):
        for key in keys(objects, form):
            path = self.bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            self.sha256[key] = write(path, objects.size, model_header(objects.size) if form == "model" else b"")


def model_header(size: int) -> bytes:
    """Of a file of the safetensors format that has so many bytes: tensors of bytes, of one size but for the last one."""
    length = 64 << 10
    room = size - 8 - length
    each, names = room // TENSORS, [f"layers.{number:03}.weight" for number in range(TENSORS)]
    ends = [each * (number + 1) for number in range(TENSORS - 1)] + [room]
    tensors = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, start, end in zip(names, [0, *ends], ends)
    }
    return length.to_bytes(8, "little") + json.dumps(tensors).encode().ljust(length)


def write(path: Path, size: int, head: bytes = b"") -> str:
    """Writes `head`, then pseudo-random bytes, which nothing compresses, and returns the SHA-256 of both. The seed is the name."""
    source = random.Random(path.name)
    digest = hashlib.sha256(head)
    with path.open("wb", buffering=0) as file:
        file.write(head)
        for start in range(len(head), size, PIECE_BYTES):
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
