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

    def compared(self, a: dict, b: dict, tolerance=0.02, by_floor=False) -> compare.Comparison:
        return compare.compare(compare.Run(self.put("a", a)), compare.Run(self.put("b", b)), tolerance, by_floor)

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
        found = self.verdict(a, b, by_floor=True)
        self.assertEqual((found.verdict, found.of_floor), ("same", "recv"))
        self.assertAlmostEqual(found.ratio, 1)

    def test_round_by_round(self):
        drift = [1, 2, 3, 4, 5, 6, 7]
        a = results(cell("flatout", drift), cell("floor", drift, settings="recv"))
        b = results(cell("flatout", times(0.9, drift)), cell("floor", drift, settings="recv"))
        found = self.verdict(a, b, by_floor=True)
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
        code, said = self.run_main(a, b, by_floor=True)
        self.assertEqual(code, 0)
        self.assertRegex(said, r"\n\nHow the floor itself moved:\n.*\n *large, floor recv +throughput +worse +.* plain figures\n")
        self.assertIn("0 worse, 2 same; 0 cells not compared", said)

    def test_the_best_that_both_have(self):
        a = results(cell("flatout", STEADY), cell("floor", times(0.1), settings="best"), cell("floor", times(0.5), settings="good"))
        b = results(cell("flatout", STEADY), cell("floor", times(0.5), settings="good"), {**failed("floor"), "settings": "best"})
        self.assertEqual(self.verdict(a, b, by_floor=True).of_floor, "good")
        b = results(cell("flatout", STEADY))
        self.assertIsNone(self.verdict(a, b, by_floor=True).of_floor)

    def test_plain_figures_unless_it_is_asked_for(self):
        a = results(cell("flatout", STEADY), cell("floor", times(0.5), settings="recv"))
        b = results(cell("flatout", times(1.5)), cell("floor", times(0.75), settings="recv"))
        found = self.verdict(a, b)
        self.assertEqual((found.verdict, found.of_floor), ("worse", None))

    def test_the_best_over_both(self):
        """In A it was lucky; over both it is the other."""
        a = results(cell("flatout", STEADY), cell("floor", times(0.49), settings="lucky"), cell("floor", times(0.5), settings="good"))
        b = results(cell("flatout", STEADY), cell("floor", times(0.9), settings="lucky"), cell("floor", times(0.5), settings="good"))
        self.assertEqual(self.verdict(a, b, by_floor=True).of_floor, "good")

    def test_fewer_rounds_than_the_floor(self):
        a = results(cell("flatout", STEADY[:5]), cell("floor", STEADY, settings="recv"))
        found = self.verdict(a, a, by_floor=True)
        self.assertEqual((found.verdict, found.ratio), ("same", 1))

    def test_paired_by_number(self):
        drift = [1, 2, 3, 4, 5, 6, 7]
        one, floor = cell("flatout", drift), cell("floor", drift, settings="recv")
        one["rounds"].reverse()
        a = results(one, floor)
        found = self.verdict(a, a, by_floor=True)
        self.assertAlmostEqual(found.low, found.high)

    def test_no_round_in_common(self):
        a = results(cell("flatout", STEADY), cell("floor", STEADY, settings="recv"))
        for turn in a["cells"][0]["rounds"]:
            turn["round"] += 10
        found = self.compared(a, a, by_floor=True).left_out
        self.assertEqual([each["reason"] for each in found], ["shares no round with the floor in A"])


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


    def test_called_differently(self):
        a, b = results(cell("curl", STEADY)), results(cell("curl", STEADY))
        a["cells"][0]["command"] = ["/cache/curl-1/curl", "http://127.0.0.1:4321/big", "-o", "/dev/shm/flatout-lab.1-a/work/target"]
        b["cells"][0]["command"] = ["/cache/curl-2/curl", "http://127.0.0.1:9999/big", "-o", "/dev/shm/flatout-lab.2-b/work/target"]
        self.assertEqual(self.reasons(a, b), {})
        b["cells"][0]["command"].append("--http2")
        self.assertIn("another command in B: /curl http://127.0.0.1/big -o /target --http2 instead of", self.reasons(a, b)["curl"])

    def test_other_settings(self):
        a, b = results(cell("curl", STEADY)), results(cell("curl", STEADY))
        a["peers"] = [{"name": "curl", "version": "1", "settings": [{"name": "default", "args": ["-Z"]}]}]
        b["peers"] = [{"name": "curl", "version": "1", "settings": [{"name": "default", "args": []}]}]
        self.assertEqual(self.reasons(a, b), {"curl": "other settings in B: [] instead of ['-Z']"})

    def test_another_work_or_disk(self):
        for field, value in (("disk", True), ("work", "many"), ("landing", "pipe"), ("origin", "minio")):
            a, b = results(cell("curl", STEADY)), results(cell("curl", STEADY))
            b["cases"][0][field] = value
            self.assertIn(f"another case in B: {field} {value}", self.reasons(a, b)["curl"])

    def test_other_versions_are_said(self):
        a, b = results(cell("curl", STEADY)), results(cell("curl", STEADY))
        for of, version in ((a, "1"), (b, "2")):
            of["peers"] = [{"name": "curl", "version": version, "settings": []}]
            of["origins"] = [{"name": "nginx", "about": f"nginx {version}"}]
            of["machine"]["kernel"] = f"6.{version}"
        b["suite"] = "full"
        self.assertEqual(self.verdict(a, b, peer="curl").note, "version 1 became 2; origin nginx 1 became nginx 2")
        said = self.run_main(a, b)[1]
        self.assertIn("DIFFERENT: suite quick became full\nDIFFERENT: kernel 6.1 became 6.2\n", said)
        self.assertIn("version 1 became 2; origin", said)


