"""Sending: what peers and cases may say of it, the stream that a client gets, and that what an origin stored is looked at."""

import hashlib
import json
import os
import shutil
import unittest
from pathlib import Path

import support  # first: it finds the lab's modules
import test_catalogue
from test_lab import WithLab

import install  # noqa: E402
import origins  # noqa: E402
import stored  # noqa: E402
from cases import WRITTEN  # noqa: E402
from content import Content, Objects  # noqa: E402
from process import RunFailed  # noqa: E402
from sizes import MIB  # noqa: E402

ROOT = support.BENCH.parent
# As test_page.py finds it.
FLATOUT = Path(os.environ.get("LAB_FLATOUT", ROOT / "target/debug/flatout")).resolve()

PEER = """
name = "one"
version = "1"
about = "a client"
[install]
apt = ["one"]
[settings.default]
[settings.reading]
work = "get"
why = "its README"
[settings.sending]
work = "put"
why = "its README"
[put.file]
run = ["{program}", "{settings}", "{source}", "{url}", "{key}"]
[put.pipe]
run = ["{program}", "{settings}", "-", "{url}"]
[put.files]
run = ["{program}", "{settings}", "{source}/", "{prefix}"]
[get.file]
run = ["{program}", "{settings}", "{url}", "{target}"]
"""
CASE = """
title = "A case"
why = "a reason"
origin = "sink"
work = "put"
landing = "file"
peers = ["one"]
[quick]
size = "8MiB"
"""


class Words(test_catalogue.WithBench):
    def test_peers(self):
        unsaid = "does not say what is sent: needs {source}"
        rows = {
            ('"{source}", "{url}", "{key}"', '"{url}"'): f"put.file.run: {unsaid}",
            ('"{source}/"', '"x"'): f"put.files.run: {unsaid}",
            ('"-", "{url}"', '"{source}", "{url}"'): "put.pipe.run: gets what it sends on standard input: without {source}",
            ('"-", "{url}"]', '"-"]\ntalks = true'): "put.pipe.run: is spoken to on standard input, so what it sends cannot come there: needs {source}",
            ('"{source}", "{url}", "{key}"', '"{sourse}"'): "put.file.run: {sourse} is no variable here",
            ('"{source}", "{url}", "{key}"', '"{source}", "{target}"'): "put.file.run: {target} is no variable here",
            ('"{url}", "{target}"', '"{source}"'): "get.file.run: {source} is no variable here",
            ('work = "put"', 'work = "puts"'): "settings.sending.work: 'puts' is none of them",
        }
        for (old, new), reason in rows.items():
            with self.subTest(new=new):
                self.assertIn(old, PEER)
                said = self.wrong(peer=PEER.replace(old, new), case=CASE)
                # Which word is the nearest one is tested elsewhere.
                self.assertEqual(said.partition("; ")[0], f"peers/one/peer.toml: {reason}")

    def test_cases(self):
        taken = ", ".join(WRITTEN)
        rows = {
            ('"sink"', '"nginx"'): f"origin: nginx serves the lab's own files, and nothing is sent there: {taken} take what is sent",
            ('"sink"', '"afar-tls"'): f"origin: afar-tls serves the lab's own files, and nothing is sent there: {taken} take what is sent",
            ('work = "put"', 'work = "get"'): 'origin: sink forgets the bytes that it takes, so nothing can be read there: is for work = "put"',
            ('"file"', '"folder"'): "landing: 'folder' is none of them; did you mean file?",
            ('size = "8MiB"', 'size = "8MiB"\ncount = 2'): 'quick.count: is for work = "many" and "mount", and to put "files"',
            ('size = "8MiB"', 'size = "8MiB"\nlarge = "2MiB"'): 'quick.large: is for work = "put" and "files": one file beside many small ones',
            ('peers = ["one"]', 'peers = ["one"]\ndisk = true'): "disk: is for files that a client writes, and this one sends",
            ('"sink"', '"sink-tls"'): "peers: one has no [tls] in its peer.toml, and sink-tls speaks TLS",
            ('["one"]', '["one:reading"]'): "peers: one's settings 'reading' are for get, and the work is put",
        }
        for (old, new), reason in rows.items():
            with self.subTest(new=new):
                self.assertIn(old, CASE)
                self.assertEqual(self.wrong(peer=PEER, case=CASE.replace(old, new)), f"cases/large.toml: {reason}")

    def test_settings_are_for_their_work(self):
        labels = lambda case: [cell.label for cell in self.load(peer=PEER, case=case).cells("quick")]
        self.assertEqual(labels(CASE), ["one:default", "one:sending"])
        reading = CASE.replace('"sink"', '"nginx"').replace('"put"', '"get"')
        self.assertEqual(labels(reading), ["one:default", "one:reading"])

    def test_many_files(self):
        many = CASE.replace('"file"', '"files"') + "count = 3\n"
        (cell, _) = self.load(peer=PEER, case=many).cells("quick")
        names = stored.files_sent(cell.objects, cell.case.form)
        self.assertEqual(names, {f"sent/0000{number}": f"small-8MiBx3/0000{number}" for number in range(3)})

    def test_a_large_file_beside_many_small_ones(self):
        mixed = CASE.replace('"file"', '"files"').replace("8MiB", "1KiB") + 'count = 2\nlarge = "3MiB"\n'
        cell = self.load(peer=PEER, case=mixed).cells("quick")[0]
        folder = "small-1KiBx2+3MiB"
        names = stored.files_sent(cell.objects, cell.case.form)
        self.assertEqual(names, {f"sent/{name}": f"{folder}/{name}" for name in ("00000", "00001", "large")})
        made = Content(self.folder / "www")
        made.make(cell.objects, cell.case.form)
        sizes = {path.name: path.stat().st_size for path in (made.bucket / folder).iterdir()}
        self.assertEqual(sizes, {"00000": 1 << 10, "00001": 1 << 10, "large": 3 * MIB})
        self.assertEqual((sum(sizes.values()), 3), (cell.objects.bytes, cell.objects.number))


