"""Turns what the pipeline does into ledger rows and exact counters.

A rollout's row is written when its fate is final. Every counter that a summary shows is the sum of rows (or, while
rollouts are in flight, an engine total that those rows will add up to), so that ledger and summary agree exactly.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from gumption.types import (
    Attempt,
    Credit,
    Engine,
    Fate,
    Final,
    Group,
    Member,
    Selection,
    StateTree,
    TrainBatch,
    UpdateResult,
    Verdict,
)

USEFUL: frozenset[Fate] = frozenset({"trained", "not_selected"})


class Sink(Protocol):
    """Where rows go: a `LedgerWriter`, or a list in tests."""

    def append(self, table: str, row: Mapping[str, Any]) -> None:
        """Take one row of a table."""
        ...


class Recorder:
    """Counts and writes down.

    Args:
        sink: Takes the rows.
        engine: Its running totals are the generation part of the FLOP counters.
        clock: Seconds since the run began; default: wall time.
        max_score: Reward at which a rollout counts as a success.
    """

    def __init__(
        self, sink: Sink, engine: Engine, clock: Callable[[], float] | None = None, *, max_score: float = 1.0
    ) -> None:
        start = time.perf_counter()
        self.sink = sink
        self.engine = engine
        self.max_score = max_score
        self.last_step: dict[str, float] = {}
        self.extra: dict[str, float] = {}  # further metrics of the next step: what a controller has set
        self.clock = clock or (lambda: time.perf_counter() - start)
        self.rollouts: dict[str, int] = defaultdict(int)  # by fate
        self.flops_by_fate: dict[str, int] = defaultdict(int)
        self.flops_score = self.flops_train = self.flops_lost = 0
        self.tokens_trained = self.rollouts_lost = 0
        self.updates = self.skipped_updates = self.empty_batches = 0
        self.cum_bits = 0.0
        self.staleness_sum = self.staleness_max = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self._window: dict[str, float] = defaultdict(float)
        self._seconds_before: dict[str, float] = {}

    # -- time and totals

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time of a block to `time/<what>`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - start

    @property
    def flops_total(self) -> int:
        """Everything spent: prefill, decode, scoring, training, and what a crash lost."""
        return (
            self.engine.flops_prefill + self.engine.flops_decode + self.flops_score + self.flops_train + self.flops_lost
        )

    @property
    def flops_useful(self) -> int:
        """FLOPs of rollouts that were trained on or were in an accepted group."""
        return sum(self.flops_by_fate[f] for f in USEFUL)

    # -- rows

    @staticmethod
    def members(attempt: Attempt) -> list[Member]:
        """Every member of an attempt."""
        return [Member(attempt, i) for i in range(attempt.n)]

    def verdict(self, attempt: Attempt, verdict: Verdict, version: int) -> None:
        """One row for each attempt that was judged."""
        values = attempt.task_G
        valued = values[~np.isnan(values)]
        group = verdict.group
        total, top = (float(valued.sum()), float(valued.max())) if len(valued) else (0.0, None)
        successes = int((valued >= self.max_score - 1e-6).sum())
        self.sink.append(
            "verdicts",
            {
                "problem_id": group.chain_id.problem_id,
                "visit": group.chain_id.visit,
                "attempt": attempt.request.attempt,
                "kind": verdict.kind,
                "reason": verdict.reason,
                "version": version,
                "n": attempt.n,
                "valued": len(valued),
                "successes": successes,
                "reward_sum": total,
                "reward_max": top,
                "chain_count": group.count,
                "chain_reward_sum": group.reward_sum,
                "chain_attempts": group.attempts,
                "group_size": group.size,
                "wall": self.clock(),
            },
        )
        w = self._window
        w["attempts"] += 1
        w["rollouts"] += attempt.n
        w["valued"] += len(valued)
        w["reward"] += total
        w["tokens"] += int(attempt.offsets_G1[-1])
        w["clipped"] += attempt.finish_G.count("length")
        if len(valued) and float(np.ptp(valued)) <= 1e-6:
            w["zero_std"] += 1
            w["none"] += successes == 0
            w["all"] += successes == len(valued)

    def final(self, final: Final, version: int, **extra: Any) -> None:
        """The one row of a rollout, now that its fate is known."""
        member, fate, reason = final
        rollout = member.rollout
        reward = rollout.reward
        score, train = int(extra.get("flops_score", 0)), int(extra.get("flops_train", 0))
        flops = rollout.flops_prefill + rollout.flops_decode + score + train
        self.rollouts[fate] += 1
        self.flops_by_fate[fate] += flops
        row: dict[str, Any] = {
            "problem_id": rollout.request.problem.id,
            "visit": rollout.request.visit,
            "attempt": rollout.request.attempt,
            "member": rollout.member,
            "fate": fate,
            "reason": reason,
            "version_start": rollout.version_start,
            "version_end": rollout.version_end,
            "version_final": version,
            "reward": None if reward is None else reward.value,
            "task_reward": None if reward is None else reward.task_value,
            "status": None if reward is None else reward.status,
            "parts": [] if reward is None else list(reward.parts),
            "finish": rollout.finish,
            "prompt_tokens": len(rollout.prompt_ids_T),
            "completion_tokens": 0 if member.attempt.replay else len(rollout.completion_ids_T),
            "trained_tokens": 0,
            "flops_prefill": rollout.flops_prefill,
            "flops_decode": rollout.flops_decode,
            "flops_score": 0,
            "flops_train": 0,
            "advantage": None,
            "leverage": None,
            "weight": None,
            "update": None,
            "replay": member.attempt.replay,
            "text": rollout.text,
            "wall": self.clock(),
        }
        row.update(extra)
        self.sink.append("rollouts", row)

    def untrained_group(self, verdict: Verdict, credit: Credit) -> None:
        """A chain that ended without training."""
        self._group(verdict, verdict.group, credit, None, None)

    def trained(
        self,
        verdicts: Sequence[Verdict],
        groups: Sequence[Group],
        credits: Sequence[Credit],
        selections: Sequence[Selection],
        batch: TrainBatch,
        result: UpdateResult | None,
    ) -> None:
        """The rows of every group of a batch; `result` is `None` when nothing in it could be trained on."""
        first = 0  # row of the batch at which this group's kept rollouts begin
        for verdict, group, credit, selection in zip(verdicts, groups, credits, selections, strict=True):
            rows = {i: first + j for j, i in enumerate(selection.indices_J.tolist())}
            for i, member in enumerate(group.members):
                extra: dict[str, Any] = {
                    "advantage": float(credit.advantages_G[i]),
                    "leverage": float(credit.leverage_G[i]),
                    "update": batch.version,
                }
                final = Final(member, "not_selected", selection.reason)
                if i in rows:
                    assert result is not None, "a kept rollout belongs to an update"
                    final, kept = self._kept(member, selection.reason, batch, rows[i], result)
                    extra |= kept
                self.final(final, batch.version, **extra)
            self._group(verdict, group, credit, selection, batch.version)
            first += len(rows)
        if result is None:
            self.empty_batches += 1
        elif result.skipped:
            self.skipped_updates += 1

    def _kept(
        self, member: Member, reason: str, batch: TrainBatch, row: int, result: UpdateResult
    ) -> tuple[Final, dict[str, Any]]:
        """Fate and columns of a rollout that was in an optimizer step."""
        rollout = batch.rows_B[row].rollout
        score, train = result.flops_score_B[row], result.flops_train_B[row]
        self.flops_score += score
        self.flops_train += train
        kept = batch.rows_B[row]
        extra: dict[str, Any] = {
            "advantage": kept.advantage, "weight": kept.weight, "flops_score": score, "flops_train": train
        }  # fmt: skip
        if not result.applied(row):
            return Final(member, "error", "update_skipped"), extra
        tokens, age = rollout.trained_tokens, batch.version - rollout.version_start
        self.tokens_trained += tokens
        self.staleness_sum += age
        self.staleness_max = max(self.staleness_max, age)
        w = self._window
        w["age_sum"] += age
        w["age_max"] = max(w["age_max"], age)
        w["trained"] += 1
        w["trained_tokens"] += tokens
        ratios_B = result.importance_ratio_B
        extra |= {"trained_tokens": tokens, "importance_ratio": None if ratios_B is None else ratios_B[row]}
        return Final(member, "trained", reason), extra

    def _group(
        self, verdict: Verdict, group: Group, credit: Credit, selection: Selection | None, update: int | None
    ) -> None:
        """A chain has ended: its row, and its bits (those of discarded rollouts too)."""
        chain = verdict.group
        kept_J = np.zeros(0, np.int64) if selection is None else selection.indices_J
        kept_leverage = float(credit.leverage_G[kept_J].sum())
        self.cum_bits += credit.bits * chain.count
        w = self._window
        w["bits"] += credit.bits  # the mean is taken over problems, not over rollouts
        w["chains"] += 1
        if update is not None:
            w["leverage"] += float(credit.leverage_G.sum())
            w["kept_leverage"] += kept_leverage
            w["members"] += group.size
            w["kept"] += len(kept_J)
            w["groups"] += 1
            w["group_attempts"] += chain.attempts
        self.sink.append(
            "groups",
            {
                "problem_id": chain.chain_id.problem_id,
                "visit": chain.chain_id.visit,
                "kind": verdict.kind,
                "reason": verdict.reason,
                "update": update,
                "size": group.size,
                "count": chain.count,
                "reward_sum": chain.reward_sum,
                "successes": chain.successes,
                "attempts": chain.attempts,
                "p_hat": credit.p_hat,
                "bits": credit.bits,
                "leverage_sum": float(credit.leverage_G.sum()),
                "kept": len(kept_J),
                "kept_leverage": kept_leverage,
                "kept_tokens": int(group.lengths_G[kept_J].sum()),
                "generated_tokens": int(group.lengths_G.sum()),
                "wall": self.clock(),
            },
        )

    # -- steps

    def step(self, result: UpdateResult, groups: int, allocation: Mapping[str, float], version: int) -> None:
        """One row for each optimizer step: what happened since the last one, and the totals so far."""
        self.updates = version
        w = self._window
        rollouts, attempts, valued = max(w["rollouts"], 1), max(w["attempts"], 1), max(w["valued"], 1)
        trained = max(w["trained"], 1)
        judged = {  # absent when no attempt came back since the last step
            "reward/mean": w["reward"] / valued,
            "completions/mean_length": w["tokens"] / rollouts,
            "completions/clipped_ratio": w["clipped"] / rollouts,
            "frac_reward_zero_std": w["zero_std"] / attempts,
            "solved_none": w["none"] / attempts,
            "solved_all": w["all"] / attempts,
        }
        metrics = {
            **(judged if w["attempts"] else {}),
            "off_policy/mean": w["age_sum"] / trained,
            "off_policy/max": w["age_max"],
            "leverage/kept_share": w["kept_leverage"] / w["leverage"] if w["leverage"] else 0.0,
            "leverage/kept_rollouts": w["kept"] / max(w["members"], 1),
            "allocation/attempts_per_group": w["group_attempts"] / max(w["groups"], 1),
            "batch/version": float(version),
            "batch/groups": float(groups),
            "batch/rollouts": w["trained"],
            "batch/tokens": w["trained_tokens"],
            **allocation,
            **self.extra,
            **result.metrics,
            **self.totals(),
            **{f"time/{name}": s - self._seconds_before.get(name, 0.0) for name, s in self.seconds.items()},
        }
        if w["chains"]:
            metrics["info/reward_entropy"] = w["bits"] / w["chains"]
        self._seconds_before = dict(self.seconds)
        self._window.clear()
        self.last_step = metrics
        self.sink.append("steps", {"version": version, "wall": self.clock(), "skipped": result.skipped, **metrics})

    def totals(self) -> dict[str, float]:
        """Cumulative counters under the field's names."""
        total = self.flops_total
        return {
            "flops/prefill": self.engine.flops_prefill,
            "flops/decode": self.engine.flops_decode,
            "flops/score": self.flops_score,
            "flops/train": self.flops_train,
            "flops/total": total,
            "flops/wasted": sum(n for f, n in self.flops_by_fate.items() if f not in USEFUL) + self.flops_lost,
            "tokens/prompt": self.engine.tokens_prompt,
            "tokens/generated": self.engine.tokens_generated,
            "tokens/trained": self.tokens_trained,
            "rollouts": sum(self.rollouts.values()),
            "info/cum_bits": self.cum_bits,
            "info/bits_per_ktok": 1e3 * self.cum_bits / max(self.engine.tokens_generated, 1),
            "info/bits_per_pflop": 1e15 * self.cum_bits / max(total, 1),
        }

    def state_dict(self) -> StateTree:
        """All counters."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        maps = {name: dict(getattr(self, name)) for name in _MAPS}
        return {"plain": plain, "maps": maps, "clock": self.clock()}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to saved counters (the clock is the caller's)."""
        for name in _PLAIN:
            setattr(self, name, state["plain"][name])
        for name in _MAPS:
            getattr(self, name).clear()
            getattr(self, name).update(state["maps"][name])
        self._seconds_before = dict(self.seconds)


_PLAIN = (
    "flops_score", "flops_train", "flops_lost", "tokens_trained", "rollouts_lost", "updates", "skipped_updates",
    "empty_batches", "cum_bits", "staleness_sum", "staleness_max",
)  # fmt: skip
_MAPS = ("rollouts", "flops_by_fate", "seconds", "_window")
