"""The simulator: its counters are those of a real ledger, the trainer takes time, nothing gets lost."""

import dataclasses
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from gumption.config import RunConfig
from gumption.ledger.recorder import Recorder
from gumption.planning.simulator import BusyTrainer, _Run, scripted_config, simulate
from gumption.types import FATES

BUSY = {
    "rollouts": {"in_flight": 64, "max_tokens": 64},
    "training": {"groups_per_update": 4, "queue_batches": 1},
    "simulation": {
        "size": 50,
        "mean_length": 20,
        "length_cv": 0.6,
        "trainer_tokens_per_second": 600,
        "weight_sync_seconds": 0.2,
    },
    "budget": {"updates": 25},
}
RULES = {
    "never_give_up": {},
    "fixed": {"allocation": {"rule": "fixed", "group_size": 4}, "selection": {"rule": "all"}},
    "dynamic": {"allocation": {"rule": "dynamic"}},
    "on_policy": {"training": {"groups_per_update": 4, "max_staleness": 0}},
    "masked": {"rewards": {"truncated": "mask"}},
    "errors": {"rollouts": {"engine": "scripted", "in_flight": 64, "max_tokens": 64, "options": {"error_rate": 0.2}}},
}


def make(**extra):
    return _Run(scripted_config(RunConfig.from_dict({**BUSY, **extra})))


class Rows:
    def __init__(self):
        self.tables = {"rollouts": [], "verdicts": [], "groups": [], "steps": []}

    def append(self, table, row):
        self.tables[table].append(row)


@pytest.mark.parametrize("name", RULES)
def test_counters_are_those_of_the_ledger_rows(name):
    """The same run twice: with the counting recorder, and with the one that writes rows."""
    counted = make(**RULES[name])
    reason = counted.loop()
    written, rows = make(**RULES[name]), Rows()
    recorder = Recorder(rows, written.engine, lambda: written.engine.clock)
    written.pipeline.recorder = recorder
    written.budget.attach(written.engine, recorder)
    assert written.loop() == reason == "updates"
    rollouts, r = rows.tables["rollouts"], counted.recorder
    assert len(rollouts) == counted.pipeline.submitted == written.pipeline.submitted
    assert max(Counter((x["problem_id"], x["visit"], x["attempt"], x["member"]) for x in rollouts).values()) == 1
    assert Counter(x["fate"] for x in rollouts) == Counter({k: v for k, v in r.rollouts.items() if v})
    assert dict(recorder.flops_by_fate) == {k: v for k, v in r.flops_by_fate.items() if v or k in recorder.rollouts}
    assert recorder.cum_bits == r.cum_bits and recorder.staleness_sum == r.staleness_sum
    assert sum(s.rollouts for s in r.spent.values()) == len(rollouts)
    assert sum(s.tokens for s in r.spent.values()) == sum(x["completion_tokens"] for x in rollouts)
    assert sum(s.flops for s in r.spent.values()) == r.flops_total
    groups = [g for g in rows.tables["groups"] if g["update"] is not None]
    assert r.sums.kept == pytest.approx(sum(g["kept_leverage"] for g in groups))


@pytest.mark.parametrize("name", RULES)
def test_a_summary_adds_up(name):
    s = simulate({**BUSY, **RULES[name]}).summary
    assert s["rollouts"] == sum(s["rollouts_by_fate"].values()) == sum(b["rollouts"] for b in s["buckets"].values())
    assert set(s["rollouts_by_fate"]) <= set(FATES)
    assert s["tokens"]["generated"] == sum(b["tokens"] for b in s["buckets"].values())
    assert s["flops"]["total"] == sum(s["flops"][k] for k in ("prefill", "decode", "score", "train"))
    assert s["staleness"]["mean"] == pytest.approx(s["staleness"]["before_queue"] + s["staleness"]["in_queue"])
    assert all(0 <= x <= 1 for x in s["idle"].values()) and 0 <= s["wasted_share"] <= 1


def test_same_seed_same_result_and_another_seed_another():
    first, again = simulate(BUSY), simulate(BUSY)
    assert first.summary == again.summary and first.series == again.series
    assert simulate({**BUSY, "seed": 1}).summary != first.summary


def test_updates_take_time_and_never_overlap():
    run = make()
    spans = []
    update = run.trainer.update

    def spy(batch):
        start = run.engine.clock
        assert not run.pipeline.unsent and run.engine.version == run.trainer.version
        result = update(batch)
        spans.append((start, run.trainer.done_at, run.trainer.seconds(batch)))
        return result

    run.trainer.update = spy
    run.loop()
    assert len(spans) == 25
    for (start, end, seconds), (later, _, _) in pairwise(spans):
        assert end == pytest.approx(start + seconds + 0.2)
        assert later >= end - 1e-9
    busy = sum(seconds for _, _, seconds in spans)
    assert run.summary("updates")["idle"]["trainer"] == pytest.approx(1 - min(1, busy / run.engine.clock))


def test_rollouts_that_start_during_an_update_have_the_old_weights():
    run = make()
    seen = []
    submit = run.engine.submit

    def spy(request):
        seen.append((run.trainer.free(), run.engine.version, run.trainer.version))
        submit(request)

    run.engine.submit = spy
    run.loop()
    assert all(version == newest for free, version, newest in seen if free)
    assert {newest - version for free, version, newest in seen if not free} == {1}


