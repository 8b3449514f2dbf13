"""Rows of algorithms.md 2.4 and E[N] lists for `reinforce_ada` and `pods`: by independent enumeration, then by recipe.

The configured tests run where the rules are installed.
"""

from math import comb

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.planning.objective import curve

P = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
ROWS = {
    "pods": [3.51, 3.12, 2.46, 1.56, 1.19, 1, 1.19, 1.56, 2.46, 3.12],
    "positive": [6.04, 4.39, 2.88, 1.70, 1.26, 1, 1.18, 1.39, 1.62, 1.73],
    "balanced": [7.17, 5.86, 3.95, 2.04, 1.35, 1, 1.35, 2.04, 3.95, 5.86],
}
ROLLOUTS = {
    "positive": ([0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5], [28.5, 25.5, 19.2, 13.6, 9.6, 8.5, 8.0]),
    "balanced": (P.tolist(), [30.9, 27.3, 21.0, 13.4, 10.3, 8.6, 10.3, 13.4, 21.0, 27.3]),
}


def relative(endings, p_P=P):
    """w/w(½) from rows (weight, N, K, α, β)."""

    def w(p):
        return sum(c * p**k * (1 - p) ** (n - k) * (a / p + b / (1 - p)) for c, n, k, a, b in endings)

    return np.array([w(p) for p in p_P]) / w(0.5)


def pool(leave, rounds=4, size=8):
    """Endings (weight, N, K) of rounds that go on until `leave(K, M)`."""
    alive, ended = {0: 1}, []
    for r in range(1, rounds + 1):
        new = {}
        for k, c in alive.items():
            for j in range(size + 1):
                new[k + j] = new.get(k + j, 0) + c * comb(size, j)
        n, alive = r * size, {}
        for k, c in new.items():
            if leave(k, n - k) or r == rounds:
                ended.append((c, n, k))
            else:
                alive[k] = c
    return ended


def ada(leave, keep=4):
    """Reinforce-Ada: half of each class where possible, the baseline over the whole pool, the mean over `keep`."""
    rows = []
    for c, n, k in pool(leave):
        m = n - k
        right = min(k, max(keep // 2, keep - m))
        wrong = keep - right
        rows.append((c, n, k, right * (1 - k / n) / keep, wrong * (k / n) / keep))
    return rows


LEAVE = {"positive": lambda k, m: k >= 1, "balanced": lambda k, m: k >= 2 and m >= 2}


def pods(n=64, keep=16):
    """Max-variance subset of 0/1 rewards, with the subset's own mean."""
    rows = []
    for k in range(n + 1):
        right = min(k, max(keep // 2, keep - (n - k)))
        mean = right / keep
        a = right * (1 - mean) / keep
        rows.append((comb(n, k), n, k, a, a))
    return rows


@pytest.mark.parametrize("name", ["positive", "balanced"])
def test_reinforce_ada_by_hand(name):
    assert relative(ada(LEAVE[name])) == pytest.approx(ROWS[name], abs=0.02)
    p, row = ROLLOUTS[name]
    found = [sum(c * q**k * (1 - q) ** (n - k) * n for c, n, k in pool(LEAVE[name])) for q in p]
    assert found == pytest.approx(row, abs=0.06)


def test_pods_by_hand():
    assert relative(pods()) == pytest.approx(ROWS["pods"], abs=0.02)


@pytest.mark.parametrize("name", ["positive", "balanced"])
def test_reinforce_ada_by_recipe(name):
    pytest.importorskip("gumption.allocation.reinforce_ada")
    config = RunConfig.from_dict(
        {"allocation": {"rule": "reinforce_ada", "exit": name}, "credit": {"advantage": "chain"},
         "selection": {"rule": "all"}}
    )  # fmt: skip
    c = curve(config, P)
    assert c.exact
    assert c.relative_P == pytest.approx(ROWS[name], abs=0.02)
    p, row = ROLLOUTS[name]
    assert curve(config, p).rollouts_P == pytest.approx(row, abs=0.06)


@pytest.mark.parametrize("recompute", [True, False])
def test_pods_by_recipe(recompute):
    """As published, with the subset's own mean; else with that of the full group. The share is exact either way."""
    pytest.importorskip("gumption.selection.pods")
    config = RunConfig.from_dict(
        {"allocation": {"rule": "fixed", "group_size": 64}, "credit": {"advantage": "centered"},
         "selection": {"rule": "pods", "keep": 16, "recompute": recompute}}
    )  # fmt: skip
    c = curve(config, P)
    assert c.exact
    mixed_P = 1 - P**64 - (1 - P) ** 64
    assert c.share_P == pytest.approx(mixed_P * 16 / 64, rel=1e-6)
    rows = []
    for k in range(1, 64):
        right = min(k, max(8, 16 - (64 - k)))
        rows.append((comb(64, k), 64, k, right * (1 - k / 64), (16 - right) * k / 64))
    assert c.relative_P == pytest.approx(ROWS["pods"] if recompute else relative(rows), abs=0.02)
