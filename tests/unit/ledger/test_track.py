import sys
import types

import pytest

from gumption.config import LedgerConfig
from gumption.ledger.track import Tracker, make_trackers

METRICS = {"reward/mean": 0.25, "flops/total": 10**20, "loss": float("nan"), "skipped": True}


def test_no_tracker_by_default(tmp_path):
    assert make_trackers(LedgerConfig(), tmp_path) == []


def test_tensorboard_writes_scalars_that_tensorboard_reads(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tracker,) = make_trackers(LedgerConfig(track=("tensorboard",)), tmp_path)
    assert isinstance(tracker, Tracker)
    for version in (1, 2):
        tracker.log(version, METRICS | {"reward/mean": version / 4})
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["flops/total", "reward/mean"]
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.25), (2, 0.5)]


@pytest.fixture
def fake(monkeypatch):
    """Stands in for wandb and trackio: records what it is asked to do."""
    calls = []
    run = types.SimpleNamespace(
        log=lambda row, step: calls.append(("log", step, row)), finish=lambda: calls.append(("finish",))
    )

    def init(**settings):
        calls.append(("init", settings))
        return run

    module = types.SimpleNamespace(init=init, log=run.log, finish=run.finish)
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setitem(sys.modules, "trackio", module)
    return calls


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_wandb_and_trackio_get_settings_without_secrets_and_one_row_per_step(tmp_path, fake, name):
    (tmp_path / "config.toml").write_text('seed = 3\n[rewards.options]\napi_key = "hush"\n')
    (tracker,) = make_trackers(LedgerConfig(track=(name,), project="maths"), tmp_path)
    tracker.log(1, METRICS)
    tracker.close()
    tracker.close()
    kind, settings = fake[0]
    assert (kind, settings["project"], settings["name"]) == ("init", "maths", tmp_path.name)
    assert settings["config"] == {"seed": 3, "rewards": {"options": {"api_key": "[redacted]"}}}
    assert fake[1:] == [("log", 1, {"reward/mean": 0.25, "flops/total": 1e20}), ("finish",)]


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, fake):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"names 'wandb', but it cannot be imported .*pip install 'gumption\[track\]'"):
        make_trackers(LedgerConfig(track=("trackio", "wandb")), tmp_path)
    assert fake[-1] == ("finish",), "the one that had started is closed"


def test_one_that_cannot_start_is_one_error(tmp_path, monkeypatch, fake):
    def broken(**settings):
        raise RuntimeError("no api key")

    monkeypatch.setattr(sys.modules["wandb"], "init", broken)
    with pytest.raises(ValueError, match=r"ledger\.track: wandb cannot start: no api key"):
        make_trackers(LedgerConfig(track=("wandb",)), tmp_path)


def test_one_that_fails_later_is_dropped_with_a_warning(tmp_path, monkeypatch, fake, caplog):
    (tracker,) = make_trackers(LedgerConfig(track=("trackio",)), tmp_path)

    def down(row, step):
        raise ConnectionError("network is down")

    monkeypatch.setattr(sys.modules["trackio"], "log", down)
    tracker.log(1, METRICS)
    monkeypatch.undo()
    tracker.log(2, METRICS)
    tracker.close()
    assert caplog.text.count("trackio failed and is dropped for the rest of the run: network is down") == 1
    assert [c[0] for c in fake] == ["init"]
