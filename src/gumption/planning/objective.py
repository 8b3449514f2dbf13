"""What a configuration optimises, and what it costs: functions of the success rate p.

For 0/1 rewards and any rule that looks only at rewards, E[g] = w(p)·∇p with

    w(p) = E[α/p + β/(1 − p)]

α the summed coefficient (weight times advantage) on kept successes, β against kept failures, the expectation over the
endings of a chain; so the rule maximises Σ_x f(p_x) with f′ = w. Beside w, in the model of `credit.leverage` in which
the score of every rollout is equally noisy and its direction is known:

    noise(p)      E[Σ a²]                      effective rollouts   w²·p(1 − p)/noise
    cost(p)       E[N] + 3·E[trained]          variance × cost      cost/effective rollouts

in forward passes: generating a token is one, training on it three (forward and backward). Prompts are not counted.

Gradients are summed over the group and divided by one scalar per batch, as the trainer does it. `per = "group"` divides
each group by its size and `"kept"` by what is kept of it, as published tables and other trainers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gumption.allocation import make_allocator
from gumption.config import RunConfig
from gumption.planning.enumeration import (
    Ending,
    OneProblem,
    Rule,
    Sums,
    TooManyPathsError,
    enumerate_chains,
    looks_at_batch,
    with_sums,
)
from gumption.planning.exact import make_stages
from gumption.planning.sampling import sample_chains
from gumption.types import FloatArray

Per: TypeAlias = Literal["batch", "group", "kept"]

TRAIN_PRICE: Final = 3.0
"""Forward passes that training on a token costs."""

P: Final = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Success rates of the tables."""

_TAIL: Final = 1e-7


@dataclass(frozen=True)
class Curve:
    """What a rule does at each success rate; per chain, that is per visit to a problem.

    Args:
        p_P: Success rates.
        w_P: Implied weight.
        rollouts_P: E[N], rollouts generated.
        trained_P: Rollouts trained on.
        squares_P: E[Σ a²].
        error_P: Standard error of w; 0 where it is exact.
        exact: By enumeration; else by simulation.
    """

    p_P: FloatArray
    w_P: FloatArray
    rollouts_P: FloatArray
    trained_P: FloatArray
    squares_P: FloatArray
    error_P: FloatArray
    exact: bool

    @property
    def relative_P(self) -> FloatArray:
        """w(p)/w(½), by interpolation where ½ is not among the rates; NaN where nothing is trained on."""
        with np.errstate(invalid="ignore", divide="ignore"):
            relative_P: FloatArray = self.w_P / np.interp(0.5, self.p_P, self.w_P)
        return relative_P

    @property
    def share_P(self) -> FloatArray:
        """Rollouts trained on, of those generated."""
        return self.trained_P / self.rollouts_P

    @property
    def effective_P(self) -> FloatArray:
        """Effective rollouts per chain; 0 where nothing is trained on."""
        signal_P = self.w_P**2 * self.p_P * (1 - self.p_P)
        return np.divide(signal_P, self.squares_P, out=np.zeros_like(signal_P), where=self.squares_P > 0)

    @property
    def cost_P(self) -> FloatArray:
        """Forward passes per chain."""
        return self.rollouts_P + TRAIN_PRICE * self.trained_P

    @property
    def variance_cost_P(self) -> FloatArray:
        """Variance × cost in forward passes; infinite where nothing is trained on."""
        with np.errstate(divide="ignore"):
            return self.cost_P / self.effective_P

    @property
    def variance_rollouts_P(self) -> FloatArray:
        """Variance × rollouts generated: G/(G − 1) for RLOO."""
        with np.errstate(divide="ignore"):
            return self.rollouts_P / self.effective_P


def implied_weight(config: RunConfig, p: npt.ArrayLike, *, per: Per = "batch") -> FloatArray:
    """w(p) of a configuration.

    Source: derived in docs/objectives.md.

    Args:
        config: A run.
        p: Success rates strictly between 0 and 1, any shape.
        per: What each group's gradient is divided by, beside the scalar of the batch.

    Returns:
        w, of the same shape. By enumeration; by simulation where `curve(config).exact` is false.

    Raises:
        ValueError: a rate outside (0, 1).

    >>> fixed = RunConfig.from_dict({"allocation": {"rule": "fixed"}, "selection": {"rule": "all"},
    ...                              "credit": {"advantage": "rloo"}})
    >>> implied_weight(fixed, [0.1, 0.5], per="group").round(9).tolist()
    [1.0, 1.0]
    """
    p_P = np.asarray(p, np.float64)
    return curve(config, p_P.ravel(), per=per).w_P.reshape(p_P.shape)


def curve(config: RunConfig, p: npt.ArrayLike = P, *, per: Per = "batch") -> Curve:
    """Weight, rollouts, training and noise of a configuration at each success rate.

    Args:
        config: A run. Nothing gets stale and every rollout has a 0/1 reward.
        p: Success rates in (0, 1), shape (P,).
        per: See `implied_weight`.

    Raises:
        ValueError: a rate outside (0, 1); an exact objective that the rule cannot have.
    """
    p_P = np.asarray(p, np.float64)
    if p_P.size == 0 or not (p_P.min() > 0 and p_P.max() < 1):
        raise ValueError(f"success rates must lie strictly between 0 and 1, got {p_P.tolist()}")
    endings = _endings(config.model_dump_json(), float(min(p_P.min(), 1 - p_P.max())))
    if endings is None:
        return _sampled(config, p_P, per)
    return curve_of(endings, p_P, per=per)


