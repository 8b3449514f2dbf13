"""Published numbers of problems, rows, splits, the source `manufactoria`."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from gumption.config import ProblemsConfig
from gumption.problems.manufactoria import load
from gumption.problems.manufactoria.families import FAMILIES
from gumption.problems.manufactoria.families.prepend_sequence import REPLACEMENTS
from gumption.problems.manufactoria.rows import make_row, problem_from_row
from gumption.problems.manufactoria.sets import published_set
from gumption.problems.manufactoria.verdict import read_tests

PUBLISHED = {
    "basic_mix": (348, 27),
    "has": (742, 132),
    "regex": (561, 99),
    "compr": (535, 95),
    "ends": (107, 19),
    "prepend": (595, 105),
    "mutate": (612, 108),
    "minmax": (501, 11),
    "bit_op": (0, 21),
    "add": (0, 14),
    "fdiv": (0, 7),
    "symm": (0, 100),
}


@pytest.mark.parametrize(("name", "sizes"), PUBLISHED.items())
def test_published_sizes(name: str, sizes: tuple[int, int]) -> None:
    train, test = published_set(name)
    assert (len(train), len(test)) == sizes
    problems = [(task.family, json.dumps(task.parameters.to_dict())) for task in train + test]
    assert len(set(problems)) == sum(sizes)  # split by parameters: none twice, none in both parts
    assert published_set(name) == (train, test)


def test_published_counts_of_families() -> None:
    has = Counter(task.family for part in published_set("has") for task in part)
    assert has == {"contains_count": 194, "contains_ordered": 340, "contains_substring": 340}

    def count(name: str, colors: str, *difficulties: str) -> int:
        return sum(len(FAMILIES[name].parameters(d, colors)) for d in difficulties)

    assert count("append_sequence", "RBYG", "easy") == 340  # four-colour strings of length 1–4
    assert count("exact_sequence", "RB", "easy", "medium") == 126  # two-colour strings of length 1–6
    assert count("regex_same_num", "RB", "hard") == 100
    assert count("regex_pattern", "RBYG", "easy") == 60
    assert count("numerical_comparison", "RB", "easy") == count("numerical_comparison", "RB", "medium") == 315
    assert count("prepend_sequence", "RB", "easy") == 30
    assert count("prepend_sequence", "RB", "hard") == 720 and len(REPLACEMENTS) == 24
    assert count("numerical_max_min", "RB", "hard") == 512
    by_size = Counter(len(p.counts) for p in FAMILIES["contains_count"].parameters("easy", "RBYG"))
    assert by_size == {1: 24, 2: 90, 3: 80}


def test_rows_have_the_published_columns() -> None:
    p = FAMILIES["append_sequence"].parameters("easy", "RBYG")[100]
    row = json.loads(json.dumps(make_row("append_sequence", p, "easy")))
    assert list(row)[:7] == ["messages", "ground_truth", "dataset", "difficulty", "id", "problem_family", "name"]
    assert row["dataset"] == "manufactoria" and row["problem_family"] == "append_sequence"
    assert list(row["ground_truth"][0]) == [
        "input", "expected_output", "expected_accepted", "check_output", "description",
    ]  # fmt: skip
    (message,) = row["messages"]
    assert message["role"] == "user"
    assert message["content"].endswith(FAMILIES["append_sequence"].criterion(p))
    assert "are checked" in message["content"] and "PULLER_YG" in message["content"]
    problem = problem_from_row(row)
    assert problem.verifier == "manufactoria" and len(read_tests(problem.answer)) == len(row["ground_truth"])
    family = FAMILIES["append_sequence"]
    assert family.parameters_type.from_dict(problem.meta["parameters"]) == p


def test_acceptance_prompts_say_so_and_name_two_colours() -> None:
    p = FAMILIES["starts_with"].parameters("easy", "RB")[5]
    text = make_row("starts_with", p, "easy")["messages"][0]["content"]
    assert text.endswith(" The input tape holds red and blue only.") and "does not matter" in text


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_survive_json(name: str) -> None:
    family = FAMILIES[name]
    for p in family.parameters(family.default_difficulty, family.default_colors)[:5]:
        assert family.parameters_type.from_dict(json.loads(json.dumps(p.to_dict()))) == p
        assert family.criterion(p).endswith(".")
    with pytest.raises(ValueError, match="needs the fields"):
        family.parameters_type.from_dict({"colors": "RB"})


def config(**values: object) -> ProblemsConfig:
    return ProblemsConfig.model_validate({"source": "manufactoria", **values})


def test_a_family_as_source() -> None:
    options = {"difficulty": ["easy", "medium"], "colors": "RB"}
    train = load(config(options=options), argument="ends_with", seed=0, held_out=False)
    test = load(config(options=options), argument="ends_with", seed=0, held_out=True)
    assert (len(train), len(test)) == (107, 19)
    assert not {p.meta["name"] for p in train} & {p.meta["name"] for p in test}
    again = load(config(options=options), argument="ends_with", seed=0, held_out=False)
    assert [p.id for p in again] == [p.id for p in train]
    other = load(config(options=options), argument="ends_with", seed=1, held_out=False)
    assert {p.id for p in other} != {p.id for p in train}
    assert len(load(config(size=5), argument="regex_same_num", seed=0, held_out=False)) == 5


def test_a_published_set_as_source() -> None:
    assert len(load(config(), argument="ends", seed=0, held_out=True)) == 19
    for held_out in (False, True):  # for evaluation only: the same problems either way
        assert len(load(config(), argument="fdiv", seed=0, held_out=held_out)) == 7


@pytest.mark.parametrize(
    ("argument", "options", "message"),
    [
        ("nothing", {}, "unknown problem source 'manufactoria:nothing'; known arguments: mini, basic_mix"),
        ("", {"difficulty": "easy"}, "has no options"),
        ("has", {"difficulty": "easy"}, "has no options"),
        ("ends_with", {"colour": "RB"}, "no option 'colour'; known: colors, difficulty, train_percent"),
        ("ends_with", {"difficulty": "x"}, "no difficulty 'x'"),
        ("ends_with", {"train_percent": 101}, "train_percent = 101"),
    ],
)
def test_mistakes_are_named(argument: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(config(options=options), argument=argument, seed=0, held_out=False)
