"""Policy-gradient losses per token, as pure functions: log-probs and advantages in, one loss per token out.

π is the policy in training, π_old the policy at the start of the batch, μ the policy (or policies) that sampled the
tokens. With one minibatch and one pass π_old = π, every ratio is 1 and all three losses have the same gradient.

Departures from the papers: tokens are summed and divided once, by a scalar of the whole batch, wherever the papers
average per sequence; and the correction towards μ is a separate factor, π/μ for `reinforce`, π_old/μ for the two losses
that have the ratio π/π_old already (so that the product is π/μ, not π²/(π_old·μ)).
"""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 10.0
"""Log-ratios are clamped to ± this before they are exponentiated for a correction."""


def truncated_importance(logprobs_T: Tensor, behaviour_T: Tensor, cap: float = 2.0) -> Tensor:
    """Token-level truncated importance weight, a constant for the gradient.

    w = min(exp(clamp(log π − log μ, ±10)), cap)

    Source: truncation as in IMPALA (arXiv 1802.01561), per token as in algorithms.md section 4.

    Args:
        logprobs_T: log π (or log π_old), any shape.
        behaviour_T: log μ, the engine's, same shape.
        cap: Upper bound, > 0.

    Returns:
        Detached weights in (0, cap]; 1 where π = μ.

    >>> truncated_importance(torch.tensor([0.0, -1.0, 0.0]), torch.tensor([0.0, 0.0, -9.0])).tolist()
    [1.0, 0.3678794503211975, 2.0]
    """
    log_ratio_T = (logprobs_T.detach() - behaviour_T).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return log_ratio_T.exp().clamp(max=cap)


def reinforce(logprobs_T: Tensor, advantages_T: Tensor, correction_T: Tensor | None = None) -> Tensor:
    """Score-function loss: ∇ is the plain policy gradient.

    −w·A·log π

    Source: Williams 1992; for language models arXiv 2402.14740.

    Args:
        logprobs_T: log π, carries the gradient.
        advantages_T: A per token.
        correction_T: w, detached; `None` means 1.

    Returns:
        Loss per token; 0 where A = 0.

    >>> reinforce(torch.tensor([-2.0]), torch.tensor([0.5])).item()
    1.0
    """
    scale_T = advantages_T if correction_T is None else correction_T * advantages_T
    return -scale_T * logprobs_T


def ppo_clip(
    logprobs_T: Tensor,
    old_T: Tensor,
    advantages_T: Tensor,
    correction_T: Tensor | None = None,
    *,
    low: float = 0.2,
    high: float = 0.28,
) -> Tensor:
    """Clipped surrogate with separate bounds.

    −w·min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A),  r = π/π_old

    Source: arXiv 1707.06347; ε_high > ε_low from DAPO (arXiv 2503.14476).

    Args:
        logprobs_T: log π, carries the gradient.
        old_T: log π_old, a constant.
        advantages_T: A per token.
        correction_T: w, detached; `None` means 1.
        low: ε_low ≥ 0.
        high: ε_high ≥ 0.

    Returns:
        Loss per token. No gradient where the clip is active: r > 1 + ε_high with A > 0, r < 1 − ε_low with A < 0.

    >>> r = torch.tensor([2.0, 0.5, 2.0]).log()
    >>> [round(x, 6) for x in ppo_clip(r, torch.zeros(3), torch.tensor([1.0, 1.0, -1.0])).tolist()]
    [-1.28, -0.5, 2.0]
    """
    ratio_T = (logprobs_T - old_T.detach()).exp()
    surrogate_T = torch.minimum(ratio_T * advantages_T, ratio_T.clamp(1.0 - low, 1.0 + high) * advantages_T)
    return -surrogate_T if correction_T is None else -correction_T * surrogate_T


def cispo(
    logprobs_T: Tensor,
    old_T: Tensor,
    advantages_T: Tensor,
    correction_T: Tensor | None = None,
    *,
    high: float = 5.0,
) -> Tensor:
    """Clipped importance-sampling weight: the weight is bounded, no token loses its gradient.

    −w·sg(min(r, high))·A·log π,  r = π/π_old, sg = stop gradient

    Source: MiniMax-M1 (arXiv 2506.13585); like its authors we bound the ratio only from above.

    Args:
        logprobs_T: log π, carries the gradient.
        old_T: log π_old, a constant.
        advantages_T: A per token.
        correction_T: w, detached; `None` means 1.
        high: The bound 1 + ε_high, > 0.

    Returns:
        Loss per token.

    >>> cispo(torch.tensor([-1.0]), torch.tensor([-4.0]), torch.tensor([1.0])).item()
    5.0
    """
    weight_T = (logprobs_T.detach() - old_T.detach()).exp().clamp(max=high)
    return reinforce(logprobs_T, weight_T * advantages_T, correction_T)


def k3(logprobs_T: Tensor, reference_T: Tensor) -> Tensor:
    """Non-negative estimate of KL(π ‖ reference) from tokens drawn from π.

    exp(d) − d − 1,  d = log π_ref − log π

    Source: J. Schulman, "Approximating KL divergence" (joschu.net/blog/kl-approx.html), the estimator k3.

    Args:
        logprobs_T: log π of the sampled tokens.
        reference_T: log π_ref of the same tokens.

    Returns:
        Nats per token, ≥ 0; 0 where both agree.

    >>> k3(torch.tensor([-1.0, -1.0]), torch.tensor([-1.0, -2.0])).tolist()
    [0.0, 0.3678794503211975]
    """
    d_T = reference_T - logprobs_T
    return torch.expm1(d_T) - d_T


def clipped(
    logprobs_T: Tensor, old_T: Tensor, advantages_T: Tensor, *, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Where PPO's clip removes the gradient: below (A < 0, r < 1 − ε_low) and above (A > 0, r > 1 + ε_high).

    Returns:
        Two bool tensors of the inputs' shape.

    >>> a, b = clipped(torch.tensor([2.0, 0.5]).log(), torch.zeros(2), torch.tensor([1.0, -1.0]), low=0.2, high=0.2)
    >>> a.tolist(), b.tolist()
    ([False, True], [True, False])
    """
    ratio_T = (logprobs_T.detach() - old_T).exp()
    return (ratio_T < 1.0 - low) & (advantages_T < 0), (ratio_T > 1.0 + high) & (advantages_T > 0)
