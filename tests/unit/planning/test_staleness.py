"""Staleness formulas: published rows, edges, and the tail of a group's lengths."""

import math

import numpy as np
import pytest

from gumption.planning.staleness import before_queue, in_queue, staleness, tail_lognormal


@pytest.mark.parametrize(
    ("slots", "batch", "queue", "ratio", "predicted"),
    [(120, 240, 2, 0.63, 1.34), (240, 120, 2, 0.92, 3.86), (128, 128, 2, 1.07, 3.29), (128, 128, 1, 1.14, 2.24)],
)
def test_published_predictions(slots, batch, queue, ratio, predicted):
    """M is published as 1.42 … 1.45 only."""
    low, high = (staleness(slots, batch, tail, ratio, queue) for tail in (1.42, 1.48))
    assert low - 0.02 <= predicted <= high + 0.02


def test_a_bottleneck_trainer_divides_the_time_before_the_queue():
    assert before_queue(100, 50, 1.5, 0.5) == before_queue(100, 50, 1.5, 1.0) == 3.0
    assert before_queue(100, 50, 1.5, 2.0) == 1.5


def test_in_queue_is_the_ratio_below_one_and_grows_with_the_queue_above():
    assert in_queue(0.4, 5) == 0.4
    assert in_queue(1.0, 3) == 3.0
    assert in_queue(1e9, 3) == pytest.approx(0.5)


@pytest.mark.parametrize(("cv", "size"), [(0.3, 4), (0.6, 8), (1.0, 32)])
def test_tail_against_drawn_lengths(cv, size):
    """False alarms: below 1e-6 (five standard errors)."""
    sigma = math.sqrt(math.log1p(cv**2))
    lengths_NG = np.exp(np.random.default_rng(0).normal(-(sigma**2) / 2, sigma, (20_000, size)))
    longest_N = lengths_NG.max(axis=1)
    assert abs(longest_N.mean() - tail_lognormal(cv, size)) < 5 * longest_N.std() / math.sqrt(len(longest_N))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: before_queue(0, 1, 1, 1), "slots"),
        (lambda: before_queue(1, 1, 0.5, 1), "tail"),
        (lambda: in_queue(-1, 1), "ratio"),
        (lambda: in_queue(1, math.nan), "queue"),
        (lambda: tail_lognormal(-0.1, 8), "cv"),
    ],
)
def test_values_out_of_range(call, words):
    with pytest.raises(ValueError, match=words):
        call()
