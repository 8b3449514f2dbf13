"""The simulator's recorder: the counters of `Recorder` and no rows, with what a simulation adds to them.

It is most of the simulator's speed: a ledger row of a rollout costs more than all decisions about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gumption.ledger.recorder import Recorder
from gumption.types import Attempt, Credit, Engine, Final, Group, Selection, UpdateResult, Verdict


class Nowhere:
    """A sink that keeps nothing."""

    def append(self, table: str, row: Mapping[str, Any]) -> None:
        """Forget the row."""


@dataclass(slots=True)
class Spent:
    """What one problem got."""

    rollouts: int = 0
    trained: int = 0
    tokens: int = 0
    flops: int = 0


@dataclass(slots=True)
class Groups:
    """Sums over the groups that reached an update.

    Args:
        leverage: Leverage of all members; `kept` of the selected ones.
        attempts: Attempts of their chains.
        before_queue: Versions from a rollout's start to its group's completion, over trained rollouts; `in_queue` from
            there to the update. Together they are the staleness.
    """

    groups: int = 0
    members: int = 0
    leverage: float = 0.0
    kept: float = 0.0
    attempts: int = 0
    before_queue: int = 0
    in_queue: int = 0


class Counting(Recorder):
    """Counts as `Recorder` does; writes nothing.

    Args:
        engine: The scripted engine.
        clock: Virtual seconds.
        max_score: Reward of a success.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float], *, max_score: float = 1.0) -> None:
        super().__init__(Nowhere(), engine, clock, max_score=max_score)
        self.spent: dict[str, Spent] = {}  # by problem
        self.sums = Groups()
        self.series: list[dict[str, float]] = []

    def verdict(self, attempt: Attempt, verdict: Verdict, version: int) -> None:
        """The allocator's own counters say what is needed."""

    def final(self, final: Final, version: int, **extra: Any) -> None:
        """Count one rollout's fate and costs."""
        (attempt, i), fate, _ = final
        flops: int = attempt.flops_prefill_G.item(i) + attempt.flops_decode_G.item(i)
        if extra:
            flops += extra.get("flops_score", 0) + extra.get("flops_train", 0)
        self.rollouts[fate] += 1
        self.flops_by_fate[fate] += flops
        problem_id = attempt.request.problem.id
        spent = self.spent.get(problem_id)
        if spent is None:
            spent = self.spent[problem_id] = Spent()
        spent.rollouts += 1
        spent.trained += fate == "trained"
        spent.tokens += attempt.offsets_G1.item(i + 1) - attempt.offsets_G1.item(i)
        spent.flops += flops

    def _group(
        self, verdict: Verdict, group: Group, credit: Credit, selection: Selection | None, update: int | None
    ) -> None:
        self.cum_bits += credit.bits * verdict.group.count
        if update is None or selection is None:
            return
        kept_J = selection.indices_J
        s = self.sums
        s.groups += 1
        s.members += group.size
        s.leverage += float(credit.leverage_G.sum())
        s.kept += float(credit.leverage_G[kept_J].sum())
        s.attempts += verdict.group.attempts
        if len(kept_J):
            done = max([int(m.attempt.version_end_G[m.position]) for m in group.members])
            s.before_queue += done * len(kept_J) - int(group.versions_G[kept_J].sum())
            s.in_queue += (update - done) * len(kept_J)

    def step(self, result: UpdateResult, groups: int, allocation: Mapping[str, float], version: int) -> None:
        """One point of the time series."""
        self.updates = version
        trained = max(self.rollouts["trained"], 1)
        self.series.append(
            {
                "seconds": self.clock(),
                "version": float(version),
                "rollouts": float(sum(self.rollouts.values())),
                "tokens": float(self.engine.tokens_generated),
                "flops": float(self.flops_total),
                "leverage": self.sums.kept,
                "bits": self.cum_bits,
                "staleness": self.staleness_sum / trained,
            }
        )

    def by_bucket(self, buckets: Mapping[str, str]) -> dict[str, dict[str, float]]:
        """Problems, rollouts, tokens and trained rollouts by bucket; problems that got nothing are counted too."""
        table: dict[str, dict[str, float]] = {}
        total = max(sum(s.tokens for s in self.spent.values()), 1)
        for problem_id, name in buckets.items():
            row = table.setdefault(name, dict.fromkeys(("problems", "rollouts", "trained", "tokens"), 0))
            spent = self.spent.get(problem_id, Spent())
            row["problems"] += 1
            row["rollouts"] += spent.rollouts
            row["trained"] += spent.trained
            row["tokens"] += spent.tokens
        for row in table.values():
            row["token_share"] = row["tokens"] / total
        return table
