#!/usr/bin/env python3
"""The same samples as plain files, behind an index, and in tar, zip and parquet shards: how fast eight readers have them.

    scripts/shards.py FLATOUT [SAMPLES [ROUNDS]]

A release build; SAMPLES of 100 KiB (10,000) from `flatout serve`, near and 20 ms away, ROUNDS times (3), each in a mount of its
own, in turns. Every reader is a process that looks at each sample's length and first bytes. Needs root and pyarrow. Told are
samples a second: the median, and the least and most.
"""

import io
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet

READERS = 8
SHARDS = 16
SAMPLE_BYTES = 100 << 10
GROUP_ROWS = 100
CONTENT = os.urandom(SAMPLE_BYTES - 8)


def sample(number: int) -> bytes:
    return number.to_bytes(8, "big") + CONTENT


def make(folder: Path, count: int) -> None:
    for form in ("files", "tar", "zip", "parquet"):
        (folder / form).mkdir(parents=True)
    for shard in range(SHARDS):
        numbers = range(shard, count, SHARDS)
        below = folder / "files" / f"{shard:02}"
        below.mkdir()
        with (
            tarfile.open(folder / "tar" / f"{shard:02}.tar", "w") as tar,
            zipfile.ZipFile(folder / "zip" / f"{shard:02}.zip", "w", zipfile.ZIP_STORED) as zipped,
        ):
            for number in numbers:
                (below / f"{number:06}").write_bytes(sample(number))
                entry = tarfile.TarInfo(f"{number:06}")
                entry.size = SAMPLE_BYTES
                tar.addfile(entry, io.BytesIO(sample(number)))
                zipped.writestr(f"{number:06}", sample(number))
        table = pyarrow.table({"sample": pyarrow.array([sample(number) for number in numbers], pyarrow.binary())})
        path = folder / "parquet" / f"{shard:02}.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=GROUP_ROWS, compression="none", use_dictionary=False)


def seen(content: bytes) -> int:
    assert len(content) == SAMPLE_BYTES
    return int.from_bytes(content[:8], "big")


def read_files(folder: Path, shards: list[int], order: random.Random):
    paths = [path for shard in shards for path in sorted((folder / f"{shard:02}").iterdir())]
    order.shuffle(paths)
    for path in paths:
        yield seen(path.read_bytes())


def read_tar(folder: Path, shards: list[int], _: random.Random):
    for shard in shards:
        with tarfile.open(folder / f"{shard:02}.tar", "r|", bufsize=1 << 20) as tar:
            for entry in tar:
                yield seen(tar.extractfile(entry).read())


def read_zip(folder: Path, shards: list[int], order: random.Random):
    for shard in shards:
        with zipfile.ZipFile(folder / f"{shard:02}.zip") as zipped:
            names = zipped.namelist()
            order.shuffle(names)
            for name in names:
                yield seen(zipped.read(name))


def read_parquet(folder: Path, shards: list[int], order: random.Random):
    for shard in shards:
        with pyarrow.parquet.ParquetFile(folder / f"{shard:02}.parquet") as table:
            groups = list(range(table.num_row_groups))
            order.shuffle(groups)
            for group in groups:
                for value in table.read_row_group(group)["sample"]:
                    yield seen(value.as_buffer().to_pybytes())


FORMS = {
    "plain files, flatout mount": ("files", read_files, "mount"),
    "plain files, an index": ("files", read_files, "index"),
    "tar, in order": ("tar", read_tar, "mount"),
    "zip, in random order": ("zip", read_zip, "mount"),
    "parquet, groups of 100 in random order": ("parquet", read_parquet, "mount"),
}


def reader(reads, folder: Path, place: int, begin, told) -> None:
    shards = list(range(place, SHARDS, READERS))
    begin.wait()
    numbers = list(reads(folder, shards, random.Random(place)))
    told.put((len(numbers), sum(numbers)))


def run(reads, folder: Path, count: int) -> float:
    begin, told = multiprocessing.Barrier(READERS + 1), multiprocessing.Queue()
    arguments = [(reads, folder, place, begin, told) for place in range(READERS)]
    readers = [multiprocessing.Process(target=reader, args=each) for each in arguments]
    for each in readers:
        each.start()
    begin.wait()
    since = time.monotonic()
    answers = [told.get(timeout=600) for _ in readers]
    took = time.monotonic() - since
    for each in readers:
        each.join()
    assert (sum(got for got, _ in answers), sum(of for _, of in answers)) == (count, count * (count - 1) // 2)
    return took


def main() -> None:
    flatout, *numbers = sys.argv[1:]
    count, rounds = (int(number) for number in (numbers + ["10000", "3"][len(numbers) :]))
    flatout = str(Path(flatout).absolute())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        for below in ("home", "run", "mnt"):
            (folder / below).mkdir(mode=0o700)
        make(folder / "root" / "bucket", count)
        variables = {"HOME": folder / "home", "XDG_RUNTIME_DIR": folder / "run", "AWS_EC2_METADATA_DISABLED": "true"}
        env = os.environ | {name: str(value) for name, value in variables.items()}
        for where, more in (("near", []), ("20 ms away", ["--latency", "20ms"])):
            serve = [flatout, "serve", "--no-auth", "--root", str(folder / "root"), "--listen", "127.0.0.1:0"]
            with subprocess.Popen([*serve, *more], stdout=subprocess.PIPE, text=True, env=env) as origin:
                try:
                    url = next(word for word in origin.stdout.readline().split() if word.startswith("http://"))
                    took = {form: [] for form in FORMS}
                    for _ in range(rounds):
                        for form in FORMS:
                            took[form].append(turn(flatout, env, folder, url, form, count))
                finally:
                    origin.terminate()
            for form, seconds in took.items():
                speeds = sorted(count / each for each in seconds)
                print(f"{where}: {form}: {statistics.median(speeds):.0f} ({speeds[0]:.0f} to {speeds[-1]:.0f})", flush=True)


def turn(flatout: str, env: dict[str, str], folder: Path, url: str, form: str, count: int) -> float:
    below, reads, door = FORMS[form]
    source, mnt = f"s3://bucket/{below}/", str(folder / "mnt")
    to = ["--endpoint-url", url, "--no-sign-request"]

    def call(*line: str) -> None:
        subprocess.run([flatout, *line], check=True, env=env, stdout=subprocess.DEVNULL)

    if door == "index":
        index = str(folder / "index.flat")
        call("volume", "build", source, index, *to)
        call("volume", "mount", index, mnt, *to)
    else:
        call("mount", source, mnt, *to)
    try:
        return run(reads, Path(mnt), count)
    finally:
        call("umount", mnt)


if __name__ == "__main__":
    main()
