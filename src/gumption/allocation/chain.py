"""A chain, one visit to one problem, and how chains are saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gumption.types import ChainId, Picked, Problem, StateTree, attempt_from_state, attempt_state

TOLERANCE = 1e-6
"""Rewards closer than this are equal: float noise is not variance."""

NEVER = 2**62
"""Oldest version of an empty buffer."""


@dataclass(slots=True, eq=False)
class Chain:
    """One visit to one problem that has not ended.

    Args:
        attempts: Attempts told so far.
        waiting: An attempt was asked for and is not told yet.
        count: Valued rollouts of all attempts told; `reward_sum` their rewards, `successes` those at the maximum.
        best: Best score of a judged attempt; `None` before the first.
        resamples: Attempts in a row that could not be judged.
        rounds: Attempts that were judged.
        judged: Buffered rollouts of judged attempts, oldest first.
        unjudged: Buffered rollouts of attempts that could not be judged.
        oldest: Oldest policy version in the buffers (or an older one).
    """

    id: ChainId
    problem: Problem
    attempts: int = 0
    waiting: bool = True
    count: int = 0
    reward_sum: float = 0.0
    successes: int = 0
    best: float | None = None
    resamples: int = 0
    rounds: int = 0
    judged: list[Picked] = field(default_factory=list)
    unjudged: list[Picked] = field(default_factory=list)
    oldest: int = NEVER

    def keep(self, picked: Picked, *, judged: bool) -> None:
        """Buffer some members of an attempt."""
        (self.judged if judged else self.unjudged).append(picked)
        versions = picked.attempt.version_start_G.tolist()
        self.oldest = min(self.oldest, min(versions))


_COLUMNS = ("attempts", "waiting", "count", "reward_sum", "successes", "resamples", "rounds")


def chains_state(chains: Sequence[Chain]) -> StateTree:
    """Chains as columns (numpy arrays), so that 100,000 of them are saved fast; buffered attempts one by one."""
    parts = [(c, judged, e) for c, chain in enumerate(chains) for judged, e in _entries(chain)]
    return {
        "problem_id": [chain.id.problem_id for chain in chains],
        "visit": np.array([chain.id.visit for chain in chains], np.int64),
        "best": np.array([np.nan if chain.best is None else chain.best for chain in chains], np.float64),
        **{name: np.array([getattr(chain, name) for chain in chains], _dtype(name)) for name in _COLUMNS},
        "buffer_chain": np.array([c for c, _, _ in parts], np.int64),
        "buffer_judged": np.array([judged for _, judged, _ in parts], np.bool_),
        "buffer": [{"positions": list(e.positions), "attempt": attempt_state(e.attempt)} for _, _, e in parts],
    }


def chains_from_state(
    state: StateTree, lookup: Callable[[str], Problem], everyone: tuple[int, ...] = ()
) -> list[Chain]:
    """The inverse of `chains_state`; `everyone` is shared by the entries that keep all members."""
    chains = []
    columns = {name: state[name].tolist() for name in (*_COLUMNS, "visit", "best")}
    for c, problem_id in enumerate(state["problem_id"]):
        chain = Chain(ChainId(problem_id, columns["visit"][c]), lookup(problem_id))
        for name in _COLUMNS:
            setattr(chain, name, columns[name][c])
        best = columns["best"][c]
        chain.best = None if np.isnan(best) else best
        chains.append(chain)
    flags = zip(state["buffer_chain"].tolist(), state["buffer_judged"].tolist(), state["buffer"], strict=True)
    for c, judged, saved in flags:
        attempt = attempt_from_state(saved["attempt"], chains[c].problem)
        positions = tuple(saved["positions"])
        chains[c].keep(Picked(attempt, everyone if positions == everyone else positions), judged=judged)
    return chains


def _entries(chain: Chain) -> list[tuple[bool, Picked]]:
    return [*((True, e) for e in chain.judged), *((False, e) for e in chain.unjudged)]


def _dtype(name: str) -> type:
    return {"waiting": np.bool_, "reward_sum": np.float64}.get(name, np.int64)
