"""Bits: published and hand-computed numbers, ends of the range, errors."""

import numpy as np
import pytest

from gumption.credit import bits


def test_orientation_numbers_of_the_notes():
    p = np.array([1e-5, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5])
    assert bits.binary_entropy(p) == pytest.approx([1.8e-4, 0.0114, 0.081, 0.286, 0.469, 0.722, 0.881, 1.0], rel=0.01)
    assert bits.supervised_bits(p) == pytest.approx([16.6, 9.97, 6.64, 4.32, 3.32, 2.32, 1.74, 1.0], rel=0.005)


def test_entropy_at_the_ends_is_a_positive_zero():
    ends = bits.binary_entropy([0.0, 1.0])
    assert ends.tolist() == [0.0, 0.0]
    assert not np.signbit(ends).any()
    assert not np.signbit(bits.supervised_bits(1.0))


def test_group_entropy_by_hand():
    """K = 2 of G = 8: H2(.25) = .8113; correction 1/(16 ln 2) = .0902."""
    assert float(bits.group_entropy(2, 8)) == pytest.approx(0.811278 + 0.090168, abs=1e-6)
    assert bits.group_entropy([0, 8, 0], [8, 8, 0]).tolist() == [0.0, 0.0, 0.0]


def test_reward_entropy_is_a_mean_over_problems_not_the_entropy_of_the_mean():
    assert bits.reward_entropy([8, 0], [8, 8]) == 0.0
    assert bits.binary_entropy(0.5) == 1.0
    one = float(bits.group_entropy(4, 8))
    assert bits.reward_entropy([4, 0, 0], [8, 8, 0]) == pytest.approx(one / 2)
    assert bits.reward_entropy([], []) == 0.0
    assert bits.reward_entropy([0], [0]) == 0.0


def test_parts_are_bounded_by_the_number_of_tests():
    """All 5 scores of 4 tests, equally often: log2 5 bits."""
    assert bits.histogram_entropy([0, 0.25, 0.5, 0.75, 1], corrected=False) == pytest.approx(np.log2(5))
    assert bits.histogram_entropy([0, 0, 1, 1], corrected=False) == pytest.approx(1)
    assert bits.histogram_entropy([0, 0, 1, 1]) == pytest.approx(float(bits.group_entropy(2, 4)))
    assert bits.histogram_entropy([0.1 + 0.2, 0.3]) == 0.0
    assert bits.histogram_entropy([]) == 0.0
    assert bits.histogram_entropy([0.4]) == 0.0


def test_beta_3_7_has_the_published_bits():
    assert bits.outcome_information(3, 7, [True, False]) == pytest.approx([0.1563, 0.0297], abs=5e-5)
    assert bits.pass_rate_information([1, 3, 30], [1, 7, 70]) == pytest.approx([0.279, 0.0677, 0.0072], abs=5e-4)


def test_information_about_the_pass_rate_hardly_depends_on_difficulty():
    approximation = 1 / (2 * np.log(2) * 101)
    assert bits.pass_rate_information([10, 30, 50, 90], [90, 70, 50, 10]) == pytest.approx(approximation, rel=0.05)


def test_noisy_verifier_numbers():
    assert bits.noisy_verifier_entropy([0.05, 0.2, 0.5], 0.05) == pytest.approx([0.167, 0.492, 0.714], abs=5e-4)
    assert bits.noisy_verifier_entropy([0.05, 0.2], 0.0) == pytest.approx(bits.binary_entropy([0.05, 0.2]))
    assert bits.noisy_verifier_entropy([0.0, 0.3, 1.0], 0.5).tolist() == [0.0, 0.0, 0.0]
    assert bits.noisy_verifier_entropy([0.0, 1.0], 0.1) == pytest.approx([0.0, 0.0], abs=1e-15)


def test_per_flop_and_per_token():
    assert bits.bits_per_pflop(60.0, 2e15) == 30.0
    assert bits.bits_per_ktok(60.0, 1_000_000) == pytest.approx(0.06)
    assert bits.bits_per_pflop(5.0, 0) == bits.bits_per_ktok(5.0, 0) == 0.0


def test_success_variance_by_hand():
    assert bits.success_variance([1, 4], [4, 8]) == pytest.approx([3 / 12, 16 / 56])
    assert np.isnan(bits.success_variance([0, 1], [0, 1])).all()


def test_stopping_at_the_first_success_in_numbers():
    p = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]
    expected = [0.0465, 0.0798, 0.158, 0.256, 0.402, 0.516, 0.693]
    assert bits.first_success_mean(p) == pytest.approx(expected, abs=5e-4)
    assert bits.first_success_mean([0.0, 1.0]).tolist() == [0.0, 1.0]


def test_errors_name_the_value():
    with pytest.raises(ValueError, match=r"1\.2"):
        bits.binary_entropy([0.5, 1.2])
    with pytest.raises(ValueError, match="nan"):
        bits.binary_entropy(float("nan"))
    with pytest.raises(ValueError, match=r"-0\.1"):
        bits.noisy_verifier_entropy(0.5, -0.1)
    with pytest.raises(ValueError, match="p = 0"):
        bits.supervised_bits([0.5, 0.0])
    with pytest.raises(ValueError, match="9 successes of 8"):
        bits.group_entropy(9, 8)
    with pytest.raises(ValueError, match="positive"):
        bits.expected_entropy(0, 1)
    with pytest.raises(ValueError, match="r ≥ 2"):
        bits.haldane_rate(1, 4)
    with pytest.raises(ValueError, match="5 successes of 4"):
        bits.haldane_rate(5, 4)
