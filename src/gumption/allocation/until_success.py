"""`until_success`: rounds until one success; if none comes, a remembered one joins (AR3PO, arXiv 2509.25808).

Assumption: one success among failures is enough of a signal, and an old success is better than none. Departures:

- The paper's stage sizes and its advantage for groups of unequal size could not be verified: rounds are those of
  `reinforce_ada` by default, the advantage is `grpo` over the group, the remembered success included.
- What is remembered: for each problem one success of the newest visit that had any, drawn by hash (the first one to
  come back would be the shortest).
- A remembered success is trained on as what it is: an off-policy rollout, with the log-probs and policy versions of
  when it was sampled, so that `training.correction` can weigh it. `memory_age` bounds its age; `max_age` and
  `training.max_staleness` do not apply to it.
- It is no rollout of this visit: neither counts nor baseline of the chain include it. In the ledger each use is a row
  of its own with `replay` true, its own fate and no generation; the row of the original stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np

from gumption import randomness
from gumption.allocation.base import Decision
from gumption.allocation.chain import Chain
from gumption.allocation.pool import Pool, PoolAllocator, at_least
from gumption.types import (
    Attempt,
    Final,
    Group,
    Member,
    ProblemStream,
    Request,
    StateTree,
    Verdict,
    attempt_from_state,
    attempt_state,
)


@final
class UntilSuccess(PoolAllocator):
    """Rounds of `round_size` until one success, at most `max_rounds`; everything is trained on.

    A first round of nothing but successes is dropped as solved. A problem that failed throughout is trained on with a
    remembered success where there is one, else given up.

    Args:
        stream: Where problems come from.
        round_size: Rollouts per round, ≥ 1.
        max_rounds: Rounds at most, ≥ 1.
        memory_age: A remembered success older than this many policy versions is not used; −1: any age.
        **shared: See `ChainAllocator` (without `group_size`).

    Raises:
        ValueError: a parameter is out of range.

    >>> from gumption.testing import ListStream, answer, problem
    >>> until = UntilSuccess(ListStream([problem()]), round_size=2, max_rounds=1)
    >>> [visit] = until.ask(1)
    >>> until.tell(answer(visit, [0.0, 1.0]), version=0).reason
    'success'
    >>> [visit] = until.ask(1)
    >>> verdict = until.tell(answer(visit, [0.0, 0.0], version=9), version=9)
    >>> verdict.reason, verdict.group.rewards_G.tolist(), verdict.group.versions_G.tolist(), verdict.group.successes
    ('remembered', [0.0, 0.0, 1.0], [9, 9, 0], 0)
    """

    rule: ClassVar[str] = "until_success"

    def __init__(
        self,
        stream: ProblemStream,
        *,
        round_size: int = 8,
        max_rounds: int = 4,
        memory_age: int = -1,
        **shared: Any,
    ) -> None:
        super().__init__(stream, group_size=at_least("round_size", round_size, 1), **shared)
        self.max_rounds = at_least("max_rounds", max_rounds, 1)
        self.memory_age = at_least("memory_age", memory_age, -1)
        self._memory: dict[str, Attempt] = {}  # by problem id
        self._replays = 0

    def tell(self, attempt: Attempt, version: int, fresh: bool = True) -> Verdict:
        """Judge one scored attempt; a chain that ends may leave a success to remember."""
        verdict = super().tell(attempt, version, fresh)
        if verdict.kind != "retry":
            self._remember(verdict.group)
        return verdict

    def _after_round(self, chain: Chain, pool: Pool) -> Decision:
        if pool.successes:
            return self._close(chain, pool, "success")
        if chain.rounds < self.max_rounds:
            return Decision("retry", "no_success")
        return self._close(chain, pool, "max_rounds")

    def _close(self, chain: Chain, pool: Pool, reason: str) -> Decision:
        if pool.size and not pool.successes and self._remembered(chain) is not None:
            return Decision("accept", "remembered", counts=True)
        return super()._close(chain, pool, reason)

    def _train_on(self, chain: Chain, members: Sequence[Member], finals: list[Final]) -> Sequence[Member]:
        """All of them, and a remembered success where there is no other."""
        success = self._remembered(chain)
        if success is None or any(self._score(m) >= self._top for m in members):
            return members
        self._replays += 1
        again = Request(chain.problem, 1, chain.id.visit, chain.attempts)  # the next number: its rows stay apart
        return (*members, Member(replace(success, request=again, replay=True), 0))

    # -- memory

    def _remembered(self, chain: Chain) -> Attempt | None:
        success = self._memory.get(chain.id.problem_id)
        if success is None or self.memory_age < 0:
            return success
        age = self._tally.window.version - int(success.version_start_G[0])
        return success if age <= self.memory_age else None

    def _remember(self, group: Group) -> None:
        """Keep one of the group's own successes, if it has any."""
        good = [m for m in group.members if not m.attempt.replay and self._score(m) >= self._top]
        if good:
            drawn = int(randomness.uniform(self.seed, "remember", *group.chain_id) * len(good))
            self._memory[group.chain_id.problem_id] = _alone(good[drawn])

    def metrics(self) -> dict[str, float]:
        """Also `allocation/remembered` (problems with a success in memory) and `allocation/replays` (uses so far)."""
        return super().metrics() | {
            "allocation/remembered": float(len(self._memory)),
            "allocation/replays": float(self._replays),
        }

    def state_dict(self) -> StateTree:
        """Also the remembered successes."""
        memory = [attempt_state(success) for success in self._memory.values()]
        return super().state_dict() | {"memory": memory, "replays": self._replays}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved state."""
        super().load_state_dict(state)
        self._replays = state["replays"]
        self._memory = {
            saved["problem_id"]: attempt_from_state(saved, self.stream.problem(saved["problem_id"]))
            for saved in state["memory"]
        }


def _alone(member: Member) -> Attempt:
    """One rollout as an attempt of its own, at no cost. Arrays are copied, so that its siblings can be freed."""
    attempt, i = member
    one = slice(int(attempt.offsets_G1[i]), int(attempt.offsets_G1[i + 1]))
    assert attempt.rewards_G is not None, "only scored rollouts are remembered"
    request = attempt.request
    return Attempt(
        request=Request(request.problem, 1, request.visit, request.attempt),
        prompt_ids_T=attempt.prompt_ids_T.copy(),
        completion_ids_T=attempt.completion_ids_T[one].copy(),
        logprobs_T=attempt.logprobs_T[one].copy(),
        offsets_G1=np.array([0, one.stop - one.start], np.int64),
        version_start_G=attempt.version_start_G[i : i + 1].copy(),
        version_end_G=attempt.version_end_G[i : i + 1].copy(),
        finish_G=attempt.finish_G[i : i + 1],
        texts_G=attempt.texts_G[i : i + 1],
        flops_prefill_G=np.zeros(1, np.int64),
        flops_decode_G=np.zeros(1, np.int64),
        loss_mask_T=None if attempt.loss_mask_T is None else attempt.loss_mask_T[one].copy(),
        rewards_G=attempt.rewards_G[i : i + 1],
    )
