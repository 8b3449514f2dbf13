"""The models that ship with the package: fresh rollouts have importance ratio 1 in the trainer's numerics."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import gumption
from gumption.rollouts.llama import LlamaDecoder
from gumption.types import Problem, Request

MODELS = sorted(p.parent.name for p in (Path(gumption.__file__).parent / "data" / "models").glob("*/config.json"))


def test_models_ship():
    assert "skill_chain" in MODELS


@pytest.mark.parametrize("name", MODELS)
def test_importance_ratio_is_one_on_the_shipped_model(lab, name):
    folder = Path(gumption.__file__).parent / "data" / "models" / name
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    engine = lab.engine(model, tokenizer, in_flight=16, max_tokens=32)
    assert isinstance(engine.decoder, LlamaDecoder)
    ordinary = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    rng = np.random.default_rng(0)
    prompts = [tokenizer.decode(rng.choice(ordinary, rng.integers(4, 9))) for _ in range(6)]
    requests = [Request(Problem(f"{i}-0", text, None, "exact"), 4) for i, text in enumerate(prompts)]
    with torch.inference_mode():
        for attempt in lab.run_all(engine, requests).values():
            for rollout in attempt:
                logprobs_TV = lab.full_logprobs(model, rollout)
                logprobs_T = logprobs_TV[np.arange(len(rollout.completion_ids_T)), rollout.completion_ids_T]
                assert np.abs(np.exp(logprobs_T - rollout.logprobs_T) - 1).max() < 1e-4
