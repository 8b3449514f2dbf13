"""Learning rate as a function of the update."""

from __future__ import annotations

import math

from gumption.config import TrainingConfig


def learning_rate(config: TrainingConfig, update: int, budget_updates: int | None = None) -> float:
    """Learning rate of update number `update` (from 0).

    lr · min(1, (u + 1)/warmup) · decay(x),  x = (u − warmup)/(decay_updates − warmup) in [0, 1]
    decay: 1 (constant), 1 − x (linear), (1 + cos πx)/2 (cosine)

    Args:
        config: `learning_rate`, `schedule`, `warmup_updates`, `decay_updates`.
        update: Updates applied before this one, ≥ 0. Skipped updates do not count.
        budget_updates: Length of the decay where `decay_updates` is not set.

    Returns:
        ≥ 0; 0 from `decay_updates` on with a decaying schedule.

    >>> c = TrainingConfig(learning_rate=1.0, schedule="cosine", warmup_updates=2, decay_updates=6)
    >>> [round(learning_rate(c, u), 3) for u in (0, 1, 2, 4, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    """
    rate = config.learning_rate
    if update < config.warmup_updates:
        return rate * (update + 1) / config.warmup_updates
    length = config.decay_updates or budget_updates
    if config.schedule == "constant" or length is None:
        return rate
    x = min(1.0, (update - config.warmup_updates) / max(length - config.warmup_updates, 1))
    return rate * (1.0 - x if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * x)))
