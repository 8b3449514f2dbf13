"""When a completion ends: end-of-sequence ids and stop strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gumption.types import BoolArray, IntArray

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What tokenizers print for bytes that are not (yet) a character."""


def eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Token ids that end a sequence: those of the generation config (else the model config) and the tokenizer's.

    Args:
        model: Hugging Face model.
        tokenizer: Its tokenizer, or `None`.
    """
    ids: list[int] = []
    generation = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = generation if generation is not None else getattr(model.config, "eos_token_id", None)
    for value in (found, getattr(tokenizer, "eos_token_id", None)):
        if value is not None:
            ids += [int(v) for v in value] if isinstance(value, Iterable) else [int(value)]
    return tuple(sorted(set(ids)))


def decode_texts(tokenizer: Any, ids: Sequence[IntArray]) -> list[str]:
    """Completion texts without special tokens, nothing "cleaned up"."""
    lists = [i.tolist() for i in ids]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # the fast tokenizer itself: no per-token Python work, and no thread pool for short texts
        return [backend.decode(i, skip_special_tokens=True) for i in lists]
    return [tokenizer.decode(i, skip_special_tokens=True, clean_up_tokenization_spaces=False) for i in lists]


class StopStrings:
    """Finds stop strings in what a row has generated, looking only where one can have just been completed.

    A stop string can only end inside the newest token. So a row is decoded only if that token's text holds the last
    character of some stop string (or part of a character), and then only its last few tokens: as many as the longest
    stop string has bytes, since a token that prints anything prints at least one byte.

    Args:
        tokenizer: Hugging Face tokenizer.
        stop: The strings; none: never stops.
        vocab: Number of token ids.
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], vocab: int) -> None:
        if any(not s for s in stop):
            raise ValueError("rollouts.stop: an empty string would end every completion at once")
        self.tokenizer, self.stop = tokenizer, stop
        self.suspects_V: BoolArray = np.zeros(vocab, np.bool_)
        self.window = 0
        if stop:
            # One token more than the string's bytes: the text of a token may depend on the one before it.
            self.window = max(len(s.encode()) for s in stop) + 1
            last = {s[-1] for s in stop}
            texts = decode_texts(tokenizer, [np.array([v]) for v in range(min(vocab, len(tokenizer)))])
            for v, text in enumerate(texts):
                self.suspects_V[v] = REPLACEMENT in text or any(c in text for c in last)

    def hits(self, tokens_BT: IntArray, counts_B: IntArray, newest_B: IntArray) -> BoolArray:
        """Which rows have just completed a stop string.

        Args:
            tokens_BT: Completion tokens, one row each.
            counts_B: How many of them are valid.
            newest_B: The last valid one.
        """
        hit_B = np.zeros(len(counts_B), np.bool_)
        if not self.stop:
            return hit_B
        rows = np.flatnonzero(self.suspects_V[newest_B])
        tails = [tokens_BT[r, max(0, counts_B[r] - self.window) : counts_B[r]] for r in rows]
        for r, text in zip(rows.tolist(), decode_texts(self.tokenizer, tails) if tails else [], strict=True):
            hit_B[r] = any(s in text for s in self.stop)
        return hit_B

    def cut(self, text: str) -> str:
        """The text up to the end of the stop string that ends first (all of it when there is none)."""
        ends = [text.find(s) + len(s) for s in self.stop if s in text]
        return text[: min(ends)] if ends else text
