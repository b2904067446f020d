"""The bytes that are fetched or sent: the same on every machine, no two places alike, in files."""

import hashlib
import random
import json
from dataclasses import dataclass, field
from pathlib import Path

import files
from sizes import MIB, format_size

BUCKET = "bench"
PIECE_BYTES = MIB
# One object; many in one folder; one that is a model (safetensors); many in a folder for each hundred.
FORMS = ("one", "many", "model", "tree")
# What each of the Python programs reads; the last three are made by lab/files.py.
FORM_OF_READING = {
    "loop": "one",
    "readers": "one",
    "interleaved": "one",
    "safetensors": "model",
    "parquet": "parquet",
    "zip": "zip",
    "torch": "checkpoint",
}
SUFFIXES = {"model": ".safetensors", "parquet": ".parquet", "zip": ".zip", "checkpoint": ".pt"}
# Of a model: seed 003's are of some hundred.
TENSORS = 300
HEADER_BYTES = 8 + (64 << 10)
FILES_IN_A_FOLDER = 100
# The one that is larger than those beside it.
LARGE = "large"


@dataclass(frozen=True)
class Objects:
    """What is fetched or sent; cases of the same size and number share them."""

    size: int
    count: int
    # In a mount: how many bytes its reader reads, where that is not all of them once.
    read: int | None = None
    # Beside many small ones: how long the large one is.
    large: int = 0

    @property
    def bytes(self) -> int:
        return self.size * self.count + self.large

    @property
    def number(self) -> int:
        return self.count + bool(self.large)

    @property
    def delivered(self) -> int:
        return self.bytes if self.read is None else self.read


def keys(objects: Objects, form: str) -> list[str]:
    if form == "one":
        return [f"big-{format_size(objects.size)}"]
    if form in SUFFIXES:
        return [f"{form}-{format_size(objects.size)}{SUFFIXES[form]}"]
    if form == "tree":
        return [f"{prefix(objects, form)}{number // FILES_IN_A_FOLDER:05}/{number:06}" for number in range(objects.count)]
    small = [f"{prefix(objects, form)}{number:05}" for number in range(objects.count)]
    return small + [f"{prefix(objects, form)}{LARGE}"] * bool(objects.large)


def size_of(objects: Objects, key: str) -> int:
    return objects.large if objects.large and key.endswith(f"/{LARGE}") else objects.size


def prefix(objects: Objects, form: str) -> str:
    """The folder of many objects."""
    beside = f"+{format_size(objects.large)}" if objects.large else ""
    return f"{'tree' if form == 'tree' else 'small'}-{format_size(objects.size)}x{objects.count}{beside}/"


@dataclass
class Content:
    """A folder with one bucket."""

    www: Path
    sha256: dict[str, str] = field(default_factory=dict)
    # By key, where it is not the object: of what a program that reads it rightly gets out of it.
    answers: dict[str, str] = field(default_factory=dict)
    # Of an environment with NumPy and pyarrow, for lab/files.py.
    python: str = ""

    @property
    def bucket(self) -> Path:
        return self.www / BUCKET

    def has(self, objects: Objects, form: str) -> bool:
        return keys(objects, form)[0] in self.sha256

    def make(self, objects: Objects, form: str):
        for key in keys(objects, form):
            path = self.bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            if form in files.MAKERS:
                self.answers[key] = files.made(form, path, objects.size, self.python)
                self.sha256[key] = sha256(path)
            elif form == "model":
                self.sha256[key], self.answers[key] = write(path, objects.size, model_header(objects.size))
            else:
                self.sha256[key], _ = write(path, size_of(objects, key))


def model_header(size: int) -> bytes:
    """Of a file of the safetensors format that has so many bytes: tensors of bytes, of one size but for the last one."""
    length = HEADER_BYTES - 8
    room = size - HEADER_BYTES
    each, names = room // TENSORS, [f"layers.{number:03}.weight" for number in range(TENSORS)]
    ends = [each * (number + 1) for number in range(TENSORS - 1)] + [room]
    tensors = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, start, end in zip(names, [0, *ends], ends)
    }
    return length.to_bytes(8, "little") + json.dumps(tensors).encode().ljust(length)


def useful_bytes(size: int, reading: str) -> int:
    """What a Python program gets out of an object of that size."""
    if reading == "safetensors":
        return size - HEADER_BYTES
    return files.useful_bytes(FORM_OF_READING[reading], size)


def write(path: Path, size: int, head: bytes = b"") -> tuple[str, str | None]:
    """Writes `head`, then pseudo-random bytes, which nothing compresses, and returns the SHA-256 of both, and where there is
    a head of what follows it. The seed is the name."""
    source = random.Random(path.name)
    digest, rest = hashlib.sha256(head), hashlib.sha256() if head else None
    with path.open("wb", buffering=0) as file:
        file.write(head)
        for start in range(len(head), size, PIECE_BYTES):
            piece = source.randbytes(min(PIECE_BYTES, size - start))
            digest.update(piece)
            if rest:
                rest.update(piece)
            file.write(piece)
    return digest.hexdigest(), rest and rest.hexdigest()


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
