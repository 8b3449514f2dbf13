"""Small builders for tests: problems, scored attempts, a list as a problem stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gumption.types import Attempt, Problem, Request, Reward, StateTree

RewardLike = Reward | float | None


def problem(problem_id: str = "p-0", *, pass_rate: float = 0.5) -> Problem:
    """A problem for the scripted engine and verifier.

    >>> problem("a", pass_rate=0.25).answer
    {'pass_rate': 0.25}
    """
    return Problem(problem_id, f"prompt of {problem_id}", {"pass_rate": pass_rate}, "scripted")


def answer(request: Request, rewards: Sequence[RewardLike], *, version: int | Sequence[int] = 0) -> Attempt:
    """A scored attempt without tokens that answers a request.

    Args:
        request: What was asked for.
        rewards: One per rollout: a value, `None` (verifier error) or a whole `Reward`.
        version: Policy version at the start, of all rollouts or of each.

    Raises:
        ValueError: not as many rewards as rollouts.

    >>> answer(Request(problem(), n=2), [1.0, Reward(None, status="masked")], version=3).version_start_G.tolist()
    [3, 3]
    """
    if len(rewards) != request.n:
        raise ValueError(f"request wants {request.n} rollouts, got {len(rewards)} rewards")
    attempt = Attempt.empty(request)
    attempt.version_start_G = np.broadcast_to(np.array(version, np.int32), request.n).copy()
    attempt.version_end_G = attempt.version_start_G
    attempt.rewards_G = tuple(
        r if isinstance(r, Reward) else Reward(r, status="ok" if r is not None else "error") for r in rewards
    )
    return attempt


def attempt(rewards: Sequence[RewardLike], *, of: Problem | None = None, version: int | Sequence[int] = 0) -> Attempt:
    """A scored first attempt with these rewards.

    >>> attempt([1.0, 0.0, None]).values_G.tolist()
    [1.0, 0.0, nan]
    """
    return answer(Request(of or problem(), len(rewards)), rewards, version=version)


class ListStream:
    """Problems in order, over and over (or `epochs` times); the visit number is the pass.

    >>> stream = ListStream([problem("a"), problem("b")], epochs=1)
    >>> [stream.next()[0].id, stream.next()[0].id, stream.next()]
    ['a', 'b', None]
    """

    def __init__(self, problems: Sequence[Problem], *, epochs: int | None = None) -> None:
        self.problems = tuple(problems)
        self.epochs = epochs
        self.position = 0
        self._by_id = {p.id: p for p in self.problems}

    @property
    def size(self) -> int:
        """Number of problems."""
        return len(self.problems)

    def next(self) -> tuple[Problem, int] | None:
        """The next problem and its visit number, or `None` at the end."""
        if not self.problems:
            return None
        visit, index = divmod(self.position, len(self.problems))
        if self.epochs is not None and visit >= self.epochs:
            return None
        self.position += 1
        return self.problems[index], visit

    def problem(self, problem_id: str) -> Problem:
        """Look a problem up by id."""
        return self._by_id[problem_id]

    def state_dict(self) -> StateTree:
        """The position."""
        return {"position": self.position}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a position."""
        self.position = state["position"]
