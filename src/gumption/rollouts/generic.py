"""Decode any other Hugging Face causal LM through its own `forward`: the slot cache behind transformers' Cache API.

Rows end at the same column (`gumption.rollouts.cache`), so to the model they look like a left-padded batch: one query
per row, a padding mask and explicit position ids. Whatever the architecture makes of those (learned or rotary
positions, sliding windows, soft caps) stays its own business.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from gumption.rollouts.cache import SlotCache
from gumption.rollouts.decoder import Prefill
from gumption.types import IntArray

STATEFUL = ("linear", "mamba", "conv", "recurrent", "hybrid", "compressed")
"""Words in a config's `layer_types` that mean state other than keys and values."""


class GenericDecoder:
    """See the module docstring. Owns a deep copy of `model`."""

    def __init__(self, model: Any) -> None:
        odd = [t for t in getattr(model.config, "layer_types", None) or () if any(word in t for word in STATEFUL)]
        if odd or getattr(model, "_is_stateful", False):
            what = ", ".join(sorted(set(odd))) or type(model).__name__
            raise ValueError(f"the embedded engine needs an attention KV cache; this model has other state ({what})")
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        for name in ("activation_checkpointing_disable", "gradient_checkpointing_disable"):  # the old name
            if hasattr(self.model, name):
                getattr(self.model, name)()
                break
        parameter = next(self.model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.vocab = int(self.model.get_output_embeddings().weight.shape[0])
        accepted = inspect.signature(type(self.model).forward).parameters
        self.cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self.takes_positions = "position_ids" in accepted
        self.cache = SlotCache(self.device, self.dtype, ordered=True)
        self.layers: list[_SlotLayer] = []

    @torch.inference_mode()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy new weights into the engine's model.

        Raises:
            ValueError: a weight is missing (tied ones may be).
        """
        own = dict(self.model.named_parameters())  # tied weights once
        own.update((n, b) for n, b in self.model.named_buffers() if n in state)
        aliases: dict[int, list[str]] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            aliases.setdefault(id(parameter), []).append(name)
        for name, parameter in own.items():
            source = next((state[n] for n in aliases.get(id(parameter), [name]) if n in state), None)
            if source is None:
                raise ValueError(f"update_weights: no weight named {name!r} in the new state")
            parameter.data.copy_(source.detach())

    def forward(self, last_ids_B: IntArray, prefill: Prefill | None) -> Tensor:
        """See `Decoder.forward`."""
        parts = []
        if len(last_ids_B):
            parts.append(self._decode(last_ids_B))
        if prefill is not None:
            parts.append(self._prefill(prefill, len(last_ids_B)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(self, last_ids_B: IntArray) -> Tensor:
        rows, column = len(last_ids_B), self.cache.column
        left = self.cache.left(rows)
        for layer in self.layers:
            layer.aim(rows, left)
        starts_B = self.cache.starts_S[:rows]
        real_BT = np.arange(left, column + 1) >= starts_B[:, None]
        return self._call(last_ids_B[:, None], real_BT, (column - starts_B)[:, None])

    def _prefill(self, prefill: Prefill, rows: int) -> Tensor:
        lengths_M = prefill.lengths_M
        m, longest = len(lengths_M), int(lengths_M.max())
        ids_ML = np.zeros((m, longest), np.int64)
        for row, tokens in enumerate(prefill.tokens_M):
            ids_ML[row, longest - len(tokens) :] = tokens
        offset_ML = np.arange(longest) - (longest - lengths_M)[:, None]
        for layer in self.layers:
            layer.aim(0, 0)
        logits = self._call(ids_ML, offset_ML >= 0, np.maximum(offset_ML, 0))
        copies = torch.from_numpy(np.repeat(np.arange(m), prefill.copies_M)).to(self.device)
        span = slice(self.cache.column + 1 - longest, self.cache.column + 1)
        for layer in self.layers:
            layer.store(rows, span, copies)
        return logits

    def _call(self, ids: IntArray, real: Any, positions: IntArray) -> Tensor:
        cache = _SlotCacheView(self)
        arguments: dict[str, Any] = {self.cache_argument: cache, "use_cache": True, **self.last_only}
        if self.takes_positions:
            arguments["position_ids"] = torch.from_numpy(positions).to(self.device)
        mask = torch.from_numpy(real.astype(np.int64)).to(self.device)
        output = self.model(input_ids=torch.from_numpy(ids).to(self.device), attention_mask=mask, **arguments)
        logits: Tensor = output.logits[:, -1]
        return logits

    def layer(self, index: int) -> _SlotLayer:
        """The cache of one layer, made when first asked for."""
        while len(self.layers) <= index:
            self.layers.append(_SlotLayer(self.cache))
        return self.layers[index]


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: columns [left, column] of the slots while decoding; on prefill, what was passed in."""

    is_sliding = False

    def __init__(self, slots: SlotCache) -> None:
        super().__init__()
        self.slots, self.rows, self.left = slots, 0, 0
        self.indices: tuple[int, int] | None = None  # of the key and value buffers
        self.fresh: tuple[Tensor, Tensor] | None = None

    def aim(self, rows: int, left: int) -> None:
        """Next: decode `rows` rows whose oldest starts at column `left`, or (0 rows) prefill."""
        self.rows, self.left = rows, left

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        count = len(self.slots.buffers)
        for states in (key_states, value_states):
            self.slots.add_buffer(1, states.shape[1], states.shape[3])
        self.indices, self.is_initialized = (count, count + 1), True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.indices is None:
            self.lazy_initialization(key_states, value_states)
        if not self.rows:
            self.fresh = (key_states, value_states)
            return key_states, value_states
        column = self.slots.column
        keys, values = self._planes()
        keys[: self.rows, :, column] = key_states[:, :, 0]
        values[: self.rows, :, column] = value_states[:, :, 0]
        span = slice(self.left, column + 1)
        return keys[: self.rows, :, span], values[: self.rows, :, span]

    def store(self, first: int, span: slice, copies: Tensor) -> None:
        """Copy what the last prefill computed into the rows from `first` on (nothing: a layer that shares a cache)."""
        if self.fresh is None:
            return
        for plane, states in zip(self._planes(), self.fresh, strict=True):
            plane[first : first + len(copies), :, span] = states.index_select(0, copies)
        self.fresh = None

    def _planes(self) -> tuple[Tensor, Tensor]:
        assert self.indices is not None
        key, value = self.indices
        return self.slots.buffers[key][0], self.slots.buffers[value][0]

    def get_seq_length(self, *args: Any) -> int:
        return self.slots.column - self.left if self.rows else 0

    def get_mask_sizes(self, query: Any) -> tuple[int, int]:
        length = query if isinstance(query, int) else len(query)  # transformers 4 passes cache positions
        return self.get_seq_length() + length, 0

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        return -1


class _SlotCacheView(Cache):  # type: ignore[misc]
    """What `forward` receives: a Cache whose layers live in the engine's slots."""

    def __init__(self, decoder: GenericDecoder) -> None:
        self.decoder = decoder
        if not decoder.layers:
            for index in range(int(decoder.model.config.num_hidden_layers)):
                decoder.layer(index)
        super().__init__(layers=decoder.layers)
