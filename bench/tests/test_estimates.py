"""Medians and intervals, against published tables and against counting everything out."""

import itertools
import math
import unittest

import support  # noqa: F401: first, it finds the lab's modules
from estimates import (
    estimate,
    holm,
    interval_confidence,
    interval_rank,
    mann_whitney_critical,
    median,
    ratios,
    rounds_for_holm,
    shift,
    shift_rank,
    u_distribution,
)


class Medians(unittest.TestCase):
    def test_median(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 2, 3]), 2.5)

    def test_ranks_of_the_published_table(self):
        # Order statistics for the median at 95 %: the rank from each end; 1 is the range.
        table = {1: 1, 2: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 2, 10: 2, 11: 2, 12: 3, 15: 4, 17: 5, 20: 6, 25: 8, 30: 10}
        self.assertEqual({count: interval_rank(count) for count in table}, table)

    def test_how_sure(self):
        self.assertAlmostEqual(interval_confidence(7, 2), 0.875)
        self.assertAlmostEqual(interval_confidence(7, 1), 0.984375)
        self.assertAlmostEqual(interval_confidence(5, 1), 0.9375)
        self.assertAlmostEqual(interval_confidence(10, 2), 0.978515625)

    def test_seven_rounds_say_their_range(self):
        found = estimate([5, 1, 4, 2, 7, 6, 3])
        self.assertEqual((found.low, found.median, found.high), (1, 4, 7))

    def test_nine_rounds_say_less_than_their_range(self):
        found = estimate(list(range(1, 10)))
        self.assertEqual((found.low, found.median, found.high), (2, 5, 8))

    def test_one_round(self):
        found = estimate([2.0])
        self.assertEqual((found.low, found.median, found.high), (2, 2, 2))

    def test_ratios_are_paired(self):
        self.assertEqual(ratios([2, 6], [1, 2]), [2, 3])
        with self.assertRaises(ValueError):
            ratios([1, 2], [1])


class Shifts(unittest.TestCase):
    def test_critical_values_of_the_published_table(self):
        # Mann and Whitney, two-sided, 5 %.
        table = {
            (3, 3): None, (4, 4): 0, (5, 5): 2, (5, 6): 3, (5, 7): 5, (5, 8): 6, (6, 6): 5, (6, 7): 6, (6, 8): 8, (7, 7): 8,
            (7, 8): 10, (8, 8): 13, (9, 9): 17, (10, 10): 23, (7, 11): 16, (15, 15): 64, (20, 20): 127,
        }  # fmt: skip
        self.assertEqual({pair: mann_whitney_critical(*pair) for pair in table}, table)

    def test_critical_values_at_one_percent(self):
        table = {(5, 5): 0, (7, 7): 4, (10, 10): 16}
        self.assertEqual({pair: mann_whitney_critical(*pair, 0.01) for pair in table}, table)

    def test_distribution_counted_out(self):
        for a, b in [(1, 1), (2, 3), (3, 3), (4, 3)]:
            counted = [0] * (a * b + 1)
            for places in itertools.combinations(range(a + b), a):
                others = [place for place in range(a + b) if place not in places]
                counted[sum(x > y for x in places for y in others)] += 1
            self.assertEqual(list(u_distribution(a, b)), counted)
            self.assertEqual(sum(counted), math.comb(a + b, a))

    def test_rank(self):
        self.assertEqual(shift_rank(7, 7), 9)
        self.assertIsNone(shift_rank(3, 3))

    def test_twice_as_much(self):
        a = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
        found = shift(a, [2 * x for x in a])
        self.assertAlmostEqual(found.ratio, 2)
        self.assertTrue(found.low < 2 < found.high)
        self.assertGreater(found.low, 1)

    def test_interval_is_that_of_moses(self):
        a, b = [1.0, 2.0, 4.0, 8.0], [3.0, 5.0, 7.0, 11.0]
        every = sorted(y / x for x in a for y in b)
        # n = 4, 4: the critical value is 0, so the interval is the range of all ratios.
        found = shift(a, b)
        self.assertAlmostEqual(found.low, every[0])
        self.assertAlmostEqual(found.high, every[-1])
        self.assertAlmostEqual(found.ratio, math.sqrt(every[7] * every[8]))

    def test_interval_leaves_out_one_just_when_the_test_rejects(self):
        # U of 8 rejects at 7 and 7, U of 9 does not: B's above A's but for so many inversions.
        for inversions, rejected in ((8, True), (9, False)):
            a, b = samples_with(inversions)
            found = shift(a, b)
            self.assertEqual(not found.low <= 1 <= found.high, rejected, inversions)

    def test_the_other_way_round(self):
        a, b = [1.0, 1.2, 1.1, 1.3, 1.25], [2.0, 2.2, 2.5, 1.9, 2.1]
        there, back = shift(a, b), shift(b, a)
        self.assertAlmostEqual(there.ratio, 1 / back.ratio)
        self.assertAlmostEqual(there.low, 1 / back.high)

    def test_p_counted_out(self):
        # Complete separation: two orders of 70 are as extreme.
        self.assertAlmostEqual(shift([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]).p, 2 / 70)
        self.assertAlmostEqual(shift([1.0, 2.0, 3.0, 5.0], [4.0, 6.0, 7.0, 8.0]).p, 4 / 70)
        self.assertEqual(shift([1.0, 2.0], [1.0, 2.0]).p, 1)

    def test_holm(self):
        self.assertEqual(holm([0.01, 0.04, 0.03, 0.005]), [True, False, False, True])
        self.assertEqual((holm([]), holm([0.05]), holm([0.03, 0.03])), ([], [True], [False, False]))
        self.assertEqual((rounds_for_holm(1), rounds_for_holm(42), rounds_for_holm(86)), (4, 7, 8))

    def test_too_few(self):
        found = shift([1.0, 2.0], [4.0, 8.0])
        self.assertAlmostEqual(found.ratio, 4)
        self.assertIsNone(found.low)


def samples_with(inversions: int) -> tuple[list[float], list[float]]:
    """Seven and seven values, of which B's are below A's in so many pairs."""
    order = ["a"] * 7 + ["b"] * 7
    left = inversions
    while left:
        at = next(at for at in range(12, -1, -1) if order[at] == "a" and order[at + 1] == "b")
        order[at], order[at + 1] = "b", "a"
        left -= 1
    a = [float(at + 1) for at, who in enumerate(order) if who == "a"]
    b = [float(at + 1) for at, who in enumerate(order) if who == "b"]
    assert sum(y < x for x in a for y in b) == inversions
    return a, b


if __name__ == "__main__":
    unittest.main()
