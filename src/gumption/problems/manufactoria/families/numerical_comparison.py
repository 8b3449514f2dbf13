"""Accept tapes whose number compares in a given way with a threshold."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass

from gumption.problems.manufactoria.families.base import (
    Case,
    Family,
    Parameters,
    check_colors,
    check_difficulty,
    noise,
)
from gumption.problems.manufactoria.families.binary import BASIC, LONG, tape_of, value

COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq,
}  # fmt: skip
THRESHOLDS = {"easy": range(1, 64), "medium": range(64, 127), "hard": range(127, 256)}
_SAID = {
    ">": "greater than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "=": "equal to",
}
_LARGEST = 1024


@dataclass(frozen=True, slots=True)
class Comparison(Parameters):
    """`number op threshold`."""

    op: str
    threshold: int


class NumericalComparison(Family[Comparison]):
    """Regular: remember the number read so far, up to the threshold."""

    name = "numerical_comparison"
    parameters_type = Comparison

    def criterion(self, p: Comparison) -> str:
        """The task in one sentence."""
        return (
            "Read the tape as a binary number, blue = 1 and red = 0, most significant bit first (the empty tape is 0, "
            f"leading zeros are allowed). Accept exactly the numbers {_SAID[p.op]} {p.threshold}."
        )

    def accepts(self, p: Comparison, tape: str) -> bool:
        """Compare the number on the tape."""
        return COMPARE[p.op](value(tape), p.threshold)

    def cases(self, p: Comparison, rng: random.Random) -> list[Case]:
        """Short strings, numbers about the threshold, numbers far from it."""
        t = p.threshold
        numbers = [t, t + 1, t - 1, t + 2, t - 2]
        if p.op in (">", ">="):
            numbers += [n for n in (2 * t, 4 * t, t + 50, t + 100) if n < _LARGEST]
        if p.op in ("<", "<=") and t > 10:
            numbers += [t // 2, t // 4, t - 5, t - 10]
        cases = [("a short tape", tape) for tape in BASIC]
        cases += [(f"the number {n}", tape_of(n)) for n in numbers if n >= 0]
        if t >= 8:
            cases += [(f"the number {value(tape)}", tape) for tape in LONG]
        return cases

    def hidden_cases(self, p: Comparison, rng: random.Random) -> list[Case]:
        """More numbers about the threshold, with leading zeros, and random strings."""
        cases = []
        for n in range(max(0, p.threshold - 6), p.threshold + 7):
            cases.append((f"the number {n}", "R" * rng.randint(0, 3) + tape_of(n)))
        width = p.threshold.bit_length()
        cases += [("random", noise(rng, p.colors, rng.randint(max(1, width - 1), width + 3))) for _ in range(12)]
        return cases

    def parameters(self, difficulty: str, colors: str) -> list[Comparison]:
        """Every operator with every threshold; 5 · 63 are easy and as many medium."""
        check_difficulty(self.name, difficulty)
        check_colors(self.name, colors, ("RB",))
        return [Comparison(colors, op, t) for op in COMPARE for t in THRESHOLDS[difficulty]]
