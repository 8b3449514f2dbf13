"""Accept tapes of two or three blocks whose lengths depend on one number n ≥ 1."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

from gumption.problems.manufactoria.families.base import (
    Case,
    Family,
    Parameters,
    check_colors,
    check_difficulty,
    noise,
    shuffled,
)

TERMS = {"n": (1, 0), "n+1": (1, 1), "n+2": (1, 2), "n+3": (1, 3), "2n": (2, 0)}
"""Length of a block: (factor, constant)."""
SHAPES = (("R", "x", "B", "y"), ("B", "x", "R", "y"), ("R", "y", "B", "x", "R", "y"), ("B", "x", "R", "y", "B", "x"))
_LONGEST = 30


@dataclass(frozen=True, slots=True)
class SameNumber(Parameters):
    """Blocks (colour, term); terms are the keys of `TERMS`."""

    blocks: tuple[tuple[str, str], ...]

    @property
    def template(self) -> str:
        """As written in the criterion.

        >>> SameNumber("RB", (("R", "n"), ("B", "2n"))).template
        'R{n}B{2n}'
        """
        return "".join(f"{color}{{{term}}}" for color, term in self.blocks)

    def lengths(self, n: int) -> list[int]:
        """Block lengths for one n."""
        return [TERMS[term][0] * n + TERMS[term][1] for _, term in self.blocks]

    def instance(self, n: int) -> str:
        """The tape for one n."""
        return "".join(color * size for (color, _), size in zip(self.blocks, self.lengths(n), strict=True))


class RegexSameNum(Family[SameNumber]):
    """Not regular: it needs several passes over the tape. 4 shapes × 25 pairs of terms = 100 problems."""

    name = "regex_same_num"
    default_difficulty = "hard"
    parameters_type = SameNumber

    def criterion(self, p: SameNumber) -> str:
        """The task in one sentence."""
        return (
            f"Accept exactly the tapes of the form {p.template} for some whole number n ≥ 1, "
            "where a number in braces says how often the colour before it stands in a row."
        )

    def accepts(self, p: SameNumber, tape: str) -> bool:
        """Equal to one of the instances that are short enough."""
        return any(tape == p.instance(n) for n in range(1, len(tape) + 1))

    def cases(self, p: SameNumber, rng: random.Random) -> list[Case]:
        """Instances for n = 1 … 4 and what is nearly one."""
        cases = [(f"n = {n}", p.instance(n)) for n in range(1, 5) if len(p.instance(n)) <= _LONGEST]
        two = p.instance(2)
        blocks = [c * size for (c, _), size in zip(p.blocks, p.lengths(2), strict=True)]
        cases += [
            ("last colour twice", two + two[-1]),
            ("last colour missing", two[:-1]),
            ("blocks in reverse order", "".join(reversed(blocks))),
            ("colours mixed", shuffled(rng, two)),
            ("first block one short", two[1:]),
            ("empty", ""),
            ("one red", "R"),
            ("one blue", "B"),
        ]
        cases += [("random", noise(rng, p.colors, rng.randint(2, 8))) for _ in range(3)]
        return cases

    def hidden_cases(self, p: SameNumber, rng: random.Random) -> list[Case]:
        """Also larger n, and one block too short or too long."""
        cases = self.cases(p, rng)
        for n in range(1, 8):
            tape = p.instance(n)
            if len(tape) > _LONGEST:
                break
            cases.append((f"n = {n}", tape))
            sizes = p.lengths(n)
            at = rng.randrange(len(sizes))
            for change in (-1, 1):
                sizes[at] += change
                damaged = "".join(c * size for (c, _), size in zip(p.blocks, sizes, strict=True))
                cases.append(("one block of another length", damaged))
                sizes[at] -= change
        return cases

    def parameters(self, difficulty: str, colors: str) -> list[SameNumber]:
        """Every shape with every pair of terms."""
        check_difficulty(self.name, difficulty, ("hard",))
        check_colors(self.name, colors, ("RB",))
        result = []
        for shape, x, y in product(SHAPES, TERMS, TERMS):
            terms = {"x": x, "y": y}
            result.append(
                SameNumber(colors, tuple((c, terms[t]) for c, t in zip(shape[::2], shape[1::2], strict=True)))
            )
        return result
