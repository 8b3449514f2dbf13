"""Replace the number on the tape by the result of an operation."""

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

OPERANDS = {
    "add": (1, 2, 3, 4, 5, 6, 7),
    "subtract": (1, 2, 3, 4, 5, 6, 7),
    "and": (1, 3, 5, 7, 10, 12, 15),
    "or": (1, 3, 5, 7, 10, 12, 15),
    "xor": (1, 3, 5, 7, 10, 12, 15),
    "not": (0,),
    "floor_divide": (2, 4, 8, 16, 32, 64, 128),
}
"""Operands that the generator uses; any non-negative operand (a power of two for `floor_divide`) works. Seven each:
the published sets have 14 add/subtract, 21 and/or/xor and 7 division problems."""
TIERS = {"easy": ("not",), "medium": ("and", "or", "xor"), "hard": ("add", "subtract", "floor_divide")}
_BITWISE = frozenset(("and", "or", "xor", "not"))
_SAID = {
    "add": "add {n} to it",
    "subtract": "subtract {n} from it (a result below 0 counts as 0)",
    "and": "take its bitwise AND with {n}",
    "or": "take its bitwise OR with {n}",
    "xor": "take its bitwise XOR with {n}",
    "not": "flip all of its bits, written with at least eight bits",
    "floor_divide": "divide it by {n} and drop the remainder",
}


@dataclass(frozen=True, slots=True)
class Operation(Parameters):
    """`number op operand`."""

    op: str
    operand: int


class NumericalOperations(Family[Operation]):
    """Output family. Arithmetic starts at the last bit, which a queue shows last: it takes a pass per bit."""

    name = "numerical_operations"
    output = True
    default_difficulty = "hard"
    parameters_type = Operation

    def criterion(self, p: Operation) -> str:
        """The task in one sentence."""
        return (
            "Read the tape as a binary number, blue = 1 and red = 0, most significant bit first (the empty tape is 0, "
            f"leading zeros are allowed); {_SAID[p.op].format(n=p.operand)}. Leave the result on the tape, without "
            "leading zeros (nothing for 0), and accept."
        )

    def transform(self, p: Operation, tape: str) -> str:
        """The canonical tape of the result."""
        x, n = value(tape), p.operand
        results = {
            "add": x + n,
            "subtract": x - n,
            "and": x & n,
            "or": x | n,
            "xor": x ^ n,
            "not": ~x & ((1 << max(8, x.bit_length())) - 1),
            "floor_divide": x // n if n else 0,
        }
        return tape_of(results[p.op])

    def cases(self, p: Operation, rng: random.Random) -> list[Case]:
        """Short strings, numbers about the operand, bit patterns, long strings."""
        n = p.operand
        if p.op in _BITWISE:
            numbers = [0, n - 1, n, n + 1, 85, 170, 255, 127, 63, 31, 15]
        elif p.op == "floor_divide":
            numbers = [n - 1, 0, n, n + 1, 2 * n, 3 * n]
        else:
            numbers = [0, 1, n - 1, n, n + 1, 2 * n, 4 * n]
        cases = [("a short tape", tape) for tape in BASIC]
        cases += [(f"the number {x}", tape_of(x)) for x in numbers if x >= 0]
        cases += [(f"the number {value(tape)}", tape) for tape in LONG]
        return cases

    def hidden_cases(self, p: Operation, rng: random.Random) -> list[Case]:
        """Random strings."""
        return [("random", noise(rng, p.colors, rng.randint(1, 10))) for _ in range(24)]

    def parameters(self, difficulty: str, colors: str) -> list[Operation]:
        """Every operation of the tier with each of its operands."""
        check_difficulty(self.name, difficulty)
        check_colors(self.name, colors, ("RB",))
        return [Operation(colors, op, n) for op in TIERS[difficulty] for n in OPERANDS[op]]
