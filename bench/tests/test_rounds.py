"""What becomes of a cell whose run cannot be had, or be looked at."""

import contextlib
import io
import os
import unittest
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import support  # first: it finds the lab's modules
import rounds
import variables
from content import Objects
from clients import check_amount, values_of
from errors import LabError
from process import RunFailed
from progress import Progress
from rounds import Bench, Result
from test_results import ONCE, cell

MANY = SimpleNamespace(name="small", work="many", landing="files", form="many", origin="nginx", floor=None)

ALIVE = SimpleNamespace(died=lambda: None)


class Delivered(support.WithFolder):
    """What is looked at in each round."""

    def setUp(self):
        super().setUp()
        self.target = self.folder / "target"
        (self.target / "below").mkdir(parents=True)
        self.cell = cell("one", case=MANY, objects=Objects(100, 3))
        for at in range(3):
            (self.target / "below" / f"{at}").write_bytes(bytes(100))

    def check(self):
        check_amount(self.cell, replace(ONCE, said_bytes=None), SimpleNamespace(target=self.target))

    def test_all_there(self):
        self.check()

    def test_a_short_file(self):
        (self.target / "below/1").write_bytes(bytes(99))
        with self.assertRaisesRegex(RunFailed, "^its files have 299 bytes of 300$"):
            self.check()

    def test_a_file_too_few(self):
        (self.target / "below/1").unlink()
        with self.assertRaisesRegex(RunFailed, "^it left 2 files of 3$"):
            self.check()

    def test_a_file_that_leads_nowhere(self):
        (self.target / "below/1").unlink()
        (self.target / "below/1").symlink_to("none")
        with self.assertRaises(FileNotFoundError):
            self.check()


class Variables(unittest.TestCase):
    def test_each_has_a_value(self):
        one = cell("one", objects=Objects(100, 1))
        one.peer.folder = "/peer"
        origin = SimpleNamespace(endpoint="http://127.0.0.1:1", ca=None)
        ground = SimpleNamespace(origin=origin, work="/work", target="/work/target", mount_point="/work/mounted")
        found = values_of(one, ground)
        self.assertEqual((variables.ALWAYS | variables.OF_WORK["get"]) - found.keys(), variables.SPLICED)
        one.case = SimpleNamespace(**{**vars(one.case), "work": "mount"})
        self.assertEqual((variables.ALWAYS | variables.OF_WORK["mount"]) - values_of(one, ground).keys(), variables.SPLICED)
        self.assertEqual((found["access_key"], found["cores"]), ("labadmin", str(os.cpu_count())))


class Failures(unittest.TestCase):
    """They are the cell's, and the others go on."""

    def one_run(self, ground, keep=lambda measured: None) -> Result:
        result = Result(cell("one"))
        progress = Progress(1, io.StringIO())
        progress.expect(result.cell, 1)
        bench = Bench(ground, None, {"one": None}, progress)
        with mock.patch.object(rounds, "client", lambda *_: SimpleNamespace(argv=["one"])), mock.patch.object(rounds, "run", lambda *_: ONCE):
            rounds.one_run(result, "check", True, keep, bench)
        return result

    def test_what_it_delivered_vanishes(self):
        def keep(_):
            raise FileNotFoundError(2, "No such file or directory", "target")

        found = self.one_run(SimpleNamespace(clean=lambda: None, origin=ALIVE), keep)
        self.assertEqual(found.reason, "the lab could not run it, or look at what it delivered: [Errno 2] No such file or directory: 'target'")

    def test_no_space(self):
        def clean():
            raise OSError(28, "No space left on device")

        self.assertIn("No space left on device", self.one_run(SimpleNamespace(clean=clean, origin=ALIVE)).reason)

    def test_the_origin_died(self):
        for again, lost in ((lambda: None, 0), (mock.Mock(side_effect=LabError("no port")), 1)):
            origin = SimpleNamespace(died=lambda: "origin nginx: ended with status -9", again=again, pids=[7])
            around = SimpleNamespace(origin_pids=[6])
            bench = Bench(SimpleNamespace(origin=origin), around, {}, Progress(1, io.StringIO()), [])
            self.assertEqual(rounds.with_origin("exit status 1", bench), "exit status 1; origin nginx: ended with status -9")
            self.assertEqual((len(bench.lost), around.origin_pids), (lost, [6] if lost else [7]))

    def test_no_origin_any_more(self):
        result = Result(cell("one"))
        progress = Progress(1, io.StringIO())
        progress.expect(result.cell, 1)
        rounds.one_run(result, "check", True, None, Bench(SimpleNamespace(), None, {}, progress, ["it is gone"]))
        self.assertEqual(result.reason, "it is gone")

    def test_nothing_wrong(self):
        self.assertIsNone(self.one_run(SimpleNamespace(clean=contextlib.nullcontext)).reason)


if __name__ == "__main__":
    unittest.main()
