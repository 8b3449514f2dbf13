"""`pipeline.py` on a virtual clock: what a recipe would generate, train on, waste and wait for.

The allocator, credit, selector and loop are those that train; the engine and the trainer are scripted. What is assumed
(docs/planning.md): every slot emits `tokens_per_second` whatever the others do; a rollout succeeds with its problem's
pass rate, independent of its length but for the cut at `max_tokens`; the trainer is busy for (tokens or FLOPs)/rate and
then for the weight sync, while generation goes on with the old weights; verifiers take no time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gumption.allocation import make_allocator
from gumption.budget import Budget, nothing_to_learn_after
from gumption.config import GROUP_BASELINES, RunConfig, SimulationConfig
from gumption.ledger.pass_rates import read_lengths
from gumption.ledger.profile import bucket
from gumption.pipeline import Pipeline, Scoring
from gumption.planning.counting import Counting
from gumption.planning.enumeration import CreditStage
from gumption.planning.exact import make_stages
from gumption.problems import load_problems, make_stream
from gumption.rewards import Scorer
from gumption.rollouts.scripted import ScriptedEngine, ScriptedOptions, ScriptedTrainer, pass_rate
from gumption.types import Attempt, Credit, Group, Problem, Reward, TrainBatch, UpdateResult

SAMPLES = 1_000_000
"""Buckets are cut from the given pass rates: as if from so many samples."""


@dataclass(frozen=True)
class Simulation:
    """What a simulated run did.

    Args:
        summary: Counters under the names of `summary.json`, and `seconds` (virtual), `idle`, `leverage`, `buckets`.
        series: One row per update.
        wall: Real seconds that it took.
    """

    summary: dict[str, Any]
    series: list[dict[str, float]]
    wall: float


def simulate(
    config: RunConfig | Mapping[str, Any] | str | Path, *, until: Callable[[Counting], bool] | None = None
) -> Simulation:
    """Run a recipe on a virtual clock; what `gumption simulate` does.

    Args:
        config: A `RunConfig`, a nested mapping, or the path of a TOML recipe. `budget.wall` is virtual time. With no
            budget, and endless problems, 100 updates.
        until: Asked after each update; true ends the run with the reason "until".

    Raises:
        ValueError: the configuration or a file that it names is wrong.

    >>> result = simulate({"problems": {"size": 20}, "budget": {"updates": 3}})
    >>> result.summary["updates"], result.summary["rollouts"] == sum(result.summary["rollouts_by_fate"].values())
    (3, True)
    """
    if isinstance(config, (str, Path)):
        config = RunConfig.from_toml(config)
    elif not isinstance(config, RunConfig):
        config = RunConfig.from_dict(config)
    start = time.perf_counter()
    run = _Run(scripted_config(config))
    with _rare_collection():
        reason = run.loop(until)
    return Simulation(run.summary(reason), run.recorder.series, time.perf_counter() - start)


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Look for garbage rarely: a simulation makes many objects, and hardly any in cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def scripted_config(config: RunConfig) -> RunConfig:
    """The same recipe with the scripted engine and problems of its `[simulation]` table.

    >>> made = scripted_config(RunConfig.from_dict({"simulation": {"problems": "0.1, 0.5", "mean_length": 9}}))
    >>> made.problems.source, made.rollouts.options
    ('scripted:0.1, 0.5', {'mean_length': 9.0})
    """
    sim = config.simulation
    options = dict(config.rollouts.options) if config.rollouts.engine == "scripted" else {}
    options |= {k: v for k in ScriptedOptions.model_fields if (v := getattr(sim, k, None)) is not None}
    if sim.lengths is not None:
        options["length_quantiles"] = read_lengths(sim.lengths)
    p = config.problems
    known = isinstance(p.source, str) and p.source.partition(":")[0] == "scripted"
    source = f"scripted:{sim.problems}" if sim.problems is not None else p.source if known else "scripted:mixture"
    limits = {} if config.budget.limited or p.epochs else {"updates": 100}
    return config.model_copy(
        update={
            "problems": p.model_copy(
                update={"source": source, "size": sim.size or p.size, "weights": None, "held_out": None}
            ),
            "rewards": config.rewards.model_copy(update={"verifier": "scripted", "workers": 0, "options": {}}),
            "rollouts": config.rollouts.model_copy(update={"engine": "scripted", "options": options}),
            "budget": config.budget.model_copy(update=limits),
        }
    )


class BusyTrainer(ScriptedTrainer):
    """A scripted trainer that is busy for a while after each update.

    Args:
        config: The run.
        engine: Has the clock.
    """

    def __init__(self, config: RunConfig, engine: ScriptedEngine) -> None:
        super().__init__(config)
        self.sim: SimulationConfig = config.simulation
        self.engine = engine
        self.done_at = 0.0
        self.seconds_busy = self.seconds_sync = 0.0

    def free(self) -> bool:
        """The last update is done, and its weights have arrived."""
        return self.engine.clock >= self.done_at - 1e-9

    def seconds(self, batch: TrainBatch) -> float:
        """How long an update takes: max(tokens/token rate, FLOPs/FLOP rate)."""
        tokens = sum(len(r.rollout.prompt_ids_T) + len(r.rollout.completion_ids_T) for r in batch.rows_B)
        by_tokens, by_flops = self.sim.trainer_tokens_per_second, self.sim.trainer_flops_per_second
        return max(
            0.0 if by_tokens is None else tokens / by_tokens,
            0.0 if by_flops is None else self.estimate_flops(batch) / by_flops,
        )

    def update(self, batch: TrainBatch) -> UpdateResult:
        """One step; the trainer is busy from now on."""
        took, sync = self.seconds(batch), self.sim.weight_sync_seconds
        self.seconds_busy += took
        self.seconds_sync += sync
        self.done_at = self.engine.clock + took + sync
        self.engine.wait_until(self.done_at)
        return super().update(batch)


class Judge:
    """The scripted verifier and `Scorer` in one, for 0/1 rewards without shaping; equal rewards are one object."""

    def score(self, attempts: Sequence[Attempt]) -> None:
        """Set `rewards_G` of each attempt."""
        for attempt in attempts:
            attempt.rewards_G = tuple([_REWARDS[text] for text in attempt.texts_G])


_REWARDS = {"1": Reward(1.0), "0": Reward(0.0), "": Reward(None, status="error", detail="engine")}


def _scorer(config: RunConfig) -> Scoring:
    r = config.rewards
    plain = r.binarize_at is None and not r.overlong_buffer and r.truncated == "fail"
    return Judge() if plain else Scorer(r, max_tokens=config.rollouts.max_tokens)


_PURE = frozenset({*GROUP_BASELINES, "chain"})


def _remembered(config: RunConfig, credit: CreditStage) -> CreditStage:
    """The run's credit, remembered: groups of 0/1 rewards repeat, and these advantages depend on nothing else."""
    if config.advantage not in _PURE or config.credit.objective != "as_published" or config.rewards.overlong_buffer:
        return credit
    known: dict[tuple[Any, ...], Credit] = {}

    def remembered(groups: Sequence[Group]) -> list[Credit]:
        result = []
        for group in groups:
            key = (group.rewards_G.tobytes(), group.count, group.reward_sum, group.successes, group.attempt_values)
            found = known.get(key)
            if found is None:
                found = credit([group])[0]
                if len(known) < 100_000:
                    known[key] = found
            result.append(found)
        return result

    return remembered