def curve_of(endings: Sequence[Ending], p_P: FloatArray, *, per: Per = "batch") -> Curve:
    """The curve of enumerated endings."""
    w_P, rollouts_P, trained_P, squares_P, variance_P = (np.zeros(p_P.shape) for _ in range(5))
    for e in endings:
        chance_P = e.probability(p_P)
        rollouts_P += chance_P * e.count
        if not e.size:
            continue
        sums = divided(e.sums, e.size, per)
        w_P += chance_P * (sums.alpha / p_P + sums.beta / (1 - p_P))
        squares_P += chance_P * sums.squares
        trained_P += chance_P * (sums.successes + sums.failures)
        variance_P += chance_P**2 * ((sums.errors[0] / p_P) ** 2 + (sums.errors[1] / (1 - p_P)) ** 2)
    return Curve(p_P, w_P, rollouts_P, trained_P, squares_P, np.sqrt(variance_P), True)


def divided(sums: Sums, size: int, per: Per) -> Sums:
    """A group's coefficients over what its gradient is divided by; nothing kept stays nothing."""
    if per == "batch":
        return sums
    return sums.over(size if per == "group" else max(sums.successes + sums.failures, 1.0))


def rule_of(config: RunConfig) -> Rule:
    """The stages of a run."""
    credit, selector = make_stages(config)
    return Rule(lambda: make_allocator(config, OneProblem(), 0), credit, selector, config.rewards.max_score)


@lru_cache(maxsize=32)
def _endings(text: str, floor: float) -> tuple[Ending, ...] | None:
    """Endings of a configuration (as JSON); `None`: not to be enumerated."""
    config = RunConfig.model_validate_json(text)
    rule = rule_of(config)
    capped = config.allocation.rule != "never_give_up" or config.allocation.max_attempts is not None
    try:
        endings = enumerate_chains(rule, tail=0.0 if capped else _TAIL, floor=floor)
    except TooManyPathsError:
        return None
    return None if looks_at_batch(rule, endings) else tuple(with_sums(rule, endings))


def _sampled(config: RunConfig, p_P: FloatArray, per: Per) -> Curve:
    rule = rule_of(config)
    w, n, t, s, e = [], [], [], [], []
    for p, chains in zip(p_P, sample_chains(config, rule, p_P, groups=config.training.groups_per_update), strict=True):
        weights, squares, trained = [], [], []
        for chain in chains:
            sums = divided(chain.sums, max(chain.size, 1), per)
            weights.append(sums.alpha / p + sums.beta / (1 - p))
            squares.append(sums.squares)
            trained.append(sums.successes + sums.failures)
        w.append(np.mean(weights))
        e.append(np.std(weights, ddof=1) / np.sqrt(len(weights)))
        s.append(np.mean(squares))
        t.append(np.mean(trained))
        n.append(np.mean([chain.count for chain in chains]))
    return Curve(p_P, np.array(w), np.array(n), np.array(t), np.array(s), np.array(e), False)


class Name(NamedTuple):
    """An objective in words.

    Args:
        key: `expected_reward`, `log_likelihood`, `max_rl`, `arcsine` or `none`.
        words: For people.
        nearest: The nearest known objective, also where it is not near enough to name.
        deviation: Largest relative difference of w's shape from the nearest one's, over the rates.
    """

    key: str
    words: str
    nearest: str
    deviation: float


CLOSE: Final = 0.05
"""A shape that differs by no more than this gets the objective's name."""


def name_objective(p_P: FloatArray, w_P: FloatArray, largest: int = 4096) -> Name:
    """The known objective whose w has the same shape.

    Args:
        p_P: Success rates in (0, 1).
        w_P: Weights; a constant factor does not matter.
        largest: Largest T that is tried for MaxRL(T).

    Returns:
        The nearest of expected reward (w = 1), log-likelihood (1/p), MaxRL(T) ((1 − (1 − p)^T)/p) and std-normalised
        groups (1/√(p(1 − p)), Σ 2·arcsin √p); `none` where the nearest is off by more than `CLOSE`. Of equally near
        ones the first.

    >>> p_P = np.array([0.05, 0.2, 0.5, 0.9])
    >>> name_objective(p_P, 3 / p_P).key, name_objective(p_P, (1 - (1 - p_P) ** 7) / p_P).nearest
    ('log_likelihood', 'MaxRL(7)')
    """
    if not np.all(w_P > 0):
        return Name("none", "none of the known ones: w is not positive everywhere", "none", float("inf"))
    known = [
        ("expected_reward", "expected reward", np.ones_like(p_P)),
        ("log_likelihood", "log-likelihood", 1 / p_P),
        ("arcsine", "Σ 2·arcsin √p (std-normalised groups)", 1 / np.sqrt(p_P * (1 - p_P))),
    ]
    orders = sorted({*range(2, 65), *(round(2 ** (i / 4)) for i in range(24, 4 * int(np.log2(largest)) + 1))})
    known += [("max_rl", f"MaxRL({t})", -np.expm1(t * np.log1p(-p_P)) / p_P) for t in orders if t <= largest]
    found = [(_deviation(w_P, shape_P), key, words) for key, words, shape_P in known]
    deviation, key, words = min(found, key=lambda f: (round(f[0], 6), 0))
    if deviation <= CLOSE:
        exact = "" if deviation < 5e-4 else f" (within {100 * deviation:.1f} %)"
        return Name(key, words + exact, words, deviation)
    return Name(
        "none", f"none of the known ones (nearest: {words}, off by up to {100 * deviation:.0f} %)", words, deviation
    )


def _deviation(w_P: FloatArray, shape_P: FloatArray) -> float:
    """Largest relative difference after the best common factor."""
    log_P = np.log(w_P / shape_P)
    return float(np.expm1((log_P.max() - log_P.min()) / 2))
