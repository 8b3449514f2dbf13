"""Every TOML block of docs/papers.md is a valid partial recipe, and the documented names exist."""

import re
import tomllib
from pathlib import Path

import pytest

from gumption.config import RunConfig
from gumption.credit import make_credit
from gumption.selection import make_selector

DOCS = Path(__file__).parents[3] / "docs"
PAPERS = (DOCS / "papers.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```toml\n(.*?)^```", PAPERS, re.DOTALL | re.MULTILINE)


def test_every_toml_block_was_found():
    assert len(RECIPES) == PAPERS.count("```toml") >= 10


@pytest.mark.parametrize(("method", "recipe"), RECIPES, ids=[method for method, _ in RECIPES])
def test_recipe(method, recipe):
    config = RunConfig.from_dict(tomllib.loads(recipe))
    assert make_credit(config)([]) == []
    make_selector(config)


def test_baselines_are_what_their_name_says():
    configs = {method: RunConfig.from_dict(tomllib.loads(recipe)) for method, recipe in RECIPES}
    for method in ("GRPO", "RLOO", "Dr. GRPO", "DAPO", "MaxRL", "Never Give Up (NGU)"):
        assert configs[method].selection.rule == "all"
    assert configs["GRPO"].advantage == "grpo"
    assert configs["Dr. GRPO"].training.denominator == "constant"
    assert configs["DAPO"].allocation.rule == "dynamic"
    assert configs["Never Give Up (NGU)"].allocation.max_attempts is None
    assert configs["Never Give Up (NGU)"].advantage == "chain"


@pytest.mark.parametrize("name", ["concepts.md", "papers.md"])
def test_files_that_the_docs_name_exist(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:docs|examples|src|tests)/[\w./-]+)`", text))
    paths |= {f"src/gumption/{p}" for p in re.findall(r"`((?:credit|selection|allocation)/[\w/]+\.py)`", text)}
    assert paths or name == "papers.md"
    for path in paths:
        assert (DOCS.parent / path).exists(), path


def test_concepts_stay_short():
    assert len((DOCS / "concepts.md").read_text(encoding="utf-8").splitlines()) <= 150
