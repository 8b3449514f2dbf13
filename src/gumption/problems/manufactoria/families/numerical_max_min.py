"""Replace the number on the tape by its maximum or minimum with a constant."""

from __future__ import annotations

import random
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

CONSTANTS = range(1, 257)


@dataclass(frozen=True, slots=True)
class Extreme(Parameters):
    """`max(number, constant)` or `min(number, constant)`."""

    op: str
    constant: int


class NumericalMaxMin(Family[Extreme]):
    """Output family: compare while the tape goes round once, then keep it or replace it. 2 · 256 problems."""

    name = "numerical_max_min"
    output = True
    default_difficulty = "hard"
    parameters_type = Extreme

    def criterion(self, p: Extreme) -> str:
        """The task in one sentence."""
        which = "larger" if p.op == "max" else "smaller"
        return (
            "Read the tape as a binary number, blue = 1 and red = 0, most significant bit first (the empty tape is 0, "
            f"leading zeros are allowed). Leave the {which} of it and {p.constant} on the tape, without leading zeros "
            "(nothing for 0), and accept."
        )

    def transform(self, p: Extreme, tape: str) -> str:
        """The canonical tape of the larger or smaller number."""
        return tape_of(max(value(tape), p.constant) if p.op == "max" else min(value(tape), p.constant))

    def cases(self, p: Extreme, rng: random.Random) -> list[Case]:
        """Short strings, numbers about the constant, powers of two and all-ones, long strings."""
        c = p.constant
        numbers = [0, 1, c - 1, c, c + 1, 2 * c, *(2**k for k in range(1, 9)), *(2**k - 1 for k in range(2, 9))]
        cases = [("a short tape", tape) for tape in BASIC]
        cases += [(f"the number {x}", tape_of(x)) for x in numbers if x >= 0]
        cases += [(f"the number {value(tape)}", tape) for tape in LONG]
        return cases

    def hidden_cases(self, p: Extreme, rng: random.Random) -> list[Case]:
        """Numbers about the constant with leading zeros, and random strings."""
        c = p.constant
        cases = [(f"the number {x}", "R" * rng.randint(0, 3) + tape_of(x)) for x in range(max(0, c - 6), c + 7)]
        return cases + [("random", noise(rng, p.colors, rng.randint(1, 10))) for _ in range(16)]

    def parameters(self, difficulty: str, colors: str) -> list[Extreme]:
        """Both operations with every constant."""
        check_difficulty(self.name, difficulty, ("hard",))
        check_colors(self.name, colors, ("RB",))
        return [Extreme(colors, op, c) for op in ("max", "min") for c in CONSTANTS]
