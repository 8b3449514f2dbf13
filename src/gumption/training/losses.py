"""Policy-gradient losses per token, as pure functions: log-probs and advantages in, one loss per token out.

π is the policy in training, π_old the policy at the start of the batch, μ the policy (or policies) that sampled the
tokens. With one minibatch and one pass π_old = π, every ratio is 1 and all losses have the same gradient, but `gspo`,
whose sequences weigh the same whatever their length.

Departures from the papers: tokens are summed and divided once, by a scalar of the whole batch, wherever the papers
average per sequence; and the correction towards μ (`corrections.py`) is a separate factor, π/μ for `reinforce`, π_old/μ
for the losses that have the ratio π/π_old already (so that the product is π/μ, not π²/(π_old·μ)).
"""

from __future__ import annotations

import torch
from torch import Tensor


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


def gspo(
    logprobs_T: Tensor,
    log_ratio_T: Tensor,
    lengths_T: Tensor,
    advantages_T: Tensor,
    correction_T: Tensor | None = None,
    *,
    low: float = 3e-4,
    high: float = 4e-4,
) -> Tensor:
    """Clipped surrogate of the whole sequence's ratio, spread evenly over its tokens.

    −w·min(s·A, clip(s, 1 − ε_low, 1 + ε_high)·A)/|y|,  s = (Π_t π/π_old)^(1/|y|)

    Source: arXiv 2507.18071 in its token form (the gradient is that of the sequence form, (s·A/|y|)·Σ_t ∇log π_t). The
    paper's mean over sequences is `training.denominator = "sequences"`; the others differ from it by a scalar.

    Args:
        logprobs_T: log π, carries the gradient.
        log_ratio_T: log s of each token's sequence (`sequence_log_ratio`), a constant.
        lengths_T: |y|, loss tokens of each token's sequence.
        advantages_T: A per token.
        correction_T: w, detached; `None` means 1.
        low: ε_low ≥ 0.
        high: ε_high ≥ 0.

    Returns:
        Loss per token; over a sequence they sum to the sequence's loss (with w = 1). No gradient in a sequence whose
        clip is active.

    >>> zeros, two = torch.zeros(2), torch.full((2,), 2.0)
    >>> gspo(zeros, zeros, two, torch.tensor([3.0, 3.0])).tolist()
    [-1.5, -1.5]
    """
    shared_T = (logprobs_T - logprobs_T.detach()).exp() * log_ratio_T.detach().exp()  # s in value, s·∇log π in gradient
    surrogate_T = torch.minimum(shared_T * advantages_T, shared_T.clamp(1.0 - low, 1.0 + high) * advantages_T)
    surrogate_T = surrogate_T / lengths_T
    return -surrogate_T if correction_T is None else -correction_T * surrogate_T


def sequence_log_ratio(logprobs_N: Tensor, old_N: Tensor, rows_N: Tensor) -> tuple[Tensor, Tensor]:
    """Mean log-ratio of each token's sequence and the number of its loss tokens, both per token.

    log s = (1/|y|)·Σ_t (log π − log π_old)

    Source: arXiv 2507.18071.

    Args:
        logprobs_N: log π of all tokens of the sequences.
        old_N: log π_old.
        rows_N: int64, which sequence each token belongs to.

    Returns:
        log s and |y|, shape N, without gradient.

    >>> s, n = sequence_log_ratio(torch.tensor([0.0, 2.0, 5.0]), torch.zeros(3), torch.tensor([7, 7, 2]))
    >>> s.tolist(), n.tolist()
    ([1.0, 1.0, 5.0], [2.0, 2.0, 1.0])
    """
    _, sequence_N = rows_N.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    log_N = (logprobs_N - old_N).detach()
    sums_2S = log_N.new_zeros(2, len(rows_N)).index_add_(1, sequence_N, torch.stack([log_N, torch.ones_like(log_N)]))
    total_N, count_N = sums_2S[:, sequence_N]
    return total_N / count_N, count_N


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


def clipped(log_ratio_T: Tensor, advantages_T: Tensor, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Where a clip removes the gradient: below (A < 0, r < 1 − ε_low) and above (A > 0, r > 1 + ε_high).

    Args:
        log_ratio_T: log r, of tokens or of their sequences.
        advantages_T: A per token.
        low: ε_low.
        high: ε_high.

    Returns:
        Two bool tensors of the inputs' shape.

    >>> a, b = clipped(torch.tensor([2.0, 0.5]).log(), torch.tensor([1.0, -1.0]), low=0.2, high=0.2)
    >>> a.tolist(), b.tolist()
    ([False, True], [True, False])
    """
    ratio_T = log_ratio_T.detach().exp()
    return (ratio_T < 1.0 - low) & (advantages_T < 0), (ratio_T > 1.0 + high) & (advantages_T > 0)
