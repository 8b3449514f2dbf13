"""The pipeline with the scripted engine: every rollout gets one fate, counters add up, budgets and staleness hold."""

from collections import Counter
from dataclasses import replace

import pytest

from gumption.allocation import make_allocator
from gumption.budget import Budget
from gumption.config import BudgetConfig, RunConfig
from gumption.credit import make_credit
from gumption.ledger.recorder import Recorder
from gumption.pipeline import Pipeline
from gumption.selection import make_selector
from gumption.testing import ListStream, ScriptedEngine, ScriptedTrainer, ScriptedVerifier, scripted_problems


class ListSink:
    def __init__(self):
        self.tables = {"rollouts": [], "verdicts": [], "groups": [], "steps": []}

    def append(self, table, row):
        self.tables[table].append(dict(row))


class Scorer:
    def __init__(self):
        self.verifier = ScriptedVerifier()

    def score(self, attempts):
        for a in attempts:
            a.rewards_G = tuple(self.verifier.score(a.request.problem, t) for t in a.texts_G)


def build(data, *, epochs=None, budget=None, size=60):
    config = RunConfig.from_dict({"rollouts": {"engine": "scripted", "in_flight": 64}, **data})
    problems = scripted_problems(config.problems.model_copy(update={"size": size}), argument="", seed=0, held_out=False)
    limits = Budget(BudgetConfig(**(budget or {"updates": 30})), max(config.allocation.sizes))
    engine = ScriptedEngine(config, seed=0, allow=limits.allows_decode)
    sink = ListSink()
    recorder = Recorder(sink, engine)
    limits.attach(engine, recorder)
    pipeline = Pipeline(
        config=config,
        allocator=make_allocator(config, ListStream(problems, epochs=epochs), 0),
        engine=engine,
        scorer=Scorer(),
        credit=make_credit(config),
        selector=make_selector(config),
        trainer=ScriptedTrainer(config),
        recorder=recorder,
        allows=limits.allows_update,
        may_ask=limits.may_ask,
    )
    return pipeline, sink, limits


def run(pipeline, limits):
    for _ in range(20_000):
        limits.submitted = pipeline.submitted
        pipeline.cycle()
        if limits.reached(pipeline.trainer.version) or pipeline.spent or pipeline.engine.exhausted or pipeline.ended:
            break
    else:
        pytest.fail("the pipeline made no progress")
    pipeline.finish(pipeline.engine.abandon())


def check(pipeline, sink):
    rows = sink.tables["rollouts"]
    keys = Counter((r["problem_id"], r["visit"], r["attempt"], r["member"]) for r in rows)
    assert max(keys.values()) == 1
    assert sum(not r["replay"] for r in rows) == pipeline.submitted
    engine, recorder = pipeline.engine, pipeline.recorder
    assert sum(r["flops_prefill"] for r in rows) == engine.flops_prefill
    assert sum(r["flops_decode"] for r in rows) == engine.flops_decode
    assert sum(r["flops_train"] for r in rows) == recorder.flops_train
    assert sum(r["completion_tokens"] for r in rows) == engine.tokens_generated
    assert sum(r["trained_tokens"] for r in rows) == recorder.tokens_trained
    assert dict(Counter(r["fate"] for r in rows)) == {k: v for k, v in recorder.rollouts.items() if v}


RULES = {
    "never_give_up": {"allocation": {"rule": "never_give_up"}},
    "never_give_up_all": {"allocation": {"rule": "never_give_up", "max_age": -1}, "selection": {"rule": "all"}},
    "fixed": {"allocation": {"rule": "fixed", "group_size": 4}},
    "dynamic": {"allocation": {"rule": "dynamic", "group_size": 4}, "selection": {"rule": "all"}},
    "reinforce_ada": {"allocation": {"rule": "reinforce_ada"}, "selection": {"rule": "all"}},
    "reinforce_ada_positive": {"allocation": {"rule": "reinforce_ada", "exit": "positive"}},
    "pilot_commit": {"allocation": {"rule": "pilot_commit", "pilot_size": 4, "commit_size": 8}},
    "screen": {"allocation": {"rule": "screen"}},
    "until_success": {"allocation": {"rule": "until_success"}},
    "pods": {"allocation": {"rule": "fixed", "group_size": 16}, "selection": {"rule": "pods", "keep": 4}},
    "cppo": {"selection": {"rule": "cppo"}},
    "cost_aware": {"selection": {"rule": "cost_aware", "keep": 2, "scope": "batch"}},
    "top": {"selection": {"rule": "top", "keep": 2}},
    "batch_std": {"allocation": {"rule": "fixed"}, "credit": {"advantage": "batch_std"}},
    "tracked": {"allocation": {"rule": "never_give_up"}, "credit": {"advantage": "tracked"}},
    "choosers": {
        "problems": {"source": "scripted", "choosers": ["greso", "mopps", "difficulty_pools"]},
        "allocation": {"rule": "never_give_up", "max_attempts": 2},
    },
    "lagged": {"rollouts": {"engine": "scripted", "in_flight": 64, "weight_lag": 3}},
    "max_rl": {"allocation": {"rule": "fixed"}, "credit": {"advantage": "max_rl"}},
    "errors": {"rollouts": {"engine": "scripted", "in_flight": 64, "options": {"error_rate": 0.2, "length_cv": 0.5}}},
}


