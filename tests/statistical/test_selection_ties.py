"""Ties are broken evenly over positions: position is completion order, and completion order is length."""

import numpy as np
from scipy.stats import chisquare

from gumption.selection.leverage import smallest_share


def test_every_member_of_a_class_is_kept_equally_often():
    """5 of 8 equal members kept, 3,000 draws. Kept counts vary less than multinomial ones (without replacement), so the
    χ² test at 1e-6 has a false-alarm probability below 1e-6; the seed is fixed.
    """
    rng = np.random.default_rng(0)
    leverage_G = np.array([3.0] * 8 + [0.1] * 24)
    counts = np.zeros(8)
    for _ in range(3000):
        kept_J = smallest_share(leverage_G, leverage_G > 1, 15.0 / leverage_G.sum(), rng)
        assert kept_J.size == 5
        counts[kept_J] += 1
    assert chisquare(counts).pvalue > 1e-6


def test_the_extra_place_of_an_odd_tie_goes_to_each_class_half_the_time():
    """2,000 draws, fixed seed: 5 standard deviations of a fair coin are 112, a false alarm in 1 of 1.7 million."""
    rng = np.random.default_rng(1)
    positive_G = np.arange(10) < 5
    more = sum(
        int(positive_G[smallest_share(np.ones(10), positive_G, 0.5, rng)].sum() == 3) for _ in range(2000)
    )  # fmt: skip
    assert abs(more - 1000) < 112
