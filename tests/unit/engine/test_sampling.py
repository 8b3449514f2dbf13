import numpy as np
import pytest
import torch

from gumption.rollouts.sampling import BLOCK, inverse_cdf, processed_logprobs, sample, support_mask


def reference(logits, temperature, top_p, top_k):
    """Slow float64 version, one row at a time, from the definition."""
    out = np.full(logits.shape, -np.inf)
    for b, row in enumerate(np.asarray(logits, np.float64) / temperature):
        order = sorted(range(len(row)), key=lambda v: (-row[v], v))
        if top_k:
            order = order[:top_k]
        weights = np.exp(row[order] - row[order].max())
        probs, kept, mass = weights / weights.sum(), [], 0.0
        for v, p in zip(order, probs, strict=True):
            kept.append(v)
            mass += p
            if mass >= top_p:
                break
        out[b, kept] = row[kept] - row[kept].max() - np.log(np.exp(row[kept] - row[kept].max()).sum())
    return out


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"), [(1, 1, 0), (0.7, 1, 0), (1, 0.8, 0), (1.3, 0.5, 7), (1, 1, 3), (1, 1, 1)]
)
def test_processed_logprobs_are_those_of_the_definition(temperature, top_p, top_k):
    logits = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (40, 23)))
    got = processed_logprobs(logits, temperature, top_p, top_k).numpy()
    want = reference(logits.numpy(), temperature, top_p, top_k)
    assert (np.isfinite(got) == np.isfinite(want)).all()
    np.testing.assert_allclose(np.exp(got), np.exp(want), rtol=1e-12, atol=1e-15)


def test_half_precision_logits_give_float32():
    assert processed_logprobs(torch.zeros(2, 3, dtype=torch.bfloat16), 0.5).dtype == torch.float32


def test_gradient_of_a_kept_token_is_onehot_minus_probs_on_the_support():
    logits = torch.tensor([[2.0, 1.0, 0.5, -3.0]], dtype=torch.float64, requires_grad=True)
    logprobs = processed_logprobs(logits, temperature=2.0, top_k=3)
    logprobs[0, 1].backward()
    probs = torch.softmax(torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64) / 2, -1)
    want = torch.cat([(torch.tensor([0.0, 1.0, 0.0]) - probs) / 2, torch.zeros(1)])
    torch.testing.assert_close(logits.grad[0], want.double())


def test_keep_ids_stay_in_the_support():
    logits = torch.tensor([[5.0, 0.0, 0.0, 1.0]])
    assert processed_logprobs(logits, top_p=0.5)[0, 2] == -torch.inf
    kept = processed_logprobs(logits, top_p=0.5, keep_ids_B=torch.tensor([2]))
    torch.testing.assert_close(kept[0, [0, 2]], torch.log_softmax(torch.tensor([5.0, 0.0]), -1))


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}])
def test_settings_out_of_range_are_errors(bad):
    with pytest.raises(ValueError, match=str(next(iter(bad.values())))):
        processed_logprobs(torch.zeros(1, 3), **bad)


def test_ties_go_to_the_smaller_id():
    assert support_mask(torch.zeros(1, 5), top_k=2).tolist() == [[True, True, False, False, False]]


@pytest.mark.parametrize("vocab", [5, BLOCK, BLOCK + 1, 5 * BLOCK + 17])
def test_inverse_cdf_is_searchsorted_on_the_running_sum(vocab):
    rng = np.random.default_rng(1)
    probs = rng.exponential(size=(64, vocab)) * (rng.random((64, vocab)) < 0.3)
    probs[:, 2] += 1e-3
    uniforms = rng.random(64)
    uniforms[0], uniforms[1] = 0.0, 1 - 2.0**-53
    got = inverse_cdf(torch.from_numpy(probs), torch.from_numpy(uniforms)).numpy()
    cdf = np.cumsum(probs, -1)
    want = [np.searchsorted(c, u * c[-1], side="right") for c, u in zip(cdf, uniforms, strict=True)]
    assert (probs[np.arange(64), got] > 0).all()
    last = np.flatnonzero(probs[1])[-1]
    assert got[1] == last  # u next to 1: the last possible token
    np.testing.assert_array_equal(np.delete(got, 1), np.delete(want, 1))


def test_a_long_float32_tail_keeps_its_mass():
    """49,152 equal tokens: every thousandth quantile lands where it should, which a float32 running sum misses."""
    vocab, uniforms = 49_152, torch.arange(0, 1, 0.001, dtype=torch.float64)
    probs = torch.full((1, vocab), 1 / vocab).expand(len(uniforms), vocab)
    got = inverse_cdf(probs, uniforms)
    assert (got - (uniforms * vocab).floor()).abs().max() <= 1


def test_draws_follow_the_distribution():
    """χ² with 9 degrees of freedom; the bound 33.7 is exceeded with probability 1e-4 by a right sampler."""
    logits = torch.tensor([[0.3 * i for i in range(10)]])
    n = 20_000
    u = torch.from_numpy(np.random.default_rng(3).random(n))
    tokens, logprobs = sample(logits.expand(n, 10), u, temperature=1.5)
    p = torch.softmax(logits[0].double() / 1.5, -1).numpy()
    counts = np.bincount(tokens.numpy(), minlength=10)
    assert ((counts - n * p) ** 2 / (n * p)).sum() < 33.7
    np.testing.assert_allclose(logprobs.numpy(), np.log(p)[tokens.numpy()], rtol=1e-5)