class Streams(support.WithClients):
    """A client that gets a file on its standard input."""

    SIZE = 5 * MIB + 17
    HASH = "import hashlib\nsum = hashlib.sha256()\nwhile piece := os.read(0, 1 << 16): sum.update(piece)\n"

    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        self.source.write_bytes(os.urandom(self.SIZE))

    def test_it_gets_the_file(self):
        wanted = hashlib.sha256(self.source.read_bytes()).hexdigest()
        code = self.HASH + f"if sum.hexdigest() != '{wanted}': sys.exit('other bytes')"
        found = self.run_client(code, stdin=str(self.source))
        # Who feeds it is no part of it.
        self.assertGreater(found.drain_cpu_seconds, 0)

    def test_who_stops_reading_ends_the_stream(self):
        before = support.open_files()
        self.run_client("os.read(0, 10)", stdin=str(self.source))
        self.run_client("", stdin=str(self.source))
        self.assertEqual(self.reason("sys.exit('no more')", stdin=str(self.source)), "exit status 1: no more")
        self.assertEqual(support.open_files(), before)

    def test_who_never_reads_is_killed(self):
        said = self.reason("time.sleep(1000)", stdin=str(self.source), seconds=0.5)
        self.assertEqual(said, "it ran for 0.5 s, which is the limit: killed")


class WithFlatout(unittest.TestCase):
    def setUp(self):
        super().setUp()
        if not os.access(FLATOUT, os.X_OK):
            self.fail(f"{FLATOUT}: not built: cargo build -p flatout-cli (or name one with LAB_FLATOUT)")


class Kept(origins.Sink):
    """One that keeps the bytes, as MinIO does."""

    forgets = False

    def store(self) -> list[str]:
        return ["--memory"]


