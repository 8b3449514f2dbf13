"""Profiles from every place that holds pass rates."""

import json

import numpy as np
import polars as pl
import pytest

from gumption.config import ProblemsConfig
from gumption.ledger.pass_rates import Profile, draw_rates, fit_beta, read_lengths, read_profile
from gumption.ledger.profile import write_profile
from gumption.planning.simulator import simulate
from gumption.problems import load_problems
from gumption.training.run import train

ROWS = {"problem_id": ["a", "b"], "n": [8, 16], "successes": [0, 4]}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    recipe = {
        "rollouts": {"engine": "scripted", "options": {"length_cv": 0.5}},
        "problems": {"source": "scripted", "size": 20},
        "eval": {"samples": 16},
        "budget": {"updates": 3},
    }
    train(recipe, out=folder)
    return folder


def same(profile):
    return profile.ids == ("a", "b") and profile.n_P.tolist() == [8, 16] and profile.successes_P.tolist() == [0, 4]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_files(tmp_path, suffix):
    assert same(read_profile(write_profile(tmp_path / f"p{suffix}", pl.DataFrame(ROWS))))


def test_what_eval_prints_as_json(tmp_path):
    rows = pl.DataFrame(ROWS).to_dicts()
    (tmp_path / "p.json").write_text(json.dumps({"pass_rate": {}, "profile": rows}))
    assert same(read_profile(tmp_path / "p.json"))
    (tmp_path / "q.json").write_text("[]")
    with pytest.raises(ValueError, match=r"q\.json is not what"):
        read_profile(tmp_path / "q.json")


def test_a_run_gives_its_first_evaluation(run_folder):
    profile = read_profile(run_folder)
    assert len(profile.ids) == 20 and set(profile.n_P.tolist()) == {16}
    quantiles = read_lengths(run_folder)
    assert len(quantiles) == 101 and quantiles[0] >= 1 and list(quantiles) == sorted(quantiles)


def test_a_run_is_simulated_with_its_own_rates_and_lengths(run_folder):
    recipe = {"simulation": {"problems": str(run_folder), "lengths": str(run_folder)}, "budget": {"updates": 3}}
    s = simulate(recipe).summary
    made = json.loads((run_folder / "summary.json").read_text())
    assert sum(b["problems"] for b in s["buckets"].values()) == 20
    length, real = (x["tokens"]["generated"] / x["rollouts"] for x in (s, made))
    assert 0.8 < length / real < 1.25


def test_without_an_evaluation_it_gives_its_first_rollouts(tmp_path):
    recipe = {
        "rollouts": {"engine": "scripted"},
        "problems": {"source": "scripted:0.5", "size": 10},
        "eval": {"samples": 0},
        "budget": {"updates": 2},
    }
    profile = read_profile(train(recipe, out=tmp_path / "run").folder)
    assert 0.3 < profile.successes_P.sum() / profile.n_P.sum() < 0.7


@pytest.mark.parametrize("name", ["missing.parquet", "notes.txt", "."])
def test_places_that_hold_none(tmp_path, name):
    with pytest.raises(ValueError):
        read_profile(tmp_path / name)


def test_draws_have_the_spread_of_the_true_rates():
    """Raw rates of 8 samples are wider. False alarms: below 1e-4 (5 % at 4,000 problems)."""
    rates_P = np.random.default_rng(0).beta(0.6, 1.8, 4000)
    counts_P = np.random.default_rng(1).binomial(8, rates_P)
    profile = Profile(("x",) * 4000, np.full(4000, 8), counts_P)
    drawn_P = draw_rates(profile, 0)
    assert np.array_equal(drawn_P, draw_rates(profile, 0))
    assert drawn_P.std() == pytest.approx(rates_P.std(), rel=0.05)
    assert (counts_P / 8).std() > 1.07 * rates_P.std()
    assert (drawn_P[counts_P == 0] > 0).all()


def test_counts_that_say_nothing_still_fit():
    a, b = fit_beta(Profile(("x",) * 5, np.full(5, 4), np.zeros(5, np.int64)))
    assert 0.02 <= a <= b <= 50


def test_a_profile_is_a_source_of_problems(tmp_path):
    path = write_profile(
        tmp_path / "p.parquet", pl.DataFrame({"problem_id": [str(i) for i in range(30)], "n": 8, "successes": 2})
    )
    problems = load_problems(ProblemsConfig(source=f"scripted:{path}", size=12), seed=0).problems
    assert len(problems) == 12 and all(0 < p.answer["pass_rate"] < 1 for p in problems)
    assert {p.id for p in problems} <= {str(i) for i in range(30)}
    assert problems[0].meta == {"n": 8, "successes": 2}
    assert not load_problems(ProblemsConfig(source=f"scripted:{path}"), seed=0, held_out=True).problems
