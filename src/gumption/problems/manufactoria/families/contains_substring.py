"""Accept tapes in which a given sequence occurs without gaps."""

from __future__ import annotations

import random

from gumption.problems.manufactoria.families.base import Case, noise, shuffled, without
from gumption.problems.manufactoria.families.sequences import Sequence, SequenceFamily


class ContainsSubstring(SequenceFamily):
    """Regular: the string-matching automaton, with an exit to `end` at the first match."""

    name = "contains_substring"
    default_colors = "RBYG"

    def criterion(self, p: Sequence) -> str:
        """The task in one sentence."""
        return f"Accept exactly the tapes that contain {p.text} as consecutive colours."

    def accepts(self, p: Sequence, tape: str) -> bool:
        """Substring test."""
        return p.text in tape

    def cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """Matches in several places, and near misses: prefixes, other orders, interruptions."""
        s, colors = p.text, p.colors

        def pad(low: int, high: int) -> str:
            return noise(rng, colors, rng.randint(low, high))

        interleaved = "".join(c + rng.choice(colors) for c in s)
        middle = len(s) // 2
        cases = [
            ("the sequence itself", s),
            ("a tail", s + noise(rng, colors, 3)),
            ("a head", noise(rng, colors, 6) + s),
            ("a little on both sides", pad(1, 3) + s + pad(1, 3)),
            ("twice", s + pad(1, 3) + s),
            ("more on both sides", pad(3, 5) + s + pad(3, 5)),
        ]
        if len(set(s)) < len(s):
            cases.append(("overlapping", s + s[1:]))
        cases.append(("interleaved with other colours", interleaved))
        cases += [("a proper prefix, padded", pad(3, 6) + s[:n] + pad(3, 6)) for n in range(1, len(s))]
        cases += [
            ("reversed", pad(3, 4) + s[::-1] + pad(3, 4)),
            ("in another order", pad(1, 3) + shuffled(rng, s) + pad(1, 3)),
            ("interrupted", s[:middle] + rng.choice(colors) + s[middle:]),
            ("none of its colours", noise(rng, without(colors, s), 12)),
            ("one colour too many inside", pad(3, 5) + s[:-1] + rng.choice(colors) + s[-1:] + pad(3, 5)),
            ("spread out", pad(3, 5) + "".join(c + noise(rng, colors, 2) for c in s) + pad(3, 5)),
        ]
        return cases
