"""`gumption simulate` and `gumption plan` on the command line: tables, JSON, figures, recipes, errors in one line."""

import json
import os
import subprocess
import sys

import pytest


def gumption(*args, cwd):
    return subprocess.run(
        [sys.executable, "-m", "gumption.cli.main", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"},
    )


RECIPE = """
[allocation]
rule = "never_give_up"
[rollouts]
in_flight = 64
[training]
groups_per_update = 4
[simulation]
size = 40
mean_length = 12
trainer_tokens_per_second = 500
[budget]
updates = 5
"""


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_help_has_examples_and_loads_nothing_heavy(command, tmp_path):
    code = (
        "import sys\nfrom gumption.cli import main\n"
        f"sys.argv = ['gumption', {command!r}, '--help']\n"
        "try:\n    main.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "assert not {'torch', 'transformers', 'plotly', 'datasets'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Examples" in done.stdout and f"gumption {command}" in done.stdout and "--json" in done.stdout


def test_simulate_prints_a_table_json_and_figures(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    shown = gumption("simulate", "r.toml", "--problems", "0.02, 0.3, 0.7", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "Where the rollouts go" in shown.stdout and "5 updates" in shown.stdout and "staleness" in shown.stdout
    done = gumption("simulate", "r.toml", "--json", "--plot", "x.html", cwd=tmp_path)
    data = json.loads(done.stdout)
    assert data["updates"] == 5 and len(data["series"]) == 5
    assert sum(data["rollouts_by_fate"].values()) == data["rollouts"]
    page = (tmp_path / "x.html").read_text()
    assert page.count("of the tokens") >= 2 and "effective rollouts" in page


def test_simulate_loads_neither_torch_nor_plotly(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    code = (
        "import sys\nfrom gumption.cli import main\n"
        "sys.argv = ['gumption', 'simulate', 'r.toml']\n"
        "try:\n    main.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "assert not {'torch', 'transformers', 'plotly', 'datasets'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_plan_writes_a_recipe_that_simulate_takes(tmp_path):
    done = gumption(
        "plan", "--profile", "beta(0.5, 1)", "--model-params", "1.7e9", "--budget", "6h", "--gpus", 4,
        "--mean-length", 300, "--max-tokens", 1000, "--model", "some/model", "--problems", "scripted",
        "--out", "p.toml", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert len(data["ranking"]) >= 3 and len(data["reasons"]) == 6 and data["hardware"]["source"]
    assert (tmp_path / "p.toml").read_text() == data["recipe"]
    run = gumption("simulate", "p.toml", "--set", "budget.updates=2", "--json", cwd=tmp_path)
    assert json.loads(run.stdout)["updates"] == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["simulate", "missing.toml"], "no recipe at missing.toml"),
        (["simulate", "--set", "simulation.mean_lenght=3"], "did you mean 'mean_length'"),
        (["simulate", "--problems", "missing.parquet"], "no pass-rate profile at missing.parquet"),
        (["plan", "--profile", "0.5", "--model-params", "4e9", "--budget", "24"], "24h for hours"),
        (["plan", "--profile", "0.5", "--model-params", "4e9", "--budget", "1d", "--hardware", "h10"], "'h100'"),
        (["plan", "--profile", "0.5", "--model-params", "0", "--budget", "1d"], "above 0"),
    ],
)
def test_errors_are_one_readable_line(args, words, tmp_path):
    done = gumption(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr and len(done.stderr.strip().splitlines()) == 1
