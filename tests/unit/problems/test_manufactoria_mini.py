"""The compact notation is lossless; the small set's prompts, golds and splits; the shipped files."""

from __future__ import annotations

import json
import random
from collections import Counter
from importlib import resources

import pytest

from gumption.config import ProblemsConfig
from gumption.problems.manufactoria import load, load_shipped, mini
from gumption.problems.manufactoria.compact import LABELS, from_compact, to_compact
from gumption.problems.manufactoria.dsl import DslError, Program, parse
from gumption.problems.manufactoria.families import FAMILIES
from gumption.problems.manufactoria.families.base import words
from gumption.problems.manufactoria.solver import solve
from gumption.problems.manufactoria.testgen import hidden_tests, visible_tests
from gumption.problems.manufactoria.verdict import read_tests, run_tests

TAPES = ["", *words("RBYG", range(1, 3)), "RBRBRBRB", "YGRB" * 3]


def random_program(rng: random.Random) -> str:
    """A random text of the language with up to seven nodes, some of them out of reach."""
    names = [f"x{i}" for i in range(rng.randint(0, 7))]

    def target() -> str:
        return rng.choice([*names, *names, "end", "NONE"])

    lines = ["START start:", f"    NEXT {target()}", "END end"]
    for name in names:
        kind = rng.choice(["PULLER_RB", "PULLER_YG", "PAINTER_RED", "PAINTER_BLUE", "PAINTER_YELLOW", "PAINTER_GREEN"])
        lines.append(f"{kind} {name}:")
        if kind.startswith("PAINTER"):
            lines.append(f"    NEXT {target()}")
        else:
            keys = [*kind[-2:], "EMPTY"]
            lines += [f"    [{key}] {target()}" for key in rng.sample(keys, rng.randint(0, 3))]
    return "\n".join(lines)


def same(first: Program, second: Program) -> bool:
    return all(first.run(tape) == second.run(tape) for tape in TAPES)


def test_translation_to_and_from_the_real_language_loses_nothing() -> None:
    rng = random.Random(0)
    for _ in range(60):
        program = parse(random_program(rng))
        compact = to_compact(program)
        back = from_compact(compact)
        assert same(program, back), compact
        assert to_compact(back) == compact == to_compact(parse(back.to_text()))


def test_every_reference_program_that_fits_has_a_compact_text() -> None:
    for name, family in FAMILIES.items():
        p = family.parameters(family.default_difficulty, family.default_colors)[0]
        program = solve(name, p)
        if len(program.nodes) <= len(LABELS):
            assert same(program, from_compact(to_compact(program)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("x", "expected a node"),
        ("P1--1", "expected a node"),
        ("P00", "cut short"),
        ("R", "cut short"),
        ("P0-1", "leads to '1', which is not a node"),
        ("R?", "leads to '\\?'"),
        ("!!", "expected a node"),
        ("P000 R", "cut short"),
    ],
)
def test_what_is_not_a_compact_program(text: str, message: str) -> None:
    with pytest.raises(DslError, match=message):
        from_compact(text)


def test_what_the_notation_has_no_room_for() -> None:
    with pytest.raises(ValueError, match="36 nodes"):
        to_compact(solve("append_sequence", FAMILIES["append_sequence"].parameters_type("RB", "R" * 37)))
    with pytest.raises(ValueError, match="back to START"):
        to_compact(parse("START start:\n    NEXT a\nPAINTER_RED a:\n    NEXT start\nEND end"))


def test_small_set() -> None:
    prompts = set()
    symbols = sorted(mini.SYMBOLS, key=len, reverse=True)
    sizes = {"warm_start": 0, "train": 0, "held_out": 0}
    for name in mini.FAMILIES:
        for i, p in enumerate(mini.parameters(name)):
            text = mini.prompt(name, p)
            prompts.add(text)
            sizes[mini.split(name, p)] += 1
            if i % 23 == 0:
                gold = mini.gold(name, p)
                tests = visible_tests(FAMILIES[name], p)
                assert all(run_tests(from_compact(gold), tests))
                rest = text + gold
                while rest:  # the tokenizer's alphabet covers it, longest symbol first
                    rest = rest[len(next(s for s in symbols if rest.startswith(s))) :]
    assert len(prompts) == sum(sizes.values())
    assert sum(len(mini.members(split)) for split in ("warm_start", "train", "held_out")) == len(prompts)  # type: ignore[arg-type]
    assert sizes["train"] > 0.2 * len(prompts) and sizes["held_out"] > 0.2 * len(prompts)


@pytest.mark.parametrize("held_out", [False, True])
def test_shipped_set(held_out: bool) -> None:
    problems = load_shipped(held_out)
    assert len(problems) == 256 and len({p.id for p in problems}) == 256
    assert Counter(p.meta["bucket"] for p in problems) == dict.fromkeys(("extra_hard", "hard", "medium", "easy"), 64)
    rates = [p.meta["successes"] / p.meta["n"] for p in problems]
    assert min(p.meta["n"] for p in problems) >= 128
    assert min(rates) < 0.01 and max(rates) > 0.9 and 0.2 <= sum(rates) / 256 <= 0.35
    assert {p.meta["problem_family"] for p in problems} == set(mini.FAMILIES)
    for problem in problems:
        name = problem.meta["problem_family"]
        family = FAMILIES[name]
        p = family.parameters_type.from_dict(problem.meta["parameters"])
        assert problem.prompt == mini.prompt(name, p)
        assert mini.split(name, p) == ("held_out" if held_out else "train")
        assert problem.meta["notation"] == "compact" and problem.verifier == "manufactoria"


@pytest.mark.parametrize("held_out", [False, True])
def test_reference_programs_pass_every_test_of_the_shipped_set(held_out: bool) -> None:
    for problem in load_shipped(held_out):
        name = problem.meta["problem_family"]
        family = FAMILIES[name]
        p = family.parameters_type.from_dict(problem.meta["parameters"])
        visible = read_tests(problem.answer)
        assert visible == visible_tests(family, p)  # what is shipped is what the generator makes
        program = from_compact(mini.gold(name, p))
        assert all(run_tests(program, visible + hidden_tests(family, p, visible))), problem.prompt
        for degenerate in ("!", "-"):
            assert not all(run_tests(from_compact(degenerate), visible))


def test_the_shipped_tokenizer_knows_the_alphabet() -> None:
    folder = resources.files("gumption") / "data" / "models" / "manufactoria"
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert set(vocabulary) - {"<pad>", "<end>", "<unk>"} == set(mini.SYMBOLS)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] == "llama"


def test_generated_small_problems() -> None:
    train = load(ProblemsConfig(source="manufactoria", size=40), argument="", seed=3, held_out=False)
    again = load(ProblemsConfig(source="manufactoria:mini", size=40), argument="mini", seed=3, held_out=False)
    held_out = load(ProblemsConfig(held_out_size=9), argument="mini", seed=3, held_out=True)
    assert len(train) == 40 and [p.id for p in train] == [p.id for p in again] and len(held_out) == 9
    assert not {p.prompt for p in train} & {p.prompt for p in held_out}