class _Run:
    """The stages of one simulation, wired as `training.parts` wires those of a run."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        loaded = load_problems(config.problems, seed=config.seed)
        self.problems: tuple[Problem, ...] = loaded.problems
        self.budget = Budget(config.budget, max(config.allocation.sizes), clock=lambda: self.engine.clock)
        limited = config.budget.flops is not None or config.budget.tokens is not None
        self.engine = ScriptedEngine(config, seed=config.seed, allow=self.budget.allows_decode if limited else None)
        self.trainer = BusyTrainer(config, self.engine)
        self.recorder = Counting(self.engine, lambda: self.engine.clock, max_score=config.rewards.max_score)
        self.budget.attach(self.engine, self.recorder)
        credit, selector = make_stages(config)
        self.pipeline = Pipeline(
            config=config,
            allocator=make_allocator(config, make_stream(loaded, config.problems, config.seed), config.seed),
            engine=self.engine,
            scorer=_scorer(config),
            credit=_remembered(config, credit),
            selector=selector,
            trainer=self.trainer,
            recorder=self.recorder,
            allows=self.budget.allows_update,
            may_ask=self.budget.may_ask,
            trainer_free=self.trainer.free,
        )

    def loop(self, until: Callable[[Counting], bool] | None = None) -> str:
        """Until a limit; returns which one (the reasons of `training.run`)."""
        p, budget = self.pipeline, self.budget
        budget.start()
        moved = 0  # rollouts submitted at the last update
        patience = nothing_to_learn_after(self.config, len(self.problems))
        while True:
            if reason := budget.reached(self.trainer.version):
                break
            updates = p.cycle()
            budget.submitted = p.submitted
            if updates:
                moved = p.submitted
                if until is not None and until(self.recorder):
                    reason = "until"
                    break
            if p.spent or self.engine.exhausted:
                reason = budget.refused(self.trainer.version, self.config.rollouts.in_flight)
                break
            if p.ended and not updates:
                reason = "rollouts" if budget.out_of_rollouts else "problems"
                break
            if p.submitted - moved > patience:
                reason = "nothing_to_learn"
                break
        p.finish(self.engine.abandon())
        return reason

    def summary(self, reason: str) -> dict[str, Any]:
        """Everything that was counted."""
        r, e, s = self.recorder, self.engine, self.recorder.sums
        seconds, total = e.clock, r.flops_total
        trained = max(r.rollouts["trained"], 1)
        slot_steps = max(e.clock * e.options.tokens_per_second * e.slots, 1e-9)
        metrics = self.pipeline.allocator.metrics()
        return {
            "reason": reason,
            "seconds": seconds,
            "updates": self.trainer.version,
            "rollouts": sum(r.rollouts.values()),
            "rollouts_by_fate": {fate: n for fate, n in sorted(r.rollouts.items()) if n},
            "tokens": {"prompt": e.tokens_prompt, "generated": e.tokens_generated, "trained": r.tokens_trained},
            "flops": {
                "prefill": e.flops_prefill,
                "decode": e.flops_decode,
                "score": r.flops_score,
                "train": r.flops_train,
                "total": total,
                "wasted": total - r.flops_useful,
            },
            "wasted_share": (total - r.flops_useful) / max(total, 1),
            "bits": {
                "cum": r.cum_bits,
                "per_ktok": 1e3 * r.cum_bits / max(e.tokens_generated, 1),
                "per_pflop": 1e15 * r.cum_bits / max(total, 1),
            },
            "leverage": {"accepted": s.leverage, "trained": s.kept, "per_second": s.kept / max(seconds, 1e-9)},
            "staleness": {
                "mean": r.staleness_sum / trained,
                "max": r.staleness_max,
                "before_queue": s.before_queue / trained,
                "in_queue": s.in_queue / trained,
            },
            "attempts_per_group": s.attempts / max(s.groups, 1),
            "allocation": {k.removeprefix("allocation/"): v for k, v in metrics.items() if k.startswith("allocation/")},
            "idle": {
                "generator": 1 - min(1.0, e.tokens_generated / slot_steps),
                "trainer": 1 - min(1.0, self.trainer.seconds_busy / max(seconds, 1e-9)),
                "trainer_sync": min(1.0, self.trainer.seconds_sync / max(seconds, 1e-9)),
            },
            "buckets": self._buckets(),
            "seed": self.config.seed,
        }

    def _buckets(self) -> dict[str, dict[str, float]]:
        """Allocation and mean pass rate, by given pass rate."""
        default = self.engine.options.pass_rate
        before = {p.id: pass_rate(p, {}, default) for p in self.problems}
        table = self.recorder.by_bucket({i: bucket(rate, SAMPLES) for i, rate in before.items()})
        shifts = self.trainer.weights()
        rates: dict[str, list[tuple[float, float]]] = {}
        for p in self.problems:
            rates.setdefault(bucket(before[p.id], SAMPLES), []).append((before[p.id], pass_rate(p, shifts, default)))
        for name, pairs in rates.items():
            table[name]["pass_rate_before"] = sum(b for b, _ in pairs) / len(pairs)
            table[name]["pass_rate_after"] = sum(a for _, a in pairs) / len(pairs)
        return table
