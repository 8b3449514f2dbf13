"""Tiny Llama models from a symbol vocabulary: tokenizer, model, supervised warm start, sampler, folder.

    tokenizer = make_tokenizer(list("0123456789+="))
    model = make_model(len(tokenizer), hidden=128, layers=3, heads=4, seed=0)
    warm_start(model, tokenizer, draw, steps=1500, batch_size=64, learning_rate=2e-3, seed=0)
    texts = sample(model, tokenizer, prompts, n=48, max_tokens=20, seed=1)
    save_folder(model, tokenizer, "src/gumption/data/models/NAME")

`draw(rng, n)` returns n (prompt, completion) pairs; the end token is added after each completion and only completion
tokens carry loss. The folder is a standard one: `AutoTokenizer.from_pretrained` and
`AutoModelForCausalLM.from_pretrained` load it, no beginning-of-sequence token is added, decoding joins symbols without
spaces.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.cache_utils import DynamicCache

log = logging.getLogger("tiny_model")

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
IGNORE = -100

# transformers renamed the argument in version 5.
_CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"

Pair = tuple[str, str]
Draw = Callable[[np.random.Generator, int], Sequence[Pair]]


def make_tokenizer(symbols: Sequence[str], *, max_length: int = 512) -> PreTrainedTokenizerFast:
    """One token per symbol; the longest symbol wins where several fit; anything else becomes `<unk>`.

    Symbols may hold several characters, blanks and line ends. `decode(ids, skip_special_tokens=True)` is their
    concatenation, so encode → decode is the identity on text made of symbols.
    """
    if len(set(symbols)) != len(symbols) or not all(symbols):
        raise ValueError("symbols must be distinct and not empty")
    if clash := {PAD, END, UNKNOWN} & set(symbols):
        raise ValueError(f"{sorted(clash)} are reserved")
    vocab = {token: i for i, token in enumerate([PAD, END, UNKNOWN, *symbols])}
    core = Tokenizer(models.WordLevel(vocab=vocab, unk_token=UNKNOWN))
    longest_first = sorted(symbols, key=len, reverse=True)
    pattern = "|".join(re.escape(s) for s in longest_first)
    core.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (PAD, END, UNKNOWN)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )


def make_model(
    vocab: int,
    *,
    hidden: int = 128,
    layers: int = 3,
    heads: int = 4,
    intermediate: int | None = None,
    max_positions: int = 512,
    seed: int = 0,
) -> LlamaForCausalLM:
    """A freshly initialised Llama in float32; ids 0 and 1 are pad and end, as `make_tokenizer` numbers them."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate or 8 * math.ceil(hidden * 8 / 3 / 8),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_positions,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=False,
        attention_dropout=0.0,
        use_cache=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return model.float()


def encode_pairs(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded (input ids, labels), both (len(pairs), longest); labels are -100 on prompt and padding."""
    prompts = tokenizer([p for p, _ in pairs], add_special_tokens=False)["input_ids"]
    completions = tokenizer([c for _, c in pairs], add_special_tokens=False)["input_ids"]
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    longest = max(len(p) + len(c) + 1 for p, c in zip(prompts, completions, strict=True))
    ids = np.full((len(pairs), longest), pad, np.int64)
    labels = np.full((len(pairs), longest), IGNORE, np.int64)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        full = [*prompt, *completion, end]
        ids[row, : len(full)] = full
        labels[row, len(prompt) : len(full)] = full[len(prompt) :]
    return torch.from_numpy(ids), torch.from_numpy(labels)


def warm_start(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    draw: Draw,
    *,
    steps: int,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    warmup: int = 50,
    final_fraction: float = 0.1,
    weight_decay: float = 0.01,
    seed: int = 0,
    log_every: int = 100,
    on_step: Callable[[int], None] | None = None,
) -> list[float]:
    """Supervised training on fresh pairs: AdamW, linear warm-up, cosine decay to `final_fraction` of the rate.

    Returns the loss (mean over completion tokens) of each step. `on_step(step)` runs after each, for evaluations.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay, eps=1e-8
    )
    rng = np.random.default_rng(seed)
    losses: list[float] = []
    start = time.perf_counter()
    model.train()
    for step in range(steps):
        progress = step / max(steps, 1)
        cosine = final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / max(warmup, 1)) * cosine
        ids, labels = encode_pairs(tokenizer, draw(rng, batch_size))
        logits = model(input_ids=ids, use_cache=False).logits  # right padding: causal attention never sees it
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if log_every and (step + 1) % log_every == 0:
            recent = float(np.mean(losses[-log_every:]))
            log.info("step %d: loss %.4f, %.0f s", step + 1, recent, time.perf_counter() - start)
        if on_step is not None:
            on_step(step + 1)
            model.train()
    model.eval()
    return losses


