"""Exact objectives: credit and selection of a run whose gradient is that of a chosen objective, without bias.

The rule's endings are enumerated (`enumeration`) and the polynomial condition is solved (`polynomial`), once per rule.

- Credit gives each success α/K and each failure −β/M, times the size of the rule's first request. With a fixed group
  all of which is kept these are of RLOO's size, and RLOO is one of the solutions that they are chosen from;
- selection is the configured rule's, fed with the credit of the published configuration. What it keeps of a class gets
  the weight (members)/(kept), so the class's sum is right whatever is kept. Where a coefficient is not 0 and the rule
  keeps nothing of that class, one of its members is kept, at random; where it is 0, nothing is.

Classes that the rule drops are left out of the solution where one exists without them. A rule that weighs its own picks
(weights other than 1) is taken to be unbiased, and its weights stay.

What is beyond the derivation, and what happens there:
- stale members are not in the group: the fresh ones of their class carry its whole coefficient; with none left, it is
  lost (the published rule has the same hole);
- a chain whose counts the rule cannot reach with 0/1 rewards for everyone (an error, a masked rollout) gets the
  coefficients of the nearest counts that it can reach;
- the loss divides by one scalar per batch that counts the batch's rollouts, which weighs whole batches, not rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from gumption.allocation import make_allocator
from gumption.config import RunConfig
from gumption.credit import leverage, make_credit
from gumption.planning import polynomial
from gumption.planning.enumeration import (
    DRAWS,
    CreditStage,
    Ending,
    OneProblem,
    Rule,
    TooManyPathsError,
    enumerate_chains,
    looks_at_batch,
)
from gumption.selection import make_selector
from gumption.types import BoolArray, Credit, Group, IntArray, Selection, Selector

EXPECTED_REWARD: Final = 1
"""Order of the objective as MaxRL(T)."""


def make_stages(
    config: RunConfig, selector: Selector | None = None, value: Callable[[str], float] | None = None
) -> tuple[CreditStage, Selector]:
    """Credit and selection of a run, whatever `credit.objective` says.

    Args:
        config: The run. With `as_published` these are `make_credit(config)` and `make_selector(config)`.
        selector: Use this one instead, where something moves its share during the run: the coefficients are exact
            whatever it keeps, and of least noise for a share of ½.
        value: Expected reward of a problem by its id, for `credit.advantage = "tracked"`; default ½ for all.

    Raises:
        ValueError: no exact solution exists for this combination; says why and what to change.

    >>> credit, selector = make_stages(RunConfig())
    >>> selector
    Leverage(share=0.5)
    """
    rule = published_rule(config)
    if selector is not None:
        rule = rule._replace(selector=selector)
    if config.credit.objective == "as_published":
        return rule.credit if value is None else make_credit(config, value), rule.selector
    stage = ExactStage(rule, solution_of(config))
    return stage.credit, stage


def published_rule(config: RunConfig) -> Rule:
    """The stages of the same configuration with `credit.objective = "as_published"`."""
    published = config.credit.model_copy(update={"objective": "as_published", "truncation": None})
    selection = config.selection
    if str(selection.share) == "auto":
        selection = selection.model_copy(update={"share": 0.5})
    config = config.model_copy(update={"credit": published, "selection": selection})
    return Rule(
        lambda: make_allocator(config, OneProblem(), 0),
        make_credit(config),
        make_selector(config),
        config.rewards.max_score,
    )


@dataclass(frozen=True)
class Solution:
    """Coefficients per state.

    Args:
        order: The objective is MaxRL(order); 1: expected reward.
        largest: Most rollouts of a chain that is trained on.
        scale: Size of the rule's first request; advantages are multiplied by it.
        states: Trained endings.
        pairs: Their coefficients (before `scale`).
    """

    order: int
    largest: int
    scale: int
    states: tuple[polynomial.State, ...]
    pairs: tuple[polynomial.Pair, ...]

    def table(self) -> dict[tuple[int, int], tuple[float, float]]:
        """(N, K) → summed coefficients on successes and against failures, `scale` included."""
        return {
            (s.rollouts, s.successes): (float(self.scale * p.alpha), float(self.scale * p.beta))
            for s, p in zip(self.states, self.pairs, strict=True)
        }


def solution_of(config: RunConfig) -> Solution:
    """The solution of a configuration; equal configurations are solved once.

    Raises:
        ValueError: see `make_stages`.
    """
    keep = ("allocation", "credit", "selection", "rewards", "training")
    return _solution_of(config.model_dump_json(include=set(keep)))


@lru_cache(maxsize=64)
def _solution_of(text: str) -> Solution:
    config = RunConfig.model_validate_json(text)
    objective = config.credit.objective
    assert objective != "as_published"
    order = EXPECTED_REWARD if objective == "expected_reward" else config.credit.truncation
    return solve_rule(published_rule(config), order)


def solve_rule(rule: Rule, order: int | None) -> Solution:
    """Exact coefficients for a rule.

    Args:
        rule: Stages; every chain must end.
        order: T of MaxRL(T), 1 for expected reward; `None`: the most rollouts of a trained chain, as near as an
            unbiased estimate comes to log-likelihood.

    Raises:
        ValueError: too many paths, a rule that looks at the whole batch or trains on nothing, an order beyond the
            largest number of rollouts, or no non-negative solution.
    """
    try:
        endings = enumerate_chains(rule)
    except TooManyPathsError as error:
        raise ValueError(
            f"an exact objective needs every path of the rule, and there are too many ({error}): lower "
            "allocation.max_attempts or allocation.group_size"
        ) from None
    if looks_at_batch(rule, endings):
        raise ValueError(
            "an exact objective needs credit and selection that look at one group at a time: take another "
            "selection.rule"
        )
    largest = max((e.count for e in endings if e.group is not None), default=0)
    if largest == 0:
        raise ValueError("this rule trains on nothing: no objective can be had (is allocation.group_size 1?)")
    order = largest if order is None else order
    for at_least in (0, 1):
        states = _states(rule, endings, at_least)
        pairs = polynomial.solve(states, order)
        if pairs is not None:
            return Solution(order, largest, min(e.count for e in endings), tuple(states), tuple(pairs))
    raise ValueError(
        f"no non-negative coefficients give this objective (MaxRL of order {order}; 1 is expected reward): the rule "
        "drops groups that it would need. Take another allocation.rule or another credit.truncation"
    )


def _states(rule: Rule, endings: Sequence[Ending], at_least: int) -> list[polynomial.State]:
    """Trained endings as states; of each class that has members at least so many are kept."""
    merged: dict[tuple[int, int], tuple[Fraction, Group]] = {}
    for e in endings:
        if e.group is not None:
            weight = merged[e.count, e.successes][0] if (e.count, e.successes) in merged else Fraction(0)
            merged[e.count, e.successes] = (weight + e.weight, e.group)
    states = []
    for (count, successes), (weight, group) in sorted(merged.items()):
        right = int((group.rewards_G > 0).sum())
        kept = [
            max(k, min(at_least, members))
            for k, members in zip(_surely_kept(rule, group), (right, group.size - right), strict=True)
        ]
        states.append(polynomial.State(count, successes, weight, *kept))
    return states


def _surely_kept(rule: Rule, group: Group) -> tuple[int, int]:
    """Fewest successes and failures that the selector keeps; all, where it weighs its picks itself."""
    rng = np.random.default_rng(2)
    [credit] = rule.credit([group])
    right_G = group.rewards_G > 0
    fewest = (int(right_G.sum()), int((~right_G).sum()))
    for _ in range(DRAWS):
        [selection] = rule.selector.select([group], [credit], rng)
        if np.all(selection.weights_J == 1):
            right_J = right_G[selection.indices_J]
            fewest = (min(fewest[0], int(right_J.sum())), min(fewest[1], int((~right_J).sum())))
    return fewest


class ExactStage:
    """Credit and selector in one, so that they cannot disagree.

    Args:
        rule: Stages of the published configuration.
        solution: Coefficients.
    """

    def __init__(self, rule: Rule, solution: Solution) -> None:
        self.rule = rule
        self.solution = solution
        self._table = solution.table()

    def credit(self, groups: Sequence[Group]) -> list[Credit]:
        """Leverage, p̂ and bits of the published configuration; advantages that add up to the state's coefficients.

        Raises:
            ValueError: graded rewards.
        """
        return [
            replace(credit, advantages_G=self._advantages(group))
            for group, credit in zip(groups, self.rule.credit(groups), strict=True)
        ]

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """What the configured rule keeps, weighted so that each class keeps its sum."""
        published = self.rule.selector.select(groups, self.rule.credit(groups), rng)
        return [
            _reweighted(group.rewards_G > 0, credit, selection, rng)
            for group, credit, selection in zip(groups, credits, published, strict=True)
        ]

    def _advantages(self, group: Group) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        if not leverage.is_binary(group.rewards_G, self.rule.top):
            raise ValueError(
                f"an exact objective needs rewards that are 0 or {self.rule.top:g}, and a group has "
                f"{sorted(set(group.rewards_G.tolist()))[:5]}: set rewards.binarize_at or "
                "credit.objective = 'as_published'"
            )
        right_G = group.rewards_G > 0
        right, wrong = int(right_G.sum()), int((~right_G).sum())
        alpha, beta = self._pair(group.count, group.successes)
        return np.where(right_G, alpha / max(right, 1), -beta / max(wrong, 1))

    def _pair(self, count: int, successes: int) -> tuple[float, float]:
        if (count, successes) not in self._table:
            if successes in (0, count):  # solved or unsolved: such a chain is not trained on
                return 0.0, 0.0
            nearest = min(self._table, key=lambda s: (abs(s[0] - count) + abs(s[1] - successes), s))
            self._table[count, successes] = self._table[nearest]
        return self._table[count, successes]


def _reweighted(right_G: BoolArray, credit: Credit, selection: Selection, rng: np.random.Generator) -> Selection:
    kept_J = selection.indices_J
    if not np.all(selection.weights_J == 1):
        return Selection(kept_J, selection.weights_J, selection.reason)
    indices: list[IntArray] = []
    weights: list[float] = []
    added = False
    for class_G in (right_G, ~right_G):
        members = np.flatnonzero(class_G)
        if members.size == 0 or credit.advantages_G[members[0]] == 0:
            continue
        kept = kept_J[class_G[kept_J]]
        if kept.size == 0:
            kept, added = rng.choice(members, 1), True
        indices.append(kept)
        weights += [members.size / kept.size] * kept.size
    if not indices:
        return Selection(np.zeros(0, np.int64), np.zeros(0), "no_coefficient")
    index_J = np.concatenate(indices)
    order_J = np.argsort(index_J)
    reason = f"{selection.reason}_and_one" if added else selection.reason
    return Selection(index_J[order_J], np.array(weights)[order_J], reason)