class Stored(WithFlatout, support.WithFolder):
    """What is said of what an origin has, by origins that keep the bytes and that forget them."""

    def each_origin(self, objects: Objects, form: str):
        sources = Content(self.folder / "sources")
        sources.make(objects, form)
        for kind, name in ((origins.Sink, "sink"), (origins.Sink, "sink-tls"), (Kept, "kept")):
            site = origins.Site(self.folder, Content(self.folder / "www"), sources, str(FLATOUT), install.default_cache())
            with self.subTest(origin=name), kind(name, site) as origin:
                stored.delete_all(origin)
                yield origin, sources
                stored.delete_all(origin)
                with stored.Asker(origin) as asker:
                    self.assertEqual(asker.sizes(), {})

    def put(self, origin: origins.Origin, path: Path, name: str):
        origin.must("took not all", ["--upload-file", str(path), f"{origin.endpoint}/bench/{name}"])

    def refused(self, reason: str, *arguments):
        with self.assertRaisesRegex(RunFailed, reason):
            stored.check_sizes(*arguments[:3])
            stored.check_bytes(*arguments)

    def test_one(self):
        objects = Objects(100_000, 1)
        for origin, sources in self.each_origin(objects, "one"):
            source, other = stored.source(objects, "one", sources), self.folder / "other"
            self.refused("^it ended well, and the origin has no sent$", origin, objects, "one", sources)
            self.put(origin, source, "sent")
            stored.check_sizes(origin, objects, "one")
            stored.check_bytes(origin, objects, "one", sources)
            self.put(origin, source, "sent-2")
            self.refused("^the origin has 2 objects, and 1 were to be sent: sent-2 is none of them$", origin, objects, "one", sources)
            stored.delete_all(origin)
            self.put(origin, source, "sent/source")
            self.refused("^it ended well, and the origin has no sent; it has sent/source$", origin, objects, "one", sources)
            stored.delete_all(origin)
            data = bytearray(source.read_bytes())
            data[70_000] ^= 1
            other.write_bytes(data[:-1])
            self.put(origin, other, "sent")
            self.refused("^the origin has 99999 bytes of sent, and 100000 were to be sent$", origin, objects, "one", sources)
            other.write_bytes(data)
            self.put(origin, other, "sent")
            self.refused(r"^wrong bytes: the (CRC-64|SHA-256) of sent at the origin is \w+, not \w+$", origin, objects, "one", sources)

    def test_many(self):
        objects = Objects(10, stored.PAGE + 5)
        for origin, sources in self.each_origin(objects, "many"):
            folder, config = stored.source(objects, "many", sources), self.folder / "puts"
            names = stored.files_sent(objects, "many")
            rows = [f'url = "{origin.endpoint}/bench/{name}"\nupload-file = "{sources.bucket / key}"\n' for name, key in names.items()]
            config.write_text("".join(rows))
            origin.must("took not all", ["--config", str(config)])
            stored.check_sizes(origin, objects, "many")
            stored.check_bytes(origin, objects, "many", sources)
            self.put(origin, folder / "00003", "sent/01004")
            self.refused(r"^wrong bytes: the (CRC-64|SHA-256) of sent/01004 at the origin", origin, objects, "many", sources)
            with stored.Asker(origin) as asker:
                asker.delete(["sent/00007"])
            self.refused("^it ended well, and the origin has no sent/00007; it has sent/00000$", origin, objects, "many", sources)

    def test_an_origin_that_is_gone(self):
        objects = Objects(10, 1)
        sources = Content(self.folder / "sources")
        site = origins.Site(self.folder, Content(self.folder / "www"), sources, str(FLATOUT), install.default_cache())
        with origins.origin("sink", site) as origin:
            origin.stop()
            with self.assertRaisesRegex(RunFailed, "^origin sink: what it stored cannot be looked at: .*refused"):
                stored.check_sizes(origin, objects, "one")


# What stands on the command line, or on standard input, goes to the origin by curl, more or less.
CLIENT = """
import subprocess, sys
source, url, keys = sys.argv[1:4]
def put(data, url=url):
    with open("part", "wb") as file: file.write(data)
    sign = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", keys, "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
    subprocess.run(["curl", "-sSf", *sign, "--upload-file", "part", url], check=True)
data = sys.stdin.buffer.read() if source == "-" else open(source, "rb").read()
"""
CLIENTS = {
    "good": "put(data)",
    "wrong": "put(data[:-1] + bytes([data[-1] ^ 1]))",
    "short": "put(data[:-1])",
    "nothing": "pass",
    "stray": "put(data); put(b'x', url + '/x')",
    "wordy": "put(data); sys.exit('no such bucket')",
}
TOML = """
name = "{name}"
about = "a client"
[install]
apt = ["python3"]
program = "python3"
[put.file]
run = ["{{program}}", "-S", "{{folder}}/client.py", "{{source}}", "{{url}}", "{{access_key}}:{{secret_key}}"]
[put.pipe]
run = ["{{program}}", "-S", "{{folder}}/client.py", "-", "{{url}}", "{{access_key}}:{{secret_key}}"]
"""


