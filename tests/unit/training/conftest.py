"""A very small Llama folder with tokenizer, made once per session, and rows to train it on."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gumption.config import ModelConfig
from gumption.types import Attempt, Problem, Request, TrainBatch, TrainRow

VOCAB = 23


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    symbols = ["<pad>", "<end>", *[chr(ord("a") + i) for i in range(VOCAB - 2)]]
    core = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
        tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model_config(llama_folder: Path) -> ModelConfig:
    return ModelConfig(path=str(llama_folder), dtype="float64", device="cpu")


def attempt(rng: np.random.Generator, prompt: list[int], lengths: list[int], name: str, version: int = 0) -> Attempt:
    """Random completions with random behaviour log-probs."""
    n, total = len(lengths), sum(lengths)
    return Attempt(
        request=Request(Problem(name, "x", "y", "exact"), n),
        prompt_ids_T=np.array(prompt, np.int32),
        completion_ids_T=rng.integers(1, VOCAB, total).astype(np.int32),
        logprobs_T=rng.normal(-3.0, 0.4, total).astype(np.float32),
        offsets_G1=np.concatenate([[0], np.cumsum(lengths)]),
        version_start_G=np.full(n, version, np.int32),
        version_end_G=np.full(n, version, np.int32),
        finish_G=("stop",) * n,
        texts_G=("",) * n,
        flops_prefill_G=np.zeros(n, np.int64),
        flops_decode_G=np.zeros(n, np.int64),
    )


def _make_batch(seed: int = 0, groups: int = 4, size: int = 5, *, masked: bool = False) -> TrainBatch:
    """Groups of unequal prompts and lengths; weights and advantages of both signs."""
    rng = np.random.default_rng(seed)
    rows: list[TrainRow] = []
    for g in range(groups):
        lengths = rng.integers(1, 9, size).tolist()
        a = attempt(rng, rng.integers(2, VOCAB, 2 + g).tolist(), lengths, f"p-{g}")
        if masked:
            a.loss_mask_T = rng.random(len(a.completion_ids_T)) < 0.7
        rows += [TrainRow(r, float(rng.normal()), float(rng.uniform(0.5, 2.0)), g % 2) for r in a]
    tokens = sum(r.rollout.trained_tokens for r in rows)
    return TrainBatch(tuple(rows), 0, len(rows) + 3, tokens + 11)


class BatchMaker(Protocol):
    def __call__(self, seed: int = 0, groups: int = 4, size: int = 5, *, masked: bool = False) -> TrainBatch: ...


@pytest.fixture
def make_batch() -> BatchMaker:
    return _make_batch
