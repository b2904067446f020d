"""Two results: better, worse or the same; and when there is no answer."""

import contextlib
import copy
import io
import json
import unittest

import support  # first: it finds the lab's modules
import compare
from errors import UsageError

GIB = 1 << 30
STEADY = [1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995]


def cell(peer: str, seconds: list[float], cpu: list[float] | None = None, settings="default", case="large") -> dict:
    rounds = [
        {"round": at, "seconds": time, "cpu_seconds": used} for at, (time, used) in enumerate(zip(seconds, cpu or STEADY), 1)
    ]
    return {"case": case, "peer": peer, "settings": settings, "state": "ok", "reason": None, "rounds": rounds}


def failed(peer: str) -> dict:
    return {**cell(peer, []), "state": "failed", "reason": "no such bucket"}


def results(*cells: dict, machine="aaaa") -> dict:
    case = {"name": "large", "objects": 1, "object_bytes": GIB, "origin": "nginx", "landing": "file", "floor": "floor"}
    return {"schema": 1, "kind": "lab", "suite": "quick", "machine": {"id": machine}, "cases": [case], "cells": list(cells)}


def times(factor: float, values=STEADY) -> list[float]:
    return [factor * value for value in values]


class Compare(support.WithFolder):
    def put(self, name: str, data) -> compare.Path:
        path = self.folder / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    def compared(self, a: dict, b: dict, tolerance=0.02) -> compare.Comparison:
        return compare.compare(compare.Run(self.put("a", a)), compare.Run(self.put("b", b)), tolerance)

    def verdict(self, a: dict, b: dict, measure="throughput", peer="flatout", **more) -> compare.Verdict:
        verdicts = self.compared(a, b, **more).verdicts
        return next(each for each in verdicts if (each.measure, each.peer) == (measure, peer))

    def run_main(self, a, b, **more) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            options = {"as_json": False, "across_machines": False, "tolerance": 0.02, **more}
            code = compare.main(self.put("a", a), self.put("b", b), **options)
        return code, out.getvalue()

    def usage(self, a, b) -> str:
        with self.assertRaises(UsageError) as caught:
            self.run_main(a, b)
        return str(caught.exception)


class Verdicts(Compare):
    def test_faster_is_better(self):
        found = self.verdict(results(cell("flatout", STEADY)), results(cell("flatout", times(0.8))))
        self.assertEqual(found.verdict, "better")
        self.assertAlmostEqual(found.ratio, 1.25, places=6)
        self.assertTrue(1 < found.low < 1.25 < found.high)

    def test_slower_is_worse(self):
        self.assertEqual(self.verdict(results(cell("flatout", STEADY)), results(cell("flatout", times(1.2)))).verdict, "worse")

    def test_the_same(self):
        self.assertEqual(self.verdict(results(cell("flatout", STEADY)), results(cell("flatout", STEADY[::-1]))).verdict, "same")

    def test_more_cpu_is_worse(self):
        a, b = results(cell("flatout", STEADY, STEADY)), results(cell("flatout", STEADY, times(1.2)))
        self.assertEqual(self.verdict(a, b, "cpu").verdict, "worse")
        self.assertEqual(self.verdict(b, a, "cpu").verdict, "better")
        self.assertEqual(self.verdict(a, b, "throughput").verdict, "same")

    def test_scattered_runs_are_the_same(self):
        wild = [0.5, 1.5, 0.7, 1.3, 0.9, 1.1, 1.0]
        self.assertEqual(self.verdict(results(cell("flatout", wild)), results(cell("flatout", times(0.9, wild)))).verdict, "same")

    def test_what_does_not_matter_is_the_same(self):
        a, b = results(cell("flatout", [1 + n / 1e6 for n in range(7)])), results(cell("flatout", times(0.99, [1 + n / 1e6 for n in range(7)])))
        self.assertEqual(self.verdict(a, b).verdict, "same")
        self.assertEqual(self.verdict(a, b, tolerance=0.0).verdict, "better")

    def test_too_few_rounds(self):
        found = self.verdict(results(cell("flatout", [1.0, 1.0])), results(cell("flatout", [0.5, 0.5])))
        self.assertEqual((found.verdict, found.low), ("unsure", None))


