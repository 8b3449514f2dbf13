"""Our own allocators pass the public conformance suite."""

import numpy as np
import pytest

from gumption.allocation import Dynamic, Fixed, NeverGiveUp
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


@pytest.mark.parametrize("bad", [{"a": object()}, {"a": np.array([None])}, {1: 2}, {"a": {"b": [1, {2}]}}])
def test_copy_state_refuses_what_cannot_be_saved(bad):
    with pytest.raises(AssertionError):
        copy_state(bad)
