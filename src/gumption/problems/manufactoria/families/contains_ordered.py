"""Accept tapes in which the colours of a sequence occur in order, with gaps allowed."""

from __future__ import annotations

import random

from gumption.problems.manufactoria.families.base import Case, noise, without
from gumption.problems.manufactoria.families.sequences import Sequence, SequenceFamily


class ContainsOrdered(SequenceFamily):
    """Regular: one state per colour found so far."""

    name = "contains_ordered"
    default_colors = "RBYG"

    def criterion(self, p: Sequence) -> str:
        """The task in one sentence."""
        return f"Accept exactly the tapes in which {p.text} occurs in this order, other colours in between allowed."

    def accepts(self, p: Sequence, tape: str) -> bool:
        """Subsequence test: each colour is looked for behind the one before."""
        at = 0
        for color in p.text:
            at = tape.find(color, at) + 1
            if at == 0:
                return False
        return True

    def cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """The sequence with and without gaps, and near misses with a colour missing or out of place."""
        s, colors = p.text, p.colors
        middle = len(s) // 2

        def pad(low: int, high: int) -> str:
            return noise(rng, colors, rng.randint(low, high))

        cases = [("the sequence itself", s)]
        cases += [("one colour inserted", s[:i] + rng.choice(colors) + s[i:]) for i in range(len(s) + 1)]
        cases += [
            ("interleaved", "".join(c + rng.choice(colors) for c in s)),
            ("a tail", s + noise(rng, colors, 3)),
            ("a head", noise(rng, colors, 6) + s),
            ("gaps", pad(2, 4) + "".join(c + pad(1, 3) for c in s) + pad(2, 4)),
            ("twice", s + pad(1, 3) + s),
            ("first colour missing", s[1:]),
            ("last colour missing", s[:-1]),
            ("middle colour missing", s[:middle] + s[middle + 1 :]),
            ("reversed", pad(1, 2) + s[::-1] + pad(1, 2)),
            ("last colour moved to the front", pad(1, 2) + s[-1:] + s[:-1] + pad(1, 2)),
            ("second last missing, long head", noise(rng, colors, 9) + s[:-2] + s[-1:]),
            ("none of its colours", noise(rng, without(colors, s), 12)),
            ("middle missing, long on both sides", self._around(p, s[:middle] + s[middle + 1 :], rng)),
        ]
        return cases

    @staticmethod
    def _around(p: Sequence, core: str, rng: random.Random) -> str:
        return noise(rng, p.colors, 18) + core + noise(rng, p.colors, 18)
