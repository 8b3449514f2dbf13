"""Plays engine and scorer for an allocator, and remembers everything that was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gumption import randomness
from gumption.testing.builders import RewardLike, answer
from gumption.types import Allocator, Attempt, Final, Member, Request, Reward, StateTree, Verdict

Key = tuple[str, int, int, int]
"""Names one rollout: problem id, visit, attempt, member."""


class Conversation:
    """Random but repeatable answers to what an allocator asks for.

    Pass rates differ between problems (some are never, some always solved); some rollouts have no reward, some are too
    old; attempts finish in random order; the policy version moves on. All of it follows from `seed` and the request,
    so two conversations with the same seed hear the same answers to the same questions.

    Args:
        allocator: Talks back.
        seed: Of the answers.
        slots: Rollouts in flight.
        missing: Share of rollouts without a reward value.
        graded: Rewards in quarters instead of 0 and 1.
        stale: Share of attempts told with `fresh=False`.
    """

    def __init__(
        self,
        allocator: Allocator,
        *,
        seed: int = 0,
        slots: int = 24,
        missing: float = 0.1,
        graded: bool = False,
        stale: float = 0.1,
    ) -> None:
        self.allocator = allocator
        self.seed, self.slots = seed, slots
        self.missing, self.graded, self.stale = missing, graded, stale
        self.version = 0
        self.turn = 0
        self.in_flight: list[tuple[Request, int]] = []  # with the version at the start
        self.requests: list[Request] = []
        self.told: list[Attempt] = []
        self.verdicts: list[Verdict] = []
        self.drained: list[Final] = []

    def ask(self) -> list[Request]:
        """Fill the free slots."""
        free = self.slots - sum(request.n for request, _ in self.in_flight)
        asked = self.allocator.ask(free)
        self.in_flight += [(request, self.version) for request in asked]
        self.requests += asked
        return asked

    def tell(self) -> Verdict | None:
        """Finish one attempt in flight and tell it; `None` when there is none."""
        if not self.in_flight:
            return None
        self.turn += 1
        luck = [randomness.uniform(self.seed, "conversation", self.turn, what) for what in ("pick", "update", "stale")]
        request, started = self.in_flight.pop(int(luck[0] * len(self.in_flight)))
        told = self.answer(request, started)
        self.told.append(told)
        verdict = self.allocator.tell(told, self.version, fresh=luck[2] >= self.stale)
        self.verdicts.append(verdict)
        self.version += luck[1] < 0.2
        return verdict

    def run(self, turns: int) -> None:
        """Ask and tell so many times (or until nothing is left)."""
        for _ in range(turns):
            self.ask()
            if self.tell() is None:
                break

    def drain(self) -> None:
        """End the run."""
        self.drained += self.allocator.drain()

    def answer(self, request: Request, started: int) -> Attempt:
        """Rewards that depend only on the seed and the request."""
        luck = randomness.generator(self.seed, "answer", request.problem.id, request.visit, request.attempt)
        rate = (0.0, 0.02, 0.1, 0.5, 0.9, 1.0)[randomness.key(self.seed, "rate", request.problem.id) % 6]
        rewards: list[RewardLike] = []
        for u, missing, status in luck.random((request.n, 3)).tolist():
            value = max(0.0, float(np.ceil(4 * (rate - u))) / 4) if self.graded else float(u < rate)
            if missing < self.missing:
                rewards.append(Reward(None, status=("error", "masked", "cancelled", "timeout")[int(4 * status)]))
            else:
                rewards.append(value)
        versions = started + luck.integers(0, self.version - started + 1, request.n)
        return answer(request, rewards, version=versions.tolist())

    # -- accounts

    def accepted(self) -> list[Key]:
        """Every member of every accepted group, but for replays: those were accepted before."""
        return [key(m) for v in self.verdicts if v.train for m in v.group.members if not m.attempt.replay]

    def finals(self) -> list[Key]:
        """Every rollout whose fate was settled by a verdict or by the drain."""
        return [key(f.member) for v in self.verdicts for f in v.finals] + [key(f.member) for f in self.drained]

    def all_told(self) -> list[Key]:
        """Every rollout told."""
        return [key(Member(a, i)) for a in self.told for i in range(a.n)]


def key(member: Member) -> Key:
    """Name of a rollout."""
    request = member.attempt.request
    return request.problem.id, request.visit, request.attempt, member.position


def summary(verdict: Verdict) -> tuple[Any, ...]:
    """A verdict as plain values, to compare two of them."""
    group = verdict.group
    counts = (group.count, group.reward_sum, group.successes, group.attempts, group.attempt_values)
    finals = tuple((key(f.member), f.fate, f.reason) for f in verdict.finals)
    members = tuple(key(m) for m in group.members)
    return verdict.kind, verdict.reason, verdict.train, verdict.counts, group.chain_id, counts, members, finals


def copy_state(state: StateTree) -> StateTree:
    """A deep copy of a state tree, which may hold JSON scalars, lists, string-keyed dicts and numpy arrays only.

    Raises:
        AssertionError: something else is in it.

    >>> copy_state({"a": [1, None, "x"], "b": np.zeros(2)})["b"].tolist()
    [0.0, 0.0]
    """
    copied = _copy(state, "state")
    assert isinstance(copied, dict)
    return copied


def _copy(node: Any, where: str) -> Any:
    if node is None or type(node) in (bool, int, float, str):
        return node
    if isinstance(node, np.ndarray):
        assert node.dtype != object, f"{where} is an array of objects"
        return node.copy()
    if isinstance(node, dict):
        assert all(type(name) is str for name in node), f"{where} has keys that are not strings"
        return {name: _copy(child, f"{where}.{name}") for name, child in node.items()}
    assert isinstance(node, Sequence) and not isinstance(node, bytes), f"{where} holds a {type(node).__name__}"
    return [_copy(child, f"{where}[{i}]") for i, child in enumerate(node)]
