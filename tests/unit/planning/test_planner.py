"""The planner: budgets, bounds, a ranking that the simulator agrees with, a recipe that runs."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from gumption.cli.plan import parse_budget
from gumption.config import RunConfig
from gumption.planning.hardware import PRESETS, preset
from gumption.planning.planner import Task, _predict, _screen, plan, reasons, recipe
from gumption.planning.screening import expected
from gumption.planning.simulator import simulate
from gumption.planning.speed import rates, shape_for, slots_that_fit

RATES_P = np.random.default_rng(0).beta(0.5, 1.5, 200)
TASK = Task(RATES_P, 1.7e9, preset("h100"), count=4, hours=12, mean_length=300, max_tokens=1000)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("1e20", (1e20, None)), (" 2.5 EFLOPs ", (2.5e18, None)), ("2d", (None, 48.0)), ("90 min", (None, 1.5))],
)
def test_budgets(text, parsed):
    assert parse_budget(text) == parsed


@pytest.mark.parametrize("text", ["", "lots", "24", "-3h", "0h", "1e400", "5 weeks", "nan", "1e20 h h"])
def test_budgets_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="budget"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 1}, "--gpus 1"),
        ({"hours": None}, "one budget"),
        ({"flops": 1e20}, "one budget"),
        ({"mean_length": 2000}, "--max-tokens"),
    ],
)
def test_tasks_that_cannot_be(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(TASK, **change)


def test_presets_have_sources_and_a_hint():
    assert all(p.source and p.peak_flops > 1e13 and p.bandwidth > 1e11 for p in PRESETS.values())
    with pytest.raises(ValueError, match="did you mean 'h100'"):
        preset("h10")


def test_decoding_is_bound_by_bandwidth_with_few_slots_and_by_compute_with_many():
    shape, card = shape_for(4e9), preset("h100")
    few = rates(shape, card, generators=1, trainers=1, slots=1, context=100)
    assert few.bound == "bandwidth" and few.per_slot == pytest.approx(0.6 * 3.35e12 / 8e9, rel=0.01)
    many = rates(shape, card, generators=1, trainers=1, slots=4096, context=1)
    assert many.bound == "compute" and 4096 * many.per_slot == pytest.approx(0.5 * 989e12 / 8e9, rel=0.01)


def test_caches_that_fit():
    shape = shape_for(4e9)
    one, two = (slots_that_fit(shape, preset("h100"), generators=n, longest=4096) for n in (1, 2))
    assert two == pytest.approx(2 * one, abs=1)
    assert slots_that_fit(shape_for(70e9), preset("l4"), generators=1, longest=4096) == 0


def test_screened_settings_keep_the_bounds():
    settings = list(_screen(TASK, RATES_P[:64]))
    assert len(settings) > 50
    assert max(s.stale for s in settings) <= TASK.staleness and min(s.updates for s in settings) >= 50
    assert all(s.trainers + s.generators == TASK.count for s in settings)
    assert not list(_screen(dataclasses.replace(TASK, hours=1e-4), RATES_P[:64]))


@pytest.mark.parametrize(("rule", "share"), [("fixed", 1.0), ("dynamic", 0.5)])
def test_predicted_rates_are_those_of_a_simulation(rule, share):
    """Leverage per FLOP and per hour, and staleness; false alarms: below 1e-4 (15 %, four standard errors or more)."""
    task = dataclasses.replace(TASK, rates_P=np.full(50, 0.5), length_cv=0.3)
    y = expected(rule, task.rates_P, 8, share)
    setting = _predict(task, rule, 8, share, y, 32, 1, 3, 192)
    config = recipe(task, setting, {"simulation": {"problems": "0.5", "size": 50, "weight_sync_seconds": 0.0}})
    config = config.model_copy(update={"budget": type(config.budget)(updates=40)})
    run = simulate(config)
    first, last = run.series[10], run.series[-1]
    leverage, flops, seconds = (last[k] - first[k] for k in ("leverage", "flops", "seconds"))
    assert 1e15 * leverage / flops == pytest.approx(setting.leverage_per_pflop, rel=0.15)
    assert 3600 * leverage / seconds == pytest.approx(setting.leverage_per_hour, rel=0.15)
    assert run.summary["staleness"]["mean"] == pytest.approx(setting.stale, rel=0.25)


def test_a_plan_ranks_by_its_budget_and_its_recipe_runs():
    ranked = plan(TASK, tried=3, rollouts=1500)
    assert {s.rule for s in ranked} >= {"fixed", "dynamic", "never_give_up"}
    assert all(s.simulated and s.bits_per_pflop > 0 for s in ranked)
    within = [s.leverage_per_hour for s in ranked if s.stale <= 1.1 * TASK.staleness]
    assert all(a >= 0.98 * b for a, b in pairwise(within))
    assert len(reasons(TASK, ranked)) == 6
    config = recipe(TASK, ranked[0], {"model": {"path": "some/model"}})
    assert RunConfig.from_dict(config.model_dump(mode="json")) == config
    short = config.model_copy(update={"budget": type(config.budget)(updates=2)})
    assert simulate(short).summary["updates"] == 2


def test_no_setting_fits_says_what_to_change():
    with pytest.raises(ValueError, match="raise the budget or --max-staleness"):
        plan(dataclasses.replace(TASK, hours=1e-4))
