"""The order over problems: passes, visits, mixtures, saving."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gumption.config import ProblemsConfig
from gumption.problems import ProblemSet, combine, make_stream
from gumption.problems.stream import Stream
from gumption.types import Problem, ProblemStream


def some(n: int, name: str = "p") -> tuple[Problem, ...]:
    return tuple(Problem(f"{name}{i}-0", "?", None, "exact") for i in range(n))


def drawn(stream: Stream, n: int) -> list[tuple[str, int]]:
    result = []
    for _ in range(n):
        entry = stream.next()
        assert entry is not None
        result.append((entry[0].id, entry[1]))
    return result


def test_it_is_a_problem_stream():
    assert isinstance(make_stream(some(3), ProblemsConfig(), 0), ProblemStream)


def test_shuffled_passes_are_permutations_with_their_number_as_visit():
    stream = make_stream(some(50), ProblemsConfig(), seed=1)
    passes = [drawn(stream, 50) for _ in range(3)]
    for visit, entries in enumerate(passes):
        assert sorted(i for i, _ in entries) == sorted(p.id for p in some(50))
        assert {v for _, v in entries} == {visit}
    orders = [[i for i, _ in entries] for entries in passes]
    assert orders[0] != orders[1] != orders[2] and orders[0] != [p.id for p in some(50)]


def test_sequential_keeps_the_order_and_epochs_end_it():
    stream = make_stream(some(3), ProblemsConfig(order="sequential", epochs=2), seed=1)
    assert drawn(stream, 6) == [(f"p{i}-0", v) for v in range(2) for i in range(3)]
    assert stream.next() is None and stream.next() is None


def test_the_seed_makes_the_order():
    orders = [[drawn(make_stream(some(30), ProblemsConfig(), seed), 30)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_shuffling_is_uniform():
    """Where problem 0 of 4 stands, over 4,000 seeds; false alarm 1e-4 (chi-square, 3 degrees of freedom)."""
    counts = Counter(
        [i for i, _ in drawn(make_stream(some(4), ProblemsConfig(), seed), 4)].index("p0-0") for seed in range(4000)
    )
    assert sum((counts[k] - 1000) ** 2 / 1000 for k in range(4)) < 21.1


@given(st.integers(1, 40), st.integers(0, 100), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_a_saved_stream_goes_on_as_if_nothing_had_happened(n, before, after):
    stream = make_stream(some(n), ProblemsConfig(), seed=3)
    drawn(stream, before)
    other = make_stream(some(n), ProblemsConfig(), seed=3)
    other.load_state_dict(stream.state_dict())
    assert drawn(stream, after) == drawn(other, after)


def test_a_saved_stream_does_not_fit_other_problems():
    state = make_stream(some(3), ProblemsConfig(), 0).state_dict()
    with pytest.raises(ValueError, match="changed since the checkpoint"):
        make_stream(some(4), ProblemsConfig(), 0).load_state_dict(state)


def test_problems_are_looked_up_by_id():
    stream = make_stream(some(3), ProblemsConfig(), 0)
    assert stream.problem("p1-0").id == "p1-0"
    with pytest.raises(ValueError, match="'zz'"):
        stream.problem("zz")


def mixture(weights, *, sizes=(100, 10), **config) -> Stream:
    sets = [ProblemSet(some(n, "abc"[i]), "abc"[i]) for i, n in enumerate(sizes)]
    settings = ProblemsConfig(source=tuple(s.name for s in sets), weights=weights, **config)
    return make_stream(combine(sets), settings, 0)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_weights_are_kept_to_within_one_draw(weights, n):
    stream = mixture(tuple(map(float, weights)), sizes=(7, 3, 5)[: len(weights)])
    counts = Counter(i[0] for i, _ in drawn(stream, n))
    for name, weight in zip("abc", weights, strict=False):
        assert abs(counts[name] - n * weight / sum(weights)) <= len(weights)


def test_visits_count_the_passes_of_each_source():
    entries = drawn(mixture((1.0, 1.0), sizes=(100, 10)), 60)
    assert max(v for i, v in entries if i[0] == "a") == 0
    assert max(v for i, v in entries if i[0] == "b") == 2


def test_without_weights_each_source_comes_in_proportion_to_its_size():
    counts = Counter(i[0] for i, _ in drawn(mixture(None), 110))
    assert counts == {"a": 100, "b": 10}


def test_with_epochs_a_finished_source_drops_out():
    stream = mixture((1.0, 1.0), sizes=(6, 2), epochs=1)
    names = [i[0] for i, _ in drawn(stream, 8)]
    assert Counter(names) == {"a": 6, "b": 2} and names[:4] == ["a", "b", "a", "b"]
    assert stream.next() is None


@pytest.mark.parametrize(
    ("weights", "reason"),
    [((1.0,), "1 numbers for 2"), ((-1.0, 2.0), "numbers ≥ 0"), ((0.0, 0.0), "not all 0"), ((1.0, np.nan), "numbers")],
)
def test_wrong_weights(weights, reason):
    with pytest.raises(ValueError, match=reason):
        mixture(weights)


def test_weight_zero_is_never_drawn():
    assert {i[0] for i, _ in drawn(mixture((0.0, 1.0)), 50)} == {"b"}


def test_equal_ids_and_empty_sources_are_refused():
    with pytest.raises(ValueError, match="same id"):
        Stream([some(2), some(2)])
    with pytest.raises(ValueError, match="no problems"):
        Stream([some(2), ()], weights=(1.0, 1.0))


def test_a_hundred_thousand_problems_cost_little_more_per_draw_than_a_hundred():
    """CPU time per draw, both timed in this process, alternating; the permutation of a pass is part of it."""
    small, large = (make_stream(some(n), ProblemsConfig(), 0) for n in (100, 100_000))
    ratios = []
    for _ in range(3):
        times = []
        for stream in (small, large):
            start = time.process_time()
            for _ in range(20_000):
                stream.next()
            times.append(time.process_time() - start)
        ratios.append(times[1] / times[0])
    assert min(ratios) < 5