class CommandLine(Compare):
    same = results(cell("flatout", STEADY))
    slower = results(cell("flatout", times(1.5)))

    def test_exit_codes(self):
        self.assertEqual(self.run_main(self.same, self.same)[0], 0)
        self.assertEqual(self.run_main(self.slower, self.same)[0], 0)
        self.assertEqual(self.run_main(self.same, self.slower)[0], 1)

    def test_only_flatout_counts(self):
        a, b = results(cell("curl", STEADY)), results(cell("curl", times(1.5)))
        code, said = self.run_main(a, b)
        self.assertEqual(code, 0)
        self.assertIn("1 worse", said)
        self.assertTrue(said.endswith("flatout is in none of them.\n"), said)

    def test_what_worked_and_fails_counts(self):
        a, b = results(cell("flatout", STEADY), cell("curl", STEADY)), results(cell("flatout", STEADY), failed("curl"))
        code, said = self.run_main(a, b)
        self.assertEqual(code, 1)
        self.assertTrue(said.endswith("Exit code 1: worked in A and fails in B: large, curl default.\n"), said)
        code, said = self.run_main(a, b, as_json=True)
        self.assertEqual((code, json.loads(said)["counts"]), (1, ["worked in A and fails in B: large, curl default"]))
        # It failed before, it works now, or it was not asked for: none of these is a loss.
        for before, after in ((b, b), (b, a), (a, self.same)):
            self.assertEqual(self.run_main(before, after)[0], 0)

    def test_nothing_to_compare_is_no_success(self):
        for a, b in ((results(), results()), (self.same, results()), (results(failed("flatout")), results(failed("flatout")))):
            code, said = self.run_main(a, b)
            self.assertEqual(code, 1)
            self.assertTrue(said.endswith("Exit code 1: no cell of A could be compared with one of B.\n"), said)

    def test_nothing_of_flatout_to_compare(self):
        """What is tested has to be among what was compared; where A is of peers alone, nothing was to be tested."""
        a, b = results(cell("flatout", STEADY), cell("curl", STEADY)), results(cell("curl", STEADY))
        code, said = self.run_main(a, b)
        self.assertEqual(code, 1)
        self.assertTrue(said.endswith("Exit code 1: no cell of flatout could be compared.\n"), said)

    def test_an_interval_that_reaches_into_the_tolerance(self):
        a, b = results(cell("flatout", STEADY)), results(cell("flatout", times(1.03)))
        found = self.verdict(a, b)
        self.assertTrue(0.98 < found.high < 1, found)
        self.assertEqual((found.verdict, self.run_main(a, b)[0]), ("unsure", 0))

    def test_chance_among_many(self):
        """Separate but for little, it counts alone, and not as one of forty."""
        slower = [0.975, 1.1, 1.2, 1.3, 1.25, 1.15, 1.35]
        few, more = results(cell("flatout", [0.97, 0.98, 0.99, 0.96, 0.95, 0.94, 0.93])), results(cell("flatout", slower))
        self.assertEqual(self.verdict(few, more).verdict, "worse")
        self.assertEqual(self.run_main(few, more)[0], 1)
        for each in (few, more):
            each["cells"] += [cell("flatout", STEADY, settings=f"{at}") for at in range(40)]
        self.assertEqual(self.verdict(few, more).verdict, "worse")
        self.assertEqual(self.run_main(few, more)[0], 0)

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
            json.dumps({**self.same, "peers": [{}]}): "is broken: KeyError: 'name'",
            json.dumps({**self.same, "origins": [5]}): "is broken: TypeError",
            json.dumps(results(cell("flatout", []))): "large, flatout default: is ok and has no rounds",
            json.dumps(results(cell("flatout", [1.0, 0.0]))): "large, flatout default: round 2: 0.0 s and 1.01 CPU s cannot be",
            json.dumps(results(cell("flatout", [1.0], [-1.0]))): "cannot be",
            json.dumps(results(cell("flatout", ["1"]))): "is broken: TypeError",
            json.dumps({**self.same, "cells": [{**cell("flatout", [1.0]), "rounds": [{"round": 1, "seconds": 1, "cpu_seconds": 1}] * 2}]}): "has a round twice",
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
