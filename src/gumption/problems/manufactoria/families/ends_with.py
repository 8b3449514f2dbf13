"""Accept tapes that end with a given sequence."""

from __future__ import annotations

import random

from gumption.problems.manufactoria.families.base import Case, noise, other, without
from gumption.problems.manufactoria.families.sequences import Sequence, SequenceFamily, change_at


class EndsWith(SequenceFamily):
    """Regular; the minimal automaton is the string-matching one, and the whole tape has to be read."""

    name = "ends_with"

    def criterion(self, p: Sequence) -> str:
        """The task in one sentence."""
        return f"Accept exactly the tapes that end with {p.text}."

    def accepts(self, p: Sequence, tape: str) -> bool:
        """Suffix test."""
        return tape.endswith(p.text)

    def cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """Suffix alone, behind short and long heads, cut short, changed, not at the end."""
        s, colors = p.text, p.colors
        last = other(rng, colors, s[-1])
        return [
            ("the sequence itself", s),
            ("one colour before it", rng.choice(colors) + s),
            ("one colour after it", s + rng.choice(colors)),
            ("a long head", noise(rng, colors, 9) + s),
            ("a longer head", noise(rng, colors, 15) + s),
            ("three times, then a tail", s * 3 + noise(rng, colors, 3)),
            ("a tail after it", s + noise(rng, colors, 6)),
            ("in the middle", noise(rng, colors, 3) + s + noise(rng, colors, 6)),
            ("last colour missing", noise(rng, colors, 6) + s[:-1]),
            ("last colour changed", noise(rng, colors, 5) + change_at(s, len(s) - 1, last)),
            ("none of its colours", noise(rng, without(colors, s), 12)),
        ]
