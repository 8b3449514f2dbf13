"""The optimizer step against a slow float64 reference, and that nothing depends on how a batch is cut."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gumption.config import LoraConfig, ModelConfig, RunConfig, TrainingConfig
from gumption.flops import forward_flops
from gumption.training.batching import cut
from gumption.training.checkpoint import latest_checkpoint, load_tree, write_checkpoint
from gumption.training.export import export_model
from gumption.training.model import Policy, load_policy
from gumption.training.trainer import TorchTrainer, TrainingDiverged
from gumption.types import TrainBatch, Trainer

BatchMaker = Callable[..., TrainBatch]
LOSSES = ["reinforce", "ppo_clip", "cispo", "gspo", "decoupled_ppo"]
CORRECTIONS = ["none", "tis", "mis", "icepop"]
DENOMINATORS = ["tokens", "sequences", "constant"]


@functools.cache
def loaded(model: str) -> Policy:
    return load_policy(ModelConfig.model_validate_json(model))


def make_trainer(model: ModelConfig, rollouts: dict[str, Any] | None = None, **training: Any) -> TorchTrainer:
    policy = loaded(model.model_dump_json())
    config = RunConfig.from_dict(
        {
            "model": model.model_dump(),
            "allocation": {"rule": "fixed"},
            "rollouts": rollouts or {},
            "training": training,
        }
    )
    return TorchTrainer(replace(policy, model=copy.deepcopy(policy.model)), config)


def gradients(trainer: TorchTrainer, batch: TrainBatch) -> list[torch.Tensor]:
    """The gradient of each optimizer step, before clipping; the weights do not move."""
    found: list[torch.Tensor] = []
    trainer._optimizer.step = lambda rate: found.append(trainer._flat.grads.clone())  # type: ignore[method-assign]
    trainer._c = trainer._c.model_copy(update={"max_grad_norm": 1e30})
    trainer.update(batch)
    return found


def slow_loss(trainer: TorchTrainer, batch: TrainBatch, denominator: float, kl: float = 0.0) -> torch.Tensor:
    """On-policy loss from whole logits of one rollout at a time, written as the formula reads."""
    c, r = trainer.config.training, trainer.config.rollouts
    total = torch.zeros((), dtype=torch.float64)
    for row in batch.rows_B:
        ids = np.concatenate([row.rollout.prompt_ids_T, row.rollout.completion_ids_T])
        logits = trainer.policy.model(torch.as_tensor(ids, dtype=torch.long)[None]).logits[0] / r.temperature
        log_probs = logits.log_softmax(-1)
        start = len(row.rollout.prompt_ids_T)
        for t, token in enumerate(row.rollout.completion_ids_T.tolist()):
            if not row.rollout.loss_mask_T[t]:
                continue
            logp = log_probs[start + t - 1, token]
            mu = float(row.rollout.logprobs_T[t])
            w = slow_weight(c, math.exp(max(-10.0, min(10.0, logp.item() - mu))))
            ratio = (logp - logp.detach()).exp()  # π/π_old with π_old = π
            term = logp if c.loss in ("reinforce", "cispo") else ratio
            length = int(row.rollout.loss_mask_T.sum()) if c.loss == "gspo" else 1
            total = total - row.weight * w * row.advantage * term / length
            if kl:
                d = torch.tensor(REFERENCE_LOGP) - logp
                total = total + kl * row.weight * (d.exp() - d - 1)
    return total / denominator


def slow_weight(c: TrainingConfig, ratio: float) -> float:
    if c.correction == "tis":
        return min(ratio, c.tis_cap)
    if c.correction == "mis":
        return ratio if ratio <= c.tis_cap else 0.0
    if c.correction == "icepop":
        return ratio if 0.5 <= ratio <= 5.0 else 0.0
    return ratio if c.loss == "decoupled_ppo" else 1.0


REFERENCE_LOGP = -2.0


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_equal_a_slow_loop(
    model_config: ModelConfig, loss: str, correction: str, make_batch: BatchMaker
) -> None:
    batch = make_batch(masked=True)
    trainer = make_trainer(model_config, {"temperature": 0.8}, loss=loss, correction=correction)
    for p in trainer.policy.model.parameters():
        p.grad = None
    expected = slow_loss(trainer, batch, batch.count_tokens)
    expected_grads = torch.autograd.grad(expected, list(trainer.policy.model.parameters()))
    trainer = make_trainer(model_config, {"temperature": 0.8}, loss=loss, correction=correction)
    result = trainer.update(batch)
    assert result.metrics["loss"] == pytest.approx(expected.item(), rel=1e-6)
    trainer = make_trainer(model_config, {"temperature": 0.8}, loss=loss, correction=correction)
    (flat,) = gradients(trainer, batch)
    got = trainer._flat.named(flat)
    for (name, _), grad in zip(trainer.policy.model.named_parameters(), expected_grads, strict=True):
        torch.testing.assert_close(got[name], grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_does_not_depend_on_the_cut(
    model_config: ModelConfig, loss: str, denominator: str, make_batch: BatchMaker
) -> None:
    """1, 2, 4 and 8 micro-batches, prompts shared or not, chunks or not: 1e-6 relative in float64."""
    batch = make_batch(groups=8, size=4, masked=True)
    grads: list[torch.Tensor] = []
    for count, budget, chunk in [(1, 1000, 2048), (2, 176, 2048), (4, 80, 3), (8, 42, 1)]:
        for share in (False, True):
            trainer = make_trainer(
                model_config, loss=loss, denominator=denominator, grad_noise=False, logits_chunk_tokens=chunk,
                tokens_per_microbatch=budget,
            )  # fmt: skip
            trainer._gradient.forward.share = share
            (made,) = (len(m) for m in trainer._plan(batch).minibatches)
            assert made == count or share
            grads += gradients(trainer, batch)
    for grad in grads[1:]:
        assert (grad - grads[0]).norm() <= 1e-6 * grads[0].norm()


@pytest.mark.parametrize(
    ("loss", "correction", "denominator"),
    [
        ("gspo", "tis", "sequences"),
        ("gspo", "mis", "tokens"),
        ("gspo", "icepop", "constant"),
        ("decoupled_ppo", "none", "tokens"),
        ("decoupled_ppo", "icepop", "sequences"),
        ("reinforce", "mis", "tokens"),
    ],
)
def test_nor_does_it_once_the_policy_has_moved(
    model_config: ModelConfig, loss: str, correction: str, denominator: str, make_batch: BatchMaker
) -> None:
    """The gradient of a second pass, where π ≠ π_old and a sequence's ratio spans chunks: 1e-6 relative in float64."""
    batch = make_batch(groups=8, size=4, masked=True)
    grads: list[torch.Tensor] = []
    for budget, chunk, share in [(1000, 2048, False), (1000, 3, True), (80, 5, False), (42, 1, True)]:
        trainer = make_trainer(
            model_config, loss=loss, correction=correction, denominator=denominator, grad_noise=False, passes=2,
            logits_chunk_tokens=chunk, tokens_per_microbatch=budget, learning_rate=0.02, gspo_low=0.05, gspo_high=0.05,
            kl_coef=0.1,
        )  # fmt: skip
        trainer._gradient.forward.share = share
        found: list[torch.Tensor] = []
        step = trainer._optimizer.step
        trainer._optimizer.step = lambda rate, f=found, t=trainer, s=step: (f.append(t._flat.grads.clone()), s(rate))  # type: ignore[assignment, misc]
        result = trainer.update(batch)
        grads.append(found[1])
        if loss != "reinforce":
            assert 0 < result.metrics["clip_ratio/region_mean"] < 0.5  # some sequences are clipped, some are not
    for grad in grads[1:]:
        assert (grad - grads[0]).norm() <= 1e-6 * grads[0].norm()


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_cut_does_not_matter_to_any_correction(
    model_config: ModelConfig, correction: str, make_batch: BatchMaker
) -> None:
    batch = make_batch(groups=8, size=4)
    grads = [
        gradients(make_trainer(model_config, correction=correction, grad_noise=False, tokens_per_microbatch=b), batch)[
            0
        ]
        for b in (1000, 80, 42)
    ]
    for grad in grads[1:]:
        assert (grad - grads[0]).norm() <= 1e-6 * grads[0].norm()


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("loss", LOSSES)
def test_minibatch_gradients_average_to_the_batch_gradient(
    model_config: ModelConfig, loss: str, denominator: str, make_batch: BatchMaker
) -> None:
    batch = make_batch(groups=5)
    (whole,) = gradients(make_trainer(model_config, loss=loss, denominator=denominator), batch)
    parts = gradients(make_trainer(model_config, loss=loss, denominator=denominator, minibatches=3), batch)
    assert len(parts) == 3
    assert (torch.stack(parts).mean(0) - whole).norm() <= 1e-6 * whole.norm()


