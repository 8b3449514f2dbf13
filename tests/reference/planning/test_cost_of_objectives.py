"""What docs/objectives.md says of costs, from the committed result of benchmarks/exact_objectives.py."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = json.loads((ROOT / "benchmarks/results/exact_objectives.json").read_text())["rows"]


def row(rule, objective, selection="all"):
    [found] = [r for r in ROWS if (r["rule"], r["objective"], r["selection"]) == (rule, objective, selection)]
    return found


def test_every_case_meets_the_bar():
    assert len(ROWS) == 20
    assert max(r["identity_error"] for r in ROWS) < 1e-9


@pytest.mark.parametrize(
    ("rule", "mean", "on_grid", "rloo"),
    [
        ("rounds of 4, cap 12, until a success", 1.51, 1.41, 1.333),
        ("rounds of 4, cap 12, until both classes", 1.52, 1.43, 1.333),
        ("never_give_up, groups of 8, retry 1, 3 attempts", 1.23, None, 1.143),
    ],
)
def test_adaptive_stopping_does_not_beat_rloo_on_expected_reward(rule, mean, on_grid, rloo):
    r = row(rule, "expected reward")
    assert r["rloo"] == rloo
    assert r["mean"] == pytest.approx(mean, abs=0.006)
    assert min(r["mean"], r["mean_on_solver_grid"]) > rloo
    assert on_grid is None or r["mean_on_solver_grid"] == pytest.approx(on_grid, abs=0.006)


def test_the_tables_of_the_page_are_those_of_the_result():
    page = (ROOT / "docs/objectives.md").read_text()
    for r in ROWS:
        if r["selection"] == "all":
            cells = " | ".join(f"{v:.2f}" for v in [*r["variance_x_rollouts"], r["mean"]])
            assert f"| {cells} |" in page, r["rule"]
