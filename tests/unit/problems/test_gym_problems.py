"""reasoning-gym: every generator, its own score, held-out rows, and what is known to be wrong with some."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gumption.config import ProblemsConfig
from gumption.problems import load_problems
from gumption.problems.gym import generate, make_problem
from gumption.rewards.gym import NO_GOLD, TAKES_ANYTHING, GymVerifier, gold_completion, mutated_completion
from gumption.types import Problem

pytest.importorskip("reasoning_gym")


def load(name, *, seed=0, held_out=False, **settings):
    return load_problems(ProblemsConfig(source=f"gym:{name}", **settings), seed=seed, held_out=held_out)


@pytest.fixture(scope="module")
def chain_sum():
    return load("chain_sum", size=20, held_out_size=10)


def test_problems_keep_the_generator_s_entry(chain_sum):
    problem = chain_sum.problems[0]
    assert problem.prompt.startswith(problem.meta["entry"]["question"]) and "<answer>" in problem.prompt
    assert (problem.answer, problem.verifier) == (problem.meta["entry"]["answer"], "gym")
    assert len(chain_sum) == len(chain_sum.by_id) == 20


def test_held_out_rows_ask_other_questions(chain_sum):
    held_out = load("chain_sum", held_out=True, size=20, held_out_size=10)
    assert len(held_out) == 10
    assert not {p.prompt for p in held_out.problems} & {p.prompt for p in chain_sum.problems}


def test_the_seed_and_the_options_make_the_problems(chain_sum):
    assert [p.id for p in load("chain_sum", size=20, held_out_size=10).problems] == [p.id for p in chain_sum.problems]
    other = load("chain_sum", seed=1, size=20, options={"min_terms": 7, "max_terms": 7})
    assert {p.meta["entry"]["metadata"]["num_terms"] for p in other.problems} == {7}


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("chain_sm", {}, "did you mean chain_sum"),
        ("", {}, "write gym:NAME"),
        ("chain_sum", {"nope": 1}, "known: min_terms"),
        ("chain_sum", {"min_terms": 0}, "min_terms must be positive"),
        ("chain_sum", {"seed": 3}, "set problems.size"),
    ],
)
def test_mistakes_are_one_line(name, options, reason):
    with pytest.raises(ValueError, match=reason) as error:
        load(name, size=2, options=options)
    assert "\n" not in str(error.value)


def test_an_unreadable_answer_is_wrong_not_an_error():
    entry = {"question": "q", "answer": "2 × 3", "metadata": {}}
    problem = make_problem(entry, "prime_factorization", {})
    verifier = GymVerifier()
    assert verifier.score(problem, "<answer>nonsense</answer>").value == 0.0


@pytest.mark.parametrize(
    ("extract", "text", "answer"),
    [
        ("auto", "<answer>1</answer> <answer> 2 </answer>", "2"),
        ("auto", r"\boxed{3}", "3"),
        ("auto", " 4 ", "4"),
        ("tag", "4", None),
        ("boxed", "4", None),
        ("last_line", "a\nb\n", "b"),
        ("last_number", "7 + 5 = 12.", "12"),
        ("whole", "<answer>1</answer>", "<answer>1</answer>"),
    ],
)
def test_where_the_answer_stands(extract, text, answer):
    assert GymVerifier(extract=extract).extract(text) == answer


def test_a_problem_without_an_entry_is_an_error():
    assert GymVerifier().score(Problem("x-0", "q", "a", "gym"), "a").status == "error"


def _names() -> list[str]:
    from reasoning_gym.factory import DATASETS

    return sorted(set(DATASETS) - {"composite"})


@pytest.mark.slow
def test_every_generator_accepts_its_gold_answer_and_rejects_a_changed_one():
    names = _names()
    made = dict(zip(names, generate([(n, {}, 77, 2) for n in names]), strict=True))
    verifier, wrong = GymVerifier(), {}
    for name, result in made.items():
        assert not isinstance(result, str), (name, result)
        for entry in result.rows:
            assert not isinstance(entry, str), (name, entry)
            problem = make_problem(entry, name, {})
            gold, changed = gold_completion(problem), mutated_completion(problem)
            if gold is None:
                wrong[name] = "no gold"
            elif verifier.score(problem, gold).value != 1.0:
                wrong[name] = "gold rejected"
            elif verifier.score(problem, changed).value >= 1.0:
                wrong[name] = "changed accepted"
    assert wrong == {**dict.fromkeys(NO_GOLD, "no gold"), **dict.fromkeys(TAKES_ANYTHING, "changed accepted")}


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_items_do_not_depend_on_the_hash_seed(hash_seed):
    """Generators that order sets or draw from the global generator gave other items in each process."""
    names = [
        "codeio",
        "isomorphic_strings",
        "list_functions",
        "polynomial_multiplication",
        "ransom_note",
        "word_ladder",
    ]
    script = f"from gumption.problems.gym import generate; print(generate([(n, {{}}, 5, 3) for n in {names}]))"
    here = str(generate([(n, {}, 5, 3) for n in names]))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == here
