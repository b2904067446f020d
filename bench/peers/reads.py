"""What Python programs do with a file object, the same for every peer that has one: `files(opened)` is what talk.run wants.

`opened(job)` is called before `ready` and returns a function that opens the object for reading; to open is a part of what
is measured, as in the programs that these stand for.
"""

import os
import sys
import zipfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))

import files as made

import talk

READERS = 8
BLOCK_BYTES = 1 << 20


def files(opened):
    return {
        ("python", "parquet"): lambda job: parquet(job, opened(job)),
        ("python", "zip"): lambda job: archive(job, opened(job)),
        ("python", "torch"): lambda job: checkpoint(job, opened(job)),
        ("python", "readers"): lambda job: readers(job, opened(job), READERS),
        ("python", "interleaved"): lambda job: readers(job, opened(job), 1),
    }


def parquet(job, open_it):
    """One column of a table."""
    import pandas
    import pyarrow.parquet  # pandas imports it at the first call.

    def transfer():
        with open_it() as file:
            table = pandas.read_parquet(file, columns=[made.COLUMN])
        return talk.Delivered(job).all([table[made.COLUMN].to_numpy()])

    return transfer


def archive(job, open_it):
    """Each tenth member of an archive."""
    wanted = made.chosen(job.bytes)

    def transfer():
        with open_it() as file, zipfile.ZipFile(file) as members:
            return talk.Delivered(job).all(members.read(name) for name in wanted)

    return transfer


def checkpoint(job, open_it):
    """What torch.save wrote, whole."""
    import torch

    def transfer():
        with open_it() as file:
            state = torch.load(file)
        return talk.Delivered(job).all(tensor.numpy() for tensor in state.values())

    return transfer


def readers(job, open_it, count):
    """READERS that take turns, each reading a part of its own of one object from its beginning to its end, a block at a
    time: each with a file of its own, or all with one."""
    shares = talk.parts(job.bytes, -(-job.bytes // READERS))

    def transfer():
        delivered, opened = talk.Delivered(job), [open_it() for _ in range(count)]
        places = [start for start, _ in shares]
        while True:
            left = [number for number, (_, end) in enumerate(shares) if places[number] < end]
            if not left:
                break
            for number in left:
                file, at = opened[number % count], places[number]
                file.seek(at)
                piece = file.read(min(BLOCK_BYTES, shares[number][1] - at))
                if not piece:
                    raise EOFError(f"the object ends at {at} of {job.bytes}")
                delivered.take(piece, at)
                places[number] += len(piece)
        for file in opened:
            file.close()
        return delivered.bytes

    return transfer
