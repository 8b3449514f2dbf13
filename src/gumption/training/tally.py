"""What an update measures on its loss tokens, under the field's names (docs/ledger.md)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gumption.training.corrections import LOG_RATIO_LIMIT


@dataclass(frozen=True)
class Counts:
    """What one update measured.

    Args:
        metrics: `loss`, `entropy`, `mismatch_kl`, `importance_ratio/…`, `clip_ratio/…` and, with a reference, `kl`.
        ratio_B: Mean importance ratio of each row's tokens; 1 for a row without loss tokens.
    """

    metrics: dict[str, float]
    ratio_B: tuple[float, ...]


class Tally:
    """Sums over the tokens of one update; they leave the device once, at the end.

    Args:
        rows: Rows of the batch.
        device: Where the tensors are.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._start: list[Tensor] = []
        self._step: list[Tensor] = []
        self._max = torch.zeros((), dtype=torch.float64, device=device)
        self._rows = torch.zeros(2, rows, dtype=torch.float64, device=device)

    @torch.no_grad()
    def start(self, start_N: Tensor, behaviour_N: Tensor, rows_N: Tensor, bounds: tuple[float, float]) -> None:
        """Tokens of the first pass: log-probs at the start of the batch and of the behaviour policy.

        Ratios outside `bounds` are counted: the correction truncates or masks them.
        """
        log_N = (start_N - behaviour_N).double().clamp(max=2 * LOG_RATIO_LIMIT)
        ratio_N = log_N.exp()
        ones_N = torch.ones_like(ratio_N)
        outside_N = (ratio_N < bounds[0]) | (ratio_N > bounds[1])
        sums = [ones_N, ratio_N, ratio_N.square(), ratio_N - 1.0 - log_N, outside_N]
        self._start.append(torch.stack([s.sum(dtype=torch.float64) for s in sums]))
        self._max = torch.maximum(self._max, ratio_N.max())
        self._rows.index_add_(1, rows_N, torch.stack([ratio_N, ones_N]))

    @torch.no_grad()
    def step(self, entropy_N: Tensor, low_N: Tensor, high_N: Tensor, kl_N: Tensor | None) -> None:
        """Tokens of any pass: entropy, where the clip was active, KL to the reference."""
        if kl_N is None:
            kl_N = torch.zeros_like(entropy_N)
        sums = [torch.ones_like(entropy_N), entropy_N, low_N, high_N, kl_N]
        self._step.append(torch.stack([s.sum(dtype=torch.float64) for s in sums]))

    def counts(self, loss: float, *, reference: bool) -> Counts:
        """Everything as numbers. `loss` is the mean over the optimizer steps."""
        if not self._start:
            return Counts({}, (1.0,) * self._rows.shape[1])
        n, ratio, square, mismatch, capped = torch.stack(self._start).sum(0).tolist()
        every, entropy, low, high, kl = torch.stack(self._step).sum(0).tolist()
        metrics = {
            "loss": loss,
            "entropy": entropy / every,
            "mismatch_kl": mismatch / n,
            "importance_ratio/mean": ratio / n,
            "importance_ratio/max": self._max.item(),
            "importance_ratio/ess_frac": ratio**2 / (n * square) if square else 0.0,
            "clip_ratio/tis": capped / n,
            "clip_ratio/low_mean": low / every,
            "clip_ratio/high_mean": high / every,
            "clip_ratio/region_mean": (low + high) / every,
        }
        if reference:
            metrics["kl"] = kl / every
        ratio_B, tokens_B = self._rows.tolist()
        return Counts(metrics, tuple(r / t if t else 1.0 for r, t in zip(ratio_B, tokens_B, strict=True)))