@torch.inference_mode()
def sample(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[str],
    *,
    n: int,
    max_tokens: int,
    seed: int,
    temperature: float = 1.0,
    batch_size: int = 512,
) -> list[list[str]]:
    """`n` sampled completions of each prompt, in order.

    Prompts of one length share a batch, so that no padding is needed; each is read once per batch; rows that have
    ended leave it.
    """
    model.eval()
    encoded = tokenizer(list(prompts), add_special_tokens=False)["input_ids"]
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(encoded):
        by_length.setdefault(len(ids), []).append(index)
    generator = torch.Generator().manual_seed(seed)
    texts: list[list[str]] = [[] for _ in prompts]
    for _, indices in sorted(by_length.items()):
        rows = [i for i in indices for _ in range(n)]
        for start in range(0, len(rows), batch_size):
            chunk = rows[start : start + batch_size]
            distinct = list(dict.fromkeys(chunk))
            place = {i: k for k, i in enumerate(distinct)}
            ids = torch.tensor([encoded[i] for i in distinct])
            copies = torch.tensor([place[i] for i in chunk])
            end = int(tokenizer.eos_token_id)
            tokens = _sample_batch(model, ids, copies, max_tokens, temperature, generator, end)
            for i, text in zip(chunk, tokenizer.batch_decode(tokens, skip_special_tokens=True), strict=True):
                texts[i].append(text)
    return texts


def _sample_batch(
    model: LlamaForCausalLM,
    ids: torch.Tensor,
    copies: torch.Tensor,
    max_tokens: int,
    temperature: float,
    generator: torch.Generator,
    end: int,
) -> list[list[int]]:
    cache = DynamicCache(config=model.config)
    cached = {_CACHE: cache, "use_cache": True, "logits_to_keep": 1}
    alive = torch.arange(len(copies))
    tokens = torch.full((len(copies), max_tokens), end)
    for position in range(max_tokens):
        logits = model(input_ids=ids, **cached).logits[:, -1]
        if position == 0:
            cache.batch_select_indices(copies)
            logits = logits[copies]
        probabilities = torch.softmax(logits / temperature, dim=-1)
        chosen = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        tokens[alive, position] = chosen
        going = chosen != end
        if not bool(going.any()):
            break
        if not bool(going.all()):
            keep = going.nonzero()[:, 0]
            cache.batch_select_indices(keep)
            alive, chosen = alive[keep], chosen[keep]
        ids = chosen[:, None]
    return [row[: row.index(end)] if end in row else row for row in tokens.tolist()]


def save_folder(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: str | Path) -> Path:
    """Write a standard Hugging Face folder (float32 safetensors) and check that what was written loads the same."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    _name_tokenizer_class(folder / "tokenizer_config.json")
    for path in folder.iterdir():
        path.chmod(0o644)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    again = AutoModelForCausalLM.from_pretrained(folder)
    probe = torch.arange(len(tokenizer))[None]
    with torch.inference_mode():
        same = torch.equal(again.eval()(probe).logits, model.eval()(probe).logits)
    tokens = AutoTokenizer.from_pretrained(folder)
    if not same or tokens.get_vocab() != tokenizer.get_vocab() or tokens.pad_token_id != tokenizer.pad_token_id:
        raise RuntimeError(f"{folder} does not load as it was saved")
    return folder


def _name_tokenizer_class(path: Path) -> None:
    # transformers 5 writes a class name that version 4 does not know; both know this one.
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
