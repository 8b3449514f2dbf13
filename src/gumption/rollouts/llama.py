"""Lean decode loop for the Llama family: Llama, Qwen2, Qwen3, Mistral.

The same arithmetic as the Hugging Face modules, arranged for few and large operations:

- q, k and v are one matrix product; weights are stored transposed, which CPU matrix libraries like better.
- The rows of the q and k weights are permuted so that the two numbers a rotary embedding mixes are neighbours: rotating
  is then one complex multiplication. Scores do not change, since q and k are permuted alike.
- Prefill and decode share one pass: prompts of new rows ride along with the active rows, only attention differs.
- Attention over the cache is a batched matrix product of views (no copy of the cache), trimmed to the live columns; in
  half precision and on CUDA it is `scaled_dot_product_attention`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gumption.rollouts.cache import SlotCache
from gumption.rollouts.decoder import Prefill
from gumption.types import IntArray

FAMILY = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary types whose angles do not depend on the sequence length."""


def unsupported(model: Any) -> str | None:
    """Why this model needs the generic decoder; `None` when the lean one fits."""
    config = model.config
    if type(model).__name__ not in FAMILY:
        return f"{type(model).__name__} is not one of {', '.join(FAMILY)}"
    if config.hidden_act not in ("silu", "swish"):
        return f"activation {config.hidden_act}"
    windowed = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    if windowed or "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return "sliding-window attention"
    rotary = model.model.rotary_emb
    if getattr(rotary, "rope_type", "default") not in STATIC_ROPE:
        return f"rotary type {rotary.rope_type}"
    if rotary.inv_freq.numel() * 2 != _head_dim(config):
        return "partial rotary embedding"
    if any(p.dtype != model.model.embed_tokens.weight.dtype for p in model.parameters()):
        return "mixed precision weights"
    return None


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


@dataclass(slots=True)
class _Layer:
    """Weights of one layer, (in, out); biases may be missing."""

    norm_in: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    norm_mlp: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(slots=True)
class _Plan:
    """Where the tokens of one step go: `rows` decode tokens first, then the prefill sequences back to back."""

    rows: int
    live: slice
    pad_index: Tensor | None = None  # (M · longest) → flat row; None: all sequences have the same length
    flat_index: Tensor | None = None  # the inverse
    shape: tuple[int, int] = (0, 0)  # M, longest
    mask: Tensor | None = None
    copy_index: Tensor | None = None  # sequence of each new row


