"""`SelectorTestCase`: what every selector must do, whatever its rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from gumption.testing.builders import attempt, problem
from gumption.types import ChainId, Credit, Group, Member, Selection, Selector


class SelectorTestCase(ABC):
    """Subclass it in a test file with a `make` method; every check runs against what that returns.

    class TestMySelector(SelectorTestCase):
        def make(self):
            return MySelector(share=0.5)
    """

    @abstractmethod
    def make(self) -> Selector:
        """A new selector."""

    def batch(self, seed: int, *, groups: int = 6) -> tuple[list[Group], list[Credit]]:
        """Groups of 1 to 24 members with binary rewards; the first ones all wrong and all right."""
        rng = np.random.default_rng(seed)
        made = []
        for g in range(groups):
            n = int(rng.integers(1, 25))
            rate = (0.0, 1.0)[g] if g < 2 else rng.random()
            made.append(scored_group((rng.random(n) < rate).astype(float).tolist(), f"p{g}"))
        return made, [group_credit_of(group) for group in made]

    def select(self, seed: int, groups: Sequence[Group], credits: Sequence[Credit]) -> list[Selection]:
        """Run the selector with a fresh generator."""
        return self.make().select(groups, credits, np.random.default_rng(seed))

    def test_empty_batch(self) -> None:
        """No groups, no selections."""
        assert self.select(0, [], []) == []

    def test_one_selection_per_group_with_a_reason(self) -> None:
        """In order; a stop without a reason would be invisible in the ledger."""
        for seed in range(20):
            groups, credits = self.batch(seed)
            selections = self.select(seed, groups, credits)
            assert len(selections) == len(groups)
            assert all(s.reason for s in selections)

    def test_indices_are_distinct_members(self) -> None:
        """Each selected index points at a member of its group, once."""
        for seed in range(20):
            groups, credits = self.batch(seed)
            for group, s in zip(groups, self.select(seed, groups, credits), strict=True):
                indices = s.indices_J.tolist()
                assert np.issubdtype(s.indices_J.dtype, np.integer)
                assert len(set(indices)) == len(indices)
                assert all(0 <= i < group.size for i in indices)

    def test_weights_are_visible(self) -> None:
        """One finite, positive weight per selected member; "no weight" is 1.0."""
        for seed in range(20):
            groups, credits = self.batch(seed)
            for s in self.select(seed, groups, credits):
                assert s.weights_J.shape == s.indices_J.shape
                assert np.isfinite(s.weights_J).all() and (s.weights_J > 0).all()

    def test_same_generator_same_selection(self) -> None:
        """All randomness comes from the generator that is passed in."""
        for seed in range(20):
            groups, credits = self.batch(seed)
            first, second = self.select(seed, groups, credits), self.select(seed, groups, credits)
            for a, b in zip(first, second, strict=True):
                assert a.indices_J.tolist() == b.indices_J.tolist()
                assert a.weights_J.tolist() == b.weights_J.tolist()

    def test_leaves_its_input_alone(self) -> None:
        """Neither members nor credits change."""
        groups, credits = self.batch(3)
        before = [(g.rewards_G.copy(), c.advantages_G.copy(), c.leverage_G.copy()) for g, c in _zip(groups, credits)]
        self.select(3, groups, credits)
        for (rewards_G, advantages_G, leverage_G), (group, credit) in zip(before, _zip(groups, credits), strict=True):
            assert rewards_G.tolist() == group.rewards_G.tolist()
            assert advantages_G.tolist() == credit.advantages_G.tolist()
            assert leverage_G.tolist() == credit.leverage_G.tolist()

    def test_something_is_kept_of_a_mixed_group(self) -> None:
        """A group with both classes teaches something: selectors may thin it, not drop it."""
        for seed in range(20):
            groups, credits = self.batch(seed)
            for group, s in zip(groups, self.select(seed, groups, credits), strict=True):
                if 0 < group.rewards_G.sum() < group.size:
                    assert len(s.indices_J) > 0


def scored_group(rewards: Sequence[float], problem_id: str = "p-0") -> Group:
    """A group of one attempt with these rewards.

    >>> scored_group([1.0, 0.0, 0.0]).baseline
    0.3333333333333333
    """
    told = attempt(list(rewards), of=problem(problem_id))
    members = tuple(Member(told, i) for i in range(told.n))
    total = float(sum(rewards))
    successes = sum(r >= 1 for r in rewards)
    return Group(ChainId(problem_id, 0), told.request.problem, members, told.n, total, successes, 1, (told.n, total))


def group_credit_of(group: Group) -> Credit:
    """Std-normalised advantages and binary leverage of a group, computed here the long way round.

    >>> group_credit_of(scored_group([1.0, 0.0, 0.0, 0.0])).leverage_G.round(3).tolist()
    [3.0, 0.333, 0.333, 0.333]
    """
    rewards_G = group.rewards_G
    p = float(rewards_G.mean())
    std = float(rewards_G.std())
    advantages_G = (rewards_G - p) / std if std > 1e-6 else np.zeros(group.size)
    bits = 0.0 if p in (0.0, 1.0) else float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))
    return Credit(advantages_G, advantages_G**2, p, bits)


def _zip(groups: Sequence[Group], credits: Sequence[Credit]) -> list[tuple[Group, Credit]]:
    return list(zip(groups, credits, strict=True))
