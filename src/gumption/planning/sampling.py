"""Ends of chains by simulation: for rules with too many paths, and for those that look at the whole batch.

The real stages again, with Bernoulli rewards. Batches mix problems of all the success rates asked for in equal parts: a
rule that compares groups with one another has no w of its own, only one in a given mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gumption.allocation import make_allocator
from gumption.config import RunConfig
from gumption.planning.enumeration import OneProblem, Rule, Sums, scored, selected_sums
from gumption.types import FloatArray, Group

BUDGET: Final = 60_000
"""Rollouts to simulate."""

_LEAST: Final = 30  # chains per success rate


@dataclass(frozen=True, slots=True)
class Sample:
    """How one simulated chain ended; `size` 0: untrained."""

    count: int
    size: int = 0
    sums: Sums = field(default_factory=Sums)


def sample_chains(
    config: RunConfig, rule: Rule, p_P: FloatArray, *, groups: int, budget: int | None = None, seed: int = 0
) -> list[list[Sample]]:
    """Simulated chains for each success rate.

    Args:
        config: The run whose allocator is driven, coins included.
        rule: Its stages.
        p_P: Success rates.
        groups: Groups in a batch.
        budget: Rollouts to simulate, about (default `BUDGET`); at least 30 chains for each rate are.
        seed: Of rewards, coins and ties.

    Returns:
        For each rate its chains.
    """
    budget = BUDGET if budget is None else budget
    rng = np.random.default_rng(seed)
    samples: list[list[Sample]] = [[] for _ in p_P]
    waiting: list[tuple[int, Group]] = []
    spent = chains = 0
    allocator = make_allocator(config, OneProblem(), seed)
    while spent < budget or chains < _LEAST * len(p_P):
        for i in rng.permutation(len(p_P)).tolist():
            while True:
                [request, *_] = allocator.ask(1)
                successes = int(rng.binomial(request.n, p_P[i]))
                verdict = allocator.tell(scored(request, successes, rule.top), 0)
                if verdict.kind != "retry":
                    break
            spent += verdict.group.count
            chains += 1
            if verdict.train:
                waiting.append((i, verdict.group))
            else:
                samples[i].append(Sample(verdict.group.count))
            if len(waiting) == groups:
                _settle(rule, waiting, samples, rng)
    if waiting:
        _settle(rule, waiting, samples, rng)
    return samples


def _settle(
    rule: Rule, waiting: list[tuple[int, Group]], samples: Sequence[list[Sample]], rng: np.random.Generator
) -> None:
    batch = [group for _, group in waiting]
    credits = rule.credit(batch)
    for (i, group), credit, selection in zip(waiting, credits, rule.selector.select(batch, credits, rng), strict=True):
        samples[i].append(Sample(group.count, group.size, Sums(*selected_sums(group, credit, selection))))
    waiting.clear()
