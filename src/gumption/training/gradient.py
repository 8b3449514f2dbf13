"""Forward and backward over one minibatch: the sum of its token losses, differentiated."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gumption.config import RunConfig
from gumption.training.batching import MicroBatch
from gumption.training.corrections import bounds, correction
from gumption.training.flat import FlatParameters
from gumption.training.forward import Forward, tree_mask
from gumption.training.logprobs import Sampling, backward_chunks, score_chunks
from gumption.training.losses import cispo, clipped, gspo, k3, ppo_clip, reinforce, sequence_log_ratio
from gumption.training.model import Policy
from gumption.training.tally import Tally
from gumption.types import TrainBatch


@dataclass(frozen=True, eq=False)
class Loaded:
    """A micro-batch on the device, with what the losses need per token."""

    micro: MicroBatch
    source_N: Tensor
    targets_N: Tensor
    rows_N: Tensor
    behaviour_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    old_N: Tensor | None = None
    reference_N: Tensor | None = None
    sequence_2N: tuple[Tensor, Tensor] | None = None  # `gspo`: log-ratio and length of each token's sequence


class Gradient:
    """Sums token losses and their gradient into a `FlatParameters`.

    Args:
        policy: The model.
        config: Loss, correction, sampling.
    """

    def __init__(self, policy: Policy, config: RunConfig) -> None:
        self.policy = policy
        self._c = config.training
        self._sampling = Sampling(config.rollouts.temperature, config.rollouts.top_p, config.rollouts.top_k)
        self.forward = Forward(policy.base_model)
        self._reference = self.forward
        if self._c.kl_coef > 0 and not policy.lora:
            self._reference = copy.copy(self.forward)
            self._reference.model = copy.deepcopy(policy.base_model).requires_grad_(False)
        self.flat = FlatParameters(policy.model)

    def load(self, micro: MicroBatch, batch: TrainBatch) -> Loaded:
        """A micro-batch on the device."""
        device, dtype = self.policy.device, self.flat.values.dtype
        values_B2 = np.array([(row.advantage, row.weight) for row in batch.rows_B])
        values_N2 = torch.as_tensor(values_B2[micro.rows_N], dtype=dtype, device=device)
        return Loaded(
            micro=micro,
            source_N=torch.as_tensor(micro.source_N, device=device),
            targets_N=torch.as_tensor(micro.targets_N, device=device),
            rows_N=torch.as_tensor(micro.rows_N, device=device),
            behaviour_N=torch.as_tensor(micro.behaviour_N, dtype=dtype, device=device),
            advantages_N=values_N2[:, 0],
            weights_N=values_N2[:, 1],
        )

    @torch.no_grad()
    def score(self, m: Loaded, *, old: bool) -> Loaded:
        """The same with log-probs of the policy as it is now (`old`) and of the reference (where there is one)."""

        def score(forward: Forward) -> Tensor:
            hidden_ND = self._hidden(forward, m)
            return score_chunks(hidden_ND, forward.head, m.targets_N, self._sampling, self._c.logits_chunk_tokens)

        old_N = score(self.forward) if old else None
        reference_N = None
        if self._c.kl_coef > 0:
            with self.policy.model.disable_adapter() if self.policy.lora else nullcontext():
                reference_N = score(self._reference)
        return replace(m, old_N=old_N, reference_N=reference_N)

    def accumulate(
        self, minibatch: list[Loaded], scale: float, tally: Tally, *, first: bool, halved: bool = False
    ) -> tuple[float, Tensor | None]:
        """Set `flat.grads` to the gradient of scale · Σ token losses.

        Args:
            minibatch: Its micro-batches, half 0 before half 1.
            scale: Minibatches / denominator.
            tally: Gets the measurements.
            first: This is the first pass over the batch.
            halved: The halves are in separate micro-batches.

        Returns:
            The loss, and the first half's gradient if `halved`.
        """
        self.flat.zero_grads()
        total = torch.zeros((), dtype=torch.float64, device=self.policy.device)
        half: Tensor | None = None
        for m in minibatch:
            if halved and m.micro.half == 1 and half is None:
                half = self.flat.grads.clone()
            hidden_ND = self._hidden(self.forward, m)
            if self._c.loss == "gspo":
                m = self._sequences(m, hidden_ND)

            def loss(logprobs_N: Tensor, entropy_N: Tensor, where: slice, m: Loaded = m) -> Tensor:
                value = self._loss(m, logprobs_N, entropy_N, where, tally, first) * scale
                total.add_(value.detach())
                return value

            backward_chunks(
                hidden_ND, self.forward.head, m.targets_N, self._sampling, self._c.logits_chunk_tokens, loss
            )
            self.flat.collect()
        return total.item(), half

    def _hidden(self, forward: Forward, m: Loaded) -> Tensor:
        """Hidden states that predict the loss tokens."""
        micro, device = m.micro, self.policy.device
        positions_RT = mask_RTT = None
        if micro.positions_RT is not None:
            positions_RT = torch.as_tensor(micro.positions_RT, device=device)
            mask_RTT = tree_mask(
                torch.as_tensor(micro.tree_RT, device=device), torch.as_tensor(micro.branch_RT, device=device)
            )
        hidden_MD = forward.hidden(torch.as_tensor(micro.ids_RT, device=device), positions_RT, mask_RTT)
        return hidden_MD.index_select(0, m.source_N)

    def _sequences(self, m: Loaded, hidden_ND: Tensor) -> Loaded:
        """The same with each token's sequence ratio under the policy as it is now.

        A loss token may need the log-probs of tokens in other chunks, so all are scored before any goes backward. That
        computes logits twice (recomputation is not booked). A rollout is never split over micro-batches.
        """
        if m.old_N is None:  # π_old = π
            old_N = now_N = m.behaviour_N
        else:
            old_N = m.old_N
            now_N = score_chunks(hidden_ND, self.forward.head, m.targets_N, self._sampling, self._c.logits_chunk_tokens)
        return replace(m, sequence_2N=sequence_log_ratio(now_N, old_N, m.rows_N))

    def _loss(
        self, m: Loaded, logprobs_N: Tensor, entropy_N: Tensor, where: slice, tally: Tally, first: bool
    ) -> Tensor:
        """Sum of the token losses of one chunk, before the denominator."""
        c = self._c
        now_N = logprobs_N.detach()
        old_N = now_N if m.old_N is None else m.old_N[where]
        behaviour_N, advantages_N = m.behaviour_N[where], m.advantages_N[where]
        weight_N = correction(c, now_N if c.loss == "reinforce" else old_N, behaviour_N)
        low_N = high_N = torch.zeros_like(now_N, dtype=torch.bool)
        kl_N = None if m.reference_N is None else k3(logprobs_N, m.reference_N[where])
        kl_loss_N = kl_N
        if c.loss == "reinforce":
            loss_N = reinforce(logprobs_N, advantages_N, weight_N)
        elif c.loss == "cispo":
            loss_N = cispo(logprobs_N, old_N, advantages_N, weight_N, high=c.cispo_high)
            high_N = (now_N - old_N).exp() > c.cispo_high
        elif c.loss == "gspo":
            assert m.sequence_2N is not None
            ratio_N, length_N = (x[where] for x in m.sequence_2N)
            clip = {"low": c.gspo_low, "high": c.gspo_high}
            loss_N = gspo(logprobs_N, ratio_N, length_N, advantages_N, weight_N, **clip)
            low_N, high_N = clipped(ratio_N, advantages_N, **clip)
            kl_loss_N = None if kl_N is None else kl_N / length_N  # sequences weigh the same in both terms
        else:
            clip = {"low": c.clip_low, "high": c.clip_high}
            loss_N = ppo_clip(logprobs_N, old_N, advantages_N, weight_N, **clip)
            low_N, high_N = clipped(now_N - old_N, advantages_N, **clip)
        if kl_loss_N is not None:
            loss_N = loss_N + c.kl_coef * kl_loss_N
        if first:
            tally.start(old_N, behaviour_N, m.rows_N[where], bounds(c))
        tally.step(entropy_N, low_N, high_N, kl_N)
        return (m.weights_N[where] * loss_N).sum()
