"""The math verifier: hand cases of every rule, agreement of the quick path with math-verify, hostile texts."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest

from gumption.config import RewardsConfig
from gumption.rewards import Scorer, make_verifier
from gumption.rewards.latex import canonical, changed
from gumption.rewards.math import MathVerifier, gold_completion, mutated_completion
from gumption.rewards.numbers import last_boxed, last_number, plain_number
from gumption.types import Attempt, Problem, Request


def value(gold, completion, **options):
    return MathVerifier(**options).score(Problem("x-0", "q", gold, "math"), completion).value


def quick(gold, completion, **options):
    reward = MathVerifier(**options).quick(Problem("x-0", "q", gold, "math"), completion)
    return None if reward is None else reward.value


GSM8K = [
    ("72", r"The answer is \boxed{72}.", 1.0),
    ("72", r"\boxed{7} no: \boxed{72}", 1.0),
    ("72", r"\boxed{72} no: \boxed{7}", 0.0),
    ("72", r"\boxed{72} and \boxed{7", 1.0),
    ("72", r"\boxed 72", 1.0),
    ("72", r"\fbox{72}", 1.0),
    ("72", r"\boxed{72.0}", 1.0),
    ("72", r"\boxed{\$72}", 1.0),
    ("72", r"\boxed{$72$}", 1.0),
    ("72", r"\boxed{72 \text{ dollars}}", 1.0),
    ("72", r"\boxed{72\ \mathrm{cm}^2}", 1.0),
    ("72", r"\boxed{\text{72}}", 1.0),
    ("72", r"\boxed{72^\circ}", 1.0),
    ("72", r"\boxed{72\%}", 1.0),
    ("72", r"\boxed{72 million}", 0.0),
    ("72", r"\boxed{-72}", 0.0),
    ("72", r"\boxed{720}", 0.0),
    ("72", r"\boxed{7 2}", 0.0),
    ("72", r"\boxed{x = 72}", 1.0),
    ("72", r"\boxed{}", 0.0),
    ("72", "so 70 + 2 = 72", 1.0),
    ("72", "so it is 72.", 1.0),
    ("72", "so it is **72**", 1.0),
    ("72", "so it is 72, not 71", 0.0),
    ("72", "Step 1: 70\n#### 72", 1.0),
    ("72", "#### 72\nLet me check: 3 of 4", 1.0),
    ("72", "#### 71\n72", 0.0),
    ("72", "no number at all", 0.0),
    ("72", "", 0.0),
    ("1,080", "he earns $1,080", 1.0),
    ("1,080", "he earns $1080.00 a year", 1.0),
    ("1080", "he earns $1,080.", 1.0),
    ("1080", r"\boxed{1{,}080}", 1.0),
    ("1080", r"\boxed{1,\!080}", 1.0),
    ("1080", r"\boxed{1\,080}", 1.0),
    ("-3", "from 5 to -3", 1.0),
    ("3", "10-7 is 10-3", 1.0),
    ("-3", "10-3", 0.0),
    ("0.5", "half, 1/2", 1.0),
    ("5.50", "it costs $5.5", 1.0),
    (142.0, r"\boxed{142}", 1.0),
    (142, r"\boxed{142}", 1.0),
    ("so 6 × 3 = 18\n#### 18", r"\boxed{18}", 1.0),
    (r"Thus $x = 3$, \boxed{3}", "3", 1.0),
    (["5", "7"], r"\boxed{7}", 1.0),
    (["5", "7"], r"\boxed{6}", 0.0),
]


@pytest.mark.parametrize(("gold", "completion", "expected"), GSM8K)
def test_number_rules(gold, completion, expected):
    assert value(gold, completion) == expected


MATH = [
    (r"\frac{1}{2}", "0.5", 1.0),
    (r"\frac{1}{2}", r"\dfrac12", 1.0),
    (r"\frac{1}{3}", "0.333333", 1.0),
    (r"\frac{1}{3}", "0.33", 0.0),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)", 1.0),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(\pi/2, 3)", 0.0),
    (r"p - q", "-q + p", 1.0),
    (r"p - q", "q - p", 0.0),
    (r"\sqrt{8}", r"2\sqrt{2}", 1.0),
    ("1,-2", "-2, 1", 1.0),
    ("[2,5)", "[2,5]", 0.0),
    (r"x \in [-2,7]", "[-2,7]", 1.0),
    (r"\text{(C)}", "C", 1.0),
    ("C", r"\text{(C)}", 1.0),
    ("C", "D", 0.0),
    (r"\text{east}", "East", 1.0),
    (r"\text{east}", "west", 0.0),
    (r"2516_8", "2516_{8}", 1.0),
    (r"2516_8", "2516", 1.0),
    (r"2516_8", "2516_9", 0.0),
    (r"2516_8", "2517_8", 0.0),
    ("42", "52_8", 1.0),
    ("52", "52_8", 0.0),
    (r"11,\! 111,\! 111,\! 100", "11111111100", 1.0),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", 1.0),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}", 0.0),
    ("6 - 5i", "-5i+6", 1.0),
    (r"10\%", "0.1", 1.0),
    ("0.5", r"50\%", 1.0),
    ("50", r"0.5", 0.0),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}", 1.0),
    ("AB", "BC", 0.0),
]


@pytest.mark.parametrize(("gold", "answer", "expected"), MATH)
def test_latex_answers(gold, answer, expected):
    pytest.importorskip("math_verify")
    assert value(gold, f"so \\boxed{{{answer}}}.") == expected


def test_without_a_box_math_verify_looks_at_the_end():
    pytest.importorskip("math_verify")
    assert value(r"\frac{\pi}{2}", "Some words. The answer is $\\frac{\\pi}{2}$.") == 1.0
    assert value(r"\frac{\pi}{2}", "The answer is $\\frac{\\pi}{3}$.") == 0.0


def test_the_boxed_rule_wants_a_box():
    assert value("72", "72", rule="boxed") == 0.0
    assert value("72", r"\boxed{72}", rule="boxed") == 1.0
    with pytest.raises(ValueError, match="choose 'any' or 'boxed'"):
        make_verifier("math", rule="last")


@pytest.mark.parametrize("gold", [None, [], {"a": 1}, True, [None]])
def test_a_problem_without_a_readable_answer_is_an_error(gold):
    reward = MathVerifier().score(Problem("x-0", "q", gold, "math"), "72")
    assert reward.value is None and reward.status == "error"


def test_quick_agrees_with_math_verify_on_plain_numbers():
    """Whatever the quick path decides about two numbers, math-verify decides too (percent and units aside)."""
    math_verify = pytest.importorskip("math_verify")
    rng = random.Random(0)
    shapes = [
        lambda n: str(n),
        lambda n: f"{n:,}",
        lambda n: f"{n}.0",
        lambda n: f"{n / 4}",
        lambda n: f"\\frac{{{n}}}{{4}}",
        lambda n: f"{n}/4",
        lambda n: f"-{n}",
    ]
    decided = 0
    for _ in range(150):
        n = rng.choice([rng.randrange(1, 30), rng.randrange(1000, 2_000_000)])
        gold, answer = rng.choice(shapes)(n), rng.choice(shapes)(n if rng.random() < 0.7 else n + 1)
        verdict = quick(gold, f"\\boxed{{{answer}}}")
        if verdict is None:
            continue
        decided += 1
        parsed = [math_verify.parse(f"\\boxed{{{t}}}", parsing_timeout=None) for t in (gold, answer)]
        assert bool(verdict) == math_verify.verify(*parsed, timeout_seconds=None), (gold, answer)
    assert decided > 100


def test_numbers_and_spellings_need_no_sympy():
    for gold, completion in (
        (g, c) for g, c, _ in GSM8K if r"x = 72" not in c and "million" not in c and "7 2" not in c
    ):
        assert quick(gold, completion) is not None, completion
    assert quick(r"\frac{\pi}{2}", r"\boxed{\dfrac{\pi}{2}}") == 1.0
    assert quick(r"\frac{\pi}{2}", r"\boxed{\pi/2}") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,080", 1080), (".5", Fraction(1, 2)), ("5.", 5), ("- 3", -3), ("−3", -3), ("+7", 7),
        (r"\frac{-1}{2}", Fraction(-1, 2)), ("$-5", -5), ("-$5", -5), ("€12.50", Fraction(25, 2)),
        ("7 p.m.", None), ("5 miles per hour", 5), ("12,34", None),
        ("1.080,5", None), ("1e5", None), ("2 dozen", None), (r"2 \pi", None), ("3/0", None), (r"\frac{1}{0}", None),
        ("--3", None), ("+-3", None), ("x", None), ("", None), ("9" * 300, None), ("½", None), ("٣", None),
    ],
)  # fmt: skip
def test_plain_numbers(text, number):
    found = plain_number(text)
    assert (None if found is None else found.value) == number


def test_texts_that_models_write_cost_little_time():
    """Linear in the length: eight times the text takes well below 64 times the time (best of three, alternating)."""
    for make in (
        lambda n: "\\boxed{" * n,
        lambda n: "1," * n,
        lambda n: "-$" * n + "1/" * n,
        lambda n: "{" * n + "\\boxed{" + "}" * n,
        lambda n: "#### " * n,
    ):
        ratios = []
        for _ in range(3):
            times = []
            for n in (2000, 16_000):
                text, start = make(n), time.process_time()
                last_boxed(text)
                last_number(text)
                times.append(max(time.process_time() - start, 1e-4))
            ratios.append(times[1] / times[0])
        assert min(ratios) < 40


@pytest.mark.slow
def test_hanging_texts_time_out_in_a_worker():
    pytest.importorskip("math_verify")
    made = Attempt.empty(Request(Problem("x-0", "q", r"\frac{\pi}{7}", "math"), n=4))
    made.texts_G = (r"\boxed{9^{9^{9^9}}}", r"\boxed{\pi/7}", r"\boxed{" + "(" * 5000 + "}", r"\boxed{\pi/8}")
    scorer = Scorer(RewardsConfig(time_limit=5.0, workers=1), max_tokens=10)
    try:
        scorer.score([made])
        assert [(r.value, r.status) for r in made.rewards_G] == [
            (None, "timeout"),
            (1.0, "ok"),
            (0.0, "ok"),
            (0.0, "ok"),
        ]
    finally:
        scorer.close()


GOLDS = ["72", "1,080", r"\frac{\pi}{2}", r"\text{(C)}", "p - q", r"\text{east}", "0", "-5", r"2516_8", "9",
         r"\sqrt{2}", "x=5", r"\left( 3, \frac{\pi}{2} \right)", 142.0, "z"]  # fmt: skip


@pytest.mark.parametrize("gold", GOLDS)
def test_gold_is_accepted_and_a_changed_answer_rejected(gold):
    pytest.importorskip("math_verify")
    problem = Problem("x-0", "q", gold, "math")
    verifier = MathVerifier()
    assert verifier.score(problem, gold_completion(problem)).value == 1.0
    assert verifier.score(problem, mutated_completion(problem)).value == 0.0


def test_changed_differs_in_spelling():
    for gold in map(str, GOLDS):
        assert canonical(changed(gold)) != canonical(gold)
