"""Curves, names and caveats; simulation agrees with enumeration."""

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.planning.caveats import caveats
from gumption.planning.explanation import explain
from gumption.planning.objective import CLOSE, curve, implied_weight, name_objective, rule_of
from gumption.planning.sampling import sample_chains
from gumption.testing import group_credit_of, scored_group

P = np.array([0.05, 0.1, 0.2, 0.5, 0.8, 0.95])


def test_weight_is_what_a_policy_gradient_measures(rules):
    """Bernoulli policies: the mean of Σ a·S over simulated chains is w(p)·∂p/∂θ with S = 1 − p or −p, θ the logit.

    A z-test at |z| < 4.5: a false alarm in 1.5·10⁵ draws of the seed.
    """
    config = rules.ngu(4, 3, "leverage", retry=0.75)
    rule, p = rule_of(config), 0.3
    [chains] = sample_chains(config, rule, np.array([p]), groups=1, budget=12_000)
    gradients = np.array([c.sums.alpha * (1 - p) + c.sums.beta * p for c in chains])
    expected = implied_weight(config, p) * p * (1 - p)
    assert abs(gradients.mean() - expected) < 4.5 * gradients.std(ddof=1) / np.sqrt(len(gradients))


def test_simulation_agrees_with_enumeration(rules, monkeypatch):
    """Each rate within 4.5 standard errors: a false alarm in 2·10⁴ draws of the seed."""
    config = rules.ngu(8, 4, "leverage")
    exact = curve(config, P)
    monkeypatch.setattr("gumption.planning.sampling.BUDGET", 25_000)
    monkeypatch.setattr("gumption.planning.objective.looks_at_batch", lambda rule, endings: True)
    seeded = config.model_copy(update={"seed": 1})  # another key of the cache
    simulated = curve(seeded, P)
    assert exact.exact and not simulated.exact
    assert (simulated.error_P > 0).all()
    assert (np.abs(simulated.w_P - exact.w_P) < 4.5 * simulated.error_P).all()
    assert simulated.rollouts_P == pytest.approx(exact.rollouts_P, rel=0.1)
    assert simulated.share_P == pytest.approx(exact.share_P, rel=0.25)


def test_rloo_is_the_yardstick(rules):
    """W = 1, effective rollouts n − 1, variance × rollouts n/(n − 1)."""
    c = curve(rules.fixed(4, credit={"advantage": "rloo"}), P, per="group")
    assert c.w_P == pytest.approx(np.ones(6))
    assert c.effective_P == pytest.approx(np.full(6, 3.0))
    assert c.variance_rollouts_P == pytest.approx(np.full(6, 4 / 3))
    mixed_P = 1 - P**4 - (1 - P) ** 4
    assert c.share_P == pytest.approx(mixed_P)
    assert c.cost_P == pytest.approx(4 + 3 * 4 * mixed_P)


def test_what_is_divided_by(rules):
    config = rules.fixed(8, "leverage", credit={"advantage": "centered"})
    summed, per_group, per_kept = (curve(config, P, per=per) for per in ("batch", "group", "kept"))
    assert summed.w_P == pytest.approx(8 * per_group.w_P)
    assert (per_kept.w_P >= per_group.w_P).all()
    assert summed.effective_P == pytest.approx(per_group.effective_P)


def test_averaging_over_what_is_kept_turns_the_weight_upside_down():
    """Leverage ½, groups of 32, at p = .1: 1.45 becomes 7.6 (relative to ½)."""
    config = RunConfig.from_dict(
        {"allocation": {"rule": "fixed", "group_size": 32}, "credit": {"advantage": "centered"}}
    )
    assert curve(config, [0.1, 0.5]).relative_P[0] == pytest.approx(1.45, abs=0.02)
    assert curve(config, [0.1, 0.5], per="kept").relative_P[0] == pytest.approx(7.6, abs=0.1)


def test_shapes_and_ranges(rules):
    config = rules.fixed(4)
    assert implied_weight(config, [[0.1, 0.2], [0.3, 0.4]]).shape == (2, 2)
    assert implied_weight(config, 0.5).shape == ()
    for p in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            implied_weight(config, p)


