"""The embedded engine and trainer agree: fresh on-policy rollouts have importance ratio 1 within 1e-4."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from gumption.config import RunConfig
from gumption.rollouts.engine import TorchEngine
from gumption.training.model import load_policy, model_path
from gumption.training.trainer import TorchTrainer
from gumption.types import Attempt, Problem, Request, TrainBatch, TrainRow

PROMPTS = ["123=", "9=", "40512=", "77777777="]


def engine_and_trainer(path: str, training: dict[str, Any], **tables: Any) -> tuple[TorchEngine, TorchTrainer]:
    config = RunConfig.from_dict(
        {
            "model": {"path": path, "device": "cpu", **tables.get("model", {})},
            "allocation": {"rule": "fixed"},
            "rollouts": {"max_tokens": 12, "in_flight": 24, **tables.get("rollouts", {})},
            "training": training,
        }
    )
    policy = load_policy(config.model)
    trainer = TorchTrainer(policy, config)
    return TorchEngine(
        policy.plain_model(), policy.tokenizer, config=config.rollouts, seed=0, shape=policy.shape
    ), trainer


def generate(engine: TorchEngine, visit: int = 0) -> list[Attempt]:
    for i, prompt in enumerate(PROMPTS):
        engine.submit(Request(Problem(f"p-{i}", prompt, "x", "exact"), 6, visit))
    attempts: list[Attempt] = []
    while engine.in_flight:
        attempts += engine.poll()
    return attempts


def batch_of(attempts: list[Attempt], version: int) -> TrainBatch:
    rng = np.random.default_rng(version)
    rows = tuple(TrainRow(r, float(rng.normal()), 1.0, g % 2) for g, a in enumerate(attempts) for r in a)
    return TrainBatch(rows, version, len(rows), sum(r.rollout.trained_tokens for r in rows))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny/skill_chain"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64, eos_token_id=1)
    ).save_pretrained(folder)
    return str(folder)


CASES: list[dict[str, Any]] = [
    {},
    {"rollouts": {"temperature": 0.7, "top_p": 0.9}},
    {"rollouts": {"temperature": 1.2, "top_k": 5}},
    {"model": {"lora": {"rank": 4}}},
    {"model": {"dtype": "float64"}},
]


@pytest.mark.parametrize("tables", CASES)
def test_ratio_is_one_before_and_after_updates(tables: dict[str, Any]) -> None:
    engine, trainer = engine_and_trainer("tiny/skill_chain", {"learning_rate": 3e-3, "grad_noise": False}, **tables)
    for version in range(3):
        metrics = trainer.update(batch_of(generate(engine, version), version)).metrics
        assert metrics["importance_ratio/max"] < 1 + 1e-4 and abs(metrics["importance_ratio/mean"] - 1) < 1e-4
        assert metrics["mismatch_kl"] < 1e-7
        assert metrics["off_policy/max"] == 0.0
        engine.update_weights(trainer.version, trainer.weights())


def test_another_architecture(gpt2: str) -> None:
    engine, trainer = engine_and_trainer(gpt2, {"learning_rate": 3e-3})
    for version in range(2):
        metrics = trainer.update(batch_of(generate(engine, version), version)).metrics
        assert abs(metrics["importance_ratio/max"] - 1) < 1e-4
        engine.update_weights(trainer.version, trainer.weights())


def test_stale_rollouts_have_another_ratio() -> None:
    """The check above can fail: without the new weights in the engine the ratio leaves 1."""
    engine, trainer = engine_and_trainer("tiny/skill_chain", {"learning_rate": 3e-3})
    trainer.update(batch_of(generate(engine), 0))
    metrics = trainer.update(batch_of(generate(engine, 1), 1)).metrics
    assert abs(metrics["importance_ratio/mean"] - 1) > 0.01 and metrics["off_policy/max"] == 1.0
