"""Problem choosers: the public suite, and each rule's own numbers (algorithms.md 1.4, research notes 2.3)."""

from collections import Counter

import numpy as np
import pytest

from gumption.allocation import Fixed
from gumption.allocation.pass_rates import PassRates
from gumption.config import ProblemsConfig, RunConfig
from gumption.problems import make_stream
from gumption.problems.choosers import choose
from gumption.problems.choosers.difficulty_pools import DifficultyPools
from gumption.problems.choosers.greso import Greso, zero_variance
from gumption.problems.choosers.mopps import Mopps
from gumption.problems.choosers.no_positive_resampling import NoPositiveResampling
from gumption.testing import ChooserTestCase, ListStream, answer, problem, scored_group
from gumption.types import Reward


class TestNoPositiveResampling(ChooserTestCase):
    def make(self, inner, seed=0):
        return NoPositiveResampling(inner, seed=seed)


class TestGreso(ChooserTestCase):
    def make(self, inner, seed=0):
        return Greso(inner, seed=seed)


class TestMopps(ChooserTestCase):
    def make(self, inner, seed=0):
        return Mopps(inner, candidates=2, decay=0.9, seed=seed)


class TestDifficultyPools(ChooserTestCase):
    def make(self, inner, seed=0):
        return DifficultyPools(inner, seed=seed)


class TestAllOfThem(ChooserTestCase):
    def make(self, inner, seed=0):
        names = ["no_positive_resampling", "greso", "difficulty_pools", "mopps"]
        return choose(inner, names, {"mopps": {"candidates": 2}}, seed=seed)


def problems(n=2, **options):
    return ListStream([problem(f"p{i}") for i in range(n)], **options)


def drawn(stream, n):
    return [d if d is None else d[0].id for d in (stream.next() for _ in range(n))]


def learn(stream, rewards, problem_id="p0", version=0, times=1):
    for _ in range(times):
        stream.observe(scored_group(rewards, problem_id), version)


# -- no_positive_resampling


def test_retires_at_the_historical_rate():
    stream = NoPositiveResampling(problems())
    learn(stream, [1.0] * 8 + [0.0])  # 8 of 9
    assert drawn(stream, 4) == ["p0", "p1", "p0", "p1"]
    learn(stream, [1.0])  # 9 of 10
    assert drawn(stream, 3) == ["p1"] * 3
    learn(stream, [0.0] * 90)  # a last group on its way: too late
    assert drawn(stream, 3) == ["p1"] * 3
    assert stream.metrics()["choosers/skipped"] > 0


def test_retirement_can_wait_for_evidence():
    stream = NoPositiveResampling(problems(1), threshold=1.0, min_rollouts=16)
    learn(stream, [1.0] * 8)
    assert drawn(stream, 1) == ["p0"]
    learn(stream, [1.0] * 8)
    assert drawn(stream, 1) == [None]


def test_when_all_are_retired_the_stream_ends_with_a_reason():
    stream = NoPositiveResampling(problems())
    for name in ("p0", "p1"):
        learn(stream, [1.0] * 8, name)
    before = stream.inner.position
    assert drawn(stream, 3) == [None] * 3
    assert stream.ended == "no_positive_resampling lets none of the problems through any more"
    assert stream.inner.position - before == stream.patience  # searched once, not at every `ask`


def test_skipped_visits_are_not_counted_twice():
    stream = NoPositiveResampling(problems(3))
    learn(stream, [1.0] * 8, "p1")
    assert [(p.id, visit) for p, visit in (stream.next() for _ in range(4))] == [
        ("p0", 0), ("p2", 0), ("p0", 1), ("p2", 1),
    ]  # fmt: skip


# -- greso


@pytest.mark.parametrize(("rewards", "streak"), [([1.0] * 4, 1), ([1.0] * 4, 3), ([0.0] * 4, 2)])
def test_greso_skips_with_the_streak(rewards, streak):
    """Let through with p^c, p = ½: z-test at |z| < 4.5 over 2,000 passes."""
    stream = Greso(problems(2))
    learn(stream, rewards, times=streak)
    n = 2000
    share = Counter(drawn(stream, n))["p0"] / n
    expected = 0.5**streak / (1 + 0.5**streak)
    assert abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n)


def test_greso_floor_keeps_every_problem_alive():
    stream = Greso(problems(1), floor=0.01)
    learn(stream, [0.0] * 4, times=100)
    assert drawn(stream, 20) == ["p0"] * 20
    assert 20 * 60 < stream.skipped < 20 * 160  # 99 on average


