"""Put a sequence at the front of a tape that may have to be changed first."""

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
    words,
)

PLAIN = (("keep", "", ""),)
CHANGES = (
    ("remove", "B", ""),
    ("remove", "R", ""),
    ("swap", "RB", ""),
    *(("change", c, to) for c in "BR" for to in words("RB", (1, 2)) if to != c),
)
REPLACEMENTS = tuple(("replace", old, new) for old in words("RB", (2,)) for new in words("RB", range(3)) if new != old)
"""Every two-colour pattern of length 2 by every other one of length 0–2: 4·7 − 4 = 24."""


@dataclass(frozen=True, slots=True)
class Prepend(Parameters):
    """A sequence and a mutation (kind, what, by what): keep, remove, swap, change one colour, replace a pair."""

    text: str
    mutation: tuple[str, str, str]


def mutate(mutation: tuple[str, str, str], tape: str) -> str:
    """Apply a mutation; pairs are replaced from left to right without overlap.

    >>> mutate(("replace", "RR", "B"), "RRRB"), mutate(("swap", "RB", ""), "RRB"), mutate(("keep", "", ""), "R")
    ('BRB', 'BBR', 'R')
    """
    kind, old, new = mutation
    if kind == "keep":
        return tape
    if kind == "swap":
        return tape.translate(str.maketrans(old, old[::-1]))
    return tape.replace(old, new)


def _said(mutation: tuple[str, str, str]) -> str:
    kind, old, new = mutation
    if kind == "keep":
        return ""
    if kind == "remove":
        return f"Remove every {old}"
    if kind == "swap":
        return f"Exchange {old[0]} and {old[1]} everywhere"
    if kind == "change":
        return f"Change every {old} to {new}"
    by = f"Replace every {old} by {new}" if new else f"Remove every {old}"
    return f"{by} (from left to right, without overlap)"


class PrependSequence(Family[Prepend]):
    """Output family: paint a marker and the sequence, then move the tape round behind them."""

    name = "prepend_sequence"
    output = True
    parameters_type = Prepend

    def criterion(self, p: Prepend) -> str:
        """The task in one sentence."""
        change = _said(p.mutation)
        put = f"ut {p.text} at the beginning of the tape."
        return (f"{change}, then p{put}" if change else f"P{put}") + " Accept every tape."

    def transform(self, p: Prepend, tape: str) -> str:
        """The sequence, then the changed tape."""
        return p.text + mutate(p.mutation, tape)

    def cases(self, p: Prepend, rng: random.Random) -> list[Case]:
        """Single colours, pairs, runs, alternations and random tapes of three lengths."""
        fixed = ("R", "B", "RR", "RB", "BR", "BB", "BBB", "RRR", "BRBR", "RBRB")
        cases = [("a short tape", tape) for tape in fixed]
        return cases + [(f"random, length {n}", noise(rng, p.colors, n)) for n in (4, 8, 12)]

    def parameters(self, difficulty: str, colors: str) -> list[Prepend]:
        """Easy: 30 sequences, tape kept; medium: sequences up to length 6, simple changes; hard: 24 · 30."""
        check_difficulty(self.name, difficulty)
        check_colors(self.name, colors, ("RB",))
        lengths = range(1, 7) if difficulty == "medium" else range(1, 5)
        mutations = {"easy": PLAIN, "medium": CHANGES, "hard": REPLACEMENTS}[difficulty]
        return [Prepend(colors, text, m) for m in mutations for text in words(colors, lengths)]
