"""The scripted trainer: exact policy gradient of Bernoulli policies, exact FLOPs."""

from math import comb

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.flops import forward_flops, train_flops
from gumption.rollouts.scripted import ScriptedTrainer, pass_rate
from gumption.testing import copy_state, problem
from gumption.types import Attempt, Request, TrainBatch, TrainRow


def trainer(training=None, **options):
    config = RunConfig.from_dict({"rollouts": {"options": options}, "training": training or {}})
    return ScriptedTrainer(config)


def rows(p, texts, advantages, *, weight=1.0, tokens=3):
    attempt = Attempt.empty(Request(p, len(texts)))
    attempt.texts_G = tuple(texts)
    attempt.prompt_ids_T = np.zeros(7, np.int32)
    attempt.completion_ids_T = np.zeros(tokens * len(texts), np.int32)
    attempt.offsets_G1 = np.arange(len(texts) + 1) * tokens
    return [TrainRow(attempt.rollout(i), a, weight, 0) for i, a in enumerate(advantages)]


def batch(*parts, sequences=None):
    all_rows = tuple(row for part in parts for row in part)
    return TrainBatch(all_rows, 0, sequences or len(all_rows), 1)


def test_gradient_of_one_group_by_hand():
    """p = .25, a success (A = .75), three failures (A = −.25): Σ A·s = .75·.75 + 3·.25·.25 = .75; ÷ 4 sequences."""
    p = problem("x", pass_rate=0.25)
    t = trainer(learning_rate=2.0)
    result = t.update(batch(rows(p, "1000", [0.75, -0.25, -0.25, -0.25])))
    assert t.weights() == {"x": pytest.approx(2.0 * 0.75 / 4)}
    assert result.metrics["grad_norm"] == pytest.approx(0.75 / 4)
    assert t.version == 1 and not result.skipped


def test_gradient_uses_the_current_policy_and_the_weights_of_rows():
    p = problem("x", pass_rate=0.25)
    t = trainer(learning_rate=1.0)
    t.update(batch(rows(p, "1", [1.0]), sequences=1))
    now = pass_rate(p, t.weights())
    before = t.weights()["x"]
    t.update(batch(rows(p, "0", [-2.0], weight=0.5), sequences=4))
    assert t.weights()["x"] == pytest.approx(before + 0.5 * -2.0 * -now / 4)


def test_expected_gradient_is_that_of_the_pass_rate():
    """Centered advantages are unbiased up to (n − 1)/n: E[Σ A s]/n = (1 − 1/n)·p(1 − p), by enumeration."""
    n, rate = 6, 0.3
    expected = 0.0
    for k in range(n + 1):
        chance = comb(n, k) * rate**k * (1 - rate) ** (n - k)
        texts = "1" * k + "0" * (n - k)
        advantages = [float(c == "1") - k / n for c in texts]
        t = trainer(learning_rate=1.0)
        t.update(batch(rows(problem("x", pass_rate=rate), texts, advantages)))
        expected += chance * t.weights()["x"]
    assert expected == pytest.approx((1 - 1 / n) * rate * (1 - rate))


def test_frozen_by_default():
    t = trainer()
    t.update(batch(rows(problem("x"), "10", [0.5, -0.5])))
    assert t.weights() == {} and t.version == 1


@pytest.mark.parametrize(
    ("training", "passes", "scorings"),
    [({}, 1, 0), ({"kl_coef": 0.1}, 1, 1), ({"passes": 3}, 3, 1), ({"minibatches": 2, "kl_coef": 0.1}, 1, 2)],
)
def test_flops_per_row(training, passes, scorings):
    t = trainer(training)
    b = batch(rows(problem("x"), "10", [0.5, -0.5], tokens=3))
    estimate = t.estimate_flops(b)
    result = t.update(b)
    assert result.flops_train_B == (passes * train_flops(t.shape, 10),) * 2
    assert result.flops_score_B == (scorings * forward_flops(t.shape, 10),) * 2
    assert estimate == sum(result.flops_train_B) + sum(result.flops_score_B)


def test_weights_are_a_copy():
    t = trainer(learning_rate=1.0)
    old = t.weights()
    t.update(batch(rows(problem("x"), "10", [0.5, -0.5])))
    assert old == {}


def test_state_round_trip():
    first, second = trainer(learning_rate=1.0), trainer(learning_rate=1.0)
    b = batch(rows(problem("x"), "10", [0.5, -0.5]), rows(problem("y"), "11", [0.1, 0.2]))
    first.update(b)
    second.load_state_dict(copy_state(first.state_dict()))
    first.update(b)
    second.update(b)
    assert second.weights() == first.weights() and second.version == first.version == 2


def test_empty_batch():
    assert trainer(learning_rate=1.0).update(batch()).metrics == {"grad_norm": 0.0}
