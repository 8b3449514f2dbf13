"""The tables of algorithms.md 2.4 and 3, driven by configurations: the real allocators, credit and selectors."""

import pytest

from gumption.config import RunConfig
from gumption.planning.objective import curve

P = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


def fixed(n, advantage, selection="all", share=0.5):
    return RunConfig.from_dict(
        {
            "allocation": {"rule": "fixed", "group_size": n},
            "credit": {"advantage": advantage},
            "selection": {"rule": selection, "share": share},
        }
    )


def ngu(selection):
    return RunConfig.from_dict({"allocation": {"max_attempts": "none"}, "selection": {"rule": selection}})


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        (fixed(16, "centered"), [1] * 10),
        (fixed(16, "grpo"), [1.86, 1.69, 1.47, 1.21, 1.08, 1, 1.08, 1.21, 1.47, 1.69]),
        (fixed(32, "centered", "leverage", 0.9), [1.10, 1.07, 1.03, 1.01, 1.01, 1, None, 1.01, 1.03, 1.07]),
        (fixed(32, "centered", "leverage", 0.5), [2.04, 1.77, 1.45, 1.25, 1.20, 1, None, 1.25, 1.45, 1.77]),
    ],
)
def test_fixed_groups(rule, row):
    relative = curve(rule, P, per="group").relative_P.tolist()
    for found, expected in zip(relative, row, strict=True):
        assert expected is None or found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("selection", "per", "row"),
    [
        ("all", "batch", [4.23, 2.55, 1.69, 1.20, 0.99]),
        ("all", "group", [1.92, 1.55, 1.29, 1.10, 1.00]),
        ("leverage", "batch", [8.29, 4.81, 2.98, 1.82, 1.78]),
        ("leverage", "group", [3.75, 2.93, 2.29, 1.67, 1.78]),
    ],
)
def test_never_give_up_without_a_cap(selection, per, row):
    c = curve(ngu(selection), P, per=per)
    assert c.exact
    assert c.relative_P[[0, 1, 2, 3, 8]].tolist() == pytest.approx(row, abs=0.02)


def test_never_give_up_costs_what_the_closed_form_says():
    """E[N] = 8·(1 + x/(1 − x)), x = .875·(1 − p)⁸."""
    c = curve(ngu("all"), P)
    again_P = 0.875 * (1 - c.p_P) ** 8
    assert c.rollouts_P == pytest.approx(8 / (1 - again_P), rel=1e-4)


@pytest.mark.parametrize(
    ("share", "row"),
    [
        (0.5, [0.053, 0.076, 0.145, 0.241, 0.400]),
        (0.6, [0.054, 0.083, 0.171, 0.287, 0.489]),
        (0.75, [0.062, 0.104, 0.224, 0.415, 0.666]),
        (0.88, [0.072, 0.176, 0.485, 0.704, 0.855]),
        (0.9, [0.083, 0.219, 0.554, 0.748, 0.875]),
    ],
)
def test_kept_share_of_mixed_groups(share, row):
    p = [0.05, 0.1, 0.2, 0.3, 0.5]
    c = curve(fixed(32, "centered", "leverage", share), p)
    mixed_P = 1 - c.p_P**32 - (1 - c.p_P) ** 32
    assert (c.share_P / mixed_P).tolist() == pytest.approx(row, abs=0.002)


@pytest.mark.parametrize("n", [2, 4, 16])
def test_max_rl_of_a_group_has_order_n_minus_one(n):
    c = curve(fixed(n, "max_rl"), P, per="group")
    assert c.w_P == pytest.approx((1 - (1 - c.p_P) ** (n - 1)) / c.p_P, rel=1e-9)
