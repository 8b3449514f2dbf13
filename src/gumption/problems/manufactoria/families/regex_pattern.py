"""Accept tapes that match a concatenation of repeated parts."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import product

from gumption.problems.manufactoria.families.base import (
    Case,
    Family,
    Parameters,
    check_colors,
    check_difficulty,
    noise,
    words,
)

PARTS = {"easy": 1, "medium": 2, "hard": 3}
"""Parts by difficulty. One part with a base of length 1–2 makes (4 + 16)·3 = 60 four-colour problems."""


@dataclass(frozen=True, slots=True)
class Pattern(Parameters):
    """Parts (base, operator), operators "+", "?" and "*"."""

    parts: tuple[tuple[str, str], ...]

    @property
    def regex(self) -> str:
        """The pattern as written in the criterion.

        >>> Pattern("RB", (("RB", "+"), ("B", "?"))).regex
        '(RB)+(B)?'
        """
        return "".join(f"({base}){op}" for base, op in self.parts)


_REPEATS = {
    "minimal": {"+": (1, 1), "?": (0, 0), "*": (0, 2)},
    "typical": {"+": (1, 3), "?": (0, 1), "*": (1, 3)},
    "maximal": {"+": (2, 4), "?": (1, 1), "*": (2, 4)},
}


class RegexPattern(Family[Pattern]):
    """Regular by definition; hard parts overlap, and the automaton has to follow several at once."""

    name = "regex_pattern"
    default_colors = "RBYG"
    parameters_type = Pattern

    def criterion(self, p: Pattern) -> str:
        """The task in one sentence."""
        return (
            f"Accept exactly the tapes that as a whole match {p.regex}, where + means one or more times, "
            "? at most once, * any number of times."
        )

    def accepts(self, p: Pattern, tape: str) -> bool:
        """Full match by Python's `re`."""
        return re.fullmatch(p.regex, tape) is not None

    def cases(self, p: Pattern, rng: random.Random) -> list[Case]:
        """Instances with few, some and many repetitions, and near misses."""

        def instance(style: str) -> list[str]:
            return [base * rng.randint(*_REPEATS[style][op]) for base, op in p.parts]

        bases = [base for base, _ in p.parts]
        typical = instance("typical")
        cases = [(f"{style} repetitions", "".join(instance(style))) for style in _REPEATS]
        cases += [("first part only", bases[0]), ("last part only", bases[-1])]
        for i, (_, op) in enumerate(p.parts):
            if op == "+":
                cases.append(("a needed part missing", "".join(typical[:i] + typical[i + 1 :])))
        cases += [
            ("parts in reverse order", "".join(reversed(typical))),
            ("a colour between the parts", rng.choice(p.colors).join(typical)),
            ("a piece of a base", noise(rng, p.colors, 3) + bases[0][:1] + noise(rng, p.colors, 3)),
            ("random", noise(rng, p.colors, rng.randint(5, 8))),
        ]
        return cases

    def hidden_cases(self, p: Pattern, rng: random.Random) -> list[Case]:
        """Many more instances, with up to six repetitions."""
        cases = self.cases(p, rng)
        for _ in range(12):
            tops = {"+": (1, 6), "?": (0, 1), "*": (0, 6)}
            cases.append(("an instance", "".join(base * rng.randint(*tops[op]) for base, op in p.parts)))
        return cases

    def parameters(self, difficulty: str, colors: str) -> list[Pattern]:
        """All sequences of parts with bases of one or two colours (hard: bases of one colour)."""
        check_difficulty(self.name, difficulty)
        check_colors(self.name, colors)
        lengths = range(1, 2) if difficulty == "hard" else range(1, 3)
        parts = list(product(words(colors, lengths), "+?*"))
        return [Pattern(colors, chosen) for chosen in product(parts, repeat=PARTS[difficulty])]
