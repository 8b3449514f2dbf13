"""What the engine needs of a model: logits for the next token of every active row, from a KV cache.

Two implementations: `gumption.rollouts.llama` (a lean loop of our own for the Llama family) and
`gumption.rollouts.generic` (any other Hugging Face causal LM through its own `forward`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gumption.rollouts.cache import SlotCache
from gumption.types import IntArray

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Prefill:
    """Sequences that enter the cache in this step; each becomes `copies` rows behind the active ones.

    Args:
        tokens_M: Token ids of each sequence (a prompt, or a prompt with the tokens a resumed rollout already has).
        copies_M: Rows that start from it.
    """

    tokens_M: tuple[IntArray, ...]
    copies_M: IntArray

    @property
    def lengths_M(self) -> IntArray:
        """Tokens per sequence."""
        return np.array([len(t) for t in self.tokens_M], np.int64)


class Decoder(Protocol):
    """A model with its own copy of the weights and a slot cache."""

    cache: SlotCache
    vocab: int

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy new weights in (names of the Hugging Face model)."""
        ...

    def forward(self, last_ids_B: IntArray, prefill: Prefill | None) -> Tensor:
        """One step: feed the last token of the active rows, and the sequences of `prefill`.

        Args:
            last_ids_B: Token ids of rows 0 … B − 1, not yet in the cache; they go to `cache.column`.
            prefill: Sequences whose rows `cache.place` has already put at B, B + 1, ….

        Returns:
            Logits (B + M, vocab): for the active rows, then for the last token of each sequence.
        """
        ...


def make_decoder(model: Any, *, check: bool = True) -> Decoder:
    """The lean decoder where it fits the model, else the generic one. Both copy the weights.

    With `check`, the lean decoder must reproduce the model's own logits on a short sequence: a subclass or a later
    transformers release may have changed the arithmetic. If it does not, the generic one is taken.

    Raises:
        ValueError: the model cannot be decoded with an attention cache.
    """
    from gumption.rollouts.generic import GenericDecoder
    from gumption.rollouts.llama import LlamaDecoder, unsupported

    reason = unsupported(model)
    if reason is None:
        decoder = LlamaDecoder(model)
        if not check or _agrees(decoder, model):
            return decoder
        log.warning("%s: the lean decoder does not reproduce its logits; using its own forward", type(model).__name__)
    else:
        log.info("%s: decoding through its own forward (%s)", type(model).__name__, reason)
    return GenericDecoder(model)


def _agrees(decoder: Decoder, model: Any, tokens: int = 6) -> bool:
    """Do prefill and decode give the model's logits? (True where those are not finite: nothing to compare.)"""
    ids_T = np.arange(1, tokens + 1, dtype=np.int64) % decoder.vocab
    training = model.training
    model.eval()
    with torch.inference_mode():
        wanted_TV = model(input_ids=torch.from_numpy(ids_T)[None].to(decoder.cache.device), use_cache=False).logits[0]
        got = []
        decoder.cache.prepare(0, 1, tokens - 1, tokens)
        decoder.cache.place(0, np.array([tokens - 1]))
        got.append(decoder.forward(np.zeros(0, np.int64), Prefill((ids_T[:-1],), np.array([1])))[0])
        decoder.cache.column += 1
        decoder.cache.prepare(1, 0, 0, tokens)
        decoder.cache.open_column(1)
        got.append(decoder.forward(ids_T[-1:], None)[0])
    model.train(training)
    wanted_2V = wanted_TV[-2:].float()
    if not bool(torch.isfinite(wanted_2V).all()):
        return True
    spread = float(wanted_2V.abs().max()) + 1.0
    tolerance = {torch.float64: 1e-8, torch.float32: 1e-3}.get(decoder.cache.dtype, 0.1)
    return bool((torch.stack(got).float() - wanted_2V).abs().max() <= tolerance * spread)
