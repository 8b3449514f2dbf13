"""Credit against `reference.json`, which `make_reference.py` computes without gumption."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, nbinom

from gumption.credit import bits
from gumption.credit.advantage import GROUP_ADVANTAGES, chain
from gumption.credit.leverage import binary

REFERENCE = json.loads(Path(__file__).with_name("reference.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(GROUP_ADVANTAGES))
@pytest.mark.parametrize("case", REFERENCE["group"], ids=lambda c: str(c["rewards"]))
def test_group_advantages(name, case):
    assert GROUP_ADVANTAGES[name](case["rewards"]) == pytest.approx(case["advantages"][name], abs=1e-12)


@pytest.mark.parametrize("rescale", ["anchor_pos", "ratio", "count_ratio", "none"])
@pytest.mark.parametrize("case", REFERENCE["chain"], ids=lambda c: f"{c['rewards']}of{c['count']}")
def test_chain_advantages(rescale, case):
    counts = {"count": case["count"], "reward_sum": case["reward_sum"]}
    advantages_G = chain(case["rewards"], **counts, rescale=rescale)
    assert advantages_G == pytest.approx(case["advantages"][rescale], abs=1e-12)


@pytest.mark.parametrize("case", REFERENCE["chain"], ids=lambda c: f"{c['rewards']}of{c['count']}")
def test_chain_max_rl(case):
    advantages_G = chain(
        case["rewards"], count=case["count"], reward_sum=case["reward_sum"], attempt_rate=case["attempt_rate"]
    )
    assert advantages_G == pytest.approx(case["advantages"]["max_rl"], abs=1e-12)


def test_entropy():
    p, expected = np.array(REFERENCE["entropy"]).T
    assert bits.binary_entropy(p) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("rewards", "expected"), REFERENCE["histogram"], ids=str)
def test_histogram_entropy(rewards, expected):
    assert bits.histogram_entropy(rewards, corrected=False) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("case", REFERENCE["beta"], ids=lambda c: f"{c['a']},{c['b']}")
def test_beta_posteriors(case):
    a, b = case["a"], case["b"]
    assert float(bits.expected_entropy(a, b)) == pytest.approx(case["expected_entropy"], abs=1e-8)
    assert float(bits.pass_rate_information(a, b)) == pytest.approx(case["pass_rate_information"], abs=1e-6)
    assert float(bits.outcome_information(a, b, True)) == pytest.approx(case["success"], abs=1e-6)
    assert float(bits.outcome_information(a, b, False)) == pytest.approx(case["failure"], abs=1e-6)


def binomial(n, p):
    k = np.arange(n + 1)
    return k, binom.pmf(k, n, p)


@pytest.mark.parametrize(("p", "n", "expected"), REFERENCE["miller_madow"])
def test_miller_madow_mean(p, n, expected):
    k, weight = binomial(n, p)
    assert float(weight @ bits.group_entropy(k, n)) == pytest.approx(expected, abs=1e-12)


def test_miller_madow_table():
    """At p = .5 for G = 4, 8, 16, 32: plug-in .78 .90 .95 .98, corrected .94 .99 1.00 1.00; .097 at p = .02, G = 8."""
    assert [round(v, 2) for _, v in REFERENCE["plug_in_at_half"]] == [0.78, 0.90, 0.95, 0.98]
    means = {}
    for p, n in [(0.5, 4), (0.5, 8), (0.5, 16), (0.5, 32), (0.02, 8)]:
        k, weight = binomial(n, p)
        means[p, n] = float(weight @ bits.group_entropy(k, n))
    assert [round(means[0.5, n], 2) for n in (4, 8, 16, 32)] == [0.94, 0.99, 1.00, 1.00]
    assert means[0.02, 8] == pytest.approx(0.097, abs=5e-4)
    assert float(bits.binary_entropy(0.02)) == pytest.approx(0.141, abs=5e-4)


@pytest.mark.parametrize(("p", "error", "expected"), REFERENCE["noisy"])
def test_noisy_verifier_is_the_mutual_information_of_truth_and_report(p, error, expected):
    assert float(bits.noisy_verifier_entropy(p, error)) == pytest.approx(expected, abs=1e-12)


def test_mean_of_the_rate_when_stopping_at_the_first_success():
    p, expected = np.array(REFERENCE["first_success"]).T
    assert bits.first_success_mean(p) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("r", [2, 3, 8])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.7])
def test_haldane_is_unbiased_when_stopping_at_success_r(r, p):
    """Σ_N P(N)·(r − 1)/(N − 1) = p with P(N) = C(N−1, r−1) p^r q^(N−r); the naive r/N is above p."""
    drawn = np.arange(r, 2000)
    weight = nbinom.pmf(drawn - r, r, p)
    assert float(weight @ bits.haldane_rate(r, drawn)) == pytest.approx(p, abs=1e-9)
    assert float(weight @ (r / drawn)) > p + 0.01


def test_leverage_loop():
    for size in (2, 5, 16):
        for successes in range(1, size):
            p = successes / size
            expected = [(1 - p) / p if i < successes else p / (1 - p) for i in range(size)]
            assert binary(np.arange(size) < successes, p) == pytest.approx(expected, rel=1e-12)