def test_a_full_queue_drops_its_oldest_groups():
    slow = {**BUSY, "simulation": {**BUSY["simulation"], "trainer_tokens_per_second": 100}}
    run = _Run(scripted_config(RunConfig.from_dict(slow)))
    finals = []
    final = run.recorder.final
    run.recorder.final = lambda f, version, **extra: (finals.append((f.reason, version)), final(f, version, **extra))
    longest = 0
    cycle = run.pipeline.cycle

    def spy():
        nonlocal longest
        updates = cycle()
        longest = max(longest, len(run.pipeline.places))
        return updates

    run.pipeline.cycle = spy
    run.loop()
    assert longest == 4
    assert sum(reason == "queue_full" for reason, _ in finals) > 50
    assert run.summary("updates")["staleness"]["max"] <= run.config.training.max_staleness


def test_on_policy_waits_for_the_weights():
    s = simulate({**BUSY, **RULES["on_policy"]}).summary
    assert s["updates"] == 25 and s["staleness"]["max"] == 0
    assert s["idle"]["generator"] > 0.3


def test_accepted_groups_are_trained_when_the_problems_run_out():
    s = simulate({**BUSY, "problems": {"epochs": 1}, "training": {"groups_per_update": 7}, "budget": {}}).summary
    assert s["reason"] == "problems"
    assert s["allocation"]["accepted"] > 7
    assert s["rollouts_by_fate"].get("unfinished", 0) == 0
    trained = s["rollouts_by_fate"]["trained"] + s["rollouts_by_fate"]["not_selected"]
    assert trained > 0 and s["updates"] == -(-s["allocation"]["accepted"] // 7)


def test_a_refill_cap_trains_on_what_there_is():
    data = {
        **BUSY,
        "allocation": {"rule": "dynamic", "group_size": 2, "max_refills": 0},
        "simulation": {**BUSY["simulation"], "problems": "0.02, 0.1"},
    }
    s = simulate(data).summary
    assert s["updates"] == 25 and s["reason"] == "updates"


@pytest.mark.parametrize(
    ("budget", "used"),
    [
        ({"flops": 2e10}, lambda s: s["flops"]["total"]),
        ({"rollouts": 800}, lambda s: s["rollouts"]),
        ({"tokens": 9000}, lambda s: s["tokens"]["generated"]),
    ],
)
def test_budgets_are_kept(budget, used):
    s = simulate({**BUSY, "budget": budget}).summary
    [(name, limit)] = budget.items()
    assert s["reason"] == name and 0.8 * limit < used(s) <= limit


def test_wall_budgets_are_virtual():
    result = simulate({**BUSY, "budget": {"wall": "10m"}})
    assert result.summary["reason"] == "wall"
    assert 600 <= result.summary["seconds"] < 601 and result.wall < 300


def test_nothing_to_learn_ends_the_run():
    s = simulate({**BUSY, "simulation": {"problems": "0, 1", "mean_length": 4}}).summary
    assert s["reason"] == "nothing_to_learn" and s["updates"] == 0


def test_pass_rates_move_with_the_signal():
    data = {**BUSY, "simulation": {**BUSY["simulation"], "problems": "0.3", "learning_rate": 2.0}}
    bucket = simulate(data).summary["buckets"]["medium"]
    assert bucket["pass_rate_after"] > 0.31 > bucket["pass_rate_before"]


def test_a_recipe_of_a_real_run_is_simulated_as_it_is():
    config = RunConfig.from_toml("recipes/skill_chain.toml")
    made = scripted_config(config)
    assert made.rollouts.engine == "scripted" and made.problems.source == "scripted:mixture"
    assert made.allocation == config.allocation and made.training == config.training


def test_lengths_of_quantiles_keep_their_shape_and_take_a_mean():
    run = make()
    engine = run.engine
    engine.options = engine.options.model_copy(update={"length_quantiles": (10.0, 20.0, 60.0)})
    u_G4 = np.repeat(np.linspace(0, 1, 5)[:, None], 4, axis=1)
    assert engine._lengths(None, u_G4) == [10, 15, 20, 40, 60]
    assert engine._lengths(55.0, u_G4) == [20, 30, 40, 80, 120]


def test_the_trainer_takes_the_longer_of_two_times():
    config = scripted_config(RunConfig.from_dict(BUSY))
    run = _Run(config)
    batches = []
    update = run.trainer.update
    run.trainer.update = lambda batch: (batches.append(batch), update(batch))[1]
    run.loop()
    flops = {**BUSY["simulation"], "trainer_flops_per_second": 1e3}
    slow = BusyTrainer(scripted_config(RunConfig.from_dict({**BUSY, "simulation": flops})), run.engine)
    batch = next(b for b in batches if b.rows_B)
    assert slow.seconds(batch) == pytest.approx(slow.estimate_flops(batch) / 1e3)
    assert slow.seconds(batch) > run.trainer.seconds(batch) > 0


def test_nothing_heavy_is_loaded():
    code = (
        "import sys, gumption\n"
        "gumption.simulate({'problems': {'size': 20}, 'budget': {'updates': 2}})\n"
        "assert not {'torch', 'plotly', 'transformers', 'datasets'} & set(sys.modules), sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_simulation_is_a_value():
    result = simulate(BUSY)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.wall = 0.0
    assert [row["version"] for row in result.series] == list(range(1, 26))
