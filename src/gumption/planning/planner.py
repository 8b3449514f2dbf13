"""Searches a setting for a model, problems, hardware and a budget: closed forms screen, the simulator ranks the best.

What is maximised is the leverage trained on (effective rollouts, `credit.leverage`) per FLOP or per hour, under a bound
on the mean staleness. It is a measure of gradient signal, not of learning: rules differ in the objective that they
follow (`gumption explain`), and nothing here knows how the pass rates will move. Not searched: learning rate, loss.

Screening is exact for the rules of `screening.SCREENED`; every other rule of `allocation.rule` enters the simulated
round with its defaults and the best setting of the rest.
"""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gumption.config import AllocationConfig, RunConfig
from gumption.flops import ModelShape, forward_flops, train_flops
from gumption.planning import screening
from gumption.planning.hardware import Hardware
from gumption.planning.simulator import Simulation, simulate
from gumption.planning.speed import Rates, rates, shape_for, slots_that_fit
from gumption.planning.staleness import staleness, tail_lognormal
from gumption.types import FloatArray

GROUP_SIZES, SHARES = (4, 8, 16, 32), (1.0, 0.9, 0.5)
GROUPS_PER_UPDATE, SLOTS_PER_GENERATOR = (16, 32, 64, 128), (32, 64, 128, 256)
FEWEST_UPDATES, LEVELS, TRIED = 50, 64, 6


@dataclass(frozen=True)
class Task:
    """What is planned for.

    Args:
        rates_P: Pass rates of the problems.
        params: Parameters of the model.
        hardware: One accelerator; `count` of them.
        flops: Budget in FLOPs; or `hours`.
        mean_length: Mean completion tokens; `length_cv` their coefficient of variation.
        max_tokens: Cut.
        prompt_tokens: Of a prompt.
        staleness: Bound on the mean.

    Raises:
        ValueError: fewer than two accelerators, not exactly one budget, or a length that cannot be.
    """

    rates_P: FloatArray
    params: float
    hardware: Hardware
    count: int = 8
    flops: float | None = None
    hours: float | None = None
    mean_length: float = 1000.0
    length_cv: float = 0.6
    max_tokens: int = 4096
    prompt_tokens: int = 128
    staleness: float = 4.0

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"--gpus {self.count}: an asynchronous plan needs at least 2, one for each side")
        if (self.flops is None) == (self.hours is None):
            raise ValueError("give one budget: FLOPs or hours")
        if not 0 < self.mean_length <= self.max_tokens:
            raise ValueError(f"--mean-length {self.mean_length:g} must lie in (0, --max-tokens {self.max_tokens}]")

    @property
    def shape(self) -> ModelShape:
        """The model whose costs are counted."""
        return shape_for(self.params)


FEWEST_SIMULATED = 4
"""Updates of a simulation that says anything."""

LONGER = 6
"""A simulation with fewer is repeated with so many times the rollouts."""


@dataclass(frozen=True)
class Setting:
    """One point of the search, and what is predicted of it.

    Args:
        leverage_per_pflop: Effective rollouts per 10¹⁵ FLOPs; `leverage_per_hour` per hour.
        ratio: ρ, rollout rate over trainer rate.
        stale: Mean staleness.
        updates: In the budget.
        simulated: The simulator was asked.
    """

    rule: str
    group_size: int
    share: float
    groups: int
    trainers: int
    generators: int
    slots: int
    leverage_per_pflop: float
    leverage_per_hour: float
    ratio: float
    stale: float
    updates: float
    bits_per_pflop: float = math.nan
    simulated: bool = False


