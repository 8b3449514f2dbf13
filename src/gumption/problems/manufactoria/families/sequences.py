"""Parameters and tiers shared by the families about one colour sequence."""

from __future__ import annotations

from dataclasses import dataclass

from gumption.problems.manufactoria.families.base import Family, Parameters, check_colors, check_difficulty, words

LENGTHS = {"easy": range(1, 5), "medium": range(5, 7), "hard": range(7, 9)}
"""Sequence lengths by difficulty: 340 four-colour sequences are easy; two-colour easy and medium make 126."""


@dataclass(frozen=True, slots=True)
class Sequence(Parameters):
    """One non-empty colour sequence."""

    text: str


class SequenceFamily(Family[Sequence]):
    """A family whose parameter is one sequence."""

    parameters_type = Sequence

    def parameters(self, difficulty: str, colors: str) -> list[Sequence]:
        """All sequences of the difficulty's lengths."""
        check_difficulty(self.name, difficulty)
        check_colors(self.name, colors)
        return [Sequence(colors, text) for text in words(colors, LENGTHS[difficulty])]


def change_at(text: str, position: int, letter: str) -> str:
    """`text` with one letter replaced (unchanged for an empty `letter`).

    >>> change_at("RRR", 1, "B")
    'RBR'
    """
    return text[:position] + letter + text[position + 1 :] if letter else text
