"""The shipped selectors keep what every selector promises."""

import numpy as np

from gumption.selection import All, Leverage
from gumption.testing import SelectorTestCase


class TestAll(SelectorTestCase):
    def make(self):
        return All()


class TestLeverageHalf(SelectorTestCase):
    def make(self):
        return Leverage(0.5)


class TestLeverageOne(SelectorTestCase):
    def make(self):
        return Leverage(1.0)

    def test_a_mixed_group_is_kept_whole(self):
        groups, credits = self.batch(5, groups=20)
        mixed = [(g, c) for g, c in zip(groups, credits, strict=True) if 0 < g.rewards_G.sum() < g.size]
        assert len(mixed) > 10
        for group, selection in zip(
            [g for g, _ in mixed], self.select(0, [g for g, _ in mixed], [c for _, c in mixed]), strict=True
        ):
            assert np.array_equal(selection.indices_J, np.arange(group.size))