class LlamaDecoder:
    """See the module docstring. Owns a copy of the weights; `model` is only read."""

    def __init__(self, model: Any) -> None:
        config, weight = model.config, model.model.embed_tokens.weight
        self.heads, self.kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.head_dim, self.eps = _head_dim(config), float(config.rms_norm_eps)
        self.width, self.mlp = int(config.hidden_size), int(config.intermediate_size)
        self.layer_count, self.vocab = int(config.num_hidden_layers), int(config.vocab_size)
        self.scale = float(model.model.layers[0].self_attn.scaling)
        self.dtype, self.device = weight.dtype, weight.device
        self.full_precision = self.dtype in (torch.float32, torch.float64)
        self.batched_products = self.full_precision and self.device.type == "cpu"
        self.rotary = model.model.rotary_emb
        self.turns = torch.zeros(0, device=self.device)
        self.permutation = torch.arange(self.head_dim, device=self.device).view(2, -1).t().flatten()
        self.cache = SlotCache(self.device, self.dtype, mask_heads=self.kv_heads if self.batched_products else 1)
        self.cache.add_buffer(2 * self.layer_count, self.kv_heads, self.head_dim)
        self.eps_11 = torch.full((1, 1), self.eps, dtype=self.dtype, device=self.device)
        state = model.state_dict()
        self.embedding = torch.empty_like(weight, requires_grad=False)
        self.head = self.embedding if config.tie_word_embeddings else torch.empty_like(self.embedding)
        self.norm = torch.empty(self.width, dtype=self.dtype, device=self.device)
        self.layers = [self._empty_layer(state, i) for i in range(self.layer_count)]
        self.load(state)

    def _empty_layer(self, state: Mapping[str, Tensor], i: int) -> _Layer:
        def new(*shape: int) -> Tensor:
            return torch.empty(*shape, dtype=self.dtype, device=self.device)

        def maybe(name: str, size: int) -> Tensor | None:
            return new(size) if f"model.layers.{i}.{name}" in state else None

        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return _Layer(
            norm_in=new(self.width),
            qkv=new(self.width, q + 2 * kv),
            qkv_bias=maybe("self_attn.q_proj.bias", q + 2 * kv),
            q_norm=maybe("self_attn.q_norm.weight", self.head_dim),
            k_norm=maybe("self_attn.k_norm.weight", self.head_dim),
            out=new(q, self.width),
            out_bias=maybe("self_attn.o_proj.bias", self.width),
            norm_mlp=new(self.width),
            gate_up=new(self.width, 2 * self.mlp),
            gate_up_bias=maybe("mlp.gate_proj.bias", 2 * self.mlp),
            down=new(self.mlp, self.width),
            down_bias=maybe("mlp.down_proj.bias", self.width),
        )

    @torch.inference_mode()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy (and fuse, transpose, permute) new weights.

        Raises:
            ValueError: a weight is missing.
        """

        def get(name: str) -> Tensor:
            if name not in state:
                raise ValueError(f"update_weights: no weight named {name!r} in the new state")
            return state[name].detach()

        self.embedding.copy_(get("model.embed_tokens.weight"))
        if self.head is not self.embedding:
            self.head.copy_(get("lm_head.weight"))
        self.norm.copy_(get("model.norm.weight"))
        for i, layer in enumerate(self.layers):
            self._load_layer(layer, lambda name, i=i: get(f"model.layers.{i}.{name}"))

    def _load_layer(self, layer: _Layer, get: Any) -> None:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer.norm_in.copy_(get("input_layernorm.weight"))
        layer.norm_mlp.copy_(get("post_attention_layernorm.weight"))
        for kind, fused in (("weight", layer.qkv), ("bias", layer.qkv_bias)):
            if fused is not None:
                parts = [get(f"self_attn.{p}_proj.{kind}") for p in "qkv"]
                fused[..., :q].copy_(self._neighbours(parts[0]).t())
                fused[..., q : q + kv].copy_(self._neighbours(parts[1]).t())
                fused[..., q + kv :].copy_(parts[2].t())
        for name, norm in (("q_norm", layer.q_norm), ("k_norm", layer.k_norm)):
            if norm is not None:
                norm.copy_(get(f"self_attn.{name}.weight")[self.permutation.to(get(f"self_attn.{name}.weight").device)])
        for kind, fused in (("weight", layer.gate_up), ("bias", layer.gate_up_bias)):
            if fused is not None:
                fused[..., : self.mlp].copy_(get(f"mlp.gate_proj.{kind}").t())
                fused[..., self.mlp :].copy_(get(f"mlp.up_proj.{kind}").t())
        layer.out.copy_(get("self_attn.o_proj.weight").t())
        layer.down.copy_(get("mlp.down_proj.weight").t())
        for name, bias in (("self_attn.o_proj.bias", layer.out_bias), ("mlp.down_proj.bias", layer.down_bias)):
            if bias is not None:
                bias.copy_(get(name))

    def _neighbours(self, weight: Tensor) -> Tensor:
        """Permute output features within each head so that rotary pairs (i, i + dim/2) become neighbours."""
        halves = weight.reshape(-1, 2, self.head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)

    # -----------------------------------------------------------------------------------------------------------------

    def forward(self, last_ids_B: IntArray, prefill: Prefill | None) -> Tensor:
        """See `Decoder.forward`."""
        cache, rows = self.cache, len(last_ids_B)
        ids, positions, last = last_ids_B, cache.column - cache.starts_S[:rows], None
        if prefill is not None:
            lengths_M = prefill.lengths_M
            ids = np.concatenate([last_ids_B, *prefill.tokens_M])
            positions = np.concatenate([positions, *(np.arange(n) for n in lengths_M)])
            last = np.concatenate([np.arange(rows), rows - 1 + np.cumsum(lengths_M)])
        plan = self._plan(rows, prefill)
        x = F.embedding(self._index(ids), self.embedding)
        turns = self._turns(int(positions.max()))[self._index(positions)]
        for i, layer in enumerate(self.layers):
            self._layer(i, layer, x, turns, plan)
        if last is not None:
            x = x[self._index(last)]
        return F.linear(self._norm(x, self.norm), self.head)

    def _index(self, values: IntArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.int64)).to(self.device)

    def _plan(self, rows: int, prefill: Prefill | None) -> _Plan:
        if prefill is None:
            return _Plan(rows, self.cache.live(rows))
        lengths_M = prefill.lengths_M
        m, longest = len(lengths_M), int(lengths_M.max())
        plan = _Plan(rows, self.cache.live(rows), shape=(m, longest))
        plan.copy_index = self._index(np.repeat(np.arange(m), prefill.copies_M))
        if (lengths_M != longest).any():
            pad_M = longest - lengths_M
            ends_M = np.cumsum(lengths_M)
            column_ML = np.broadcast_to(np.arange(longest), (m, longest))
            flat_ML = (ends_M - longest)[:, None] + column_ML  # left-padded: the last column is the last token
            real_ML = column_ML >= pad_M[:, None]
            plan.pad_index = self._index(np.where(real_ML, flat_ML, 0).ravel())
            plan.flat_index = self._index(np.flatnonzero(real_ML))
            causal = torch.ones(longest, longest, dtype=torch.bool, device=self.device).tril_()
            keys = torch.from_numpy(real_ML).to(self.device)[:, None, None, :]
            alone = torch.eye(
                longest, dtype=torch.bool, device=self.device
            )  # padding looks at itself: no empty softmax
            plan.mask = (causal & keys) | alone
        return plan

    def _turns(self, longest: int) -> Tensor:
        """Rotations (cos + i·sin) of every position up to `longest`: complex, or (…, 2) in half precision."""
        if longest >= len(self.turns):
            size = max(2 * longest, 128)
            positions = torch.arange(size, device=self.device)[None]
            cos, sin = self.rotary(torch.zeros(1, dtype=self.dtype, device=self.device), positions)
            half = self.head_dim // 2
            pair = torch.stack([cos[0, :, None, :half], sin[0, :, None, :half]], -1)
            self.turns = torch.view_as_complex(pair.contiguous()) if self.full_precision else pair
        return self.turns

    def _rotate(self, x: Tensor, turns: Tensor) -> Tensor:
        """Rotate neighbouring pairs of (N, heads, dim)."""
        pairs = x.view(*x.shape[:-1], -1, 2)
        if self.full_precision:
            return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2)
        a, b, cos, sin = pairs[..., 0], pairs[..., 1], turns[..., 0], turns[..., 1]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm over the last dimension."""
        if not self.full_precision:
            wide = x.float()
            wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
            return weight * wide.to(self.dtype)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = torch.addcmul(self.eps_11, length, length, value=1.0 / x.shape[-1]).rsqrt_()
        return (x * inverse).mul_(weight)

    def _layer(self, i: int, layer: _Layer, x: Tensor, turns: Tensor, plan: _Plan) -> None:
        """One transformer layer, in place on x (N, width)."""
        q_heads, kv_heads = self.heads, self.kv_heads
        qkv = _product(self._norm(x, layer.norm_in), layer.qkv, layer.qkv_bias).view(len(x), -1, self.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = self._rotate(self._norm(qkv[:, :q_heads], layer.q_norm), turns)
            k = self._rotate(self._norm(qkv[:, q_heads : q_heads + kv_heads], layer.k_norm), turns)
        else:
            rotated = self._rotate(qkv[:, : q_heads + kv_heads], turns)
            q, k = rotated[:, :q_heads], rotated[:, q_heads:]
        attended = self._attend(i, q, k, qkv[:, q_heads + kv_heads :], plan)
        x.addmm_(attended, layer.out)
        if layer.out_bias is not None:
            x += layer.out_bias
        gate_up = _product(self._norm(x, layer.norm_mlp), layer.gate_up, layer.gate_up_bias)
        x.addmm_(F.silu(gate_up[:, : self.mlp]).mul_(gate_up[:, self.mlp :]), layer.down)
        if layer.down_bias is not None:
            x += layer.down_bias

    def _attend(self, i: int, q: Tensor, k: Tensor, v: Tensor, plan: _Plan) -> Tensor:
        """Write keys and values to the cache and attend. Returns (N, heads · dim)."""
        cache, rows = self.cache, plan.rows
        keys, values = cache.buffers[0][2 * i], cache.buffers[0][2 * i + 1]
        parts = []
        if rows:
            keys[:rows, :, cache.here()] = k[:rows]
            values[:rows, :, cache.here()] = v[:rows]
            attend = self._attend_products if self.batched_products else self._attend_sdpa
            parts.append(attend(q[:rows], keys, values, plan.live))
        if plan.copy_index is not None:
            m, longest = plan.shape
            new = [t[rows:] if plan.pad_index is None else t[rows:].index_select(0, plan.pad_index) for t in (q, k, v)]
            q_M, k_M, v_M = (t.view(m, longest, -1, self.head_dim).transpose(1, 2) for t in new)
            last = rows + len(plan.copy_index)
            for part, span in cache.pieces(longest):
                keys[rows:last, :, span] = k_M[:, :, part].index_select(0, plan.copy_index)
                values[rows:last, :, span] = v_M[:, :, part].index_select(0, plan.copy_index)
            out = F.scaled_dot_product_attention(
                q_M, k_M, v_M, plan.mask, is_causal=plan.mask is None, scale=self.scale, enable_gqa=True
            )
            flat = out.transpose(1, 2).reshape(m * longest, -1)
            parts.append(flat if plan.flat_index is None else flat.index_select(0, plan.flat_index))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend_products(self, q: Tensor, keys: Tensor, values: Tensor, span: slice) -> Tensor:
        rows, group = len(q), self.heads // self.kv_heads
        batch = rows * self.kv_heads
        keys_BTD = keys.view(-1, *keys.shape[2:])[:batch, span]
        values_BTD = values.view(-1, *values.shape[2:])[:batch, span]
        mask_B1T = self.cache.mask.view(-1, 1, self.cache.columns)[:batch, :, span]
        q_BGD = q.reshape(batch, group, self.head_dim)
        scores = torch.baddbmm(mask_B1T, q_BGD, keys_BTD.transpose(1, 2), alpha=self.scale)
        return torch.bmm(torch.softmax(scores, -1), values_BTD).view(rows, -1)

    def _attend_sdpa(self, q: Tensor, keys: Tensor, values: Tensor, span: slice) -> Tensor:
        rows = len(q)
        mask = self.cache.mask[:rows, :, None, span]
        k, v = keys[:rows, :, span], values[:rows, :, span]
        group = self.heads // self.kv_heads
        out = F.scaled_dot_product_attention(q[:, :, None], k, v, mask, scale=self.scale, enable_gqa=group > 1)
        return out.reshape(rows, -1)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
