"""The shipped selectors keep what every selector promises."""

import numpy as np

from gumption.credit.advantage import grpo
from gumption.selection import All, CostAware, Cppo, Leverage, Pods, Top
from gumption.testing import SelectorTestCase
from gumption.training.share import AutoShare


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


class TestPods(SelectorTestCase):
    def make(self):
        return Pods(4)


class TestPodsRecomputed(SelectorTestCase):
    def make(self):
        return Pods(4, grpo)


class TestCppo(SelectorTestCase):
    def make(self):
        return Cppo(0.5)


class TestCostAwareGroup(SelectorTestCase):
    def make(self):
        return CostAware(4)


class TestCostAwareBatch(SelectorTestCase):
    def make(self):
        return CostAware(4, "batch")


class TestTop(SelectorTestCase):
    def make(self):
        return Top(4)


class TestAutoShare(SelectorTestCase):
    def make(self):
        return AutoShare(0.2, 1.0)
