"""The forward pass of any Hugging Face causal LM in two halves: token ids → hidden states → logits of chosen ones.

Splitting it lets the LM head see only the positions that predict loss tokens. Models differ in what they do around the
head, so the split is *tried* on a few tokens when the trainer starts and used only if it gives the model's own logits;
the same goes for trees (several completions that share a prompt), which need the attention mask to be obeyed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Forward:
    """Hidden states and head of one model.

    Args:
        model: A Hugging Face causal LM (adapter layers may be inside).

    Attributes:
        share: The model computes trees correctly: prompts can be shared within a group.
        split: Hidden states and head are separate; else `hidden` returns logits and `head` is the identity.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.additive = model.config._attn_implementation == "eager"
        self.scale: Callable[[Tensor], Tensor] | None = None
        self.split = self._split_agrees()
        self.share = _sees_everything(model.config) and self._trees_agree()

    def hidden(self, ids_RT: Tensor, positions_RT: Tensor | None = None, mask_RTT: Tensor | None = None) -> Tensor:
        """What the head takes, one row per position, (R·T, D).

        Args:
            ids_RT: Token ids, padded on the right.
            positions_RT: Position of each token; `None`: 0, 1, 2, ….
            mask_RTT: True where a token may look; `None`: causal (right padding needs no mask).
        """
        mask = None
        if mask_RTT is not None:
            mask = mask_RTT[:, None]
            if self.additive:
                low = torch.finfo(self.model.dtype).min
                mask = torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device).masked_fill_(~mask, low)
        inner = self.model.base_model if self.split else self.model
        out = inner(input_ids=ids_RT, attention_mask=mask, position_ids=positions_RT, use_cache=False)
        result: Tensor = (out[0] if self.split else out.logits).flatten(0, 1)
        return result

    def head(self, hidden_ND: Tensor) -> Tensor:
        """Logits of some positions."""
        if not self.split:
            return hidden_ND
        logits: Tensor = self.model.get_output_embeddings()(hidden_ND)
        return logits if self.scale is None else self.scale(logits)

    # -- what is tried when the trainer starts

    @torch.no_grad()
    def _split_agrees(self) -> bool:
        if self.model.get_output_embeddings() is None or self.model.base_model is self.model:
            return False
        ids = self._probe_ids(2, 7)
        try:
            expected = self.model(input_ids=ids, use_cache=False).logits.flatten(0, 1)
            self.split = True
            hidden = self.hidden(ids)
            for scale in _scales(self.model.config):
                self.scale = scale
                if _close(self.head(hidden), expected):
                    return True
        except Exception:  # an unusual model: the whole-model path works for all
            pass
        self.scale = None
        return False

    @torch.no_grad()
    def _trees_agree(self) -> bool:
        """Two completions of a shared prompt, in one tree and apart, give the same logits."""
        if self.model.config._attn_implementation not in ("sdpa", "eager"):
            return False
        prompt, one, two = self._probe_ids(1, 3), self._probe_ids(1, 4, 3), self._probe_ids(1, 2, 7)
        tree = torch.cat([prompt, one, two], 1)
        device = tree.device
        positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 3, 4]], device=device)
        branch = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2]], device=device)
        mask = tree_mask(torch.ones_like(branch), branch)
        try:
            together = self.head(self.hidden(tree, positions, mask))
            first = self.head(self.hidden(torch.cat([prompt, one], 1)))
            second = self.head(self.hidden(torch.cat([prompt, two], 1)))
        except Exception:  # no position ids, no custom mask: rows stay apart
            return False
        return _close(together, torch.cat([first, second[3:]]))

    def _probe_ids(self, rows: int, length: int, first: int = 0) -> Tensor:
        vocab = self.model.get_input_embeddings().weight.shape[0]
        ids = torch.arange(first, first + rows * length, device=self.model.device) * 7 + 3
        result: Tensor = (ids % vocab).view(rows, length)
        return result


def tree_mask(tree_RT: Tensor, branch_RT: Tensor) -> Tensor:
    """Who sees whom: earlier tokens of the own tree that are prompt or the own completion.

    Args:
        tree_RT: Which tree of the sequence a token is in; 0 is padding (which sees itself: no row may be empty).
        branch_RT: 0 for prompt tokens, else which completion.

    Returns:
        Bool (R, T, T), query by key.

    >>> tree_mask(torch.tensor([[1, 1, 1]]), torch.tensor([[0, 1, 2]])).int().tolist()
    [[[1, 0, 0], [1, 1, 0], [1, 0, 1]]]
    """
    length = tree_RT.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=tree_RT.device).tril()
    same_tree = tree_RT[:, :, None] == tree_RT[:, None, :]
    visible = (branch_RT[:, None, :] == 0) | (branch_RT[:, :, None] == branch_RT[:, None, :])
    return causal & same_tree & visible


def _scales(config: Any) -> list[Callable[[Tensor], Tensor] | None]:
    """What models do to logits after the head: a soft cap (Gemma 2), a factor (Cohere), a divisor (Granite), nothing.

    What the configuration names comes first: on small logits a soft cap is nearly nothing.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    found: list[Callable[[Tensor], Tensor] | None] = []
    if cap := getattr(config, "final_logit_softcapping", None):
        found.append(lambda z: torch.tanh(z / cap) * cap)
    if factor := getattr(config, "logit_scale", None):
        found.append(lambda z: z * factor)
    if divisor := getattr(config, "logits_scaling", None):
        found.append(lambda z: z / divisor)
    return [*found, None]


def _sees_everything(config: Any) -> bool:
    """No layer has a sliding window or another pattern that a mask of ours would override."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = getattr(config, "layer_types", None)
    if layers is not None:
        return all(kind == "full_attention" for kind in layers)
    return getattr(config, "sliding_window", None) is None


def _close(a: Tensor, b: Tensor) -> bool:
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(a.dtype, 3e-2)
    spread = (b - b.mean()).abs().max().float()
    return bool((a - b).abs().max().float() <= tolerance * spread)
