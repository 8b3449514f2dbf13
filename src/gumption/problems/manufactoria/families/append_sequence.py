"""Put a sequence at the end of any tape."""

from __future__ import annotations

import random

from gumption.problems.manufactoria.families.base import Case, noise
from gumption.problems.manufactoria.families.sequences import Sequence, SequenceFamily


class AppendSequence(SequenceFamily):
    """Output family: a row of painters."""

    name = "append_sequence"
    output = True
    default_colors = "RBYG"

    def criterion(self, p: Sequence) -> str:
        """The task in one sentence."""
        return f"Accept every tape and leave it with {p.text} added at its end."

    def transform(self, p: Sequence, tape: str) -> str:
        """The tape, then the sequence."""
        return tape + p.text

    def cases(self, p: Sequence, rng: random.Random) -> list[Case]:
        """Random tapes of four lengths."""
        return [(f"random, length {n}", noise(rng, p.colors, n)) for n in (4, 8, 12, 15)]
