"""Files that Python programs read parts of: a table (parquet), an archive (zip), a checkpoint (torch.save).

Their bytes follow from their size, with the same versions on every machine. Made by packages, which the lab itself has not:
`made` runs this file with a Python that has them.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
# That of Debian 13, which has torch.
WITH_TORCH = Path(os.environ.get("FLATOUT_CACHE") or Path.home() / ".cache/flatout") / "package-torch/bin/python"

# A table has so many columns of float64, in so many row groups; one column is read.
COLUMNS, GROUPS, COLUMN = 16, 16, "c07"
# An archive has members of this size, stored as they are; each tenth is read.
MEMBER_BYTES, MEMBER_STEP = MIB, 10
# A checkpoint has so many tensors of float32; all of them are read.
TENSORS = 300


def useful_bytes(form: str, size: int) -> int:
    """What is read of a file that was asked for with `size`."""
    if form == "parquet":
        return rows(size) * 8
    if form == "zip":
        return len(chosen(size)) * MEMBER_BYTES
    if form == "checkpoint":
        return elements(size) * TENSORS * 4
    return size


def made(form: str, path: Path, size: int, python: str) -> str:
    """Writes the file; the SHA-256 of what is to be read of it. Raises LabError."""
    from errors import LabError

    command = [str(WITH_TORCH) if form == "checkpoint" else python, __file__, form, str(path), str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise LabError(f"{path.name}: {command[0]}: {error.strerror}: sudo make deps installs it") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"{path.name}: could not be made: {last}: sudo make deps installs what it takes")
    return done.stdout.strip()


def rows(size: int) -> int:
    return max(GROUPS, size // COLUMNS // 8)


def members(size: int) -> list[str]:
    return [f"data/{number:05}.bin" for number in range(max(1, size // MEMBER_BYTES))]


def chosen(size: int) -> list[str]:
    """The members that are read."""
    return members(size)[::MEMBER_STEP]


def elements(size: int) -> int:
    """Of each tensor."""
    return max(1, size // TENSORS // 4)


def parquet(path: str, size: int, digest):
    import numpy
    import pyarrow
    from pyarrow import parquet

    random = numpy.random.default_rng(size)
    names = [f"c{number:02}" for number in range(COLUMNS)]
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in names])
    left = rows(size)
    group = -(-left // GROUPS)
    # As they are: nothing compresses random numbers, and what is measured is reading.
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        while left > 0:
            values = [random.random(min(group, left)) for _ in names]
            digest.update(values[names.index(COLUMN)])
            writer.write_table(pyarrow.table(values, schema=schema), row_group_size=group)
            left -= group


def archive(path: str, size: int, digest):
    import random
    import zipfile

    source, wanted = random.Random(size), set(chosen(size))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name in members(size):
            data = source.randbytes(MEMBER_BYTES)
            # Without a time of its own it would have the time of today.
            file.writestr(zipfile.ZipInfo(name), data)
            if name in wanted:
                digest.update(data)


def checkpoint(path: str, size: int, digest):
    import torch

    torch.manual_seed(size)
    state = {f"layers.{number:03}.weight": torch.rand(elements(size)) for number in range(TENSORS)}
    torch.save(state, path)
    for tensor in state.values():
        digest.update(tensor.numpy())


MAKERS = {"parquet": parquet, "zip": archive, "checkpoint": checkpoint}


if __name__ == "__main__":
    wanted, target, asked = sys.argv[1:]
    seen = hashlib.sha256()
    MAKERS[wanted](target, int(asked), seen)
    print(seen.hexdigest())
