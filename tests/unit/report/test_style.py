from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gumption.report.style import amount, percent, rate, seconds, spread


@given(st.lists(st.floats(0, 1), max_size=8))
@example([1.0, 1.0, 1.0, 1.0, 0.625])
def test_spread_labels_keep_their_order_and_distance_and_stay_inside(values):
    placed = spread(values, 0.1)
    order = sorted(range(len(values)), key=lambda i: values[i])
    heights = [placed[i] for i in order]
    assert all(b - a >= 0.1 - 1e-5 for a, b in pairwise(heights))
    assert all(-1e-5 <= h <= 1 + 1e-5 for h in heights)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_labels_that_do_not_overlap_stay_where_they_are(values):
    ordered = sorted(values)
    if all(b - a > 0.1 for a, b in pairwise(ordered)):
        assert spread(values, 0.1) == pytest.approx(values, abs=1e-5)


def test_numbers_are_short():
    assert [amount(v) for v in (0, 1, 999, 1000, 999_960, 1e9, 2.5e12, 7e20)] == [
        "0", "1", "999", "1.00 k", "1.00 M", "1.00 G", "2.50 T", "700 E",
    ]  # fmt: skip
    assert [percent(v) for v in (0, 0.0996, 0.5, 1)] == ["0 %", "10 %", "50 %", "100 %"]
    assert [rate(v) for v in (0.0999, 0.1, 0.999, 1)] == [".100", ".10", "1.00", "1.00"]
    assert [seconds(v) for v in (0, 59.94, 60, 3600)] == ["0.0 s", "59.9 s", "1 min 00 s", "1 h 00 min"]
