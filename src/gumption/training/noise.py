"""Gradient noise scale from the gradients of two disjoint halves of a batch's problems.

A single step says nothing (the ratio of two noisy numbers); numerator and denominator are smoothed apart over steps.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

DECAY = 0.95


def half_batch_moments(half: Tensor, total: Tensor, groups: tuple[int, int]) -> tuple[float, float]:
    """Unbiased ‖G‖² and tr Cov of the batch gradient, from the two halves' sums.

    g_h = S_h·n/n_h;  signal = ⟨g_A, g_B⟩;  noise = ‖g_A − g_B‖²·n_A·n_B/n²  (¼‖g_A − g_B‖² for equal halves)

    Source: McCandlish et al. (arXiv 1812.06162) with two half batches; algorithms.md section 7. Problems are split, not
    rollouts: a group's baseline couples its members.

    Args:
        half: Sum of the first half's gradients (flat).
        total: Sum of both.
        groups: Problems in the two halves, both ≥ 1.

    Returns:
        (signal, noise). The signal may be negative: its mean over steps is what counts.

    >>> import torch
    >>> half_batch_moments(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]), (1, 1))
    (0.0, 2.0)
    """
    a, b = groups
    n = a + b
    first, second = half * (n / a), (total - half) * (n / b)
    signal = first.dot(second).item()
    return signal, (first - second).square_().sum().item() * (a * b / n**2)


class GradientNoise:
    """Smooths signal, noise and the rollouts per batch over steps (exponential mean, start-up corrected)."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0, 0.0]
        self._weight = 0.0

    def update(self, signal: float, noise: float, rollouts: int) -> None:
        """Take one measurement; non-finite ones are left out."""
        if not (math.isfinite(signal) and math.isfinite(noise)):
            return
        for i, value in enumerate((signal, noise, float(rollouts))):
            self._sums[i] = DECAY * self._sums[i] + (1 - DECAY) * value
        self._weight = DECAY * self._weight + (1 - DECAY)

    def metrics(self) -> dict[str, float]:
        """`grad_noise/…`: empty before the first measurement; NaN ratios while the mean signal is not positive.

        b_simple is in rollouts, snr_db that of the whole batch's gradient.

        >>> g = GradientNoise()
        >>> g.update(2.0, 4.0, 32)
        >>> {k.removeprefix("grad_noise/"): round(v, 3) for k, v in g.metrics().items()}
        {'signal_sq': 2.0, 'noise_tr': 4.0, 'b_simple': 64.0, 'snr_db': -3.01}
        """
        if not self._weight:
            return {}
        signal, noise, rollouts = (s / self._weight for s in self._sums)
        usable = signal > 0 and noise > 0
        return {
            "grad_noise/signal_sq": signal,
            "grad_noise/noise_tr": noise,
            "grad_noise/b_simple": rollouts * noise / signal if usable else math.nan,
            "grad_noise/snr_db": 10 * math.log10(signal / noise) if usable else math.nan,
        }

    def state_dict(self) -> dict[str, Any]:
        """The smoothed sums."""
        return {"sums": list(self._sums), "weight": self._weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a saved state."""
        self._sums, self._weight = [float(x) for x in state["sums"]], float(state["weight"])
