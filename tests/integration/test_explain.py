"""`gumption explain`, and an exact objective in a real run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gumption
from gumption.ledger.reader import Ledger
from gumption.planning.exact import solution_of

RECIPES = Path(__file__).parents[2] / "recipes"
GRPO = '[allocation]\nrule = "fixed"\n[credit]\nadvantage = "rloo"\n[selection]\nrule = "all"\n[training]\n'
EXACT = 'max_staleness = 0\ndenominator = "sequences"\n'


def explain(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "gumption.cli.main", "explain", *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "140", "NO_COLOR": "1", **env},
    )


def test_the_default_recipe_is_explained():
    done = explain()
    assert done.returncode == 0, done.stderr
    assert "never_give_up (groups of 8), chain, leverage .5" in done.stdout
    assert "none of the known ones" in done.stdout
    assert "max_staleness = 4" in done.stdout and "exact enumeration" in done.stdout


def test_two_recipes_as_json_with_a_page(tmp_path):
    pytest.importorskip("plotly")
    (tmp_path / "rloo.toml").write_text(GRPO + EXACT)
    page = tmp_path / "page.html"
    done = explain(tmp_path / "rloo.toml", "--against", RECIPES / "skill_chain.toml", "--plot", page, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rloo, ngu = result["recipes"]
    assert rloo["objective"] == "expected_reward" and rloo["caveats"] == []
    assert all(row["variance_cost_vs_rloo"] == pytest.approx(1) for row in rloo["rows"])
    assert [round(row["w_relative"], 2) for row in ngu["rows"]][:4] == [8.22, 4.81, 2.98, 1.82]
    assert result["plot"] == str(page)
    html = page.read_text()
    assert "<script src" not in html and "skill_chain" in html and "plotly" in html.lower()


def test_settings_change_the_first_recipe():
    done = explain("--set", "credit.objective=max_rl", "--set", "credit.truncation=12", "--json")
    [recipe] = json.loads(done.stdout)["recipes"]
    assert (recipe["objective"], recipe["objective_words"]) == ("max_rl", "MaxRL(12)")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["missing.toml"], "no recipe at missing.toml"),
        (["--against", "missing.toml"], "no recipe at missing.toml"),
        (["--set", "credit.objective=max_rl", "--set", "credit.truncation=500"], "use 1 … 128"),
        (["--set", "credit.objective=best"], "credit.objective"),
        (["--plot", "no/such/folder/page.html"], "cannot write"),
    ],
)
def test_mistakes_are_one_line_with_the_way_out(args, words):
    done = explain(*args)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 and words in done.stderr


def test_it_loads_neither_torch_nor_plotly():
    code = (
        "import sys\nfrom gumption.cli import main\nsys.argv = ['gumption', 'explain']\n"
        "try:\n    main.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "assert not {'torch', 'plotly', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("selection", ["all", "leverage"])
def test_a_run_trains_with_the_coefficients(tmp_path, selection):
    """Every accepted group's advantages in the ledger add up to its state's α and −β."""
    config = {
        "problems": {"source": "scripted", "size": 40},
        "rollouts": {"engine": "scripted", "in_flight": 64},
        "allocation": {"group_size": 4, "max_attempts": 3, "retry_probability": 1.0, "max_age": -1},
        "credit": {"objective": "expected_reward"},
        "selection": {"rule": selection},
        "training": {"max_staleness": 50, "denominator": "sequences"},
        "budget": {"updates": 40},
        "eval": {"samples": 0},
    }
    result = gumption.train(config, out=tmp_path / "run")
    table = solution_of(gumption.RunConfig.from_dict(config)).table()
    rows = Ledger(result.folder).read("rollouts")
    rows = rows.filter(rows["fate"].is_in(["trained", "not_selected"]))
    seen = 0
    for _, group in rows.group_by(["problem_id", "visit"]):
        rewards = group["reward"].to_numpy()
        advantages = group["advantage"].to_numpy()
        key = (len(rewards), int(rewards.sum()))
        assert key in table
        alpha, beta = table[key]
        assert advantages[rewards > 0].sum() == pytest.approx(alpha, rel=1e-5, abs=1e-7)
        assert -advantages[rewards == 0].sum() == pytest.approx(beta, rel=1e-5, abs=1e-7)
        seen += 1
    assert seen > 50
    kept = rows.filter(rows["fate"] == "trained")
    assert (np.abs(kept["advantage"].to_numpy()) > 0).all()
    if selection == "leverage":
        assert kept.height < 0.6 * rows.height
