"""Log-probs and entropy of completion tokens, without ever holding the logits of more than a chunk.

Only positions that predict a loss token reach the LM head. Since the loss of a token depends on that token's log-prob
alone, each chunk can go backward as soon as it went forward: its logits are freed at once, nothing is recomputed, and
the gradient with respect to the hidden states is collected for one backward pass through the decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gumption.rollouts.sampling import processed_logprobs


@dataclass(frozen=True)
class Sampling:
    """The processing that turns logits into the distribution that was sampled from."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @property
    def filtered(self) -> bool:
        """Some tokens have probability zero."""
        return self.top_p < 1.0 or self.top_k > 0


class _FullSupport(torch.autograd.Function):
    """log softmax at the targets and the entropy of the row: keeps one matrix for backward instead of three.

    ∂ log p(v) / ∂ z = onehot(v) − p; the entropy carries no gradient.
    """

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        shifted_NV = logits_NV - logits_NV.amax(-1, keepdim=True)
        target_N = shifted_NV.gather(-1, targets_N[:, None]).squeeze(-1)
        weights_NV = shifted_NV.exp()
        total_N = weights_NV.sum(-1)
        moment_N = torch.bmm(weights_NV[:, None, :], shifted_NV[:, :, None]).flatten()  # Σ exp(z)·z, no third matrix
        if not bool(moment_N.isfinite().all()):  # logits of −∞: 0 · (−∞) counts as 0
            moment_N = torch.nan_to_num(shifted_NV * weights_NV, nan=0.0).sum(-1)
        ctx.save_for_backward(weights_NV, total_N, targets_N)
        entropy_N = total_N.log() - moment_N / total_N
        ctx.mark_non_differentiable(entropy_N)
        return target_N - total_N.log(), entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_N = grads[0]
        weights_NV, total_N, targets_N = ctx.saved_tensors
        grad_NV = weights_NV.mul_((-grad_N / total_N)[:, None])  # in place: a second backward raises
        grad_NV.scatter_add_(-1, targets_N[:, None], grad_N[:, None])
        return grad_NV, None


def token_logprobs(logits_NV: Tensor, targets_N: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Log-prob of each target under the processed distribution, and that distribution's entropy.

    log π(v) = z_v/τ − log Σ_{u kept} exp(z_u/τ);  H = −Σ_{u kept} π(u) log π(u)

    A target that the filters would drop under these weights stays in the support (the engine did sample it).

    Args:
        logits_NV: Raw logits; anything below float32 is raised to it.
        targets_N: int64 token ids.
        sampling: Temperature, top-p, top-k of the engine.

    Returns:
        Log-probs (differentiable) and entropies in nats (without gradient), shape N.

    >>> logp, entropy = token_logprobs(torch.zeros(1, 4), torch.tensor([2]), Sampling())
    >>> round(logp.item(), 4), round(entropy.item(), 4)
    (-1.3863, 1.3863)
    """
    if not sampling.filtered:
        scaled_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
        if sampling.temperature != 1.0:
            scaled_NV = scaled_NV / sampling.temperature
        result: tuple[Tensor, Tensor] = _FullSupport.apply(scaled_NV, targets_N)  # type: ignore[no-untyped-call]
        return result
    log_NV = processed_logprobs(logits_NV, sampling.temperature, sampling.top_p, sampling.top_k, keep_ids_B=targets_N)
    with torch.no_grad():
        plogp_NV = log_NV.exp() * log_NV
        entropy_N = -torch.nan_to_num_(plogp_NV, nan=0.0).sum(-1)
    return log_NV.gather(-1, targets_N[:, None]).squeeze(-1), entropy_N


Head = Callable[[Tensor], Tensor]
"""Hidden states (N, D) → logits (N, V)."""


@torch.no_grad()
def score_chunks(hidden_ND: Tensor, head: Head, targets_N: Tensor, sampling: Sampling, chunk: int) -> Tensor:
    """Log-probs without gradient, `chunk` tokens at a time.

    >>> score_chunks(torch.zeros(3, 2), torch.nn.Linear(2, 4, bias=False), torch.tensor([0, 1, 3]), Sampling(), 2).shape
    torch.Size([3])
    """
    parts = [
        token_logprobs(head(hidden_ND[i : i + chunk]), targets_N[i : i + chunk], sampling)[0]
        for i in range(0, len(targets_N), chunk)
    ]
    return torch.cat(parts) if parts else hidden_ND.new_zeros(0)


def backward_chunks(
    hidden_ND: Tensor,
    head: Head,
    targets_N: Tensor,
    sampling: Sampling,
    chunk: int,
    loss: Callable[[Tensor, Tensor, slice], Tensor],
) -> None:
    """Run loss and backward over all tokens, `chunk` at a time; gradients add up in the parameters' `.grad`.

    Args:
        hidden_ND: Hidden states that predict the targets; backward continues into whatever made them.
        head: The LM head.
        targets_N: int64 token ids.
        sampling: See `token_logprobs`.
        chunk: Tokens whose logits are held at once, ≥ 1.
        loss: `loss(logprobs, entropy, where)` → scalar, a sum over the tokens of the slice `where`.
    """
    n = len(targets_N)
    if n <= chunk:
        logprobs_N, entropy_N = token_logprobs(head(hidden_ND), targets_N, sampling)
        loss(logprobs_N, entropy_N, slice(0, n)).backward()  # type: ignore[no-untyped-call]
        return
    parts = []
    for i in range(0, n, chunk):
        where = slice(i, min(i + chunk, n))
        leaf_CD = hidden_ND[where].detach().requires_grad_()
        logprobs_C, entropy_C = token_logprobs(head(leaf_CD), targets_N[where], sampling)
        loss(logprobs_C, entropy_C, where).backward()  # type: ignore[no-untyped-call]
        parts.append(leaf_CD.grad)
    if hidden_ND.requires_grad:
        hidden_ND.backward(torch.cat(parts))  # type: ignore[no-untyped-call,arg-type]
