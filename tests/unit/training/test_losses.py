"""Losses by hand, against a slow float64 loop, and against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gumption.config import TrainingConfig
from gumption.training.corrections import correction, importance, masked_importance, truncated_importance
from gumption.training.losses import cispo, clipped, gspo, k3, ppo_clip, reinforce, sequence_log_ratio

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
    low, high = clipped(logp, adv, low=0.2, high=0.28)
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


SEQUENCES = torch.tensor([0] * 50 + [3] * 20 + [1] * 129 + [9])
"""Rows of the N tokens: four sequences, one of a single token."""


def slow_gspo(x: dict[str, torch.Tensor], logp: torch.Tensor, adv: torch.Tensor, low: float, high: float) -> float:
    """The sequence form: one surrogate per sequence, no tokens in sight."""
    total = 0.0
    for row in (0, 3, 1, 9):
        mine = row == SEQUENCES
        s = math.exp(float((logp[mine] - x["old"][mine]).mean()))
        a = float(adv[mine][0])
        total -= min(s * a, max(1 - low, min(1 + high, s)) * a)
    return total


@pytest.mark.parametrize("bounds", [(0.2, 0.28), (0.01, 0.01)])
def test_gspo_equals_its_sequence_form(data: dict[str, torch.Tensor], bounds: tuple[float, float]) -> None:
    """Value and gradient, clipped and not; the token form must be the sequence form, spread."""
    low, high = bounds
    adv = torch.tensor([1.3, -0.7, 0.4, -2.0], dtype=torch.float64)[SEQUENCES.unique(return_inverse=True)[1]]
    logp = data["logp"].clone().requires_grad_()
    ratio, lengths = sequence_log_ratio(logp, data["old"], SEQUENCES)
    loss = gspo(logp, ratio, lengths, adv, low=low, high=high).sum()
    assert loss.item() == pytest.approx(slow_gspo(data, data["logp"], adv, low, high), rel=1e-12)
    loss.backward()
    assert logp.grad is not None
    h = 1e-6
    for i in (0, 49, 50, 69, 70, 198, 199):
        moved = [data["logp"].clone(), data["logp"].clone()]
        moved[0][i] += h
        moved[1][i] -= h
        up, down = (slow_gspo(data, m, adv, low, high) for m in moved)
        assert float(logp.grad[i]) == pytest.approx((up - down) / (2 * h), rel=1e-4, abs=1e-8)
    below, above = clipped(ratio, adv, low=low, high=high)
    assert torch.equal(logp.grad == 0, below | above)


def test_on_policy_gspo_is_the_mean_over_each_sequence(data: dict[str, torch.Tensor]) -> None:
    logp = data["logp"].clone().requires_grad_()
    ratio, lengths = sequence_log_ratio(logp, data["logp"], SEQUENCES)
    gspo(logp, ratio, lengths, torch.ones(N, dtype=torch.float64)).sum().backward()
    expected = [-1 / 50] * 50 + [-1 / 20] * 20 + [-1 / 129] * 129 + [-1.0]
    assert logp.grad is not None and logp.grad.tolist() == pytest.approx(expected, rel=1e-12)


def test_masks_by_hand() -> None:
    """Ratios .4, .5, 1, 2, 2.1, 5, 5.1: what is out of bounds has weight 0, what is inside keeps its own."""
    ratio = torch.tensor([0.4, 0.5001, 1.0, 1.9999, 2.1, 4.999, 5.1], dtype=torch.float64)
    zero = torch.zeros(7, dtype=torch.float64)
    mis = masked_importance(ratio.log(), zero)
    assert mis.tolist() == pytest.approx([0.4, 0.5001, 1.0, 1.9999, 0, 0, 0])
    icepop = masked_importance(ratio.log(), zero, 0.5, 5.0)
    assert icepop.tolist() == pytest.approx([0, 0.5001, 1.0, 1.9999, 2.1, 4.999, 0])
    assert importance(ratio.log(), zero).tolist() == pytest.approx(ratio.tolist())
    assert importance(torch.tensor([30.0]), torch.tensor([0.0])).item() == pytest.approx(math.exp(10))


@pytest.mark.parametrize(
    ("loss", "name", "expected"),
    [
        ("reinforce", "none", None),
        ("ppo_clip", "tis", [0.4, 1.0, 2.0, 2.0]),
        ("gspo", "mis", [0.4, 1.0, 0.0, 0.0]),
        ("cispo", "icepop", [0.0, 1.0, 3.0, 0.0]),
        ("decoupled_ppo", "none", [0.4, 1.0, 3.0, 6.0]),
        ("decoupled_ppo", "mis", [0.4, 1.0, 0.0, 0.0]),
    ],
)
def test_the_weight_that_a_run_names(loss: str, name: str, expected: list[float] | None) -> None:
    ratio = torch.tensor([0.4, 1.0, 3.0, 6.0], dtype=torch.float64)
    config = TrainingConfig.model_validate({"loss": loss, "correction": name})
    weight = correction(config, ratio.log(), torch.zeros(4, dtype=torch.float64))
    assert (weight if weight is None else weight.tolist()) == (
        expected if expected is None else pytest.approx(expected)
    )


def test_decoupled_ppo_keeps_clip_and_behaviour_apart(data: dict[str, torch.Tensor]) -> None:
    """arXiv 2505.24298 in plain Python: the clip looks at π/π_prox, the weight is π_prox/μ; together π/μ."""
    config = TrainingConfig(loss="decoupled_ppo", correction="none")
    w = correction(config, data["old"], data["behaviour"])
    got = ppo_clip(data["logp"], data["old"], data["advantage"], w, low=LOW, high=HIGH)
    for i in range(N):
        logp, prox, mu, adv = (float(data[k][i]) for k in ("logp", "old", "behaviour", "advantage"))
        u = math.exp(logp - prox)
        expected = -math.exp(prox - mu) * min(u * adv, max(1 - LOW, min(1 + HIGH, u)) * adv)
        assert got[i].item() == pytest.approx(expected, rel=1e-9)
