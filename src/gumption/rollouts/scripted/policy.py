"""The scripted policy: one independent Bernoulli per problem, and the trainer that moves it.

Success probability sigmoid(logit(p₀) + shift), p₀ the problem's own pass rate. The trainer applies the exact policy
gradient of this model, so that what an objective favours can be seen without a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gumption.config import RunConfig
from gumption.flops import ModelShape, forward_flops, train_flops
from gumption.types import Problem, Rollout, StateTree, TrainBatch, UpdateResult

Shifts = Mapping[str, float]
"""The scripted weights: logit shift per problem id; a problem that is not in it has 0."""


class ScriptedOptions(BaseModel):
    """`rollouts.options` of the scripted engine.

    >>> ScriptedOptions().mean_length is None
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    pass_rate: float = Field(0.5, ge=0, le=1)
    """Of problems whose answer has none."""
    mean_length: float | None = Field(None, gt=0)
    """Mean completion tokens (problems may have their own, `answer["mean_length"]`); default: half of `max_tokens`."""
    length_cv: float = Field(0.0, ge=0)
    """Coefficient of variation of lengths: 0 is fixed, above 0 lognormal. What passes `max_tokens` is cut and fails."""
    length_quantiles: tuple[float, ...] = ()
    """An empirical distribution instead: lengths at evenly spaced probabilities from 0 to 1. A mean rescales it."""
    prompt_tokens: int = Field(16, ge=1)
    tokens_per_second: float = Field(50.0, gt=0)
    """Of one slot, on the virtual clock."""
    error_rate: float = Field(0.0, ge=0, le=1)
    """Share of rollouts that end with finish `error`."""
    learning_rate: float = Field(0.0, ge=0)
    """Step size of the scripted trainer, in logits; 0: pass rates never change."""
    matmul_params: int = Field(1_000_000, ge=0)
    layers: int = Field(4, ge=0)
    heads: int = Field(4, ge=0)
    head_dim: int = Field(32, ge=0)

    @classmethod
    def of(cls, config: RunConfig) -> ScriptedOptions:
        """Read `config.rollouts.options`. Raises `ValueError` for an unknown or wrong option."""
        try:
            return cls.model_validate(config.rollouts.options)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            known = ", ".join(cls.model_fields)
            raise ValueError(f"rollouts.options.{name}: {first['msg']}; the scripted engine has {known}") from None

    @property
    def shape(self) -> ModelShape:
        """The model whose FLOPs are counted."""
        return ModelShape(self.matmul_params, self.layers, self.heads, self.head_dim)


def pass_rate(problem: Problem, shifts: Shifts, default: float = 0.5) -> float:
    """Success probability under shifted weights: sigmoid(logit(p₀) + shift).

    Degenerate cases: 0 and 1 stay 0 and 1.

    >>> from gumption.testing import problem
    >>> pass_rate(problem("a", pass_rate=0.5), {}), round(pass_rate(problem("a", pass_rate=0.5), {"a": 1.0}), 4)
    (0.5, 0.7311)
    """
    base = float(given(problem).get("pass_rate", default))
    shift = shifts.get(problem.id, 0.0)
    if not shift or not 0 < base < 1:
        return base
    return 1 / (1 + math.exp(-(math.log(base / (1 - base)) + shift)))


def given(problem: Problem) -> Mapping[str, float]:
    """What the problem's answer says: `pass_rate`, `mean_length`; empty for other problems."""
    return problem.answer if isinstance(problem.answer, Mapping) else {}


class ScriptedTrainer:
    """Counts the FLOPs of an update exactly and moves the pass rates of the problems that were trained on.

    Per problem, shift += learning_rate · (1/n) Σ w·A·∂ log π/∂shift, where ∂ log π/∂shift is 1 − p for a success and −p
    for a failure. n is `TrainBatch.count_sequences` whatever `training.denominator` says: a rollout is one token here.

    Args:
        config: `rollouts.options`; `training` for the passes that cost FLOPs.

    Raises:
        ValueError: an option is unknown or wrong.
    """

    def __init__(self, config: RunConfig) -> None:
        self.options = ScriptedOptions.of(config)
        self.shape = self.options.shape
        t = config.training
        self._passes = t.passes
        # one forward pass for the reference policy, one for π_old where it is not the current policy
        self._scorings = int(t.kl_coef > 0) + int(t.passes * t.minibatches > 1)
        self._version = 0
        self._shifts: dict[str, float] = {}
        self._costs: dict[int, tuple[int, int]] = {}  # scoring and training FLOPs by sequence length

    @property
    def version(self) -> int:
        """Updates applied so far."""
        return self._version

    def estimate_flops(self, batch: TrainBatch) -> int:
        """What `update` would cost: exactly what it will."""
        return sum(score + train for score, train in map(self._cost, (row.rollout for row in batch.rows_B)))

    def update(self, batch: TrainBatch) -> UpdateResult:
        """One step of gradient ascent on the scripted policy."""
        gradient: dict[str, float] = {}
        rates: dict[str, float] = {}
        for row in batch.rows_B:
            problem = row.rollout.request.problem
            p = rates.get(problem.id, -1.0)
            if p < 0:
                p = rates[problem.id] = pass_rate(problem, self._shifts, self.options.pass_rate)
            slope = 1 - p if row.rollout.text == "1" else -p
            gradient[problem.id] = gradient.get(problem.id, 0.0) + row.weight * row.advantage * slope
        n = max(1, batch.count_sequences)
        if self.options.learning_rate:
            for problem_id, slope in gradient.items():
                shift = self._shifts.get(problem_id, 0.0)
                self._shifts[problem_id] = shift + self.options.learning_rate * slope / n
        self._version += 1
        costs = [self._cost(row.rollout) for row in batch.rows_B]
        norm = math.sqrt(sum(g * g for g in gradient.values())) / n
        return UpdateResult({"grad_norm": norm}, tuple(c[0] for c in costs), tuple(c[1] for c in costs))

    def weights(self) -> Shifts:
        """A copy of the shifts."""
        return dict(self._shifts)

    def state_dict(self) -> StateTree:
        """Version and shifts."""
        return {"version": self._version, "shifts": shifts_state(self._shifts)}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved state."""
        self._version = state["version"]
        self._shifts = shifts_from_state(state["shifts"])

    def _cost(self, rollout: Rollout) -> tuple[int, int]:
        tokens = len(rollout.prompt_ids_T) + len(rollout.completion_ids_T)
        if tokens not in self._costs:
            score = self._scorings * forward_flops(self.shape, tokens) if self._scorings else 0
            self._costs[tokens] = score, self._passes * train_flops(self.shape, tokens)
        return self._costs[tokens]


def shifts_state(shifts: Shifts) -> StateTree:
    """Shifts as columns."""
    return {"problem_id": list(shifts), "shift": np.array(list(shifts.values()), np.float64)}


def shifts_from_state(state: StateTree) -> dict[str, float]:
    """The inverse of `shifts_state`."""
    return dict(zip(state["problem_id"], state["shift"].tolist(), strict=True))