def plan(task: Task, *, tried: int = TRIED, rollouts: int = 6000, seed: int = 0) -> list[Setting]:
    """The best settings, best first.

    Args:
        task: What is planned for.
        tried: Screened settings that the simulator ranks (each of another rule, group size or share).
        rollouts: Of each simulation, at least; one has 12 updates at least.
        seed: Of the simulations.

    Raises:
        ValueError: the model does not fit, or no setting keeps the bound on staleness.
    """
    levels_P = _levels(task.rates_P)
    candidates = sorted(_screen(task, levels_P), key=lambda s: _order(task, s), reverse=True)
    if not candidates:
        raise ValueError(
            f"no setting fits: {task.params:g} parameters on {task.count} accelerators with mean staleness at most "
            f"{task.staleness:g} and {FEWEST_UPDATES} updates; raise the budget or --max-staleness, or lower "
            "--max-tokens"
        )
    chosen: dict[tuple[str, int, float], Setting] = {}
    for s in candidates:
        if len([c for c in chosen if c[0] == s.rule]) < max(1, tried // len(screening.SCREENED)):
            chosen.setdefault((s.rule, s.group_size, s.share), s)
    others = [
        r for r in typing.get_args(AllocationConfig.model_fields["rule"].annotation) if r not in screening.SCREENED
    ]
    best = [
        *chosen.values(),
        *(replace(candidates[0], rule=r, group_size=AllocationConfig().group_size) for r in others),
    ]
    ranked = [r for s in best if (r := _simulated(task, s, rollouts, seed)) is not None]
    return sorted(ranked, key=lambda s: (s.stale <= 1.1 * task.staleness, _order(task, s)), reverse=True)


def recipe(task: Task, setting: Setting, extra: dict[str, dict[str, Any]] | None = None) -> RunConfig:
    """The setting as a run. `extra` are tables to merge in (model, problems, simulation.problems)."""
    r = _rates(task, setting.generators, setting.trainers, setting.slots)
    shape = task.shape
    selection = {"rule": "all"} if setting.share == 1 else {"rule": "leverage", "share": setting.share}
    tables: dict[str, dict[str, Any]] = {
        "allocation": {"rule": setting.rule, "group_size": setting.group_size},
        "selection": selection,
        "rollouts": {"in_flight": setting.slots, "max_tokens": task.max_tokens},
        "training": {
            "groups_per_update": setting.groups,
            "max_staleness": max(1, math.ceil(3 * setting.stale)),
            "queue_batches": 1,
        },
        "budget": {"flops": task.flops} if task.flops is not None else {"wall": 3600 * (task.hours or 0.0)},
        "simulation": {
            "mean_length": task.mean_length,
            "length_cv": task.length_cv,
            "prompt_tokens": task.prompt_tokens,
            "tokens_per_second": float(f"{r.per_slot:.4g}"),
            "trainer_flops_per_second": float(f"{r.trainer_flops:.4g}"),
            "weight_sync_seconds": 2.0,
            "matmul_params": shape.matmul_params,
            "layers": shape.layers,
            "heads": shape.heads,
            "head_dim": shape.head_dim,
        },
    }
    for name, values in (extra or {}).items():
        tables[name] = {**tables.get(name, {}), **values}
    return RunConfig.from_dict(tables)


def reasons(task: Task, ranked: Sequence[Setting]) -> list[str]:
    """Why the first setting was chosen, one line for each choice."""
    best = ranked[0]
    unsolved, solved = float((task.rates_P < 0.02).mean()), float((task.rates_P > 0.96).mean())
    value = "leverage_per_pflop" if task.flops is not None else "leverage_per_hour"
    rest = [s for s in ranked if s.rule != best.rule]
    versus = f"{getattr(best, value) / max(getattr(rest[0], value), 1e-12):.2f} × {rest[0].rule}" if rest else "alone"
    side = "the trainer waits for rollouts" if best.ratio < 1 else "rollouts wait for the trainer"
    return [
        f"{best.rule}: most leverage for the budget ({versus}); {100 * unsolved:.0f} % of the problems are solved less "
        f"than once in 50, {100 * solved:.0f} % nearly always",
        f"groups of {best.group_size}: more members, fewer groups of equal rewards, fewer problems per update",
        f"{'all rollouts' if best.share == 1 else f'{100 * best.share:.0f} % of the leverage'} trained on: "
        + ("training is cheap here" if best.share == 1 else "the rest costs training and holds little signal"),
        f"{best.groups} groups per update: the smallest batch that keeps the mean staleness at {best.stale:.1f} "
        f"(bound {task.staleness:g}), about {best.updates:,.0f} updates in the budget",
        f"{best.trainers} trainers, {best.generators} generators, {best.slots} rollouts in flight: "
        f"ρ = {best.ratio:.2f}, {side}",
        f"max_staleness {max(1, math.ceil(3 * best.stale))}: three times the mean, so that few rollouts are lost; "
        "a queue of one batch that drops its oldest groups",
    ]


def _screen(task: Task, levels_P: FloatArray) -> Iterator[Setting]:
    """All settings within the bounds, by closed forms."""
    for rule, size, share in itertools.product(screening.SCREENED, GROUP_SIZES, SHARES):
        y = screening.expected(rule, levels_P, size, share)
        if y.groups <= 0 or y.leverage <= 0:
            continue
        for trainers, per in itertools.product(range(1, task.count), SLOTS_PER_GENERATOR):
            generators = task.count - trainers
            longest = min(task.max_tokens, 2 * round(task.mean_length)) + task.prompt_tokens
            if per * generators > slots_that_fit(task.shape, task.hardware, generators=generators, longest=longest):
                continue
            for groups in GROUPS_PER_UPDATE:
                s = _predict(task, rule, size, share, y, groups, trainers, generators, per * generators)
                if s.stale <= task.staleness and s.updates >= FEWEST_UPDATES:
                    yield s
                    break  # a larger batch has less staleness and fewer updates


def _predict(
    task: Task, rule: str, size: int, share: float, y: screening.Yield, groups: int, trainers: int, generators: int,
    slots: int,
) -> Setting:  # fmt: skip
    shape, length = task.shape, round(task.mean_length)
    r = _rates(task, generators, trainers, slots)
    made = forward_flops(shape, length, task.prompt_tokens) + forward_flops(shape, task.prompt_tokens) / size
    taught = train_flops(shape, length + task.prompt_tokens)
    per_second = slots * r.per_slot / task.mean_length  # rollouts
    ratio = per_second * (y.kept / y.rollouts) * taught / r.trainer_flops
    visits = per_second / y.rollouts / max(1.0, ratio)  # per second, as far as they are trained on
    flops = max(1.0, ratio) * y.rollouts * made + y.kept * taught  # per such visit: a slow trainer's queue drops others
    batch = groups * y.rollouts / y.groups
    tail = tail_lognormal(task.length_cv, size) * y.attempts
    hours = task.hours if task.hours is not None else (task.flops or 0.0) / flops / visits / 3600
    return Setting(
        rule, size, share, groups, trainers, generators, slots,
        leverage_per_pflop=1e15 * y.leverage / flops,
        leverage_per_hour=3600 * y.leverage * visits,
        ratio=ratio,
        stale=staleness(slots, batch, tail, ratio, 1),
        updates=3600 * hours * visits * y.groups / groups,
    )  # fmt: skip


def _simulated(task: Task, setting: Setting, rollouts: int, seed: int) -> Setting | None:
    """The setting with what a short simulation says of it.

    `None` where that is nothing: the rule needs more than a name, or it trains too seldom.
    """
    rates = ", ".join(f"{p:.5f}" for p in _levels(task.rates_P, 4 * LEVELS).tolist())
    try:
        config = recipe(task, setting, {"simulation": {"problems": rates}})
        per_update = setting.groups * max(config.allocation.sizes)
        limit = max(rollouts, 12 * per_update, 4 * setting.slots)
        for times in (1, LONGER):  # a rule that accepts few of its problems needs more rollouts for an update
            budget = type(config.budget)(rollouts=times * limit)
            run = simulate(config.model_copy(update={"seed": seed, "budget": budget}))
            if len(run.series) >= FEWEST_SIMULATED:
                return _measured(task, setting, run)
    except ValueError:
        pass
    return None


def _measured(task: Task, setting: Setting, run: Simulation) -> Setting:
    """Rates between the first quarter of the updates and the last: how it fills up and what is cut off do not count."""
    first, last = run.series[len(run.series) // 4], run.series[-1]
    flops, seconds, leverage, bits, updates = (
        last[k] - first[k] for k in ("flops", "seconds", "leverage", "bits", "version")
    )
    busy = 1 - run.summary["idle"]["trainer"]
    hours = task.hours if task.hours is not None else (task.flops or 0.0) / flops * seconds / 3600
    return replace(
        setting,
        leverage_per_pflop=1e15 * leverage / flops,
        leverage_per_hour=3600 * leverage / seconds,
        ratio=busy if busy < 0.97 else max(1.0, setting.ratio),
        stale=run.summary["staleness"]["mean"],
        updates=hours * 3600 / seconds * updates,
        bits_per_pflop=1e15 * bits / flops,
        simulated=True,
    )


def _rates(task: Task, generators: int, trainers: int, slots: int) -> Rates:
    context = task.prompt_tokens + task.mean_length / 2
    return rates(task.shape, task.hardware, generators=generators, trainers=trainers, slots=slots, context=context)


def _order(task: Task, s: Setting) -> tuple[float, ...]:
    """More is better; what differs by less than 1 % is equal, and then smaller groups and fewer slots win."""
    first, second = s.leverage_per_pflop, s.leverage_per_hour
    if task.hours is not None:
        first, second = second, first
    return (*(round(math.log(max(x, 1e-12)) / 0.01) for x in (first, second)), -s.group_size, -s.slots)


def _levels(rates_P: FloatArray, n: int = LEVELS) -> FloatArray:
    """Pass rates at evenly spaced probabilities: a small stand-in for all problems."""
    levels_P: FloatArray = np.quantile(rates_P, (np.arange(n) + 0.5) / n)
    return levels_P
