"""The distribution that tokens are drawn from, in one place: the engine samples it, the trainer differentiates it.

Order of the processors, as everywhere in the field: temperature, top-k, top-p. Log-probs are float32 (float64 logits
stay float64) whatever the model's dtype, so that engine and trainer round alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 256
"""Vocabulary entries per block of the two-level inverse CDF."""


def support_mask(scaled_BV: Tensor, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """Which tokens survive top-k and top-p.

    top-k keeps the k largest; top-p then keeps the smallest set, most likely first, whose probability among the
    survivors reaches `top_p` (arXiv 1904.09751). Ties go to the smaller id: the mask can be recomputed from the logits.

    Args:
        scaled_BV: Logits divided by the temperature, any leading shape.
        top_p: In (0, 1]; 1 keeps everything.
        top_k: ≥ 0; 0 keeps everything.

    Returns:
        Bool, shape of `scaled_BV`; at least one token per row is kept.

    >>> support_mask(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), top_p=0.8).tolist()
    [[True, True, False, False]]
    >>> support_mask(torch.tensor([[1.0, 1.0, 1.0]]), top_k=2).tolist()
    [[True, True, False]]
    """
    values_BV, order_BV = torch.sort(scaled_BV.detach(), dim=-1, descending=True, stable=True)
    keep_BV = torch.ones_like(values_BV, dtype=torch.bool)
    if 0 < top_k < values_BV.shape[-1]:
        keep_BV[..., top_k:] = False
        values_BV = values_BV.masked_fill(~keep_BV, -torch.inf)
    if top_p < 1.0:
        probs_BV = torch.softmax(values_BV, dim=-1)
        before_BV = torch.cumsum(probs_BV, dim=-1) - probs_BV  # mass of the likelier tokens
        keep_BV &= before_BV < top_p
    keep_BV[..., 0] = True
    return torch.zeros_like(keep_BV).scatter_(-1, order_BV, keep_BV)


def processed_logprobs(
    logits_BV: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, keep_ids_B: Tensor | None = None
) -> Tensor:
    """Log-probs of the distribution that is sampled from: log softmax of logits / temperature over the kept support.

    log π(v) = z_v/τ − log Σ_{u kept} exp(z_u/τ) for kept v, −∞ elsewhere. Differentiable on the kept support; the
    choice of the support is treated as constant. (Beware of p·log p over the full row: 0·(−∞) outside the support.)

    Args:
        logits_BV: Raw logits, any leading shape.
        temperature: > 0.
        top_p: In (0, 1].
        top_k: ≥ 0; 0 is off.
        keep_ids_B: Token ids that stay in the support whatever the filters say (leading shape of `logits_BV`). A
            trainer passes the sampled tokens: under newer weights one may have left the nucleus, and its log-prob must
            stay finite.

    Returns:
        float32 (float64 for float64 logits), shape of `logits_BV`.

    Raises:
        ValueError: temperature, top_p or top_k out of range.

    >>> processed_logprobs(torch.tensor([[2.0, 0.0]]), temperature=2.0).exp()
    tensor([[0.7311, 0.2689]])
    >>> processed_logprobs(torch.tensor([[5.0, 0.0, 0.0]]), top_p=0.5).tolist()
    [[0.0, -inf, -inf]]
    """
    if not (temperature > 0 and 0 < top_p <= 1 and top_k >= 0):
        raise ValueError(
            f"need temperature > 0 (got {temperature}), 0 < top_p ≤ 1 (got {top_p}) and top_k ≥ 0 (got {top_k})"
        )
    scaled_BV = logits_BV if logits_BV.dtype == torch.float64 else logits_BV.float()
    if temperature != 1.0:
        scaled_BV = scaled_BV / temperature
    if top_p < 1.0 or top_k > 0:
        keep_BV = support_mask(scaled_BV, top_p, top_k)
        if keep_ids_B is not None:
            keep_BV.scatter_(-1, keep_ids_B.long().unsqueeze(-1), True)
        scaled_BV = scaled_BV.masked_fill(~keep_BV, -torch.inf)
    return torch.log_softmax(scaled_BV, dim=-1)


def inverse_cdf(probs_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    """Draw one token per row: the first v with Σ_{u ≤ v} p_u > u · Σ p. Never a token of probability 0.

    Two levels (blocks of `BLOCK` tokens, then within the block), summed in float64: a running float32 sum over 50,000
    tokens is slow and would lose the rare ones.

    Args:
        probs_BV: Non-negative, need not sum to 1.
        uniforms_B: float64 in [0, 1).

    Returns:
        int64 token ids. Rows with NaN or without mass give an arbitrary valid id.

    >>> u = torch.tensor([0.0, 0.999], dtype=torch.float64)
    >>> inverse_cdf(torch.tensor([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]]), u).tolist()
    [1, 1]
    """
    rows, vocab = probs_BV.shape
    if vocab <= BLOCK:
        return _first_above(probs_BV, uniforms_B)[0]
    padded = -vocab % BLOCK
    if padded:
        probs_BV = torch.nn.functional.pad(probs_BV, (0, padded))
    blocks_BNK = probs_BV.view(rows, -1, BLOCK)
    block_B, inside_B = _first_above(blocks_BNK.sum(-1, dtype=torch.float64), uniforms_B)
    chosen_BK = blocks_BNK[torch.arange(rows, device=probs_BV.device), block_B]
    token_B = block_B * BLOCK + _first_above(chosen_BK, inside_B)[0]
    return token_B.clamp_(max=vocab - 1)


def _first_above(mass_BN: Tensor, uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the first entry whose running sum exceeds u · total, and where inside that entry (in [0, 1)) it fell."""
    cdf_BN = torch.cumsum(mass_BN, dim=-1, dtype=torch.float64)
    total_B = cdf_BN[:, -1]
    target_B = torch.minimum(uniforms_B * total_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    index_B = (cdf_BN <= target_B.unsqueeze(-1)).sum(-1).clamp_(max=mass_BN.shape[-1] - 1)
    here_B = mass_BN.gather(-1, index_B.unsqueeze(-1)).squeeze(-1).double()
    below_B = cdf_BN.gather(-1, index_B.unsqueeze(-1)).squeeze(-1) - here_B
    inside_B = ((target_B - below_B) / here_B.clamp_min(1e-300)).clamp_(0.0, 1.0 - 2.0**-53)
    return index_B, inside_B


def sample(
    logits_BV: Tensor, uniforms_B: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverse CDF and say how likely it was.

    Args:
        logits_BV: Raw logits.
        uniforms_B: float64 in [0, 1), on the same device.
        temperature: > 0.
        top_p: In (0, 1].
        top_k: ≥ 0; 0 is off.

    Returns:
        Token ids (int64) and their log-probs under `processed_logprobs` (NaN where the logits were not finite).

    >>> token_B, logprob_B = sample(torch.tensor([[0.0, 100.0]]), torch.tensor([0.3], dtype=torch.float64))
    >>> token_B.tolist(), logprob_B.tolist()
    ([1], [0.0])
    """
    logprobs_BV = processed_logprobs(logits_BV, temperature, top_p, top_k)
    token_B = inverse_cdf(logprobs_BV.exp(), uniforms_B)
    return token_B, logprobs_BV.gather(-1, token_B.unsqueeze(-1)).squeeze(-1)
