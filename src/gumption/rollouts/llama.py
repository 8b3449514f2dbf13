"""Lean decode loop for the Llama family: Llama, Qwen2, Qwen3, Mistral.

The same arithmetic as the Hugging Face modules, arranged for few and large operations:

- q, k and v are one matrix product; weights are stored transposed, which CPU matrix libraries like better, and take the
  weight of the norm in front of them with them.
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
    """Weights of one layer, (in, out). In full precision the norms' weights are folded into the product behind them."""

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
class _Step:
    """Views of the cache for one step, of all layers: `rows` decode tokens come first, then the prefill sequences."""

    rows: int
    turns: Tensor  # rotation of every token
    attended: Tensor  # (N, heads · dim): where attention puts its results
    write: tuple[Tensor, ...]  # (rows, heads, dim) of the current column: keys of every layer, then values
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mask: Tensor
    prefill: _Prompts | None = None


@dataclass(slots=True)
class _Prompts:
    """How the prefill sequences, which lie back to back, are padded on the left to (M, longest)."""

    shape: tuple[int, int]
    copy_index: Tensor  # sequence of each new row
    pieces: list[tuple[slice, slice]]  # see SlotCache.pieces
    pad_index: Tensor | None = None  # (M · longest) → token; None: all sequences are equally long
    flat_index: Tensor | None = None  # the inverse
    mask: Tensor | None = None


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
        if self.full_precision:
            layer.qkv.mul_(layer.norm_in[:, None])
            layer.gate_up.mul_(layer.norm_mlp[:, None])
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
        x = F.embedding(self._index(ids), self.embedding)
        step = self._step(rows, positions, prefill)
        for i, layer in enumerate(self.layers):
            self._layer(i, layer, x, step)
        if last is not None:
            x = x[self._index(last)]
        return F.linear(self._norm(x, self.norm), self.head)

    def _index(self, values: IntArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.int64)).to(self.device)

    def _step(self, rows: int, positions: IntArray, prefill: Prefill | None) -> _Step:
        cache, n = self.cache, self.layer_count
        buffer, live = cache.buffers[0], cache.live(rows)
        if self.batched_products:
            batch = rows * self.kv_heads
            flat = buffer.view(2 * n, -1, cache.columns, self.head_dim)[:, :batch, live]
            keys, values = flat[:n].transpose(2, 3), flat[n:]
            mask = cache.mask.view(-1, 1, cache.columns)[:batch, :, live]
        else:
            keys, values = buffer[:n, :rows, :, live], buffer[n:, :rows, :, live]
            mask = cache.mask[:rows, :, None, live]
        return _Step(
            rows,
            turns=self._turns(int(positions.max()))[self._index(positions)],
            attended=torch.empty(len(positions), self.heads * self.head_dim, dtype=self.dtype, device=self.device),
            write=buffer[:, :rows, :, cache.here()].unbind(0),
            keys=keys.unbind(0),
            values=values.unbind(0),
            mask=mask,
            prefill=self._prompts(prefill) if prefill is not None else None,
        )

    def _prompts(self, prefill: Prefill) -> _Prompts:
        lengths_M = prefill.lengths_M
        m, longest = len(lengths_M), int(lengths_M.max())
        copy_index = self._index(np.repeat(np.arange(m), prefill.copies_M))
        prompts = _Prompts((m, longest), copy_index, self.cache.pieces(longest))
        if (lengths_M != longest).any():
            column_ML = np.broadcast_to(np.arange(longest), (m, longest))
            flat_ML = (np.cumsum(lengths_M) - longest)[:, None] + column_ML  # the last column is the last token
            real_ML = column_ML >= (longest - lengths_M)[:, None]
            prompts.pad_index = self._index(np.where(real_ML, flat_ML, 0).ravel())
            prompts.flat_index = self._index(np.flatnonzero(real_ML))
            causal_LL = np.tri(longest, dtype=np.bool_)
            # Padding looks at itself: a softmax over nothing would be NaN.
            mask_MLL = (causal_LL & real_ML[:, None, :]) | np.eye(longest, dtype=np.bool_)
            prompts.mask = torch.from_numpy(mask_MLL).to(self.device)[:, None]
        return prompts

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

    def _scale(self, x: Tensor) -> Tensor:
        """Divide by the root mean square over the last dimension, in full precision."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * torch.addcmul(self.eps_11, length, length, value=1.0 / x.shape[-1]).rsqrt_()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm over the last dimension."""
        if self.full_precision:
            return self._scale(x).mul_(weight)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return weight * wide.to(self.dtype)

    def _product(self, x: Tensor, norm: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Norm, then matrix product."""
        x = self._scale(x) if self.full_precision else self._norm(x, norm)
        return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)

    def _layer(self, i: int, layer: _Layer, x: Tensor, step: _Step) -> None:
        """One transformer layer, in place on x (N, width)."""
        q_heads, both = self.heads, self.heads + self.kv_heads
        qkv = self._product(x, layer.norm_in, layer.qkv, layer.qkv_bias).view(-1, both + self.kv_heads, self.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = self._rotate(self._norm(qkv[:, :q_heads], layer.q_norm), step.turns)
            k = self._rotate(self._norm(qkv[:, q_heads:both], layer.k_norm), step.turns)
        else:
            rotated = self._rotate(qkv[:, :both], step.turns)
            q, k = rotated[:, :q_heads], rotated[:, q_heads:]
        v = qkv[:, both:]
        if step.rows:
            self._attend(i, q, k, v, step)
        if step.prefill is not None:
            self._attend_prompts(i, q[step.rows :], k[step.rows :], v[step.rows :], step, step.prefill)
        x.addmm_(step.attended, layer.out)
        if layer.out_bias is not None:
            x += layer.out_bias
        gate_up = self._product(x, layer.norm_mlp, layer.gate_up, layer.gate_up_bias)
        x.addmm_(F.silu(gate_up[:, : self.mlp]).mul_(gate_up[:, self.mlp :]), layer.down)
        if layer.down_bias is not None:
            x += layer.down_bias

    def _attend(self, i: int, q: Tensor, k: Tensor, v: Tensor, step: _Step) -> None:
        """One token per active row: write its key and value, attend over the live columns."""
        rows, group = step.rows, self.heads // self.kv_heads
        if step.prefill is not None:
            q, k, v = q[:rows], k[:rows], v[:rows]
        step.write[i].copy_(k)
        step.write[self.layer_count + i].copy_(v)
        if self.batched_products:
            q_BGD = q.reshape(rows * self.kv_heads, group, self.head_dim)
            scores = torch.baddbmm(step.mask, q_BGD, step.keys[i], alpha=self.scale)
            out = step.attended[:rows].view(q_BGD.shape)
            torch.bmm(torch.softmax(scores, -1), step.values[i], out=out)
        else:
            out = F.scaled_dot_product_attention(
                q[:, :, None], step.keys[i], step.values[i], step.mask, scale=self.scale, enable_gqa=group > 1
            )
            step.attended[:rows] = out.reshape(rows, -1)

    def _attend_prompts(self, i: int, q: Tensor, k: Tensor, v: Tensor, step: _Step, prompts: _Prompts) -> None:
        """Causal attention within each new sequence; its keys and values go to all its rows."""
        if prompts.pad_index is not None:
            q, k, v = (t.index_select(0, prompts.pad_index) for t in (q, k, v))
        q_M, k_M, v_M = (t.view(*prompts.shape, -1, self.head_dim).transpose(1, 2) for t in (q, k, v))
        last = step.rows + prompts.copy_index.shape[0]
        for plane, new in ((i, k_M), (self.layer_count + i, v_M)):
            target = self.cache.buffers[0][plane, step.rows : last]
            for part, span in prompts.pieces:
                target[:, :, span] = new[:, :, part].index_select(0, prompts.copy_index)
        out = F.scaled_dot_product_attention(
            q_M, k_M, v_M, prompts.mask, is_causal=prompts.mask is None, scale=self.scale, enable_gqa=True
        )
        flat = out.transpose(1, 2).reshape(-1, self.heads * self.head_dim)
        step.attended[step.rows :] = flat if prompts.flat_index is None else flat.index_select(0, prompts.flat_index)
