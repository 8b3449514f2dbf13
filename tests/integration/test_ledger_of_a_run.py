"""The ledger that the real pipeline writes (scripted engine): it adds up, also after crashes, and is documented."""

import pytest

import gumption
from gumption.ledger import Ledger
from gumption.ledger.metrics import METRICS
from gumption.ledger.schema import TABLES
from gumption.training.run import Observer, resume

CONFIG = {
    "model": {"path": "none"},
    "rollouts": {"engine": "scripted", "in_flight": 64},
    "problems": {"source": "scripted", "size": 40},
    "training": {"checkpoint_every": 8},
    "eval": {"samples": 8, "every": 10},
    "budget": {"updates": 24},
    "ledger": {"flush_rows": 300, "text": "all"},
}


class Crash(BaseException):
    """As good as a kill: nothing is flushed, no checkpoint is written."""


class CrashAt(Observer):
    def __init__(self, update):
        self.update = update

    def step(self, metrics, fraction):
        if metrics["batch/version"] == self.update:
            raise Crash


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Its own tests cover it; it would take most of the time here."""
    monkeypatch.setattr("gumption.report.write_report", lambda folder: None)


@pytest.fixture(autouse=True)
def checkpoints_on_time(monkeypatch):
    """On a busy machine they would wait for their share of the time."""
    monkeypatch.setattr("gumption.training.run.CHECKPOINT_SHARE", 0)


def test_rows_and_counters_agree_and_every_metric_is_documented(tmp_path):
    result = gumption.train(CONFIG, out=tmp_path / "run")
    ledger = Ledger(tmp_path / "run")
    assert ledger.check() == []
    assert ledger.rollouts().height == result.summary["rollouts"] > 1000
    steps = ledger.steps()
    documented = {c.name for c in TABLES["steps"]} | {c.name for c in METRICS}
    assert set(steps.columns) - documented == set()
    assert steps["version"].to_list() == list(range(1, 25))
    assert sorted(ledger.evals()["version"].unique()) == [0, 10, 20, 24]
    assert sorted(p.name for p in (tmp_path / "run" / "ledger").iterdir()) == sorted([*TABLES, "ledger.json"])


def test_it_adds_up_after_two_crashes_from_the_same_checkpoint(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        gumption.train(CONFIG, out=folder, observer=CrashAt(14))
    for update in (11, 15):
        with pytest.raises(Crash):
            resume(folder, observer=CrashAt(update))
    result = resume(folder)
    ledger = Ledger(folder)
    assert ledger.check() == []
    lost = ledger.lost()
    assert lost.height == result.summary["rollouts_lost"] > 0
    assert lost["lost_fate"].is_in(["trained", "not_selected", "gave_up", "solved", "stale"]).all()
    committed = Ledger(folder).rollouts().drop("wall", "text").sort("problem_id", "visit", "attempt", "member")
    gumption.train(CONFIG, out=tmp_path / "other")
    other = Ledger(tmp_path / "other").rollouts().drop("wall", "text")
    assert committed.equals(other.sort("problem_id", "visit", "attempt", "member"))
    assert "rollouts_lost" in result.summary
