"""How old what is trained on will be: closed forms for fully asynchronous training.

Source: "Predicting and Controlling Staleness in Fully Asynchronous RL Training", Applied Compute, 2026
(https://www.appliedcompute.com/research/staleness-in-fully-async-rl), as quoted in a secondary note. Of its six
published rows, two (a queue of one batch before an idle trainer) do not follow from the formulas as quoted: see
docs/planning.md. Staleness is counted in policy versions between the start of a rollout and the update that it is
trained in. `tail_lognormal` is ours.

Notation: C slots, B rollouts per batch, q batches that the queue holds, ρ = rollout rate/trainer rate (above 1 the
trainer is the bottleneck and the queue, always full, drops its oldest groups), M = E[longest of a group]/E[length].
"""

from __future__ import annotations

import math

import numpy as np


def before_queue(slots: float, batch: float, tail: float, ratio: float) -> float:
    """Versions that pass while a group is generated: C·M/(B·max(1, ρ)). Little's law; mean length does not matter.

    Args:
        slots: C > 0.
        batch: B > 0, generated rollouts that one update uses up.
        tail: M ≥ 1.
        ratio: ρ > 0.

    Raises:
        ValueError: a value is out of range.

    >>> round(before_queue(240, 120, 1.43, 0.92), 2), round(before_queue(128, 128, 1.43, 1.07), 2)
    (2.86, 1.34)
    """
    _check(slots=slots, batch=batch, tail=tail, ratio=ratio)
    return slots * tail / (batch * max(1.0, ratio))


def in_queue(ratio: float, queue: float) -> float:
    """Versions from a group's completion to its update: ρ if ρ < 1, else (2q + ρ − 1)/(2ρ).

    Args:
        ratio: ρ > 0.
        queue: q ≥ 1.

    Returns:
        At ρ = 1 the second form (q), the limit from above.

    Raises:
        ValueError: a value is out of range.

    >>> in_queue(0.63, 2), round(in_queue(1.07, 2), 3), in_queue(1.0, 1)
    (0.63, 1.902, 1.0)
    """
    _check(ratio=ratio, queue=queue)
    return ratio if ratio < 1 else (2 * queue + ratio - 1) / (2 * ratio)


def staleness(slots: float, batch: float, tail: float, ratio: float, queue: float) -> float:
    """Mean staleness: `before_queue` + `in_queue`.

    >>> round(staleness(120, 240, 1.43, 0.63, 2), 2), round(staleness(128, 128, 1.43, 1.14, 1), 2)
    (1.34, 2.19)
    """
    return before_queue(slots, batch, tail, ratio) + in_queue(ratio, queue)


def tail_lognormal(cv: float, group_size: int, points: int = 4001) -> float:
    """M = E[max of G lengths]/E[length] for lognormal lengths.

    E[max] = ∫ G Φ(z)^(G−1) φ(z) e^(μ+σz) dz with σ² = ln(1 + cv²); divided by the mean e^(μ+σ²/2), μ drops out.

    Args:
        cv: Coefficient of variation ≥ 0.
        group_size: G ≥ 1.
        points: Of the numeric integral over z in [−8, 8 + σ].

    Returns:
        M ≥ 1; 1 for cv = 0 or a group of one.

    Raises:
        ValueError: a value is out of range.

    >>> round(tail_lognormal(0.5, 1), 6), tail_lognormal(0.0, 8), round(tail_lognormal(0.5, 8), 2)
    (1.0, 1.0, 1.83)
    """
    if cv < 0 or group_size < 1:
        raise ValueError(f"cv = {cv!r} must be ≥ 0 and group_size = {group_size!r} at least 1")
    from scipy.special import ndtr

    if cv == 0:
        return 1.0
    sigma = math.sqrt(math.log1p(cv**2))
    z_Z = np.linspace(-8.0, 8.0 + sigma, points)
    density_Z = group_size * ndtr(z_Z) ** (group_size - 1) * np.exp(-(z_Z**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(density_Z * np.exp(sigma * z_Z - sigma**2 / 2)) * (z_Z[1] - z_Z[0]))


def _check(**values: float) -> None:
    for name, value in values.items():
        least = 1.0 if name in ("tail", "queue") else 0.0
        if not (value >= least and value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} = {value!r} must be a finite number {'≥ 1' if least else 'above 0'}")
