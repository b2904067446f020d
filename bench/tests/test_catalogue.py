"""What peers and cases may say; each mistake names the file, the key and what would do."""

import unittest

import support  # first: it finds the lab's modules
import catalogue
import variables
from errors import UsageError
from sizes import MIB, format_size, parse_size

PEER = """
name = "one"
version = "1"
about = "a client"
[install]
apt = ["one"]
[tls]
args = ["--ca", "{ca}"]
[settings.default]
[settings.advised]
why = "its README"
args = ["-x"]
[get.file]
run = ["{program}", "{settings}", "{tls}", "{url}", "{target}"]
[sweep]
args = ["-j{parallel}", "--part", "{part_mib}"]
"""
CASE = """
title = "A case"
why = "a reason"
origin = "nginx"
work = "get"
landing = "file"
peers = ["one"]
[quick]
size = "8MiB"
"""


class WithBench(support.WithFolder):
    def write(self, peer=PEER, case=CASE, folder="one"):
        for path, text in ((f"peers/{folder}/peer.toml", peer), ("cases/large.toml", case)):
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def load(self, **files) -> catalogue.Catalogue:
        self.write(**files)
        return catalogue.load(self.folder)

    def wrong(self, **files) -> str:
        with self.assertRaises(UsageError) as caught:
            self.load(**files)
        return str(caught.exception).removeprefix(f"{self.folder}/")


class Peers(WithBench):
    def check(self, rows: dict[tuple[str, str], str]):
        for (old, new), reason in rows.items():
            with self.subTest(new=new):
                self.assertIn(old, PEER)
                self.assertEqual(self.wrong(peer=PEER.replace(old, new)), f"peers/one/peer.toml: {reason}")

    def test_keys(self):
        self.check(
            {
                ('about = "a client"', 'abuot = "a client"'): "abuot: is unknown; did you mean about?",
                ('about = "a client"', 'about = "x"\nabuot = "x"'): "abuot: is unknown; did you mean about?",
                ('args = ["-x"]', 'args = ["-\\u0000x"]'): "settings.advised.args: holds a NUL",
                ('apt = ["one"]', 'atp = ["one"]'): "[install]: no key atp; did you mean apt?",
                ("[get.file]", "[get.fiel]"): "get.fiel: is unknown; did you mean file?",
                ("[settings.advised]", '[settings.advised]\nenvv = "x"'): "settings.advised.envv: is unknown; did you mean env?",
                ("[get.file]", "[get.file]\ntalk = true"): "get.file.talk: is unknown; did you mean talks?",
                ('name = "one"', 'name = "two"'): "name: must be that of its folder, 'one', not 'two'",
                ('why = "its README"', ""): "settings.advised.why: is missing: name the place in the peer's documentation that advises it",
            }
        )

    def test_types(self):
        self.check(
            {
                ('version = "1"', "version = 1"): "version: must be a text, not 1",
                ('args = ["-x"]', 'args = "-x"'): "settings.advised.args: must be a list, not '-x'",
                ('args = ["-x"]', "args = [16]"): "settings.advised.args: must be a list of which each is a text, not 16",
                ('args = ["-x"]', "env = { A = 1 }"): "settings.advised.env.A: must be a text, not 1",
                ("[get.file]", '[get.file]\ntalks = "yes"'): "get.file.talks: must be true or false, not 'yes'",
                ("[get.file]", "[get]\nfile = 1\n[x]"): "get.file: must be a table, not 1",
            }
        )

    def test_variables(self):
        self.check(
            {
                ("{url}", "{ulr}"): "get.file.run: {ulr} is no variable here; did you mean url?",
                ("{url}", "{keys}"): "get.file.run: {keys} is no variable here; did you mean key?",
                ('"{tls}"', '"--x={tls}"'): "get.file.run: {tls} must be an argument of its own, not a part of '--x={tls}'",
                ("{part_mib}", "{part_mb}"): "sweep.args: {part_mb} is no variable here; did you mean part_mib?",
                ('["-x"]', '["{tls}"]'): f"settings.advised.args: {{tls}} is no variable here{catalogue.nearest('tls', variables.ALWAYS - {'settings', 'tls', 'program'})}",
            }
        )

    def test_calls(self):
        nowhere = '[get.nowhere]\nrun = ["{program}", "{url}"]\n[get.file]'
        self.check(
            {
                ("[get.file]", nowhere): 'get.nowhere.run: what it delivers cannot be checked: needs talks = true or stdout = "drop"',
                ("[get.file]", '[get.file]\nstdout = "drop"'): "get.file.stdout: can be dropped only where the landing is nowhere",
                ("[get.file]", '[get.file]\nstdout = "drip"'): "get.file.stdout: 'drip' is none of them; did you mean drop?",
                (PEER[PEER.index("[get.file]") : PEER.index("[sweep]")], ""): "there is no [get.LANDING], no [many.LANDING], no [put.SOURCE] and no [python.LANDING]: nothing could be measured",
                ("[get.file]", '[python.zip]\nrun = ["{program}"]\n[get.file]'): "python.zip.run: is a part of a Python program, and only what talks can say where it begins: needs talks = true",
            }
        )

    def test_no_toml(self):
        self.assertRegex(self.wrong(peer="name = "), r"^peers/one/peer.toml: Invalid value \(at ")