class Floors(Compare):
    def test_a_slower_day_cancels(self):
        a = results(cell("flatout", STEADY), cell("floor", times(0.5), settings="recv"))
        b = results(cell("flatout", times(1.5)), cell("floor", times(0.75), settings="recv"))
        found = self.verdict(a, b)
        self.assertEqual((found.verdict, found.of_floor), ("same", "recv"))
        self.assertAlmostEqual(found.ratio, 1)

    def test_round_by_round(self):
        drift = [1, 2, 3, 4, 5, 6, 7]
        a = results(cell("flatout", drift), cell("floor", drift, settings="recv"))
        b = results(cell("flatout", times(0.9, drift)), cell("floor", drift, settings="recv"))
        found = self.verdict(a, b)
        self.assertEqual(found.verdict, "better")
        self.assertAlmostEqual(found.low, found.high)

    def test_the_floor_itself_is_plain(self):
        a = results(cell("floor", STEADY, settings="recv"))
        b = results(cell("floor", times(1.5), settings="recv"))
        found = self.verdict(a, b, peer="floor")
        self.assertEqual((found.verdict, found.of_floor), ("worse", None))

    def test_a_slower_machine_is_not_worse(self):
        a = results(cell("flatout", STEADY), cell("floor", times(0.5), settings="recv"))
        b = results(cell("flatout", times(1.5)), cell("floor", times(0.75), settings="recv"))
        code, said = self.run_main(a, b)
        self.assertEqual(code, 0)
        self.assertRegex(said, r"large, floor recv +throughput +worse +.* the machine\n")
        self.assertIn("0 worse, 2 same; 0 cells not compared", said)

    def test_the_best_that_both_have(self):
        a = results(cell("flatout", STEADY), cell("floor", times(0.1), settings="best"), cell("floor", times(0.5), settings="good"))
        b = results(cell("flatout", STEADY), cell("floor", times(0.5), settings="good"), {**failed("floor"), "settings": "best"})
        self.assertEqual(self.verdict(a, b).of_floor, "good")
        b = results(cell("flatout", STEADY))
        self.assertIsNone(self.verdict(a, b).of_floor)


class LeftOut(Compare):
    def reasons(self, a: dict, b: dict) -> dict:
        return {each["peer"]: each["reason"] for each in self.compared(a, b).left_out}

    def test_only_in_one(self):
        a, b = results(cell("curl", STEADY), cell("one", STEADY)), results(cell("curl", STEADY), cell("two", STEADY))
        self.assertEqual(self.reasons(a, b), {"one": "not in B", "two": "not in A"})
        self.assertEqual(len(self.compared(a, b).verdicts), 2)

    def test_failed(self):
        a, b = results(cell("curl", STEADY), failed("rclone")), results(failed("curl"), failed("rclone"))
        self.assertEqual(self.reasons(a, b), {"curl": "failed in B: no such bucket", "rclone": "failed in A: no such bucket"})
        self.assertIn("not compared: large, curl default: failed in B: no such bucket", self.run_main(a, b)[1])

    def test_another_case_of_that_name(self):
        a, b = results(cell("curl", STEADY)), results(cell("curl", STEADY))
        b["cases"][0]["object_bytes"] = 1
        self.assertEqual(self.reasons(a, b), {"curl": f"another case in B: object_bytes 1 instead of {GIB}"})


class CommandLine(Compare):
    same = results(cell("flatout", STEADY))
    slower = results(cell("flatout", times(1.5)))

    def test_exit_codes(self):
        self.assertEqual(self.run_main(self.same, self.same)[0], 0)
        self.assertEqual(self.run_main(self.slower, self.same)[0], 0)
        self.assertEqual(self.run_main(self.same, self.slower)[0], 1)

    def test_table(self):
        said = self.run_main(self.same, self.slower)[1]
        self.assertRegex(said, r"large, flatout default +throughput +worse +0\.667 +0\.\d+\.\.0\.\d+ +plain figures")
        self.assertIn("1 worse", said)

    def test_json(self):
        code, said = self.run_main(self.same, self.slower, as_json=True)
        found = json.loads(said)
        self.assertEqual((code, found["cells"][0]["verdict"], found["machines_differ"]), (1, "worse", False))

    def test_different_machines(self):
        other = copy.deepcopy(self.same)
        other["machine"]["id"] = "bbbb"
        self.assertTrue(self.usage(self.same, other).startswith("DIFFERENT MACHINES"))
        code, said = self.run_main(self.same, other, across_machines=True)
        self.assertEqual(code, 0)
        self.assertTrue(said.startswith("DIFFERENT MACHINES"))
        self.assertTrue(json.loads(self.run_main(self.same, other, across_machines=True, as_json=True)[1])["machines_differ"])

    def test_foreign_and_broken_files(self):
        broken = {
            "": "is no JSON",
            "{": "is no JSON",
            "[]": "no results of the lab (kind 'list')",
            '{"kind": "sweep", "schema": 1}': "no results of the lab (kind 'sweep')",
            '{"kind": "lab", "schema": 2}': "schema 2 is not the one read here, 1",
            '{"kind": "lab", "schema": 1}': "is broken: KeyError: 'machine'",
            json.dumps({**self.same, "cells": [{"case": "none"}]}): "is broken: KeyError: 'none'",
            json.dumps({**self.same, "cells": 5}): "is broken: TypeError",
        }
        for text, reason in broken.items():
            with self.subTest(text=text[:40]):
                self.assertIn(reason, self.usage(self.same, text))
        self.assertEqual(UsageError.exit_code, 4)

    def test_no_such_file(self):
        with self.assertRaisesRegex(UsageError, "none: No such file"):
            compare.main(self.folder / "none", self.folder / "none", False, False, 0.02)


if __name__ == "__main__":
    unittest.main()
