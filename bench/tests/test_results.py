"""What the rounds come to, and what is shown on the way."""

import io
import json
import os
import unittest
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import support  # first: it finds the lab's modules
import machine
import page
import results
from content import Objects
from errors import LabError, UsageError
from process import Measured
from progress import Progress, clock
from rounds import Result, Round, order
from sampler import peak_rate
from sizes import GIB, MIB
from summary import disturbed, summary



class Thing(SimpleNamespace):
    """Of whatever fields; as with cells, each is only itself."""

    __hash__ = object.__hash__


CASE = SimpleNamespace(name="large", work="get", landing="file", form="one", origin="nginx", floor="floor")
ONCE = Measured(
    seconds=1.0, cpu_seconds=0.5, peak_rss=10 * MIB, origin_cpu_seconds=0.2, fetched_bytes=GIB + GIB // 10, peak_bytes_per_s=2.0 * GIB
)


def cell(peer: str, settings="default", case=CASE, objects=Objects(GIB, 1)):
    return Thing(
        case=case,
        objects=objects,
        peer=SimpleNamespace(name=peer),
        settings=SimpleNamespace(name=settings),
        parallel=None,
        part_bytes=None,
        call=SimpleNamespace(talks=False),
        label=f"{peer}:{settings}",
    )


def result(peer: str, *runs: dict, reason=None, **more) -> Result:
    rounds = [Round(at, 1, replace(ONCE, **run)) for at, run in enumerate(runs, 1)]
    return Result(cell(peer, **more), reason, rounds, [peer])


def summary_of(*found: Result, cores=1) -> dict:
    return results.cells_of(list(found), {"nginx": cores})[0]["summary"]


class Summaries(unittest.TestCase):
    def test_figures(self):
        found = summary_of(result("one", {}, {"seconds": 2.0, "peak_rss": 30 * MIB}, {"seconds": 4.0, "cpu_seconds": 1.0}))
        self.assertEqual(found["gib_per_s"], {"median": 0.5, "low": 0.25, "high": 1.0})
        self.assertEqual(found["cpu_s_per_gib"], {"median": 0.5, "low": 0.5, "high": 1.0})
        self.assertEqual((found["peak_rss_mib"], found["peak_gib_per_s"], found["fetched_over_delivered"]), (30, 2, 1.1))
        self.assertEqual((found["objects_per_s"], found["of_floor"], found["bound"]), (None, None, None))

    def test_many_objects(self):
        many = SimpleNamespace(**{**vars(CASE), "work": "many"})
        found = summary_of(result("one", {"seconds": 2.0}, case=many, objects=Objects(MIB, 1024)))
        self.assertEqual(found["objects_per_s"]["median"], 512)
        self.assertEqual(found["gib_per_s"]["median"], 0.5)

    def test_the_origin_bounds(self):
        self.assertEqual(summary_of(result("one", {"origin_cpu_seconds": 0.95}))["bound"], "origin")
        self.assertIsNone(summary_of(result("one", {"origin_cpu_seconds": 0.95}), cores=2)["bound"])

    def test_the_machine_bounds(self):
        all_cores = {"cpu_seconds": 0.97 * os.cpu_count(), "origin_cpu_seconds": 0.0}
        self.assertEqual(summary_of(result("one", all_cores))["bound"], "machine")

    def test_what_empties_the_pipe_is_busy_too(self):
        some = {"cpu_seconds": 0.5 * os.cpu_count(), "origin_cpu_seconds": 0.0, "drain_cpu_seconds": 0.48 * os.cpu_count()}
        self.assertEqual(summary_of(result("one", some))["bound"], "machine")

    def test_others_at_work_are_marked(self):
        for share, said in ((0.05, ""), (0.2, "others took 20%")):
            found = summary_of(result("one", *[{"foreign_cpu_seconds": share * os.cpu_count()}] * 3, {}))
            self.assertEqual((found["foreign_busy"], disturbed(found)), (share, said))

    def test_of_the_best_floor_round_by_round(self):
        slow = result("floor", {"seconds": 8.0}, {"seconds": 8.0}, {"seconds": 8.0}, settings="slow")
        fast = result("floor", {"seconds": 0.5}, {"seconds": 1.0}, {"seconds": 2.0}, settings="fast")
        found = summary_of(result("one", {"seconds": 1.0}, {"seconds": 2.0}, {"seconds": 4.0, "cpu_seconds": 1.0}), slow, fast)
        self.assertEqual(found["of_floor"]["throughput"], {"median": 0.5, "low": 0.5, "high": 0.5})
        self.assertEqual(found["of_floor"]["cpu"], {"median": 1, "low": 1, "high": 2})

    def test_a_floor_that_failed_is_none(self):
        self.assertIsNone(summary_of(result("one", {}), result("floor", reason="no"))["of_floor"])

    def test_a_failed_cell_keeps_what_was_measured(self):
        found = results.cells_of([result("one", {}, reason="the second time")], {"nginx": 1})[0]
        self.assertEqual((found["state"], found["reason"], found["summary"], len(found["rounds"])), ("failed", "the second time", None, 1))

    def test_how_sure(self):
        self.assertEqual(results.method(7, 60, GIB)["confidence_reached"], 0.9844)
        self.assertEqual(results.method(9, 60, GIB)["interval_ranks"], [2, 8])


