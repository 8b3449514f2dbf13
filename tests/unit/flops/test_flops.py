"""FLOPs: exact integers, additive over any cut of a sequence, equal to a count of the matrix multiplications."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gumption.flops import CONVENTION, ModelShape, decode_flops_B, forward_flops, train_flops

SHAPES = st.builds(
    ModelShape,
    matmul_params=st.integers(0, 10**12),
    layers=st.integers(0, 200),
    heads=st.integers(0, 128),
    head_dim=st.integers(0, 256),
)


def llama_forward_by_matmuls(*, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tokens):
    """A causal Llama forward pass, matmul by matmul: an m×k by k×n product is 2·m·k·n FLOPs."""
    total = 0
    for _ in range(layers):
        total += 2 * tokens * hidden * heads * head_dim  # q
        total += 2 * 2 * tokens * hidden * kv_heads * head_dim  # k, v
        for t in range(tokens):
            total += heads * 2 * head_dim * (t + 1)  # scores
            total += heads * 2 * (t + 1) * head_dim  # weighted values
        total += 2 * tokens * heads * head_dim * hidden  # o
        total += 3 * 2 * tokens * hidden * ffn  # gate, up, down
    return total + 2 * tokens * hidden * vocab


def test_equals_a_count_of_the_matmuls_of_a_llama():
    hidden, layers, heads, kv_heads, head_dim, ffn, vocab = 64, 3, 4, 2, 16, 160, 29
    per_layer = hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * hidden * ffn
    shape = ModelShape(layers * per_layer + hidden * vocab, layers, heads, head_dim)
    counted = llama_forward_by_matmuls(
        hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn, vocab=vocab, tokens=37
    )
    assert forward_flops(shape, 37) == counted


def test_hand_computed_values():
    shape = ModelShape(matmul_params=1000, layers=2, heads=3, head_dim=4)  # 4·L·H·Q = 96
    assert forward_flops(shape, 4) == 2 * 1000 * 4 + 96 * (1 + 2 + 3 + 4)
    assert forward_flops(shape, 2, context_start=10) == 2 * 1000 * 2 + 96 * (11 + 12)
    assert train_flops(shape, 4) == 3 * (8000 + 960)
    assert decode_flops_B(shape, np.array([0, 9])).tolist() == [2096, 2960]


@settings(max_examples=50, deadline=None)
@given(SHAPES, st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_cutting_a_sequence_changes_nothing(shape, start, first, second):
    whole = forward_flops(shape, first + second, start)
    assert forward_flops(shape, first, start) + forward_flops(shape, second, start + first) == whole


@settings(max_examples=50, deadline=None)
@given(SHAPES, st.integers(0, 500), st.integers(0, 60))
def test_decoding_token_by_token_costs_what_one_pass_costs(shape, start, tokens):
    decoded = decode_flops_B(shape, np.arange(start, start + tokens))
    assert decoded.dtype == np.int64
    assert sum(decoded.tolist()) == forward_flops(shape, tokens, start)


def test_results_are_python_integers_and_exact_beyond_float64():
    shape = ModelShape(10**15 + 1, 1, 1, 1)
    flops = train_flops(shape, np.int64(3))
    assert type(flops) is int
    assert flops == 3 * (2 * (10**15 + 1) * 3 + 4 * 6)


def test_matches_the_published_worked_example():
    """information.md 4.2: N = 1.5e9, 28 layers, 12 heads of 128, P = 200, R = 1000."""
    shape = ModelShape(1_500_000_000, 28, 12, 128)
    decode = int(decode_flops_B(shape, np.arange(200, 1200)).sum())
    assert decode == pytest.approx(3.1e12, rel=0.03)
    assert forward_flops(shape, 200) / 8 == pytest.approx(7.5e10, rel=0.01)
    assert forward_flops(shape, 1200) == pytest.approx(3.7e12, rel=0.02)
    assert train_flops(shape, 1200) == pytest.approx(1.1e13, rel=0.02)


@pytest.mark.parametrize(("tokens", "start"), [(-1, 0), (3, -2)])
def test_negative_counts_are_errors(tokens, start):
    with pytest.raises(ValueError, match=str(min(tokens, start))):
        forward_flops(ModelShape(1, 1, 1, 1), tokens, start)


def test_negative_positions_are_errors():
    with pytest.raises(ValueError, match="-4"):
        decode_flops_B(ModelShape(1, 1, 1, 1), np.array([3, -4]))


def test_no_rows_and_no_tokens_cost_nothing():
    shape = ModelShape(5, 1, 1, 1)
    assert forward_flops(shape, 0, 7) == 0
    assert decode_flops_B(shape, np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("bad", [-1, 1.5, True, None])
def test_a_shape_of_anything_but_whole_numbers_is_an_error(bad):
    with pytest.raises(ValueError, match="matmul_params"):
        ModelShape(bad, 1, 1, 1)


def test_the_convention_names_its_choices():
    for word in ("causal", "LM head", "3 × forward", "2N"):
        assert word in CONVENTION
