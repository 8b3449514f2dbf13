"""Losses by hand, against a slow float64 loop, and against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gumption.training.losses import cispo, clipped, k3, ppo_clip, reinforce, truncated_importance

N = 200
LOW, HIGH, CISPO = 0.2, 0.28, 1.5


@pytest.fixture
def data() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    logp = rng.normal(-2.0, 0.5, N)
    return {
        "logp": torch.tensor(logp),
        "old": torch.tensor(logp + rng.normal(0, 0.4, N)),
        "behaviour": torch.tensor(logp + rng.normal(0, 1.0, N)),
        "advantage": torch.tensor(rng.normal(0, 1, N)),
    }


def slow(name: str, x: dict[str, torch.Tensor], i: int, logp: float | None = None) -> float:
    """The formulas of algorithms.md section 4 in plain Python; detached factors stay at the point of evaluation."""
    at = x["logp"][i].item()
    logp = at if logp is None else logp
    old, behaviour, adv = float(x["old"][i]), float(x["behaviour"][i]), float(x["advantage"][i])
    numerator = at if name == "reinforce" else old
    w = min(math.exp(max(-10.0, min(10.0, numerator - behaviour))), 2.0)
    if name == "reinforce":
        return -w * adv * logp
    if name == "cispo":
        return -w * min(math.exp(at - old), CISPO) * adv * logp
    r = math.exp(logp - old)
    return -w * min(r * adv, max(1 - LOW, min(1 + HIGH, r)) * adv)


def fast(name: str, x: dict[str, torch.Tensor]) -> torch.Tensor:
    numerator = x["logp"] if name == "reinforce" else x["old"]
    w = truncated_importance(numerator, x["behaviour"], 2.0)
    if name == "reinforce":
        return reinforce(x["logp"], x["advantage"], w)
    if name == "cispo":
        return cispo(x["logp"], x["old"], x["advantage"], w, high=CISPO)
    return ppo_clip(x["logp"], x["old"], x["advantage"], w, low=LOW, high=HIGH)


@pytest.mark.parametrize("name", ["reinforce", "ppo_clip", "cispo"])
def test_values_equal_a_slow_loop(name: str, data: dict[str, torch.Tensor]) -> None:
    expected = [slow(name, data, i) for i in range(N)]
    np.testing.assert_allclose(fast(name, data).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["reinforce", "ppo_clip", "cispo"])
def test_gradient_equals_finite_differences(name: str, data: dict[str, torch.Tensor]) -> None:
    data["logp"].requires_grad_()
    fast(name, data).sum().backward()
    h = 1e-6
    for i in range(N):
        at = data["logp"][i].item()
        numeric = (slow(name, data, i, at + h) - slow(name, data, i, at - h)) / (2 * h)
        assert float(data["logp"].grad[i]) == pytest.approx(numeric, rel=1e-4, abs=1e-7)  # type: ignore[index]


def test_truncated_importance_by_hand() -> None:
    logp = torch.tensor([-1.0, -1.0, -1.0, -30.0, -1.0])
    behaviour = torch.tensor([-1.0, -1.5, -3.0, -1.0, -0.5])
    expected = [1.0, math.exp(0.5), 2.0, math.exp(-10.0), math.exp(-0.5)]
    assert truncated_importance(logp, behaviour).tolist() == pytest.approx(expected)


def test_ppo_by_hand() -> None:
    r = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1], dtype=torch.float64)
    adv = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0], dtype=torch.float64)
    logp = r.log().requires_grad_()
    loss = ppo_clip(logp, torch.zeros(5, dtype=torch.float64), adv)
    assert loss.tolist() == pytest.approx([-1.28, 1.5, -0.5, 0.8, -2.2])
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, 1.5, -0.5, 0.0, -2.2])
    low, high = clipped(logp, torch.zeros(5, dtype=torch.float64), adv, low=0.2, high=0.28)
    assert low.tolist() == [False, False, False, True, False] and high.tolist() == [True, False, False, False, False]


LOSSES: list[Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda p, old, a: reinforce(p, a),
    lambda p, old, a: ppo_clip(p, old, a),
    lambda p, old, a: cispo(p, old, a),
]


def test_on_policy_all_losses_have_the_same_gradient(data: dict[str, torch.Tensor]) -> None:
    grads = []
    for loss in LOSSES:
        logp = data["logp"].clone().requires_grad_()
        loss(logp, data["logp"], data["advantage"]).sum().backward()
        grads.append(logp.grad)
    assert torch.equal(grads[0], -data["advantage"])  # type: ignore[arg-type]
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0], rtol=1e-12, atol=0)


def test_on_policy_the_correction_is_one(data: dict[str, torch.Tensor]) -> None:
    assert torch.equal(truncated_importance(data["logp"], data["logp"]), torch.ones(N, dtype=torch.float64))


@given(st.floats(-30, 0), st.floats(-30, 0))
def test_k3_is_a_divergence(logp: float, reference: float) -> None:
    value = k3(torch.tensor(logp, dtype=torch.float64), torch.tensor(reference, dtype=torch.float64)).item()
    assert value >= 0.0
    assert (value == 0.0) == (logp == reference) or abs(logp - reference) < 1e-7


def test_k3_is_unbiased_for_the_kl() -> None:
    p, q = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]], dtype=torch.float64)
    exact = (p * (p / q).log()).sum()
    assert (p * k3(p.log(), q.log())).sum().item() == pytest.approx(exact.item(), rel=1e-12)
