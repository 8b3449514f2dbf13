"""The optimizer step: a batch of rollouts in, new weights out.

How it departs from what the field does: the denominator is one scalar of the whole batch, so the gradient does not
depend on how the batch is cut into micro-batches; minibatches share it too (their mean gradient is the batch's
gradient); prompts are computed once per group; FLOPs are known before they are spent.

Weights below float32 are trained through a float32 master copy (see `flat.py`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gumption import randomness
from gumption.config import RunConfig
from gumption.training.batching import MicroBatch, Tree, cut, forward_flops_B
from gumption.training.flat import FlatAdamW
from gumption.training.gradient import Gradient, Loaded
from gumption.training.model import Policy
from gumption.training.noise import GradientNoise, half_batch_moments
from gumption.training.schedule import learning_rate
from gumption.training.tally import Tally
from gumption.types import StateTree, TrainBatch, UpdateResult

MAX_SKIPPED = 3
NOISE_EVERY = 4
"""A batch that fits in one micro-batch is cut in half for gradient noise only every so many updates."""


class TrainingDiverged(RuntimeError):
    """Several updates in a row had a loss or gradient that was not finite; the message says what to change."""


@dataclass(frozen=True, eq=False)
class _Plan:
    """How one batch is computed, and what that costs.

    Args:
        minibatches: Micro-batches of each.
        half_groups: Groups in the two halves of each minibatch, where gradient noise is measured; else `None`.
        scores_old: π_old is not π all the time, so its log-probs are needed.
        flops_score_B: Per row of the batch.
        flops_train_B: Per row of the batch.
    """

    minibatches: list[list[MicroBatch]]
    half_groups: list[tuple[int, int] | None]
    scores_old: bool
    flops_score_B: tuple[int, ...]
    flops_train_B: tuple[int, ...]


class _Step(NamedTuple):
    """One minibatch: its loss, its gradient's norm before clipping, and whether the step was made."""

    loss: float
    norm: float
    made: bool


