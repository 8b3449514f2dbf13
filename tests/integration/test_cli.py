"""The command line: help with examples, one-line errors with the way out, exit codes, JSON."""

import json
import os
import subprocess
import sys

import pytest

SCRIPTED = ["--set", "rollouts.engine=scripted", "--problems", "scripted", "--set", "problems.size=40"]
SHORT = ["--set", "budget.updates=1"]


def gumption(*args, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "gumption.cli.main", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1", **env},
    )


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["train"],
        ["resume"],
        ["eval"],
        ["problems"],
        ["problems", "show"],
        ["problems", "check"],
        ["report"],
        ["explain"],
    ],
)
def test_help_has_examples_and_loads_nothing_heavy(command):
    code = (
        "import sys\n"
        "from gumption.cli import main\n"
        f"sys.argv = ['gumption', *{command!r}, '--help']\n"
        "try:\n    main.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "assert not {'torch', 'transformers', 'plotly', 'datasets'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "Usage" in text
    if command and command != ["problems"]:
        assert "Examples" in text and "gumption " + " ".join(command) in text
        assert "--json" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "missing.toml"], "no recipe at missing.toml"),
        (["train", "--set", "allocation.groupsize=3"], "did you mean 'group_size'"),
        (["train", "--set", "nonsense"], "--set 'nonsense'"),
        (["train", "--model", "no/such/folder/x", *SHORT], "no/such/folder/x"),
        (["train", "--problems", "missing.jsonl", *SCRIPTED[:2], *SHORT], "missing.jsonl"),
        (["train", "--problems", "gym:no_such_task", *SCRIPTED[:2], *SHORT], "no_such_task"),
        (["train", *SCRIPTED], "--set budget.wall=2h"),
        (["resume", "nowhere"], "nowhere holds no run"),
        (["report", "nowhere"], "nowhere"),
        (["eval", "no/such/model"], "no/such/model"),
        (["problems", "check", "missing.jsonl"], "missing.jsonl"),
    ],
)
def test_mistakes_are_one_line_with_exit_code_2(args, words, tmp_path):
    done = gumption(*args, cwd=tmp_path)
    assert done.returncode == 2, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(("loading", "Loading"))]
    assert len(lines) == 1 and lines[0].startswith("gumption: "), done.stderr
    assert words in lines[0]
    assert "Traceback" not in done.stderr


def test_unknown_options_are_a_usage_error():
    done = gumption("train", "--no-such-option")
    assert done.returncode == 2 and "no-such-option" in done.stderr


def test_version():
    assert gumption("--version").stdout.startswith("gumption 0.")


def test_train_json_resume_report(tmp_path):
    out = tmp_path / "run"
    done = gumption("train", *SCRIPTED, "--set", "budget.updates=5", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == {"folder": str(out), **json.loads((out / "summary.json").read_text())}
    assert summary["updates"] == 5 and summary["reason"] == "updates"
    assert {"before", "after"} <= set(summary["pass_rate"])
    assert set(summary["flops"]) >= {"prefill", "decode", "score", "train", "total", "wasted", "eval"}
    assert set(summary["wall_s"]) >= {"generation", "train", "verify", "total"}
    assert set(summary["bits"]) == {"cum", "per_ktok", "per_pflop"}
    assert (out / "report.html").exists()

    again = gumption("train", *SCRIPTED, "--set", "budget.updates=5", "--out", out)
    assert again.returncode == 2 and "--overwrite" in again.stderr

    report = gumption("report", out, "--json", "--out", tmp_path / "page.html")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout) and (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_train_prints_a_page_worth_reading(tmp_path):
    done = gumption("train", *SCRIPTED, "--set", "budget.updates=5", "--set", "seed=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("Pass rate on the training problems", "extra hard", "5 updates", "FLOPs", "ended because", "report"):
        assert words in done.stdout
    assert (tmp_path / "runs" / "latest" / "summary.json").exists()
    assert "evaluating before" in done.stderr and "training" in done.stderr


def test_ledger_on_a_full_disk_is_one_line(tmp_path):
    """A run folder that cannot be written ends with exit code 2 or 3 and one line."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = gumption("train", *SCRIPTED, "--out", blocked / "run", "--set", "budget.updates=1")
    assert done.returncode in (2, 3)
    assert len(done.stderr.strip().splitlines()) <= 2 and "Traceback" not in done.stderr


def test_a_bare_train_is_the_skill_chain_recipe():
    from pathlib import Path

    from gumption.cli.train import read_config
    from gumption.config import RunConfig

    recipe = Path(__file__).parents[2] / "recipes" / "skill_chain.toml"
    assert read_config(None, None, None, []) == RunConfig.from_toml(recipe)
    assert read_config(None, None, None, ["budget.updates=3"]).budget.flops is None
    assert read_config(None, None, None, ["seed=3"]).budget.flops == 1.4e12
