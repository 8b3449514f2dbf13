"""Accept one tape only."""

from __future__ import annotations

import random

from gumption.problems.manufactoria.families.base import Case, noise, other
from gumption.problems.manufactoria.families.sequences import Sequence, SequenceFamily, change_at


class ExactSequence(SequenceFamily):
    """Regular, and finite: the only family in which a look-up table of the accepted tests is a solution."""

    name = "exact_sequence"

    def criterion(self, p: Sequence) -> str:
        """The task in one sentence."""
        return f"Accept the tape {p.text} and no other."

    def accepts(self, p: Sequence, tape: str) -> bool:
        """Equality."""
        return tape == p.text

    def cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """The sequence, then everything that nearly is the sequence."""
        s, colors = p.text, p.colors
        cases = [
            ("the sequence itself", s),
            ("last colour missing", s[:-1]),
            ("one colour after it", s + rng.choice(colors)),
            ("first colour changed", change_at(s, 0, other(rng, colors, s[0]))),
            ("a long tail", s + noise(rng, colors, 9)),
            ("a head", noise(rng, colors, 6) + s),
            ("in the middle", noise(rng, colors, 3) + s + noise(rng, colors, 6)),
            ("random and long", noise(rng, colors, 12)),
        ]
        if len(s) >= 3:
            middle = len(s) // 2
            damaged = change_at(s, middle, other(rng, colors, s[middle]))
            cases.append(("middle colour changed, then a tail", damaged + noise(rng, colors, 6)))
        return cases

    def hidden_cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """Also every tape that differs in one colour."""
        s = p.text
        close = [change_at(s, i, c) for i in range(len(s)) for c in p.colors if c != s[i]]
        return self.cases(p, rng) + [("one colour changed", tape) for tape in close]