class TorchTrainer:
    """Trains a policy with AdamW (the `Trainer` protocol).

    Args:
        policy: From `load_policy`. Its parameters move into one flat buffer.
        config: The run; uses `[training]`, the sampling of `[rollouts]`, `seed` and `budget.updates` (decay).
    """

    def __init__(self, policy: Policy, config: RunConfig) -> None:
        self.policy = policy
        self.config = config
        self._c = config.training
        self._gradient = Gradient(policy, config)
        self._flat = self._gradient.flat
        self._optimizer = FlatAdamW(self._flat, self._c.betas, self._c.weight_decay)
        self._noise = GradientNoise()
        self._version = 0
        self._skipped_in_a_row = 0
        self._skipped: list[StateTree] = []
        self._planned: tuple[TrainBatch, _Plan] | None = None

    # -- the protocol

    @property
    def version(self) -> int:
        """Updates applied so far: the policy version."""
        return self._version

    @property
    def skipped(self) -> list[StateTree]:
        """The batches that the NaN guard skipped: version, loss, gradient norm and chain ids of each."""
        return self._skipped

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps made: one per update, times minibatches and passes."""
        return self._optimizer.steps

    def weights(self) -> dict[str, Tensor]:
        """Detached weights under the Hugging Face names, adapters merged; live views without adapters."""
        return self.policy.weights()

    def estimate_flops(self, batch: TrainBatch) -> int:
        """Exactly what `update` will book for this batch."""
        plan = self._plan(batch)
        return sum(plan.flops_score_B) + sum(plan.flops_train_B)

    def update(self, batch: TrainBatch) -> UpdateResult:
        """One optimizer step per minibatch and pass, one new version.

        A step whose loss or gradient norm is not finite is not made; if none is made, the version stays.

        Raises:
            TrainingDiverged: the third such update in a row.
            ValueError: the batch is empty.
        """
        plan = self._plan(batch)
        gradient = self._gradient
        tally = Tally(len(batch.rows_B), self.policy.device)
        minibatches = [[gradient.load(m, batch) for m in micro] for micro in plan.minibatches]
        if plan.scores_old or self._c.kl_coef > 0:
            minibatches = [[gradient.score(m, old=plan.scores_old) for m in micro] for micro in minibatches]
        scale = len(minibatches) / self._denominator(batch)
        with self._training_mode():
            steps = [
                self._minibatch(minibatch, scale, tally, n == 0, half_groups)
                for n in range(self._c.passes)
                for minibatch, half_groups in zip(minibatches, plan.half_groups, strict=True)
            ]
        self._planned = None
        made = sum(step.made for step in steps)
        counts = tally.counts(float(np.mean([s.loss for s in steps])), reference=self._c.kl_coef > 0)
        ages_B = [batch.version - row.rollout.version_start for row in batch.rows_B]
        metrics = {
            **counts.metrics,
            "grad_norm": float(np.mean([s.norm for s in steps])),
            "learning_rate": learning_rate(self._c, self._version, self.config.budget.updates),
            "off_policy/mean": float(np.mean(ages_B)),
            "off_policy/max": float(max(ages_B)),
            **self._noise.metrics(),
        }
        if made < len(steps):
            metrics["skipped_steps"] = float(len(steps) - made)
        self._after(batch, made, metrics)
        return UpdateResult(
            metrics=metrics,
            flops_score_B=plan.flops_score_B,
            flops_train_B=plan.flops_train_B,
            skipped=made == 0,
            importance_ratio_B=counts.ratio_B,
            applied_B=None if made == len(steps) else _applied(plan, steps, len(batch.rows_B)),
        )

    # -- planning

    def _plan(self, batch: TrainBatch) -> _Plan:
        if self._planned is not None and self._planned[0] is batch:
            return self._planned[1]
        if not any(row.rollout.loss_mask_T.any() for row in batch.rows_B):
            raise ValueError(f"nothing to train on: {len(batch.rows_B)} rollouts without a loss token")
        parts = self._split(batch)
        cuts = [self._cut(batch, part, halves=False) for part in parts]
        half_groups: list[tuple[int, int] | None] = [None] * len(parts)
        if self._c.grad_noise and (self._version % NOISE_EVERY == 0 or any(len(micro) > 1 for micro, _ in cuts)):
            half_groups = [_half_groups(batch, part) for part in parts]
            cuts = [self._cut(batch, p, halves=h is not None) for p, h in zip(parts, half_groups, strict=True)]
        size = len(batch.rows_B)
        forward_B = [sum(f) for f in zip(*(forward_flops_B(t, self.policy.shape, size) for _, t in cuts), strict=True)]
        scores_old = len(parts) * self._c.passes > 1
        scores = int(scores_old) + int(self._c.kl_coef > 0)
        plan = _Plan(
            minibatches=[micro for micro, _ in cuts],
            half_groups=half_groups,
            scores_old=scores_old,
            flops_score_B=tuple(scores * f for f in forward_B),
            flops_train_B=tuple(3 * self._c.passes * f for f in forward_B),
        )
        self._planned = (batch, plan)
        return plan

    def _cut(self, batch: TrainBatch, part: list[int], *, halves: bool) -> tuple[list[MicroBatch], list[Tree]]:
        return cut(
            batch.rows_B,
            part,
            self.policy.shape,
            budget=self._c.tokens_per_microbatch,
            share=self._gradient.forward.share,
            halves=halves,
        )

    def _split(self, batch: TrainBatch) -> list[list[int]]:
        """Rows of each minibatch: whole groups, about as many rows in each."""
        groups: dict[Any, list[int]] = {}
        for i, row in enumerate(batch.rows_B):
            if row.rollout.loss_mask_T.any():
                groups.setdefault(row.rollout.request.chain_id, []).append(i)
        count = min(self._c.minibatches, len(groups))
        parts: list[list[int]] = [[] for _ in range(count)]
        for members in sorted(groups.values(), key=len, reverse=True):
            min(parts, key=len).extend(members)
        return parts

    def _denominator(self, batch: TrainBatch) -> float:
        """One scalar for the whole batch."""
        if self._c.denominator == "tokens":
            return max(float(batch.count_tokens), 1.0)
        if self._c.denominator == "sequences":
            return max(float(batch.count_sequences), 1.0)
        constant = self._c.constant or float(self.config.rollouts.max_tokens)
        return constant * max(batch.count_sequences, 1)

    # -- computing

    def _minibatch(
        self, minibatch: list[Loaded], scale: float, tally: Tally, first: bool, half_groups: tuple[int, int] | None
    ) -> _Step:
        """Gradient, and a step along it if it is finite."""
        halved = half_groups is not None and first
        loss, half = self._gradient.accumulate(minibatch, scale, tally, first=first, halved=halved)
        grads = self._flat.grads
        norm = grads.norm().item()
        if half is not None and half_groups is not None:
            rollouts = sum(len(set(m.micro.rows_N.tolist())) for m in minibatch)
            self._noise.update(*half_batch_moments(half, grads, half_groups), rollouts)
        finite = math.isfinite(loss) and math.isfinite(norm)
        if finite:
            grads.mul_(min(1.0, self._c.max_grad_norm / (norm + 1e-6)))
            self._optimizer.step(learning_rate(self._c, self._version, self.config.budget.updates))
        return _Step(loss, norm, finite)

    @contextmanager
    def _training_mode(self) -> Iterator[None]:
        """Train mode only where something needs it: checkpointed layers, adapter dropout (the base has none)."""
        model, lora = self.config.model, self.config.model.lora
        dropout = lora is not None and lora.dropout > 0
        if not (model.gradient_checkpointing or dropout):
            yield
            return
        device = self.policy.device
        self.policy.model.train()
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(randomness.key(self.config.seed, "dropout", self._version) % 2**63)
                yield
        finally:
            self.policy.model.eval()

    # -- after the step

    def _after(self, batch: TrainBatch, made: int, metrics: dict[str, float]) -> None:
        if made:
            self._version += 1
            self._skipped_in_a_row = 0
            return
        self._skipped_in_a_row += 1
        chains = list(dict.fromkeys(row.rollout.request.chain_id for row in batch.rows_B))
        loss, norm = metrics["loss"], metrics["grad_norm"]
        self._skipped.append(
            {"version": self._version, "loss": loss, "grad_norm": norm, "chains": [list(c) for c in chains]}
        )
        if self._skipped_in_a_row >= MAX_SKIPPED:
            raise TrainingDiverged(
                f"{MAX_SKIPPED} updates in a row at version {self._version} had a loss or gradient that is not finite "
                f"(last: loss {loss}, gradient norm {norm}, problems {', '.join(c.problem_id for c in chains[:4])}). "
                f"Lower training.learning_rate (now {metrics['learning_rate']:g}), use model.dtype = 'float32', or "
                "resume from an earlier checkpoint"
            )

    def state_dict(self) -> StateTree:
        """Everything that an exact resume needs. Tensors are live views: save or copy them before the next update."""
        return {
            "version": self._version,
            "skipped_in_a_row": self._skipped_in_a_row,
            "skipped": copy.deepcopy(self._skipped),
            "noise": self._noise.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "weights": self._flat.named(self._flat.values),
        }

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved state.

        Raises:
            ValueError: it is of another model.
        """
        self._flat.load(self._flat.values, state["weights"], "weights")
        self._flat.publish()
        self._optimizer.load_state_dict(state["optimizer"])
        self._noise.load_state_dict(state["noise"])
        self._version = int(state["version"])
        self._skipped_in_a_row = int(state["skipped_in_a_row"])
        self._skipped = copy.deepcopy(state["skipped"])
        self._planned = None


def _applied(plan: _Plan, steps: Sequence[_Step], rows: int) -> tuple[bool, ...]:
    """Which rows were in a step that was made: those of the minibatches that made one in any pass."""
    made = [any(step.made for step in steps[k :: len(plan.minibatches)]) for k in range(len(plan.minibatches))]
    applied_B = np.zeros(rows, np.bool_)
    for micro in (m for minibatch, ok in zip(plan.minibatches, made, strict=True) if ok for m in minibatch):
        applied_B[micro.rows_N] = True
    return tuple(applied_B.tolist())


def _half_groups(batch: TrainBatch, part: list[int]) -> tuple[int, int] | None:
    """Groups in the two halves of some rows; `None` if one half is empty."""
    chains = [{batch.rows_B[i].rollout.request.chain_id for i in part if batch.rows_B[i].half == h} for h in (0, 1)]
    counts = len(chains[0]), len(chains[1])
    return counts if all(counts) else None
