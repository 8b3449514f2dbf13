"""Sources by name: registry, modules, Hugging Face datasets, several at once, held-out sets."""

from __future__ import annotations

import json
import textwrap

import pytest

from gumption.config import ProblemsConfig
from gumption.problems import SOURCES, load_problems, register_source
from gumption.types import Message


def load(source, *, seed=0, held_out=False, **settings):
    return load_problems(ProblemsConfig(source=source, **settings), seed=seed, held_out=held_out)


@pytest.fixture
def rows_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"q{i}", "answer": str(i)}) + "\n" for i in range(6)))
    return path


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "made_here.py").write_text(
        textwrap.dedent(
            """
            from gumption.types import Problem

            def rows(size, seed, held_out=False, digits=2):
                for i in range(size):
                    yield {"prompt": f"{digits} {seed} {held_out} {i}", "answer": str(i)}

            def fixed():
                return [Problem("a-0", "q", "1", "exact"), {"prompt": "x", "answer": "y", "verifier": "exact"}]

            def bad():
                return {"prompt": "x"}

            def broken():
                yield {"prompt": "x", "answer": "y"}
                yield 5

            not_callable = 3
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "made_here"


def test_unknown_sources_are_one_line_with_the_way_out():
    with pytest.raises(ValueError, match="did you mean 'manufactoria'"):
        load("manufacturia")
    with pytest.raises(ValueError, match="known: skill_chain"):
        load("xyz")


def test_registered_sources_are_found(module, monkeypatch):
    monkeypatch.setattr("gumption.problems.SOURCES", dict(SOURCES))
    import gumption.problems as problems

    with pytest.raises(ValueError, match="taken"):
        register_source("gym", "a:b")
    problems.register_source("mine", "gumption.problems.scripted:load")
    assert [p.answer for p in load("mine:0.5, 0.25").problems] == [{"pass_rate": 0.5}, {"pass_rate": 0.25}]


def test_a_module_function_gets_what_it_asks_for(module):
    problems = load(f"{module}:rows", seed=7, size=3, options={"digits": 4})
    assert [p.prompt for p in problems.problems] == ["4 7 False 0", "4 7 False 1", "4 7 False 2"]
    held_out = load(f"{module}:rows", seed=7, held_out=True, held_out_size=2)
    assert [p.prompt for p in held_out.problems] == ["2 7 True 0", "2 7 True 1"]


def test_a_module_may_return_problems_and_rows(module):
    problems = load(f"{module}:fixed")
    assert [(p.prompt, p.answer, p.verifier) for p in problems.problems] == [("q", "1", "exact"), ("x", "y", "exact")]
    assert len(load(f"{module}:fixed", held_out=True)) == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("no_such_module_here:rows", "cannot import module"),
        ("made_here:nothing", "has no 'nothing'"),
        ("made_here:not_callable", "not a function"),
        ("made_here:bad", "must return or yield rows"),
    ],
)
def test_module_mistakes(module, source, reason):
    with pytest.raises(ValueError, match=reason):
        load(source)


def test_module_options_and_rows_are_checked(module):
    with pytest.raises(ValueError, match="nonsense"):
        load(f"{module}:rows", options={"nonsense": 1})
    problems = load(f"{module}:broken")
    assert (
        len(problems) == 1 and str(problems.skipped[0]) == "made_here:broken:2: not an object with columns but int: 5"
    )


def test_several_sources_are_joined_with_distinct_ids(rows_file):
    problems = load((str(rows_file), "scripted:0.5", str(rows_file)))
    assert len(problems) == 13 == len(problems.by_id)
    assert problems.parts == ((str(rows_file), 6), ("scripted:0.5", 1), (str(rows_file), 6))
    assert [len(s) for s in problems.sections] == [6, 1, 6]
    assert problems.where(7) == f"{rows_file}:1" and problems.where(6) == "scripted:0.5:1"
    assert problems.problems[0].id[:-1] == problems.problems[7].id[:-1]
    with pytest.raises(IndexError):
        problems.where(13)


def test_template_and_chat_reach_every_source(rows_file):
    (problem,) = load("scripted:0.5", template="<{prompt}>", chat=True).problems
    assert problem.prompt == (Message("user", "<scripted problem 0>"),)
    assert problem.id != load("scripted:0.5").problems[0].id
    with pytest.raises(ValueError, match=r"write \{prompt\} where"):
        load("scripted:0.5", template="no place")


def test_held_out_sets(rows_file, tmp_path):
    assert load(str(rows_file), held_out=True).problems == ()
    with pytest.raises(ValueError, match="has no held-out part"):
        load(str(rows_file), held_out=True, held_out_size=3)
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"prompt": f"other{i}", "answer": "1"}) + "\n" for i in range(4)))
    config = ProblemsConfig(source=str(rows_file), held_out=str(other), held_out_size=3, size=2)
    assert [p.prompt for p in load_problems(config, seed=0, held_out=True).problems] == ["other0", "other1", "other2"]
    assert len(load_problems(config, seed=0)) == 2
    mixed = load((str(rows_file), "scripted:0.5"), held_out=True)
    assert [p.prompt for p in mixed.problems] == ["scripted held-out problem 0"]


def test_datasets_are_loaded_by_the_real_library(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = {"question": [f"q{i}" for i in range(5)], "answer": [f"so #### {i}" for i in range(5)]}
    folder = tmp_path / "set"
    folder.mkdir()
    for split, keep in (("train", 5), ("test", 2)):
        lines = [json.dumps({k: v[i] for k, v in rows.items()}) for i in range(keep)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    train = load(f"datasets:{folder}")
    assert [p.answer for p in train.problems] == ["0", "1", "2", "3", "4"]
    assert train.where(1) == f"datasets:{folder}:2"
    assert len(load(f"datasets:{folder}:test")) == 2
    assert len(load(f"datasets:{folder}:train[1:4]")) == 3
    saved = tmp_path / "saved"
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}).save_to_disk(saved)
    assert [p.id for p in load(f"datasets:{saved}").problems] == [p.id for p in train.problems]
    config = ProblemsConfig(source=f"datasets:{folder}", held_out=f"datasets:{folder}:test")
    assert len(load_problems(config, seed=0, held_out=True)) == 2
    for source in (f"datasets:{folder}:validation", f"datasets:{tmp_path / 'nothing'}", f"datasets:{saved}:test"):
        with pytest.raises(ValueError, match="cannot be loaded") as error:
            load(source)
        assert "\n" not in str(error.value)
