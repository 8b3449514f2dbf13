"""Log-probs of the processed distribution: values, entropy, gradients, and chunking that changes none of them."""

from __future__ import annotations

import math

import pytest
import torch

from gumption.rollouts.sampling import processed_logprobs
from gumption.training.logprobs import Sampling, backward_chunks, score_chunks, token_logprobs

SAMPLINGS = [Sampling(), Sampling(0.7), Sampling(1.0, 0.8), Sampling(1.3, 0.9, 5), Sampling(1.0, 1.0, 3)]


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(40, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2


@pytest.fixture
def targets() -> torch.Tensor:
    return torch.randint(0, 11, (40,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_equals_the_engine_s_distribution(sampling: Sampling, logits: torch.Tensor, targets: torch.Tensor) -> None:
    logp, entropy = token_logprobs(logits, targets, sampling)
    full = processed_logprobs(logits, sampling.temperature, sampling.top_p, sampling.top_k, keep_ids_B=targets)
    torch.testing.assert_close(logp, full.gather(-1, targets[:, None])[:, 0], rtol=1e-12, atol=1e-12)
    for i in range(len(logits)):
        slow = -sum(math.exp(x) * x for x in full[i].tolist() if x > -math.inf)
        assert entropy[i].item() == pytest.approx(slow, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_gradient_equals_autograd_of_log_softmax(
    sampling: Sampling, logits: torch.Tensor, targets: torch.Tensor
) -> None:
    weight = torch.linspace(-1, 1, 40, dtype=torch.float64)
    a, b = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    logp, entropy = token_logprobs(a, targets, sampling)
    assert not entropy.requires_grad
    (weight * logp).sum().backward()
    full = processed_logprobs(b, sampling.temperature, sampling.top_p, sampling.top_k, keep_ids_B=targets)
    (weight * full.gather(-1, targets[:, None])[:, 0]).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)


def test_forbidden_tokens_do_not_spoil_the_entropy() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]]).requires_grad_()
    logp, entropy = token_logprobs(logits, torch.tensor([0]), Sampling())
    assert logp.item() == pytest.approx(-math.log(2)) and entropy.item() == pytest.approx(math.log(2))
    logp.sum().backward()
    assert logits.grad is not None and logits.grad.tolist() == [[0.5, -0.5, 0.0]]


def test_low_precision_logits_are_raised() -> None:
    logp, _ = token_logprobs(torch.zeros(2, 5, dtype=torch.bfloat16), torch.tensor([0, 1]), Sampling())
    assert logp.dtype == torch.float32 and logp[0].item() == pytest.approx(-math.log(5))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 0.9)])
@pytest.mark.parametrize("chunk", [1, 7, 39, 40, 1000])
def test_chunks_change_neither_values_nor_gradients(sampling: Sampling, chunk: int, targets: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(2)
    body = torch.nn.Linear(6, 8).double()
    head = torch.nn.Linear(8, 11).double()
    inputs = torch.randn(40, 6, dtype=torch.float64, generator=generator)
    weight = torch.randn(40, dtype=torch.float64, generator=generator)

    def gradients(size: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        values = torch.zeros(40, dtype=torch.float64)

        def loss(logp: torch.Tensor, entropy: torch.Tensor, where: slice) -> torch.Tensor:
            assert len(logp) == len(entropy) <= size
            values[where] = logp.detach()
            return (weight[where] * logp.exp()).sum()

        for module in (body, head):
            module.zero_grad()
        backward_chunks(body(inputs), head, targets, sampling, size, loss)
        return [p.grad.clone() for m in (body, head) for p in m.parameters() if p.grad is not None], values

    grads, values = gradients(chunk)
    expected_grads, expected_values = gradients(40)
    assert len(grads) == 4
    for grad, expected in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(values, expected_values, rtol=1e-13, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(score_chunks(body(inputs), head, targets, sampling, chunk), values)


def test_only_a_chunk_of_logits_is_alive() -> None:
    sizes = []

    def head(hidden: torch.Tensor) -> torch.Tensor:
        sizes.append(len(hidden))
        return hidden @ torch.ones(4, 9)

    targets = torch.zeros(10, dtype=torch.long)
    hidden = torch.randn(10, 4, requires_grad=True)
    backward_chunks(hidden, head, targets, Sampling(), 4, lambda logp, entropy, where: logp.sum())
    assert sizes == [4, 4, 2] and hidden.grad is not None
