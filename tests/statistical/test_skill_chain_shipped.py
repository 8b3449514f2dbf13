"""The shipped skill_chain model is a standard folder, and it still has the pass rates that its problem sets say."""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gumption.problems.skill_chain import BUCKETS, SYMBOLS, generate, load_shipped
from gumption.rewards.skill_chain import SkillChainVerifier


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(str(resources.files("gumption") / "data" / "models" / "skill_chain"))


def test_folder_is_small_and_standard(folder: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "llama" and model.dtype == torch.float32
    assert 0.5e6 <= sum(p.numel() for p in model.parameters()) <= 3e6
    assert sum(p.stat().st_size for p in folder.iterdir()) < 6e6
    assert set(tokenizer.get_vocab()) == {*SYMBOLS, "<pad>", "<end>", "<unk>"}
    for problem in generate(20, seed=0):
        text = f"{problem.prompt}{problem.answer}"
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text) and tokenizer.decode(ids) == text and tokenizer.unk_token_id not in ids


@pytest.mark.parametrize("held_out", [False, True])
def test_pass_rates_are_the_shipped_ones(folder: Path, held_out: bool) -> None:
    """`generate` on 8 problems of each bucket, 24 samples each, against the shipped counts.

    z² of the pooled difference per bucket: under the null P(|z| > 5) = 6e-7 per bucket in the normal approximation, so
    5e-6 for the eight comparisons; the seed is fixed besides. (That the counts chose the buckets shifts the expectation
    by far less than one standard deviation at 256 samples.) A change of the model, the tokenizer, the sets or
    the verifier moves easy problems by many standard deviations.
    """
    torch.manual_seed(11 + held_out)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    verifier, n = SkillChainVerifier(), 24
    problems = load_shipped(held_out)[:32]
    prompts = [str(p.prompt) for p in problems for _ in range(n)]
    ids = tokenizer(prompts, padding=True, return_tensors="pt")
    assert model.generation_config.do_sample in (None, False) and model.generation_config.temperature in (None, 1.0)
    output = model.generate(**ids, do_sample=True, top_k=0, top_p=1.0, temperature=1.0, max_new_tokens=20)
    texts = tokenizer.batch_decode(output[:, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    for bucket in BUCKETS:
        gap, variance = 0.0, 0.0
        for i, problem in enumerate(problems):
            if problem.meta["bucket"] == bucket:
                values = [verifier.score(problem, t).value for t in texts[i * n : (i + 1) * n]]
                rate, shipped = sum(v or 0.0 for v in values) / n, problem.meta["n"]
                p = (sum(v or 0.0 for v in values) + problem.meta["successes"]) / (n + shipped)
                gap += rate - problem.meta["successes"] / shipped
                variance += p * (1 - p) * (1 / n + 1 / shipped)
        assert abs(gap) < 5 * math.sqrt(variance), bucket