def test_greso_streaks_end_with_a_mixed_group_and_with_a_change_of_kind():
    stream = Greso(problems(1))
    learn(stream, [1.0] * 4, times=3)
    assert stream._chance(problem("p0"), 0) == 0.125
    learn(stream, [0.0] * 4)
    assert stream._chance(problem("p0"), 0) == 0.5
    learn(stream, [0.0, 1.0])
    assert stream._chance(problem("p0"), 0) == 1.0


def test_greso_adapts_from_the_second_pass_on():
    """p falls where the share of equal rewards is above its target (¼: ⅓ of it easy, ⅔ hard), else it rises."""
    stream = Greso(problems(4))
    for version in range(3):
        learn(stream, [1.0] * 4, version=version)
    assert stream.metrics()["choosers/p_easy"] == 0.5  # first pass
    group = scored_group([1.0] * 4, "p0")
    group.chain_id = group.chain_id._replace(visit=1)
    stream.observe(group, 3)
    learn(stream, [0.0, 1.0], version=4)
    metrics = stream.metrics()
    assert (metrics["choosers/p_easy"], metrics["choosers/p_hard"]) == pytest.approx((0.49, 0.51))
    for version in range(5, 200):
        learn(stream, [0.0] * 4, version=version)
    metrics = stream.metrics()
    assert (metrics["choosers/p_easy"], metrics["choosers/p_hard"]) == pytest.approx((0.95, 0.05))


def test_zero_variance_looks_at_the_task():
    shaped = Fixed(problems(1), group_size=2)
    [request] = shaped.ask(2)
    told = [Reward(-0.5, task=0.0), Reward(-0.1, task=0.0)]
    assert zero_variance(shaped.tell(answer(request, told), 0).group) == "hard"
    assert zero_variance(scored_group([0.5, 0.25])) is None
    assert zero_variance(scored_group([])) is None


# -- mopps


def test_mopps_prefers_what_is_believed_near_the_target():
    stream = Mopps(problems(4), candidates=4)
    for name, successes in (("p0", 1), ("p1", 31), ("p2", 60), ("p3", 0)):
        learn(stream, [1.0] * successes + [0.0] * (64 - successes), name)
    assert Counter(drawn(stream, 100))["p1"] >= 95
    hard = Mopps(problems(4), candidates=4, target=0.0)
    hard.load_state_dict(stream.state_dict())
    assert set(drawn(hard, 50)) <= {"p0", "p3"}


def test_mopps_explores_what_it_does_not_know():
    """One candidate of unknown pass rate (uniform belief) against one at .7 ± .05: |r − ½| < .2 with probability .4."""
    stream = Mopps(problems(2), candidates=2)
    learn(stream, [1.0] * 70 + [0.0] * 30, "p1")
    share = Counter(drawn(stream, 2000))["p0"] / 2000
    assert 0.34 < share < 0.46


def test_mopps_belief_decays_towards_the_prior():
    stream = Mopps(problems(1), alpha=2.0, beta=3.0, decay=0.5)
    learn(stream, [1.0] * 8, times=2)
    assert stream._rates.counts("p0") == (12.0, 12.0)  # α = 2 + 12: ½·(2 + 8) + ½·2 + 8 = 14
    belief = [stream._believed(problem("p0"), visit) for visit in range(4000)]
    assert np.mean(belief) == pytest.approx(14 / 17, abs=0.01)


def test_mopps_takes_the_rest_of_a_stream_that_ends():
    stream = Mopps(problems(5, epochs=1), candidates=2)
    names = drawn(stream, 4)
    assert None not in names[:3] and names[3] is None
    assert stream.skipped == 2


# -- difficulty_pools


def test_pools_follow_the_weights_of_a_profile(tmp_path):
    path = tmp_path / "before.jsonl"
    rows = [("p0", 0), ("p1", 1), ("p2", 5), ("p3", 30), ("p4", 70), ("p5", 99)]
    path.write_text("\n".join(f'{{"problem_id": "{p}", "n": 100, "successes": {k}}}' for p, k in rows))
    weights = {"unsolved": 0, "extra_hard": 4, "hard": 2, "medium": 1, "easy": 1, "saturated": 0}
    stream = DifficultyPools(problems(7), weights=weights, profile=str(path))
    assert [stream.bucket_of(f"p{i}") for i in range(7)] == [
        "unsolved", "extra_hard", "hard", "medium", "easy", "saturated", None,
    ]  # fmt: skip
    learn(stream, [1.0] * 8, "p1", times=20)  # a profile does not change
    n = 4000
    counts = Counter(drawn(stream, n))
    assert counts["p0"] == counts["p5"] == 0
    for name, chance in (("p1", 1), ("p2", 1 / 2), ("p3", 1 / 4), ("p4", 1 / 4), ("p6", 1)):
        assert counts[name] / n == pytest.approx(chance / 3, abs=0.035), name


