"""skill_chain: operations by hand, gold completions, splits, generated and shipped sets."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from gumption.config import ProblemsConfig
from gumption.problems import load_problems
from gumption.problems.skill_chain import (
    BUCKETS,
    BY_SYMBOL,
    OPERATIONS,
    SYMBOLS,
    draw_prompts,
    frequencies,
    generate,
    load,
    load_shipped,
    make_problem,
    solve,
    split,
)

# Worked out with pencil from the names of the operations.
BY_HAND = {
    "A": ("583", "079"),  # rotate left
    "B": ("469", "018"),  # +1 each
    "C": ("853", "709"),  # reverse
    "D": ("538", "097"),  # swap first two
    "E": ("641", "092"),  # nines' complement
    "F": ("158", "607"),  # first += last
    "G": ("681", "230"),  # +3 each
    "H": ("385", "970"),  # swap last two
    "I": ("353", "907"),  # last += middle
    "J": ("935", "890"),  # rotate right: 835, 790; first += 1
    "K": ("954", "701"),  # ×3 each
    "L": ("858", "907"),  # first −= middle
    "M": ("358", "079"),  # sort
    "N": ("386", "996"),  # prefix sums
    "O": ("961", "475"),  # complement 641, 092; rotate left 416, 920; +5
    "P": ("384", "069"),  # ×7: 156, 309; rotate right 615, 930; complement
}


@pytest.mark.parametrize("symbol", BY_HAND)
def test_operation_by_hand(symbol: str) -> None:
    assert (solve(f"358{symbol}="), solve(f"907{symbol}=")) == BY_HAND[symbol]


def test_sixteen_operations_on_states_and_29_symbols_less_end_and_padding() -> None:
    assert "".join(op.symbol for op in OPERATIONS) == "".join(BY_HAND) == "".join(BY_SYMBOL)
    assert len(SYMBOLS) == len(set(SYMBOLS)) == 27
    maps = set()
    for op in OPERATIONS:
        image = [op.apply(n // 100, n // 10 % 10, n % 10) for n in range(1000)]
        assert all(0 <= digit <= 9 for state in image for digit in state)
        maps.add(tuple(image))
    assert len(maps) == 16  # no operation twice


def test_a_chain_feeds_each_state_to_the_next_operation() -> None:
    assert solve("358PKN=") == "384" + "942" + "935"  # ×3: 9, 24, 12; sums: 9, 13, 15


@pytest.mark.parametrize("prompt", ["358=", "358A", "35A=", "3x8A=", "358a=", "358Q=", "358AAAAAAA=", "", "358A=="])
def test_solve_refuses_what_is_no_prompt(prompt: str) -> None:
    with pytest.raises(ValueError, match="three digits"):
        solve(prompt)


def test_splits_share_out_all_prompts() -> None:
    counts = collections.Counter(split(f"{n:03d}{op.symbol}=") for n in range(1000) for op in OPERATIONS)
    assert counts.total() == 16_000
    # Binomial(16000, 1/4): standard deviation 55; a fixed hash, so this cannot flake.
    assert abs(counts["train"] - 4000) < 250 and abs(counts["held_out"] - 4000) < 250
    assert abs(counts["warm_start"] - 8000) < 300


def test_draws_follow_depth_weights_and_frequencies() -> None:
    """χ² of 16 operation counts and of the depths below 50: under the null that happens with p < 1e-4."""
    n = 4000
    prompts = draw_prompts(
        np.random.default_rng(5), n, split_name="train", depth_weights=(1, 0, 3), frequency_decay=0.8
    )
    assert len(prompts) == n and {split(p) for p in prompts} == {"train"}
    depths = collections.Counter(len(p) - 4 for p in prompts)
    assert set(depths) == {1, 3} and abs(depths[1] - n / 4) < 4.5 * np.sqrt(n * 3 / 16)
    counts = collections.Counter(s for p in prompts for s in p[3:-1])
    expected = frequencies(0.8) * counts.total()
    observed = np.array([counts[op.symbol] for op in OPERATIONS])
    assert ((observed - expected) ** 2 / expected).sum() < 50
    assert (observed > 0).all()  # even the rarest operation is drawn


@pytest.mark.parametrize("weights", [(), (0, 0), (1, -1), (1,) * 7])
def test_bad_depth_weights(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="depth_weights"):
        draw_prompts(np.random.default_rng(0), 1, split_name="train", depth_weights=weights)


def test_generated_sets_repeat_and_never_meet() -> None:
    train, again = generate(300, seed=1), generate(300, seed=1)
    assert train == again != generate(300, seed=2)
    assert len({p.id for p in train}) == 300
    assert {split(str(p.prompt)) for p in train} == {"train"}
    assert {split(str(p.prompt)) for p in generate(300, seed=1, held_out=True)} == {"held_out"}
    assert {p.meta["depth"] for p in train} == {1, 2, 3, 4, 5, 6}
    assert {s for p in train for s in str(p.prompt)[3:-1]} == set(BY_SYMBOL)


def test_generate_says_when_there_are_not_so_many() -> None:
    only_rotations = {"depth_weights": [1.0], "frequency_decay": 1e-9}  # 1,000 prompts, about 250 of the split
    assert len(generate(200, seed=0, **only_rotations)) == 200
    with pytest.raises(ValueError, match=r"found 2\d\d distinct .*not 400"):
        generate(400, seed=0, **only_rotations)


def test_load_chooses_between_shipped_and_generated() -> None:
    shipped = load(ProblemsConfig(), argument="", seed=0, held_out=False)
    assert shipped == load_shipped() and len(shipped) == 256
    assert load(ProblemsConfig(held_out_size=8), argument="", seed=0, held_out=True) == load_shipped(True)[:8]
    assert load(ProblemsConfig(size=40), argument="", seed=3, held_out=False) == generate(40, seed=3)
    assert len(load(ProblemsConfig(), argument="random", seed=3, held_out=False)) == 512
    held_out = load(ProblemsConfig(size=40, held_out_size=10), argument="", seed=3, held_out=True)
    assert held_out == generate(10, seed=3, held_out=True)
    easy = ProblemsConfig(size=5, options={"depth_weights": [1.0]})
    assert {p.meta["depth"] for p in load(easy, argument="random", seed=0, held_out=False)} == {1}


def test_load_errors_name_the_way_out() -> None:
    with pytest.raises(ValueError, match="skill_chain:random"):
        load(ProblemsConfig(), argument="hard", seed=0, held_out=False)
    with pytest.raises(ValueError, match="skill_chain:random"):
        load(ProblemsConfig(options={"depth_weights": [1.0]}), argument="", seed=0, held_out=False)
    with pytest.raises(ValueError, match="depths"):
        load(ProblemsConfig(options={"depths": 3}), argument="random", seed=0, held_out=False)


def test_the_source_is_registered() -> None:
    config = ProblemsConfig(source="skill_chain")
    assert list(load_problems(config, seed=0).problems) == load_shipped()
    assert list(load_problems(config, seed=0, held_out=True).problems) == load_shipped(held_out=True)


@pytest.mark.parametrize("held_out", [False, True])
def test_shipped_sets(held_out: bool) -> None:
    problems = load_shipped(held_out)
    assert len(problems) == len({p.id for p in problems}) == 256
    assert {split(str(p.prompt)) for p in problems} == {"held_out" if held_out else "train"}
    edges = {"extra_hard": (0.0, 0.02), "hard": (0.02, 0.1), "medium": (0.1, 0.5), "easy": (0.5, 0.96)}
    for position, problem in enumerate(problems):
        meta = dict(problem.meta)
        rate = meta["successes"] / meta["n"]
        low, high = edges[meta["bucket"]]
        assert meta["n"] >= 128 and low <= rate < high and rate > 0
        assert meta["bucket"] == BUCKETS[position % 4]  # interleaved: any first part has all buckets
        assert make_problem(str(problem.prompt)).answer == problem.answer == solve(str(problem.prompt))
    assert collections.Counter(p.meta["bucket"] for p in problems) == dict.fromkeys(BUCKETS, 64)
    # Spread: from below .01 to above .9, and every operation is asked for.
    rates = [p.meta["successes"] / p.meta["n"] for p in problems]
    assert min(rates) < 0.01 and max(rates) > 0.9
    assert {s for p in problems for s in str(p.prompt)[3:-1]} == set(BY_SYMBOL)
