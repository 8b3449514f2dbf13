"""Kill −9 at random moments and resume: nothing is lost, nothing is trained twice, counters add up.

With the scripted engine the committed rows (sorted, without wall times) equal those of a run that was never killed.
With the torch engine the invariants hold; equality of bits is not promised there.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from gumption.config import RunConfig
from gumption.ledger import Ledger

SCRIPTED = {
    "seed": 3,
    "rollouts": {"engine": "scripted", "in_flight": 64},
    "problems": {"source": "scripted", "size": 200},
    "training": {"checkpoint_every": 7, "checkpoint_seconds": 1e9},
    "eval": {"samples": 4},
    "ledger": {"text": "all", "flush_rows": 300},
    "budget": {"updates": 150},
}
TORCH = {
    "seed": 3,
    "rollouts": {"in_flight": 64},
    "training": {"checkpoint_every": 5, "checkpoint_seconds": 1e9, "threads": 1},
    "eval": {"samples": 0},
    "ledger": {"flush_rows": 300},
    "budget": {"updates": 60},
}
KEYS = {
    "rollouts": ["problem_id", "visit", "attempt", "member"],
    "verdicts": ["problem_id", "visit", "attempt"],
    "groups": ["problem_id", "visit"],
    "steps": ["version"],
    "evals": ["version", "set", "problem_id"],
}


def start(recipe: Path, folder: Path) -> subprocess.Popen:
    verb = (
        ["resume", str(folder)] if (folder / "config.toml").exists() else ["train", str(recipe), "--out", str(folder)]
    )
    return subprocess.Popen(
        [sys.executable, "-m", "gumption.cli.main", *verb, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(recipe: Path, folder: Path) -> float:
    begin = time.perf_counter()
    process = start(recipe, folder)
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()
    return time.perf_counter() - begin


def kill_after(recipe: Path, folder: Path, seconds: float) -> bool:
    """Start or resume, kill −9 after so long. Returns whether the process was still alive."""
    process = start(recipe, folder)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    return False


def write_recipe(path: Path, data: dict) -> Path:
    path.write_text(RunConfig.from_dict(data).to_toml())
    return path


def committed(folder: Path, table: str) -> pl.DataFrame:
    frame = getattr(Ledger(folder), table)()
    timed = [c for c in frame.columns if c.startswith("time/") or c in ("wall", "flops/total", "flops/wasted")]
    if table == "steps":
        timed += ["info/bits_per_pflop"]
    if table == "evals":
        timed += ["run_flops"]
    frame = frame.drop(c for c in timed if c in frame.columns)
    return frame.select(sorted(frame.columns)).sort(KEYS[table])


def check_invariants(folder: Path) -> None:
    ledger = Ledger(folder)
    rollouts = ledger.rollouts()
    assert rollouts.select(KEYS["rollouts"]).is_duplicated().sum() == 0, "a rollout has two rows"
    trained = rollouts.filter(pl.col("fate") == "trained")
    steps = ledger.steps()
    assert trained.height == int(steps["batch/rollouts"].sum())
    assert steps["version"].to_list() == list(range(1, steps.height + 1))
    summary = json.loads((folder / "summary.json").read_text())
    flops = summary["flops"]
    for stage in ("prefill", "decode", "score", "train"):
        assert int(rollouts[f"flops_{stage}"].sum()) == flops[stage], stage
    assert flops["total"] == sum(flops[k] for k in ("prefill", "decode", "score", "train", "lost"))
    useful = rollouts.filter(pl.col("fate").is_in(["trained", "not_selected"]))
    spent = sum(int(useful[f"flops_{s}"].sum()) for s in ("prefill", "decode", "score", "train"))
    assert flops["wasted"] == flops["total"] - spent
    assert summary["rollouts"] == rollouts.height
    assert summary["tokens"]["generated"] == int(rollouts["completion_tokens"].sum())
    assert summary["tokens"]["trained"] == int(rollouts["trained_tokens"].sum())
    assert summary["rollouts_by_fate"] == dict(sorted(rollouts["fate"].value_counts().iter_rows()))


def kill_many(tmp_path: Path, data: dict, kills: int, seed: int) -> tuple[Path, Path]:
    recipe = write_recipe(tmp_path / "recipe.toml", data)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    length = finish(recipe, whole)
    rng = random.Random(seed)
    killed = 0
    for _ in range(kills):
        # A resumed run is shorter than a whole one; a moment past its end would be no kill.
        killed += kill_after(recipe, broken, rng.uniform(0.2, 1.0) * length * 0.7)
    assert killed >= 1
    if (
        not (broken / "summary.json").exists()
        or json.loads((broken / "summary.json").read_text())["reason"] != "updates"
    ):
        finish(recipe, broken)
    return whole, broken


def test_scripted_run_killed_three_times_has_the_same_rows(tmp_path):
    whole, broken = kill_many(tmp_path, SCRIPTED, kills=3, seed=1)
    for table in KEYS:
        assert committed(whole, table).equals(committed(broken, table)), table
    check_invariants(broken)
    check_invariants(whole)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scripted_run_killed_at_twenty_random_moments(tmp_path):
    """Each of the 20 kills is followed by its own resume and compared."""
    recipe = write_recipe(tmp_path / "recipe.toml", SCRIPTED)
    whole = tmp_path / "whole"
    length = finish(recipe, whole)
    expected = {table: committed(whole, table) for table in KEYS}
    rng = random.Random(20)
    killed = 0
    for k in range(20):
        broken = tmp_path / f"broken-{k}"
        killed += kill_after(recipe, broken, rng.uniform(0.1, 0.95) * length)
        finish(recipe, broken)
        for table in KEYS:
            assert expected[table].equals(committed(broken, table)), (k, table)
        check_invariants(broken)
    assert killed >= 15


@pytest.mark.slow
def test_torch_run_killed_at_random_moments_keeps_the_invariants(tmp_path):
    _, broken = kill_many(tmp_path, TORCH, kills=5, seed=2)
    check_invariants(broken)


def test_interrupt_writes_a_checkpoint_and_says_how_to_resume(tmp_path):
    recipe = write_recipe(tmp_path / "recipe.toml", {**SCRIPTED, "budget": {"updates": 100_000}})
    folder = tmp_path / "run"
    process = start(recipe, folder)
    deadline = time.time() + 60
    while not list((folder / "checkpoints").glob("*")) and time.time() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert f"gumption resume {folder}" in err.decode()
    before = Ledger(folder).steps().height
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gumption.cli.main",
            "resume",
            str(folder),
            "--quiet",
            "--set",
            f"budget.updates={before + 5}",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Ledger(folder).steps().height == before + 5
    assert Ledger(folder).lost().height == 0
    check_invariants(folder)


def test_a_finished_run_can_be_extended(tmp_path):
    recipe = write_recipe(tmp_path / "recipe.toml", {**SCRIPTED, "budget": {"updates": 20}})
    longer = write_recipe(tmp_path / "longer.toml", {**SCRIPTED, "budget": {"updates": 40}})
    finish(recipe, tmp_path / "a")
    finish(longer, tmp_path / "b")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "gumption.cli.main",
            "resume",
            str(tmp_path / "a"),
            "--quiet",
            "--set",
            "budget.updates=40",
        ],
        check=True,
        capture_output=True,
    )
    for table in ("rollouts", "verdicts", "groups", "steps"):
        assert committed(tmp_path / "a", table).equals(committed(tmp_path / "b", table)), table
    check_invariants(tmp_path / "a")