class Cases(WithBench):
    def check(self, rows: dict[tuple[str, str], str]):
        for (old, new), reason in rows.items():
            with self.subTest(new=new):
                self.assertIn(old, CASE)
                self.assertEqual(self.wrong(case=CASE.replace(old, new)), f"cases/large.toml: {reason}")

    def test_keys(self):
        self.check(
            {
                ('why = "a reason"', ""): "why: is missing; it must be a text",
                ('origin = "nginx"', 'origin = "ngnix"'): "origin: 'ngnix' is none of them; did you mean nginx?",
                ('landing = "file"', 'landing = "files"'): "landing: 'files' is none of them; did you mean file?",
                ('size = "8MiB"', 'size = "8M"'): "quick.size: '8M' is no size; write one as 128KiB, 8MiB or 4GiB",
                ('size = "8MiB"', 'size = "8MiB"\ncount = 2'): 'quick.count: is for work = "many" and "mount", and to put "files"',
                ('size = "8MiB"', 'size = "8MiB"\nread = "1MiB"'): 'quick.read: is for work = "mount": what its reader reads of the objects',
                ("[quick]", "[quikc]"): "quikc: is unknown; did you mean quick?",
                ('[quick]\nsize = "8MiB"', ""): "quick: no suite runs this case: write a table smoke, quick, full with its size",
            }
        )

    def test_peers(self):
        self.check(
            {
                ('["one"]', '["onne"]'): "peers: 'onne' is no peer; did you mean one?",
                ('["one"]', '["one:advise"]'): "peers: one has no settings 'advise'; did you mean advised?",
                ('["one"]', '["one", "one"]'): "peers: names one:default twice",
                ('["one"]', '["one", "one:advised"]'): "peers: names one:advised twice",
                ('"file"', '"pipe"'): "peers: one has no [get.pipe] in its peer.toml, only [get.file]",
                ('peers = ["one"]', 'peers = ["one"]\nfloor = "floor"'): "floor: 'floor' is none of its peers; known: one",
                ('size = "8MiB"', 'size = "8MiB"\nwithout = ["onne"]'): "without: 'onne' is none of its peers that can be left out; did you mean one?",
            }
        )
        without_tls = PEER.replace("[tls]\nargs = [\"--ca\", \"{ca}\"]\n", "")
        said = self.wrong(peer=without_tls, case=CASE.replace("nginx", "nginx-tls"))
        self.assertEqual(said, "cases/large.toml: peers: one has no [tls] in its peer.toml, and nginx-tls speaks TLS")


