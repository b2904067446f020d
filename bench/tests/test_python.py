"""Python programs as a kind of work: the files that they read, what is got out of them, and the requests that it took."""

import hashlib
import io
import json
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

import support
from test_lab import WithLab

sys.path.insert(0, str(support.BENCH / "peers"))

import content  # noqa: E402
import files  # noqa: E402
import reads  # noqa: E402
import talk  # noqa: E402
from content import Content, Objects  # noqa: E402
from sizes import MIB  # noqa: E402

# With pyarrow; sudo make deps installs it.
WITH_PYARROW = Path(os.environ.get("FLATOUT_CACHE") or Path.home() / ".cache/flatout") / "python/bin/python"
# Gets the object by one request, and asks for its size before that.
ZIP_PEER = """
import io, sys, urllib.request, zipfile
url, change, *check = sys.argv[1:]
print("ready", flush=True)
input()
urllib.request.urlopen(urllib.request.Request(url, method="HEAD")).close()
members = zipfile.ZipFile(io.BytesIO(urllib.request.urlopen(url).read()))
data = b"".join(members.read(name) for name in members.namelist()[::10])
data = {"none": data, "flip": data[:-1] + bytes([data[-1] ^ 1]), "short": data[:-1]}[change]
if check: open(check[1], "wb").write(data)
print("done", len(data), flush=True)
sys.stdin.read()
"""
ZIP_TOML = """
name = "{name}"
about = "a program"
[install]
apt = ["python3"]
program = "python3"
[python.zip]
run = ["{{program}}", "-S", "{{folder}}/client.py", "{{url}}", "{change}"]
talks = true
"""
ZIP_CASE = """
title = "A case"
why = "a reason"
origin = "nginx"
work = "python"
landing = "zip"
peers = ["right", "flipped", "shorter"]
[smoke]
size = "12MiB"
"""


class Programs(WithLab):
    def test_what_they_got_is_compared_and_their_requests_counted(self):
        for name, change in {"right": "none", "flipped": "flip", "shorter": "short"}.items():
            folder = self.folder / "bench/peers" / name
            folder.mkdir(parents=True)
            (folder / "peer.toml").write_text(ZIP_TOML.format(name=name, change=change))
            (folder / "client.py").write_text(ZIP_PEER)
        (self.folder / "bench/cases/zipped.toml").write_text(ZIP_CASE)
        # What makes the archive needs no package.
        python = self.folder / "cache/python/bin/python"
        python.parent.mkdir(parents=True)
        python.symlink_to(support.PYTHON)
        code, out, errors = self.run_lab("--size", "11MiB", "--rounds", "1")
        found = {cell["peer"]: cell for cell in self.results()["cells"]}
        self.assertEqual(code, 1, errors)
        self.assertIsNone(found["right"]["reason"])
        self.assertEqual(found["right"]["rounds"][0]["requests"], 2)
        self.assertEqual(found["right"]["summary"]["requests"], 2)
        # Members 0 and 10 of eleven; all of them were fetched.
        self.assertGreaterEqual(found["right"]["summary"]["fetched_over_delivered"], 5.5)
        self.assertRegex(found["flipped"]["reason"], "^wrong bytes: out of zip-11MiB.zip it read 2097152, as many as it should")
        self.assertEqual(found["shorter"]["reason"], "it said that it delivered 2097151 bytes of 2097152")
        self.assertRegex(out, r"requests +bound by\n  right default .* 2( .*)?\n")


class Made(support.WithFolder):
    """That a right reader gets out of a file what the lab says it does."""

    SIZE = 3 * MIB + 17

    def made(self, form: str, reading: str, read) -> Content:
        built = Content(self.folder, python=str(WITH_PYARROW))
        objects = Objects(self.SIZE, 1)
        built.make(objects, form)
        (key,) = content.keys(objects, form)
        got = read(built.bucket / key)
        self.assertEqual(len(got), content.useful_bytes(self.SIZE, reading))
        self.assertEqual(hashlib.sha256(got).hexdigest(), built.answers[key])
        again = Content(self.folder / "again", python=str(WITH_PYARROW))
        again.make(objects, form)
        self.assertEqual((again.answers, again.sha256), (built.answers, built.sha256))
        return built

    def by(self, python, code: str):
        def read(path: Path) -> bytes:
            return subprocess.run([str(python), "-c", code, str(path)], stdout=subprocess.PIPE, check=True).stdout

        return read

    def test_table(self):
        code = "import sys, pyarrow.parquet as p; sys.stdout.buffer.write(p.read_table(sys.argv[1])['c07'].to_numpy())"
        self.made("parquet", "parquet", self.by(WITH_PYARROW, code))

    def test_checkpoint(self):
        code = "import sys, torch; [sys.stdout.buffer.write(t.numpy()) for t in torch.load(sys.argv[1]).values()]"
        self.made("checkpoint", "torch", self.by(files.WITH_TORCH, code))

    def test_model(self):
        def read(path: Path) -> bytes:
            data = path.read_bytes()
            length = int.from_bytes(data[:8], "little")
            tensors = json.loads(data[8 : 8 + length])
            places = [tensors[name]["data_offsets"] for name in sorted(tensors)]
            return b"".join(data[8 + length :][start:end] for start, end in places)

        self.made("model", "safetensors", read)

    def test_archive(self):
        def read(path: Path) -> bytes:
            job = SimpleNamespace(bytes=self.SIZE, check=str(self.folder / "got"))
            reads.archive(job, lambda: path.open("rb"))()
            return (self.folder / "got").read_bytes()

        self.made("zip", "zip", read)


class Reads(support.WithFolder):
    def test_readers_in_turns_read_everything_once(self):
        data = random.Random(0).randbytes(20 * MIB + 12345)
        for count in (1, reads.READERS):
            check = self.folder / f"got-{count}"
            job = SimpleNamespace(bytes=len(data), check=str(check))
            opened = []

            def open_it():
                opened.append(io.BytesIO(data))
                return opened[-1]

            self.assertEqual(reads.readers(job, open_it, count)(), len(data))
            self.assertEqual((len(opened), {file.closed for file in opened}), (count, {True}))
            self.assertEqual(check.read_bytes(), data)

    def test_a_file_that_ends_early_is_an_error(self):
        job = SimpleNamespace(bytes=2 * MIB, check=None)
        with self.assertRaises(EOFError):
            reads.readers(job, lambda: io.BytesIO(b"x" * MIB), 1)()

    def test_a_landing_in_memory_was_touched(self):
        job = SimpleNamespace(bytes=3 * MIB + 5)
        self.assertEqual(bytes(talk.memory(job)), b"\1" * job.bytes)


if __name__ == "__main__":
    unittest.main()
