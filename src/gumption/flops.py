"""What a forward pass, a decoded token and an optimizer step cost, in one convention that every stage uses.

Model FLOPs, not hardware FLOPs, as exact integers, so that the rows of a ledger add up to its counters:

- One token with context c (the positions it attends to, itself included) costs 2·N + 4·L·H·Q·c.
- N counts every parameter that takes part in a matrix multiplication, the LM head included (also where it is tied to
  the embedding), the embedding look-up excluded. L layers, H *query* heads, Q their size: grouped-query attention saves
  memory, not these FLOPs.
- Attention is causal and counted once: the token at position t (from 0) has context t + 1. PaLM's 12·L·H·Q·T per token
  (arXiv 2204.02311, appendix B), which several frameworks use, counts the full square, about twice as much.
- Backward is twice forward, so training is three times forward. Recomputation for gradient checkpointing, the skipped
  weight gradients of LoRA, softmax, norms, activations, padding and the optimizer are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from gumption.types import IntArray

CONVENTION = (
    "model FLOPs: forward 2N + 4·L·H·Q·context per token, N = matmul parameters with the LM head and without the "
    "embedding look-up, causal attention counted once (context of position t is t + 1), training = 3 × forward, "
    "recomputation not counted"
)
"""The convention in one line, for everything that prints FLOPs."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The four numbers of a decoder that its cost depends on.

    Args:
        matmul_params: Parameters used in matrix multiplications, LM head included, embedding look-up excluded (N).
        layers: Transformer layers (L).
        heads: Query heads per layer (H).
        head_dim: Size of one head (Q).

    >>> ModelShape(matmul_params=600_000, layers=3, heads=4, head_dim=32).attention_flops
    1536
    """

    matmul_params: int
    layers: int
    heads: int
    head_dim: int

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"ModelShape.{item.name} must be a whole number ≥ 0, got {value!r}")

    @property
    def attention_flops(self) -> int:
        """FLOPs of one token attending to one position: 4·L·H·Q (scores and values, 2 each)."""
        return 4 * self.layers * self.heads * self.head_dim


def forward_flops(shape: ModelShape, tokens: int, context_start: int = 0) -> int:
    """FLOPs of one forward pass over consecutive positions of one sequence.

    Σ_{t=c}^{c+n−1} [2N + 4·L·H·Q·(t + 1)] = 2N·n + 4·L·H·Q·(n·c + n(n + 1)/2)

    Source: jax-ml/scaling-book (transformers) with causal attention; algorithms.md section 5.

    Args:
        shape: The model.
        tokens: Positions that are computed (n ≥ 0).
        context_start: Positions before them that are already in the cache (c ≥ 0).

    Returns:
        An exact Python integer; 0 for no tokens.

    Raises:
        ValueError: a negative count.

    >>> shape = ModelShape(matmul_params=100, layers=2, heads=3, head_dim=5)
    >>> forward_flops(shape, 3), forward_flops(shape, 1) + forward_flops(shape, 2, context_start=1)
    (1320, 1320)
    """
    tokens, context_start = int(tokens), int(context_start)
    if tokens < 0 or context_start < 0:
        raise ValueError(f"tokens and context_start must be ≥ 0, got {tokens} and {context_start}")
    context = tokens * context_start + tokens * (tokens + 1) // 2
    return 2 * shape.matmul_params * tokens + shape.attention_flops * context


def decode_flops_B(shape: ModelShape, positions_B: IntArray) -> IntArray:
    """FLOPs of decoding one token at each position: 2N + 4·L·H·Q·(t + 1).

    Args:
        shape: The model.
        positions_B: Position of the token that is fed in (from 0, prompt included), one per row.

    Returns:
        int64 of the same shape: exact (a row stays below 2⁶³ for any model and context in use).

    Raises:
        ValueError: a negative position.

    >>> shape = ModelShape(matmul_params=100, layers=2, heads=3, head_dim=5)
    >>> decode_flops_B(shape, np.array([0, 7])).tolist(), forward_flops(shape, 1, context_start=7)
    ([320, 1160], 1160)
    """
    positions_B = np.asarray(positions_B, np.int64)
    if positions_B.size and positions_B.min() < 0:
        raise ValueError(f"positions must be ≥ 0, got {int(positions_B.min())}")
    result: IntArray = 2 * shape.matmul_params + shape.attention_flops * (positions_B + 1)
    return result


def train_flops(shape: ModelShape, tokens: int) -> int:
    """FLOPs of forward and backward over one whole sequence of `tokens` (prompt included): 3 × `forward_flops`.

    >>> shape = ModelShape(matmul_params=100, layers=2, heads=3, head_dim=5)
    >>> train_flops(shape, 3) == 3 * forward_flops(shape, 3)
    True
    """
    return 3 * forward_flops(shape, tokens)