class Cells(WithBench):
    def labels(self, catalogue_, *arguments) -> list[str]:
        return [cell.label for cell in catalogue_.cells(*arguments)]

    def test_all_settings_or_one(self):
        self.assertEqual(self.labels(self.load(), "quick"), ["one:default", "one:advised"])
        self.assertEqual(self.labels(self.load(case=CASE.replace('"one"', '"one:advised"')), "quick"), ["one:advised"])

    def test_a_suite_leaves_peers_out(self):
        two = CASE.replace('["one"]', '["one", "two:default"]') + 'without = ["one"]\n[full]\nsize = "8MiB"\n'
        self.write(peer=PEER.replace('name = "one"', 'name = "two"'), folder="two")
        loaded = self.load(case=two)
        self.assertEqual(self.labels(loaded, "quick"), ["two:default"])
        self.assertEqual(self.labels(loaded, "full"), ["one:default", "one:advised", "two:default"])

    def test_sweep(self):
        sweep = CASE + '[sweep]\nparallel = [4, 16]\npart_size = ["2MiB", "512KiB"]'
        found = self.load(case=sweep).cells("quick")
        self.assertEqual([cell.settings.name for cell in found], ["4 x 2MiB", "4 x 512KiB", "16 x 2MiB", "16 x 512KiB"])
        self.assertEqual(found[3].settings.args, ["-j16", "--part", "0.5"])
        self.assertEqual((found[0].parallel, found[0].part_bytes), (4, 2 * MIB))

    def test_alike_comes_beside_the_settings(self):
        found = self.load(case=CASE + '[alike]\nparallel = 32\npart_size = "8MiB"').cells("quick")
        self.assertEqual([cell.settings.name for cell in found], ["default", "advised", "32 x 8MiB"])
        self.assertEqual(found[2].settings.args, ["-j32", "--part", "8"])
        found = self.load(case=CASE + '[alike]\nparallel = [1, 2]\npart_size = ["8MiB", "9MiB"]').cells("quick")
        self.assertEqual([cell.settings.name for cell in found[2:]], ["1 x 8MiB", "1 x 9MiB", "2 x 8MiB", "2 x 9MiB"])

    def test_the_floor_of_a_sweep_keeps_its_settings(self):
        sweep = CASE.replace('peers = ["one"]', 'peers = ["one"]\nfloor = "one"') + '[sweep]\nparallel = [4]\npart_size = ["2MiB"]'
        self.assertEqual(self.labels(self.load(case=sweep), "quick"), ["one:default", "one:advised"])

    def test_another_size(self):
        self.write(peer=PEER + '[python.zip]\nrun = ["{program}", "{key}", "{bytes}"]\ntalks = true\n')
        python = CASE.replace('"get"', '"python"').replace('"file"', '"zip"').replace('"8MiB"', '"20MiB"')
        (self.folder / "cases/zipped.toml").write_text(python)
        loaded = catalogue.load(self.folder)
        (cell, _) = loaded.cells("quick", ["zipped"])
        # Each tenth of twenty members.
        self.assertEqual((cell.objects.size, cell.objects.delivered), (20 * MIB, 2 * MIB))
        resized = loaded.resized(31 * MIB, "quick", [])
        sizes = {cell.case.name: (cell.objects.size, cell.objects.delivered) for cell in resized.cells("quick")}
        self.assertEqual(sizes, {"large": (31 * MIB, 31 * MIB), "zipped": (31 * MIB, 4 * MIB)})
        self.assertEqual({cell.objects.size for cell in loaded.cells("quick")}, {8 * MIB, 20 * MIB})
        many = CASE.replace('"get"', '"many"').replace('"file"', '"files"') + "count = 2\n"
        (self.folder / "cases/zipped.toml").unlink()
        with_many = self.load(peer=PEER.replace("[get.file]", "[many.files]").replace("{url}", "{keys}"), case=many)
        with self.assertRaisesRegex(UsageError, "^--size is for cases of one object, and large is none"):
            with_many.resized(MIB, "quick", ["large"])

    def test_globs(self):
        loaded = self.load()
        self.assertEqual(len(loaded.cells("quick", ["lar*"], ["o*"])), 2)
        # One that matches nothing is a mistake, whatever the others match.
        with self.assertRaisesRegex(UsageError, "no peer matches onee; did you mean one?"):
            loaded.cells("quick", [], ["one", "onee"])
        for arguments, reason in [
            (("quick", ["small*"], []), "no case matches small*; known: large"),
            (("full", [], []), "no case of suite full matches *; there are: none"),
            (("quick", [], ["two"]), "no peer matches two; known: one"),
        ]:
            with self.assertRaises(UsageError) as caught:
                loaded.cells(*arguments)
            self.assertEqual(str(caught.exception), reason)


class Words(unittest.TestCase):
    def test_sizes(self):
        for text, size in {"0": 0, "512B": 512, "128KiB": 131072, "8 MiB": 8 * MIB, "4GiB": 4 << 30, "2MB": 2_000_000}.items():
            self.assertEqual(parse_size(text), size)
        for text in ("", "8M", "-1", "1.5MiB", "MiB"):
            with self.assertRaises(ValueError):
                parse_size(text)
        self.assertEqual([format_size(size) for size in (0, 1000, 131072, 8 * MIB, 4 << 30)], ["0B", "1000B", "128KiB", "8MiB", "4GiB"])

    def test_arguments_are_filled(self):
        spliced = {"program": ["python", "x.py"], "settings": [], "tls": ["--ca", "f"]}
        values = {"url": "http://h/b/k", "target": "/t"}
        filled = variables.fill(["{program}", "{settings}", "{tls}", "--from={url}", "{target}", "{"], values, spliced)
        self.assertEqual(filled, ["python", "x.py", "--ca", "f", "--from=http://h/b/k", "/t", "{"])


class Ours(unittest.TestCase):
    def test_everything_here_is_well_formed(self):
        found = catalogue.load(support.BENCH)
        self.assertTrue(found.cells("smoke"))
        self.assertTrue(found.cells("quick"))

    def test_the_smoke_has_curl_and_flatout(self):
        peers = {cell.peer.name for cell in catalogue.load(support.BENCH).cells("smoke")}
        self.assertLessEqual({"curl", "flatout"}, peers)


if __name__ == "__main__":
    unittest.main()