@pytest.mark.parametrize("name", RULES)
def test_every_rollout_has_one_fate_and_counters_add_up(name):
    pipeline, sink, limits = build(RULES[name])
    run(pipeline, limits)
    assert pipeline.trainer.version == 30
    check(pipeline, sink)
    assert [s["version"] for s in sink.tables["steps"]] == list(range(1, 31))


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_nothing_older_than_max_staleness_is_trained(staleness):
    data = {"training": {"max_staleness": staleness}, "rollouts": {"engine": "scripted", "in_flight": 128}}
    pipeline, sink, limits = build(data)
    run(pipeline, limits)
    ages = [r["update"] - r["version_start"] for r in sink.tables["rollouts"] if r["fate"] == "trained"]
    assert ages and max(ages) <= staleness
    if staleness:
        assert max(ages) >= 1, "this run was meant to be asynchronous"
    check(pipeline, sink)


def test_on_policy_means_nothing_in_flight_at_an_update():
    pipeline, _, limits = build({"training": {"max_staleness": 0}}, budget={"updates": 10})
    seen = []
    update = pipeline.trainer.update

    def spy(batch):
        seen.append(pipeline.engine.in_flight)
        return update(batch)

    pipeline.trainer.update = spy
    run(pipeline, limits)
    assert seen == [0] * 10


@pytest.mark.parametrize("flops", [1e10, 3e10])
def test_a_flop_budget_is_never_exceeded(flops):
    pipeline, sink, limits = build({}, budget={"flops": flops})
    run(pipeline, limits)
    assert pipeline.recorder.flops_total <= flops
    assert pipeline.recorder.flops_total > 0.9 * flops, "the budget was hardly used"
    check(pipeline, sink)


@pytest.mark.parametrize(("limit", "value"), [("rollouts", 1000), ("tokens", 20_000)])
def test_rollout_and_token_budgets_are_never_exceeded(limit, value):
    pipeline, sink, limits = build({}, budget={limit: value})
    run(pipeline, limits)
    used = pipeline.submitted if limit == "rollouts" else pipeline.engine.tokens_generated
    assert 0.9 * value < used <= value
    check(pipeline, sink)


def test_accepted_groups_are_trained_when_the_problems_run_out():
    """A batch that can no longer fill up is trained on as it is: nothing accepted is lost."""
    pipeline, sink, limits = build({"training": {"groups_per_update": 1000}}, epochs=1)
    run(pipeline, limits)
    assert pipeline.trainer.version == 1
    accepted = sum(v["kind"] == "accept" for v in sink.tables["verdicts"])
    assert accepted > 5
    assert sum(g["kind"] == "accept" and g["update"] is not None for g in sink.tables["groups"]) == accepted
    check(pipeline, sink)


def test_dynamic_refills_until_the_batch_is_full_and_stops_at_its_bound():
    pipeline, sink, limits = build({"allocation": {"rule": "dynamic", "max_refills": 10}, "selection": {"rule": "all"}})
    run(pipeline, limits)
    assert {s["batch/groups"] for s in sink.tables["steps"]} == {4.0}
    pipeline, sink, limits = build(
        {"allocation": {"rule": "dynamic", "group_size": 2, "max_refills": 0}, "selection": {"rule": "all"}}
    )
    run(pipeline, limits)
    assert min(s["batch/groups"] for s in sink.tables["steps"]) < 4
    check(pipeline, sink)


def test_the_denominator_counts_generated_or_kept():
    """`count` changes what the loss is divided by and nothing else of the batch."""
    batches = {}
    for count in ("generated", "kept"):
        pipeline, _, limits = build(
            {"selection": {"rule": "leverage", "share": 0.5, "count": count}}, budget={"updates": 1}
        )
        update = pipeline.trainer.update
        pipeline.trainer.update = lambda batch, c=count, u=update: (batches.setdefault(c, batch), u(batch))[1]
        run(pipeline, limits)
    generated, kept = batches["generated"], batches["kept"]
    assert len(generated.rows_B) == len(kept.rows_B) == kept.count_sequences
    assert generated.count_sequences > kept.count_sequences
    assert kept.count_tokens == sum(r.rollout.trained_tokens for r in kept.rows_B)
    assert generated.count_tokens > kept.count_tokens
    assert {r.half for r in kept.rows_B} == {0, 1}


def test_importance_ratios_reach_the_rows_they_belong_to():
    pipeline, sink, limits = build({}, budget={"updates": 3})
    update = pipeline.trainer.update
    given = []

    def with_ratios(batch):
        ratios_B = tuple(1.0 + len(given) + 0.01 * b for b in range(len(batch.rows_B)))
        given.extend(ratios_B)
        return replace(update(batch), importance_ratio_B=ratios_B)

    pipeline.trainer.update = with_ratios
    run(pipeline, limits)
    trained = [r["importance_ratio"] for r in sink.tables["rollouts"] if r["fate"] == "trained"]
    assert trained == given and len(given) > 3


def test_same_seed_same_rows():
    tables = []
    for _ in range(2):
        pipeline, sink, limits = build({})
        run(pipeline, limits)
        tables.append([{k: v for k, v in r.items() if k != "wall"} for r in sink.tables["rollouts"]])
    assert tables[0] == tables[1]
