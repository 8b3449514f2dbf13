"""Accept tapes that hold at least so many of each of up to three colours."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations, product

from gumption.problems.manufactoria.families.base import (
    WORDS,
    Case,
    Family,
    Parameters,
    check_colors,
    check_difficulty,
    noise,
    shuffled,
    without,
)

TOTALS = {"easy": range(1, 7), "medium": range(7, 9), "hard": range(9, 11)}
"""Sum of the required numbers by difficulty; 4-colour easy: 24 + 90 + 80 = 194."""


@dataclass(frozen=True, slots=True)
class Counts(Parameters):
    """Required numbers, each at least 1: `(("R", 2), ("Y", 1))`."""

    counts: tuple[tuple[str, int], ...]


class ContainsCount(Family[Counts]):
    """Regular: a product of counters, Π(n_i + 1) states."""

    name = "contains_count"
    default_colors = "RBYG"
    parameters_type = Counts

    def criterion(self, p: Counts) -> str:
        """The task in one sentence."""
        parts = [f"at least {n} {WORDS[c]}{'s' if n > 1 else ''}" for c, n in p.counts]
        return f"Accept exactly the tapes that hold {' and '.join(parts)}, in any order."

    def accepts(self, p: Counts, tape: str) -> bool:
        """Every number is reached."""
        return all(tape.count(c) >= n for c, n in p.counts)

    def cases(self, p: Counts, rng: random.Random) -> list[Case]:
        """The exact multiset, mixed with more, and near misses that lack one colour or one piece."""
        wanted = "".join(c for c, _ in p.counts)
        exact = "".join(c * n for c, n in p.counts)
        rest = without(p.colors, wanted)
        spare = rest or wanted[:1]
        short = "".join(c * (n - 1) for c, n in p.counts)
        first_short = exact[1:]
        last_missing = "".join(c * n for c, n in p.counts[:-1])
        last_rest = without(p.colors, p.counts[-1][0])

        def mix(text: str) -> str:
            return shuffled(rng, text)

        return [
            ("just enough", mix(exact)),
            ("a little more of each", mix("".join(c * (n + rng.randint(1, 2)) for c, n in p.counts))),
            ("just enough and three others", mix(exact + noise(rng, spare, 3))),
            ("twelve", mix(exact + noise(rng, p.colors, max(0, 12 - len(exact))))),
            ("eighteen", mix(exact + noise(rng, p.colors, max(0, 18 - len(exact))))),
            ("last colour missing", mix(last_missing + noise(rng, last_rest, 5))),
            ("first colour one short", mix(first_short + noise(rng, without(p.colors, p.counts[0][0]), 3))),
            ("none of the colours", noise(rng, rest, 12)),
            ("each one short", mix(short + noise(rng, rest, 4))),
            ("first colour one short, eighteen", self._filled(p, first_short, rng)),
        ]

    @staticmethod
    def _filled(p: Counts, text: str, rng: random.Random) -> str:
        filler = without(p.colors, p.counts[0][0])
        return shuffled(rng, text + noise(rng, filler, max(0, 18 - len(text))))

    def parameters(self, difficulty: str, colors: str) -> list[Counts]:
        """One colour, then two, then three, with every split of every total."""
        check_difficulty(self.name, difficulty)
        check_colors(self.name, colors)
        totals = TOTALS[difficulty]
        result = []
        for size in range(1, min(3, len(colors)) + 1):
            for chosen in combinations(colors, size):
                for numbers in product(range(1, totals[-1] + 1), repeat=size):
                    if sum(numbers) in totals:
                        result.append(Counts(colors, tuple(zip(chosen, numbers, strict=True))))
        return result