class Runs(WithFlatout, WithLab):
    """The lab as a command, with a real origin."""

    def setUp(self):
        super().setUp()
        (self.folder / "flatout").unlink()
        (self.folder / "flatout").symlink_to(FLATOUT)

    def write_clients(self, case: str):
        for name, code in CLIENTS.items():
            folder = self.folder / "bench/peers" / name
            folder.mkdir(parents=True)
            (folder / "peer.toml").write_text(TOML.format(name=name))
            (folder / "client.py").write_text(CLIENT + code)
        (self.folder / "bench/cases/one.toml").write_text(case.replace('["one"]', json.dumps(list(CLIENTS))))

    def write_ours(self, name: str, case: str, peers: list[str]):
        for peer in ("flatout", "floor"):
            shutil.copytree(support.BENCH / "peers" / peer, self.folder / "bench/peers" / peer, dirs_exist_ok=True)
        (self.folder / f"bench/cases/{name}.toml").write_text(case.replace('["one"]', json.dumps(peers)))

    def reasons(self) -> dict[str, str | None]:
        return {cell["peer"]: cell["reason"] for cell in self.results()["cells"]}

    def check_clients(self, case: str):
        self.write_clients(case.replace("[quick]", "[smoke]"))
        code, out, errors = self.run_lab()
        found = self.reasons()
        self.assertEqual(code, 1, errors)
        # Loopback is the machine's, and others may move as much over it.
        offline = r"^only \d+ bytes crossed loopback for 8388608: it did not send them all$|^it ended well, and the origin has no sent$"
        self.assertRegex(found.pop("nothing"), offline)
        self.assertRegex(found.pop("wrong"), r"^wrong bytes: the CRC-64 of sent at the origin is \d+, not \d+$")
        expected = {
            "good": None,
            "short": "the origin has 8388607 bytes of sent, and 8388608 were to be sent",
            "stray": "the origin has 2 objects, and 1 were to be sent: sent/x is none of them",
            "wordy": "exit status 1: no such bucket",
        }
        self.assertEqual(found, expected)
        (good,) = [cell for cell in self.results()["cells"] if cell["peer"] == "good"]
        self.assertEqual(len(good["rounds"]), 2)
        self.assertGreaterEqual(good["summary"]["fetched_over_delivered"], 1.0)

    def test_every_failure_is_shown_of_files(self):
        self.check_clients(CASE)

    def test_every_failure_is_shown_of_streams(self):
        self.check_clients(CASE.replace('"file"', '"pipe"'))

    def test_flatout_and_the_floor(self):
        case = CASE.replace("[quick]", "[smoke]").replace("8MiB", "20MiB")
        sending = ["floor:send:1:1MiB", "floor:sendfile:2:1MiB", "flatout:default"]
        self.write_ours("one-file", case + '[alike]\nparallel = 2\npart_size = "5MiB"\n', sending)
        self.write_ours("one-stream", case.replace('"file"', '"pipe"'), sending)
        self.write_ours("secure", case.replace('"sink"', '"sink-tls"'), ["floor:send:2:1MiB", "flatout:default"])
        many = case.replace('"file"', '"files"').replace("20MiB", "1KiB") + "count = 30\n"
        self.write_ours("files", many, ["flatout:default"])
        code, out, errors = self.run_lab("--rounds", "1")
        cells = {(cell["case"], f"{cell['peer']}:{cell['settings']}"): cell for cell in self.results()["cells"]}
        self.assertEqual({cell["reason"] for cell in cells.values()}, {None}, errors)
        self.assertEqual((code, len(cells)), (0, 4 + 3 + 2 + 1), errors)
        self.assertIn("flatout:2 x 5MiB", {label for case, label in cells if case == "one-file"})
        for (name, label), cell in cells.items():
            self.assertEqual(cell["talks"], label.startswith("floor"), label)
            self.assertEqual(cell["summary"]["objects_per_s"] is not None, name == "files")
        self.assertNotIn("{", json.dumps([cell["command"] for cell in cells.values()]))
        self.assertGreater(cells["one-stream", "flatout:default"]["rounds"][0]["drain_cpu_seconds"], 0)
        self.assertEqual(cells["one-stream", "floor:send:1:1MiB"]["rounds"][0]["drain_cpu_seconds"], 0)


if __name__ == "__main__":
    unittest.main()
