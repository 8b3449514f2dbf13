"""Accept tapes that begin with a given sequence."""

from __future__ import annotations

import random

from gumption.problems.manufactoria.families.base import Case, noise, other, without
from gumption.problems.manufactoria.families.sequences import Sequence, SequenceFamily, change_at


class StartsWith(SequenceFamily):
    """Regular; a program may stop looking as soon as the prefix is decided."""

    name = "starts_with"

    def criterion(self, p: Sequence) -> str:
        """The task in one sentence."""
        return f"Accept exactly the tapes that begin with {p.text}."

    def accepts(self, p: Sequence, tape: str) -> bool:
        """Prefix test."""
        return tape.startswith(p.text)

    def cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """Prefix alone, extended, displaced, repeated, damaged."""
        s, colors = p.text, p.colors
        first = other(rng, colors, s[0])
        return [
            ("the sequence itself", s),
            ("one colour after it", s + rng.choice(colors)),
            ("a wrong colour before it", first + s),
            ("a long tail", s + noise(rng, colors, 12)),
            ("three times, then a tail", s * 3 + noise(rng, colors, 3)),
            ("first colour changed", change_at(s, 0, first) + noise(rng, colors, 6)),
            ("never its first colour", noise(rng, without(colors, s[0]), 12)),
        ]
