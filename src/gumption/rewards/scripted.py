"""The verifier of scripted completions: the text is the score."""

from __future__ import annotations

import math

from gumption.types import Problem, Reward


class ScriptedVerifier:
    """Reads the score that the scripted engine wrote: "1", "0", or a number between (for graded rewards).

    >>> from gumption.testing import problem
    >>> verifier = ScriptedVerifier()
    >>> [verifier.score(problem("a"), text).value for text in ("1", "0", "0.25", "oops")]
    [1.0, 0.0, 0.25, 0.0]
    """

    def score(self, problem: Problem, completion: str) -> Reward:
        """Reward of one completion; 0 for anything that is not a number in [0, 1]."""
        if completion == "1":
            return _RIGHT
        if completion == "0":
            return _WRONG
        try:
            value = float(completion)
        except ValueError:
            return Reward(0.0, detail="not a number")
        if not math.isfinite(value) or not 0 <= value <= 1:
            return Reward(0.0, detail="outside [0, 1]")
        return Reward(value)


_RIGHT, _WRONG = Reward(1.0), Reward(0.0)
