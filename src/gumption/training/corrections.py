"""Importance weights towards the policy that sampled (μ), per token, constants for the gradient.

One weight covers all that lies between μ and the policy in training: asynchrony, in-flight weight updates, buffered
failures, the engine's own numerics. The rules differ in what they do with weights that are out of bounds. A masked
token has weight 0; the loss's denominator counts it all the same, so masking shrinks the step and leaves the weights of
the others alone.

Departures: all are per token, and the log-ratio is clamped to ± `LOG_RATIO_LIMIT` before it is exponentiated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gumption.config import TrainingConfig

LOG_RATIO_LIMIT = 10.0
"""Log-ratios are clamped to ± this before they are exponentiated."""


def importance(logprobs_T: Tensor, behaviour_T: Tensor) -> Tensor:
    """The importance weight itself: what AReaL's decoupled objective multiplies by.

    w = exp(clamp(log π − log μ, ±10))

    Source: arXiv 2505.24298 (there π is the policy at the start of the update).

    Args:
        logprobs_T: log π (or log π_old), any shape.
        behaviour_T: log μ, the engine's, same shape.

    Returns:
        Detached weights > 0; 1 where π = μ.

    >>> importance(torch.tensor([0.0, -1.0]), torch.tensor([0.0, -2.0])).tolist()
    [1.0, 2.7182817459106445]
    """
    return (logprobs_T.detach() - behaviour_T).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def truncated_importance(logprobs_T: Tensor, behaviour_T: Tensor, cap: float = 2.0) -> Tensor:
    """Token-level truncated importance weight (`tis`).

    w = min(exp(clamp(log π − log μ, ±10)), cap)

    Source: truncation as in IMPALA (arXiv 1802.01561), per token as in algorithms.md section 4.

    Args:
        logprobs_T: log π (or log π_old), any shape.
        behaviour_T: log μ, the engine's, same shape.
        cap: Upper bound, > 0.

    Returns:
        Detached weights in (0, cap]; 1 where π = μ (and cap ≥ 1).

    >>> truncated_importance(torch.tensor([0.0, -1.0, 0.0]), torch.tensor([0.0, 0.0, -9.0])).tolist()
    [1.0, 0.3678794503211975, 2.0]
    """
    return importance(logprobs_T, behaviour_T).clamp(max=cap)


def masked_importance(logprobs_T: Tensor, behaviour_T: Tensor, low: float = 0.0, high: float = 2.0) -> Tensor:
    """Importance weight of tokens inside a band, 0 outside it: `mis` (low = 0) and `icepop`.

    w = r where low ≤ r ≤ high, else 0;  r = exp(clamp(log π − log μ, ±10))

    Source: masking above a cap as in AReaL's public code (arXiv 2505.24298); IcePop, arXiv 2510.18855, with the band
    0.5 … 5.

    Args:
        logprobs_T: log π (or log π_old), any shape.
        behaviour_T: log μ, the engine's, same shape.
        low: Lower end of the band, ≥ 0.
        high: Upper end.

    Returns:
        Detached weights: 0, or in [low, high].

    >>> masked_importance(torch.tensor([0.0, -1.0, 0.0]), torch.tensor([0.0, 0.0, -9.0]), 0.5, 5.0).tolist()
    [1.0, 0.0, 0.0]
    """
    ratio_T = importance(logprobs_T, behaviour_T)
    return torch.where((ratio_T >= low) & (ratio_T <= high), ratio_T, 0.0)


def correction(config: TrainingConfig, logprobs_T: Tensor, behaviour_T: Tensor) -> Tensor | None:
    """The weight that a run's `training.correction` names; `None` means 1.

    `decoupled_ppo` without a correction has the plain importance weight: it is part of that loss.
    """
    if config.correction == "tis":
        return truncated_importance(logprobs_T, behaviour_T, config.tis_cap)
    if config.correction in ("mis", "icepop"):
        return masked_importance(logprobs_T, behaviour_T, *bounds(config))
    return importance(logprobs_T, behaviour_T) if config.loss == "decoupled_ppo" else None


def bounds(config: TrainingConfig) -> tuple[float, float]:
    """The ratios between which a correction leaves a token's weight alone.

    Without a correction those of `tis`: the metric then says what it would truncate.

    >>> bounds(TrainingConfig(correction="icepop"))
    (0.5, 5.0)
    """
    if config.correction == "icepop":
        return config.icepop_low, config.icepop_high
    return 0.0, config.tis_cap