def test_pools_learn_without_a_profile():
    stream = DifficultyPools(problems(2), decay=0.5)
    learn(stream, [1.0] * 8)
    assert stream.bucket_of("p0") == "saturated" and set(drawn(stream, 10)) == {"p1"}
    learn(stream, [0.0] * 8)  # on its way when it was passed over: 4 of 12 now
    assert stream.bucket_of("p0") == "medium" and set(drawn(stream, 10)) == {"p0", "p1"}


def test_pools_end_when_nothing_that_is_wanted_is_left_and_relax_when_it_is_only_rare():
    stream = DifficultyPools(problems(2), weights={"unsolved": 0})
    for name in ("p0", "p1"):
        learn(stream, [0.0] * 8, name)
    assert drawn(stream, 2) == [None, None] and "difficulty_pools" in stream.ended
    rare = DifficultyPools(problems(2), weights={"unsolved": 1e-9})
    for name in ("p0", "p1"):
        learn(rare, [0.0] * 8, name)
    assert None not in drawn(rare, 2) and rare.ended is None


# -- composition and configuration


def test_choosers_are_put_around_the_stream_in_order():
    config = ProblemsConfig(
        choosers=("no_positive_resampling", "mopps"), chooser_options={"mopps": {"candidates": 3, "target": 0.25}}
    )
    stream = make_stream([problem(f"p{i}") for i in range(4)], config, seed=5)
    assert (stream.name, stream.inner.name, stream.candidates, stream.target) == (
        "mopps", "no_positive_resampling", 3, 0.25,
    )  # fmt: skip
    assert (stream.seed, stream.inner.seed, stream.size) == (5, 5, 4)


def test_skips_of_nested_choosers_are_summed():
    stream = choose(problems(4), ["no_positive_resampling", "mopps"], {"mopps": {"candidates": 2}})
    learn(stream, [1.0] * 8, "p0")
    drawn(stream, 6)
    metrics = stream.metrics()
    assert metrics["choosers/skipped"] == stream.skipped + stream.inner.skipped > stream.skipped == 6
    assert metrics["choosers/retired"] == 1


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["mops"], {}, "unknown chooser 'mops'; known: no_positive_resampling, greso, mopps, difficulty_pools"),
        (["mopps"], {"mopps": {"targt": 0.5}}, "no option 'targt'; did you mean 'target'.*known: target, candidates"),
        (["mopps"], {"mopps": {"seed": 1}}, "no option 'seed'"),
        (["mopps"], {"mopps": {"target": "half"}}, r"target must be a number in \[0, 1\], got 'half'"),
        (["mopps"], {"mopps": {"alpha": 0}}, "alpha"),
        (["greso"], {"greso": {"floor": 0}}, r"floor must be a number in \(0, 1\]"),
        (["greso"], {"greso": {"p_easy": 0.01}}, "p_easy"),
        (["no_positive_resampling"], {"no_positive_resampling": {"threshold": 1.1}}, "threshold"),
        (["difficulty_pools"], {"difficulty_pools": {"weights": {"trivial": 1}}}, "no bucket 'trivial'"),
        (["difficulty_pools"], {"difficulty_pools": {"weights": dict.fromkeys(("easy",), -1)}}, "weights.easy"),
        (["difficulty_pools"], {"difficulty_pools": {"profile": "nowhere.jsonl"}}, "no pass-rate profile"),
    ],
)
def test_wrong_options_are_named(names, options, words):
    with pytest.raises(ValueError, match=words):
        choose(problems(), names, options)


def test_options_of_a_chooser_that_is_not_used_are_an_error():
    with pytest.raises(ValueError, match=r"'greso', which is not in problems.choosers"):
        RunConfig.from_dict({"problems": {"choosers": ["mopps"], "chooser_options": {"greso": {}}}})


def test_a_state_of_other_choosers_is_refused():
    saved = Greso(problems()).state_dict()
    with pytest.raises(ValueError, match=r"other problems\.choosers: expected 'mopps', got 'greso'"):
        Mopps(problems()).load_state_dict(saved)
    with pytest.raises(ValueError, match="got None"):
        Mopps(problems()).load_state_dict(problems().state_dict())


def test_pass_rates():
    rates = PassRates()
    rates.add("a", 0, 0)
    assert len(rates) == 0 and rates.rate("a") is None
    rates.add("a", 4, 1)
    rates.add("a", 4, 3)
    assert rates.counts("a") == (8, 4) and rates.rate("a") == 0.5
    with pytest.raises(ValueError, match="decay"):
        PassRates(1.5)