def test_nothing_trained_is_zero_and_infinite(rules):
    c = curve(rules.fixed(1), P)
    assert (c.w_P == 0).all() and (c.effective_P == 0).all() and np.isinf(c.variance_cost_P).all()
    assert name_objective(P, c.w_P).key == "none"


@pytest.mark.parametrize(
    ("w", "key", "nearest"),
    [
        (lambda p: np.full_like(p, 0.3), "expected_reward", "expected reward"),
        (lambda p: 2 / p, "log_likelihood", "log-likelihood"),
        (lambda p: (1 - (1 - p) ** 12) / p, "max_rl", "MaxRL(12)"),
        (lambda p: 1 / np.sqrt(p * (1 - p)), "arcsine", "Σ 2·arcsin √p (std-normalised groups)"),
        (lambda p: p**2, "none", "expected reward"),
    ],
)
def test_objectives_are_named_by_their_shape(w, key, nearest):
    name = name_objective(P, w(P))
    assert (name.key, name.nearest) == (key, nearest)
    assert (name.deviation <= CLOSE) == (key != "none")
    assert name.deviation < 1e-9 or key == "none"


def test_how_near_is_said():
    """Half the spread of the ratio: ±3 % is named, with its distance."""
    wobbly_P = 1 + 0.03 * np.array([1, -1, 1, -1, 1, -1])
    name = name_objective(P, wobbly_P)
    assert name.key == "expected_reward" and name.deviation == pytest.approx(0.0305, abs=1e-3)
    assert "within 3.0 %" in name.words or "within 3.1 %" in name.words


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"rewards": {"overlong_buffer": 8}}, "overlong_buffer = 8"),
        ({"rewards": {"options": {"mode": "per_test"}}}, "per_test"),
        ({"rewards": {"truncated": "mask"}}, "depends on length"),
        ({"training": {"passes": 2, "loss": "ppo_clip"}}, "ppo_clip clips"),
        ({"training": {"minibatches": 2}}, "off-policy"),
        ({"rollouts": {"weight_lag": 3}}, "weight_lag = 3"),
        ({"training": {"denominator": "tokens"}}, "tokens"),
        ({"training": {"kl_coef": 0.1}}, "kl_coef = 0.1"),
        ({"selection": {"count": "kept"}}, 'count = "kept"'),
    ],
)
def test_caveats_name_the_key(tables, words):
    assert any(words in line for line in caveats(RunConfig.from_dict(tables)))


def test_nothing_is_said_of_an_exact_recipe():
    tables = {"max_staleness": 0, "denominator": "sequences", "loss": "ppo_clip"}
    assert caveats(RunConfig.from_dict({"training": tables, "allocation": {"rule": "fixed"}})) == []


def test_explanations_are_finite_numbers_or_none(rules):
    for config in (rules.fixed(1), rules.ngu(4, 3, "leverage")):
        for row in explain("x", config).rows():
            assert all(value is None or np.isfinite(value) for value in row.values())


def test_batch_rules_are_simulated(rules, monkeypatch):
    """A credit over the whole batch: no exact curve, a standard error instead, and no exact objective."""
    from gumption.planning import exact

    def batch_mean(config):
        def credit(groups):
            mean = np.concatenate([g.rewards_G for g in groups]).mean() if groups else 0.0
            made = [group_credit_of(g) for g in groups]
            return [
                type(c)(g.rewards_G - mean, c.leverage_G, c.p_hat, c.bits) for g, c in zip(groups, made, strict=True)
            ]

        return credit

    monkeypatch.setattr(exact, "make_credit", batch_mean)
    monkeypatch.setattr("gumption.planning.sampling.BUDGET", 5_000)
    config = rules.fixed(6)
    assert scored_group([1.0]).size == 1
    c = curve(config, [0.2, 0.5])
    assert not c.exact and (c.error_P > 0).all()
    with pytest.raises(ValueError, match="one group at a time"):
        exact.solve_rule(exact.published_rule(config), 1)