def test_the_three_denominators(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    sums = []
    for denominator, divisor in [
        ("tokens", batch.count_tokens),
        ("sequences", batch.count_sequences),
        ("constant", 32 * batch.count_sequences),
    ]:
        result = make_trainer(model_config, denominator=denominator).update(batch)
        sums.append(result.metrics["loss"] * divisor)
    assert sums[1:] == pytest.approx([sums[0]] * 2, rel=1e-9)
    result = make_trainer(model_config, denominator="constant", constant=7.0).update(batch)
    assert result.metrics["loss"] * 7 * batch.count_sequences == pytest.approx(sums[0], rel=1e-9)


def test_weights_scale_a_row(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    """Weight 2 on every row is a gradient of twice the size."""
    batch = make_batch()
    double = replace(batch, rows_B=tuple(replace(r, weight=2 * r.weight) for r in batch.rows_B))
    (one,), (two,) = (gradients(make_trainer(model_config), b) for b in (batch, double))
    torch.testing.assert_close(two, 2 * one, rtol=1e-9, atol=1e-12)


def test_finite_differences_of_the_whole_update(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    (grad,) = gradients(make_trainer(model_config, correction="none"), batch)
    direction = torch.randn(len(grad), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = []
    for sign in (1, -1):
        trainer = make_trainer(model_config, correction="none")
        direction[trainer._flat.values == 0] = 0.0
        trainer._flat.values.add_(sign * 1e-4 * direction)
        losses.append(trainer.update(batch).metrics["loss"])
    assert (losses[0] - losses[1]) / 2e-4 == pytest.approx(grad.dot(direction).item(), rel=1e-3)


def test_several_passes_move_the_ratio_and_clip(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    one = make_trainer(model_config, loss="ppo_clip").update(batch)
    many = make_trainer(model_config, loss="ppo_clip", passes=6, learning_rate=0.05).update(batch)
    assert one.metrics["clip_ratio/region_mean"] == 0.0 and sum(one.flops_score_B) == 0
    assert many.metrics["clip_ratio/region_mean"] > 0.05
    assert sum(many.flops_train_B) == 6 * sum(one.flops_train_B)
    assert sum(many.flops_score_B) == sum(one.flops_train_B) // 3
    for name in ("importance_ratio/mean", "importance_ratio/ess_frac", "mismatch_kl"):  # at the start of the batch
        assert many.metrics[name] == pytest.approx(one.metrics[name], rel=1e-6)


def test_measurements_by_hand(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch(masked=True)
    trainer = make_trainer(model_config)
    ratios, rows, mismatch = [], [], []
    with torch.no_grad():
        for i, row in enumerate(batch.rows_B):
            r = row.rollout
            ids = torch.as_tensor(np.concatenate([r.prompt_ids_T, r.completion_ids_T]), dtype=torch.long)
            logp = trainer.policy.model(ids[None]).logits[0].log_softmax(-1)
            for t in np.flatnonzero(r.loss_mask_T):
                d = logp[len(r.prompt_ids_T) + t - 1, r.completion_ids_T[t]].item() - float(r.logprobs_T[t])
                ratios.append(math.exp(d))
                mismatch.append(math.exp(d) - 1 - d)
                rows.append(i)
    result = trainer.update(batch)
    ratio = np.array(ratios)
    m = result.metrics
    assert m["importance_ratio/mean"] == pytest.approx(ratio.mean(), rel=1e-6)
    assert m["importance_ratio/max"] == pytest.approx(ratio.max(), rel=1e-6)
    assert m["importance_ratio/ess_frac"] == pytest.approx(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum()), rel=1e-6)
    assert m["mismatch_kl"] == pytest.approx(np.mean(mismatch), rel=1e-5) and m["mismatch_kl"] > 0
    assert m["clip_ratio/tis"] == pytest.approx((ratio > 2.0).mean())
    assert 0 < m["entropy"] < math.log(23)
    assert result.importance_ratio_B is not None
    for i, value in enumerate(result.importance_ratio_B):
        mine = ratio[np.array(rows) == i]
        assert value == pytest.approx(mine.mean() if len(mine) else 1.0, rel=1e-6)


def test_on_policy_rollouts_have_ratio_one(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    """Behaviour log-probs computed from whole logits: the packed, shared-prompt pass agrees within 1e-4 in float32."""
    model = model_config.model_copy(update={"dtype": "float32"})
    batch = make_batch()
    trainer = make_trainer(model)
    with torch.no_grad():
        for row in batch.rows_B:
            r = row.rollout
            ids = torch.as_tensor(np.concatenate([r.prompt_ids_T, r.completion_ids_T]), dtype=torch.long)
            logp = trainer.policy.model(ids[None]).logits[0].log_softmax(-1)
            n = len(r.completion_ids_T)
            r.logprobs_T[:] = logp[-n - 1 : -1].gather(-1, ids[-n:, None])[:, 0].numpy()
    metrics = trainer.update(batch).metrics
    assert abs(metrics["importance_ratio/mean"] - 1) < 1e-4 and abs(metrics["importance_ratio/max"] - 1) < 1e-4
    assert metrics["mismatch_kl"] < 1e-7 and metrics["importance_ratio/ess_frac"] > 1 - 1e-6


def test_flops_are_exact_and_known_before(
    model_config: ModelConfig, make_batch: BatchMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gumption.training.batching.ATTENTION_PRICE", 0.0)  # every group becomes one tree
    batch = make_batch()
    for share in (True, False):
        trainer = make_trainer(model_config, kl_coef=0.1)
        trainer._gradient.forward.share = share
        shape = trainer.policy.shape
        estimate = trainer.estimate_flops(batch)
        result = trainer.update(batch)
        assert estimate == sum(result.flops_score_B) + sum(result.flops_train_B)
        expected, seen = [], set()
        for row in batch.rows_B:
            prompt, n = len(row.rollout.prompt_ids_T), len(row.rollout.completion_ids_T)
            first = not share or row.rollout.request.chain_id not in seen
            seen.add(row.rollout.request.chain_id)
            expected.append(
                forward_flops(shape, prompt + n - 1) if first else forward_flops(shape, n - 1, context_start=prompt)
            )
        assert result.flops_score_B == tuple(expected)
        assert result.flops_train_B == tuple(3 * f for f in expected)
        assert all(type(f) is int for f in result.flops_train_B)


def test_kl_to_the_reference(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    trainer = make_trainer(model_config, kl_coef=0.5, learning_rate=0.05)
    first = trainer.update(batch)
    assert first.metrics["kl"] == pytest.approx(0.0, abs=1e-12)
    second = trainer.update(batch)
    assert second.metrics["kl"] > 1e-4
    plain = make_trainer(model_config, learning_rate=0.05)
    plain.update(batch)
    without = plain.update(batch)
    assert "kl" not in without.metrics
    weight = sum(r.weight * len(r.rollout.completion_ids_T) for r in batch.rows_B)
    assert second.metrics["loss"] > without.metrics["loss"] and weight > 0
    strong = make_trainer(model_config, kl_coef=100.0, learning_rate=0.01)
    free = make_trainer(model_config, learning_rate=0.01)
    start = free._flat.values.clone()
    for _ in range(15):
        strong.update(batch)
        free.update(batch)
    assert (strong._flat.values - start).norm() < 0.7 * (free._flat.values - start).norm()


def test_clipping_bounds_the_step_direction(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    trainer = make_trainer(model_config, max_grad_norm=0.01)
    seen: list[float] = []
    trainer._optimizer.step = lambda rate: seen.append(trainer._flat.grads.norm().item())  # type: ignore[method-assign]
    assert trainer.update(batch).metrics["grad_norm"] > 0.1
    assert seen == [pytest.approx(0.01, rel=1e-4)]


def test_gradient_noise_equals_separate_halves(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch(groups=3)  # two groups against one
    (whole,) = gradients(make_trainer(model_config), batch)
    halves = []
    for half in (0, 1):
        rows = tuple(r for r in batch.rows_B if r.half == half)
        halves += gradients(make_trainer(model_config), replace(batch, rows_B=rows))
    torch.testing.assert_close(halves[0] + halves[1], whole, rtol=1e-6, atol=1e-9)
    a, b = halves[0] * 3 / 2, halves[1] * 3
    metrics = make_trainer(model_config).update(batch).metrics
    assert metrics["grad_noise/signal_sq"] == pytest.approx(a.dot(b).item(), rel=1e-5)
    assert metrics["grad_noise/noise_tr"] == pytest.approx((a - b).square().sum().item() * 2 / 9, rel=1e-5)


def test_gradient_noise_can_be_off_and_does_not_move_the_weights(
    model_config: ModelConfig, make_batch: BatchMaker
) -> None:
    batch = make_batch()
    on, off = make_trainer(model_config), make_trainer(model_config, grad_noise=False)
    with_noise, without = on.update(batch).metrics, off.update(batch).metrics
    assert "grad_noise/signal_sq" in with_noise and not any(k.startswith("grad_noise") for k in without)
    torch.testing.assert_close(on._flat.values, off._flat.values, rtol=1e-9, atol=1e-12)
    later = on.update(batch).metrics  # not measured again at version 1; the smoothed value stays
    assert later["grad_noise/signal_sq"] == with_noise["grad_noise/signal_sq"]


def test_nan_guard(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    trainer = make_trainer(model_config)
    before = trainer._flat.values.clone()
    bad = make_batch()
    object.__setattr__(bad.rows_B[3], "advantage", math.inf)
    for n in (1, 2):
        result = trainer.update(bad)
        assert result.skipped and trainer.version == 0 and len(trainer.skipped) == n
        assert sum(result.flops_train_B) > 0
    assert torch.equal(trainer._flat.values, before)
    assert trainer.skipped[0]["chains"] == [["p-0", 0], ["p-1", 0], ["p-2", 0], ["p-3", 0]]
    assert not trainer.update(batch).skipped and trainer.version == 1  # a good one starts the count again
    trainer.update(bad)
    trainer.update(bad)
    with pytest.raises(TrainingDiverged, match=r"3 updates in a row at version 1 .* p-0.*learning_rate"):
        trainer.update(bad)
    assert trainer.optimizer_steps == 1


def test_rows_of_a_skipped_minibatch_were_not_applied(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    bad = make_batch()
    object.__setattr__(bad.rows_B[0], "advantage", math.inf)
    result = make_trainer(model_config, minibatches=2).update(bad)
    applied = [result.applied(i) for i in range(len(bad.rows_B))]
    assert not result.skipped and result.metrics["skipped_steps"] == 1
    same_chain = bad.rows_B[0].rollout.request.chain_id
    assert not any(a for a, row in zip(applied, bad.rows_B, strict=True) if row.rollout.request.chain_id == same_chain)
    assert any(applied)


def test_an_empty_batch_is_an_error(model_config: ModelConfig) -> None:
    with pytest.raises(ValueError, match="nothing to train on"):
        make_trainer(model_config).update(TrainBatch((), 0, 0, 0))


def test_resume_equals_an_uninterrupted_run(model_config: ModelConfig, tmp_path: Path, make_batch: BatchMaker) -> None:
    options: dict[str, Any] = {
        "schedule": "cosine", "decay_updates": 8, "warmup_updates": 2, "learning_rate": 0.01, "weight_decay": 0.1,
        "kl_coef": 0.1, "loss": "ppo_clip", "minibatches": 2,
    }  # fmt: skip
    straight = make_trainer(model_config, **options)
    metrics = [straight.update(make_batch(i)).metrics for i in range(6)]
    first = make_trainer(model_config, **options)
    for i in range(3):
        first.update(make_batch(i))
    write_checkpoint(tmp_path, first.version, {"trainer": first.state_dict()})
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    second = make_trainer(model_config, **options)
    second.load_state_dict(load_tree(latest)["trainer"])
    assert second.version == 3
    resumed = [second.update(make_batch(i)).metrics for i in range(3, 6)]
    assert torch.equal(second._flat.values, straight._flat.values)
    np.testing.assert_equal(resumed, metrics[3:])


def test_a_state_of_another_model_is_refused(model_config: ModelConfig) -> None:
    trainer = make_trainer(model_config)
    state = trainer.state_dict()
    state["weights"] = {("other" if k == "model.norm.weight" else k): v for k, v in state["weights"].items()}
    with pytest.raises(ValueError, match="saved weights are of another model"):
        trainer.load_state_dict(state)


def test_weights_have_the_model_s_names_and_follow_updates(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    trainer = make_trainer(model_config)
    assert isinstance(trainer, Trainer)
    fresh = load_policy(model_config).model
    names = {n for n, _ in fresh.named_parameters()}
    assert trainer.weights().keys() == names and not any(w.requires_grad for w in trainer.weights().values())
    trainer.update(make_batch())
    moved = trainer.weights()
    fresh.load_state_dict(moved, strict=False)
    ids = torch.tensor([[2, 3, 4]])
    assert torch.equal(fresh(ids).logits, trainer.policy.model(ids).logits)


def test_bfloat16_trains_a_float32_master(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    model = model_config.model_copy(update={"dtype": "bfloat16"})
    trainer = make_trainer(model, learning_rate=1e-5)
    start = trainer._flat.values.clone()
    for i in range(4):
        assert not trainer.update(make_batch(i)).skipped
    assert (
        trainer._flat.values.dtype == torch.float32 and trainer.weights()["model.norm.weight"].dtype == torch.bfloat16
    )
    moved = (trainer._flat.values - start).abs().max().item()
    assert 1e-5 < moved < 1e-4  # far below what bfloat16 can hold next to 0.3
    rounded = trainer._flat.named(trainer._flat.values)["model.embed_tokens.weight"].to(torch.bfloat16)
    assert torch.equal(rounded, trainer.weights()["model.embed_tokens.weight"])


def test_bfloat16_gradient_is_close_to_float32(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    grads = []
    for dtype in ("float64", "bfloat16"):
        trainer = make_trainer(model_config.model_copy(update={"dtype": dtype}), tokens_per_microbatch=40)
        grads.append(gradients(trainer, batch)[0].double())
    assert (grads[1] - grads[0]).norm() < 0.1 * grads[0].norm()


def test_gradient_checkpointing_changes_nothing(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch()
    results = []
    for on in (False, True):
        trainer = make_trainer(model_config.model_copy(update={"gradient_checkpointing": on}))
        results += gradients(trainer, batch)
        assert not trainer.policy.model.training
    assert torch.equal(results[0], results[1])


def test_lora(model_config: ModelConfig, tmp_path: Path, make_batch: BatchMaker) -> None:
    model = model_config.model_copy(update={"lora": LoraConfig(rank=2, dropout=0.1)})
    batch = make_batch()
    trainer = make_trainer(model, learning_rate=0.02, kl_coef=0.1)
    start = {k: v.clone() for k, v in trainer.weights().items()}
    first = trainer.update(batch)
    assert first.metrics["kl"] < 0.5
    for i in range(4):
        trainer.update(make_batch(i))
    moved = trainer.weights()
    assert moved.keys() == {n for n, _ in load_policy(model_config).model.named_parameters()}
    assert not torch.equal(
        moved["model.layers.0.self_attn.q_proj.weight"], start["model.layers.0.self_attn.q_proj.weight"]
    )
    assert torch.equal(moved["model.embed_tokens.weight"], start["model.embed_tokens.weight"])
    ids = torch.tensor([[2, 3, 4]])
    expected = trainer.policy.model(ids).logits
    merged = load_policy(model_config).model
    merged.load_state_dict(moved, strict=False)
    torch.testing.assert_close(merged(ids).logits, expected, rtol=1e-9, atol=1e-9)
    assert all("lora_" in name for name in trainer.state_dict()["weights"])
    again = make_trainer(model, learning_rate=0.02, kl_coef=0.1)
    again.load_state_dict(trainer.state_dict())
    a, b = trainer.update(batch).metrics, again.update(batch).metrics
    np.testing.assert_equal(a, b)  # adapter dropout draws the same masks
    export_model(trainer.policy, tmp_path / "model")
    exported = load_policy(model_config.model_copy(update={"path": str(tmp_path / "model")})).model
    torch.testing.assert_close(exported(ids).logits, trainer.policy.model(ids).logits, rtol=1e-9, atol=1e-9)


def test_cut_keeps_every_loss_token_once(model_config: ModelConfig, make_batch: BatchMaker) -> None:
    batch = make_batch(groups=6, masked=True)
    shape = load_policy(model_config).shape
    expected = sorted(
        (i, int(token))
        for i, r in enumerate(batch.rows_B)
        for token in r.rollout.completion_ids_T[r.rollout.loss_mask_T]
    )
    for budget in (1, 30, 60, 10_000):
        for share in (True, False):
            for halves in (True, False):
                micro, _ = cut(batch.rows_B, range(30), shape, budget=budget, share=share, halves=halves)
                found = sorted((int(i), int(t)) for m in micro for i, t in zip(m.rows_N, m.targets_N, strict=True))
                assert found == expected
                assert all(m.ids_RT.size <= budget or len(m.ids_RT) == 1 for m in micro)
                if halves:
                    assert [m.half for m in micro] == sorted(m.half for m in micro)
                    assert all(batch.rows_B[i].half == m.half for m in micro for i in m.rows_N)