class Machines(support.WithFolder):
    def id_with(self, number: str) -> dict:
        file = self.folder / "machine-id"
        file.write_text(number)
        own = machine.own_number
        with mock.patch.object(machine, "own_number", lambda: own(file)):
            return machine.describe()

    def test_two_of_one_type(self):
        one, other = self.id_with("abcdef\n"), self.id_with("fedcba\n")
        self.assertNotEqual(one.pop("id"), other.pop("id"))
        self.assertEqual(one, other)
        self.assertNotIn("abcdef", json.dumps(one))

    def test_a_new_kernel_is_the_same_machine(self):
        before = machine.describe()
        with mock.patch("platform.release", lambda: "99.0"):
            after = machine.describe()
        self.assertEqual((before["id"], after["kernel"]), (after["id"], "99.0"))

    def test_no_number(self):
        self.assertEqual(machine.own_number(self.folder / "none"), "")


class Rounds(unittest.TestCase):
    def test_each_round_has_an_order_of_its_own(self):
        found = [result(name) for name in "abcde"]
        orders = [tuple(each.cell.peer.name for each in order(found, number)) for number in range(1, 8)]
        self.assertTrue(all(sorted(each) == list("abcde") for each in orders))
        self.assertGreater(len(set(orders)), 4)
        self.assertEqual(orders[2], tuple(each.cell.peer.name for each in order(found, 3)))

    def test_peak_rate(self):
        steady = [(at / 50, at * 10) for at in range(51)]
        self.assertAlmostEqual(peak_rate(steady), 500)
        burst = [(at / 50, at * 10 + (1000 if at >= 25 else 0)) for at in range(51)]
        self.assertAlmostEqual(peak_rate(burst), 1050 / 0.1)
        # Shorter than the window: all of it.
        self.assertAlmostEqual(peak_rate([(0, 0), (0.02, 100)]), 5000)
        self.assertEqual(peak_rate([(0, 5), (0, 5)]), 0)


class Files(support.WithFolder):
    def test_all_or_nothing(self):
        path = self.folder / "new/latest.json"
        results.write(path, "one")
        with self.assertRaises(TypeError):
            results.write(path, 2)
        self.assertEqual((path.read_text(), os.listdir(path.parent)), ("one", ["latest.json"]))

    def test_what_is_no_file_is_left_alone(self):
        device = self.folder / "null"
        device.symlink_to("/dev/null")
        with self.assertRaisesRegex(UsageError, "is no file: name one to write to"):
            results.write(device, "x")
        self.assertTrue(device.is_symlink())

    def test_behind_a_link_stands_the_file_that_is_meant(self):
        (self.folder / "page").symlink_to(self.folder / "behind")
        results.write(self.folder / "page", "x")
        self.assertEqual((self.folder / "behind").read_text(), "x")
        self.assertTrue((self.folder / "page").is_symlink())

    def test_where_nothing_can_be_written(self):
        (self.folder / "file").write_text("")
        with self.assertRaisesRegex(LabError, "file/latest.json: cannot be written: "):
            results.write(self.folder / "file/latest.json", "x")

    def test_words_cannot_end_the_data(self):
        template = self.folder / "page.html"
        template.write_text(f"<script>{page.PLACE}</script>")
        made = page.render({"reason": "</script><b>"}, template)
        self.assertEqual(made.count("<"), 2)
        data = made.removeprefix("<script>").removesuffix("</script>")
        self.assertEqual(json.loads(data), {"reason": "</script><b>"})

    def test_a_template_without_a_place(self):
        template = self.folder / "page.html"
        template.write_text("<html>")
        with self.assertRaisesRegex(LabError, "must hold .* once, not 0 times"):
            page.render({}, template)


class Shown(unittest.TestCase):
    def test_what_is_left(self):
        stream = io.StringIO()
        progress = Progress(4, stream)
        one, other = cell("one"), cell("other")
        progress.expect(one, 2)
        progress.expect(other, 2)
        progress.running(one, "x")
        progress.ran(one, 10.0)
        # One more of its own, and two of a cell that nothing is known of.
        self.assertEqual(progress.left(), ", about 30 s left")
        progress.ran(other, 20.0)
        self.assertEqual(progress.left(), ", about 30 s left")
        progress.dropped(other)
        self.assertEqual((progress.left(), progress.runs), (", about 10 s left", 3))
        self.assertEqual(stream.getvalue(), "lab: [1/4] x · 0 s gone\n")

    def test_a_terminal_has_one_line(self):
        stream = io.StringIO()
        stream.isatty = lambda: True
        progress = Progress(1, stream)
        progress.running(cell("one"), "x")
        progress.say("a line")
        self.assertEqual(stream.getvalue(), "\r\x1b[K[1/1] x · 0 s gone\r\x1b[Klab: a line\n")

    def test_clock(self):
        self.assertEqual([clock(0.4), clock(59.4), clock(61), clock(600)], ["0 s", "59 s", "1 min 01 s", "10 min 00 s"])

    def test_the_table(self):
        cells = results.cells_of([result("slow", {"seconds": 2.0}), result("fast", {}), result("bad", reason="no such bucket")], {"nginx": 1})
        said = summary({"cases": [{"name": "large", "title": "One", "work": "get"}], "cells": cells, "method": results.method(7, 60, GIB)})
        lines = said.splitlines()
        self.assertEqual([line.split()[0] for line in lines[2:5]], ["fast", "slow", "bad"])
        self.assertIn("failed: large, bad default: no such bucket", lines)
        self.assertEqual(lines[-1], "Medians of 7 rounds; intervals are their range, 98.4% sure.")


if __name__ == "__main__":
    unittest.main()
