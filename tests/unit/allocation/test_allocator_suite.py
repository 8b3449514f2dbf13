"""Our own allocators pass the public conformance suite."""

import numpy as np
import pytest

from gumption.allocation import (
    Dynamic,
    Estimate,
    Fixed,
    NeverGiveUp,
    PilotCommit,
    ReinforceAda,
    Screen,
    UntilSuccess,
)
from gumption.testing import AllocatorTestCase, copy_state


class TestFixed(AllocatorTestCase):
    def make(self, stream, seed=0):
        return Fixed(stream, group_size=4, max_age=3, seed=seed)


class TestFixedKeepsConstantGroups(AllocatorTestCase):
    def make(self, stream, seed=0):
        return Fixed(stream, group_size=4, drop_zero_variance=False, seed=seed)


class TestDynamic(AllocatorTestCase):
    def make(self, stream, seed=0):
        return Dynamic(stream, group_size=4, max_age=3, seed=seed)


class TestNeverGiveUp(AllocatorTestCase):
    def make(self, stream, seed=0):
        return NeverGiveUp(stream, group_size=4, max_age=3, seed=seed)


class TestNeverGiveUpDifferent(AllocatorTestCase):
    def make(self, stream, seed=0):
        return NeverGiveUp(stream, group_size=3, accept_on="different", max_age=-1, max_attempts=None, seed=seed)


class TestNeverGiveUpOneByOne(AllocatorTestCase):
    def make(self, stream, seed=0):
        return NeverGiveUp(stream, group_size=1, max_age=0, retry_probability=1.0, max_attempts=9, seed=seed)


class TestReinforceAdaPositive(AllocatorTestCase):
    def make(self, stream, seed=0):
        return ReinforceAda(stream, round_size=4, max_rounds=3, exit="positive", keep=4, max_age=3, seed=seed)


class TestReinforceAdaBalanced(AllocatorTestCase):
    def make(self, stream, seed=0):
        return ReinforceAda(stream, round_size=3, max_rounds=4, exit="balanced", keep=6, max_age=-1, seed=seed)


class TestPilotCommit(AllocatorTestCase):
    def make(self, stream, seed=0):
        return PilotCommit(stream, pilot_size=4, commit_size=7, pilot_low=0.25, max_age=3, seed=seed)


class TestScreen(AllocatorTestCase):
    def make(self, stream, seed=0):
        return Screen(stream, screen_size=2, continue_size=5, max_age=3, seed=seed)


class TestUntilSuccess(AllocatorTestCase):
    def make(self, stream, seed=0):
        return UntilSuccess(stream, round_size=3, max_rounds=3, max_age=3, seed=seed)


class TestUntilSuccessForgets(AllocatorTestCase):
    def make(self, stream, seed=0):
        return UntilSuccess(stream, round_size=1, max_rounds=2, memory_age=2, max_age=0, seed=seed)


class TestEstimate(AllocatorTestCase):
    def make(self, stream, seed=0):
        counts = {f"p{i}": (32, (0, 2, 5, 20)[i % 4]) for i in range(11)}
        return Estimate(stream, counts=counts, unknown_size=3, max_age=3, seed=seed)


@pytest.mark.parametrize("bad", [{"a": object()}, {"a": np.array([None])}, {1: 2}, {"a": {"b": [1, {2}]}}])
def test_copy_state_refuses_what_cannot_be_saved(bad):
    with pytest.raises(AssertionError):
        copy_state(bad)
