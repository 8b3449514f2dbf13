"""What every allocator shares: chains of attempts, buffers, ages, resamples, state. One hook, `_judge`, is left open.

A *chain* is one visit to one problem. Its attempts come one after the other; each is told back once, with rewards. The
rules here are the same for all allocators (architecture.md, section 3):

- Rollouts without a reward value get their fate at once and are never members of a group.
- A rollout older than `max_age` policy versions is never trained on; its reward stays in the chain's counts.
- An attempt that is too old as a whole, or that has fewer than two valued fresh rollouts, is not judged: the counts
  move, the chain's best does not, and the same problem is asked for again without a coin, at most `max_resamples` times
  in a row. What it brought is buffered and judged together with the next attempt.
- Retries stand at the head of the next `ask`; a request is never split.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from gumption.allocation.chain import TOLERANCE, Buffered, Chain, chains_from_state, chains_state, members_of
from gumption.allocation.tally import Tally
from gumption.types import (
    Attempt,
    ChainId,
    Fate,
    Final,
    Group,
    Member,
    ProblemStream,
    Request,
    Reward,
    StateTree,
    Verdict,
    VerdictKind,
)


class Decision(NamedTuple):
    """What a rule says of a chain after an attempt; `fate` is that of its members where it ends untrained."""

    kind: VerdictKind
    reason: str
    counts: bool = False
    fate: Fate = "gave_up"


class _Sorted(NamedTuple):
    """One attempt's members, sorted: fresh and valued ones, and the counts of all valued ones."""

    entry: Buffered
    scores: list[float]  # of the fresh and valued members
    valued: int
    reward_sum: float
    successes: int


class ChainAllocator(ABC):
    """Ask/tell over chains. A rule is a final subclass with `_judge`.

    Args:
        stream: Where problems come from.
        group_size: Rollouts per request.
        max_age: Rollouts older than this many policy versions are not trained on; −1 keeps all.
        max_score: Reward at which a rollout is a success.
        filter_on: The reward that rules look at: the task's own, or the total with length shaping.
        max_resamples: Attempts in a row that may come back without two fresh rewards before the chain is given up.
        seed: Run seed, for coins.

    Raises:
        ValueError: a parameter is out of range.
    """

    rule: ClassVar[str]

    def __init__(
        self,
        stream: ProblemStream,
        *,
        group_size: int = 8,
        max_age: int = 4,
        max_score: float = 1.0,
        filter_on: Literal["task", "total"] = "task",
        max_resamples: int = 4,
        seed: int = 0,
    ) -> None:
        if group_size < 1:
            raise ValueError(f"group_size must be at least 1, got {group_size}")
        if max_age < -1:
            raise ValueError(f"max_age must be −1 (keep all) or a number of policy versions, got {max_age}")
        if max_resamples < 0:
            raise ValueError(f"max_resamples must not be negative, got {max_resamples}")
        if filter_on not in ("task", "total"):
            raise ValueError(f"filter_on must be 'task' or 'total', got {filter_on!r}")
        self.stream = stream
        self.group_size = group_size
        self.max_age = max_age
        self.max_score = max_score
        self.filter_on = filter_on
        self.max_resamples = max_resamples
        self.seed = seed
        self._top = max_score - TOLERANCE
        self._chains: dict[ChainId, Chain] = {}
        self._retries: deque[Chain] = deque()
        self._tally = Tally()
        self._everyone = tuple(range(group_size))  # shared by all buffered attempts whose members are all kept

    # -- the rule

    @abstractmethod
    def _judge(self, chain: Chain, scores: Sequence[float]) -> Decision:
        """Decide about the scores of one attempt; `chain.attempts` includes it, `chain.best` does not."""

    def _may_resample(self, chain: Chain) -> bool:
        """May this chain be asked again without a coin?"""
        return chain.resamples < self.max_resamples

    def batch_ready(self, counted: int, told: int, groups_per_update: int) -> bool:
        """Is it time to update? Yes, when every place of the batch is taken."""
        return counted >= groups_per_update

    # -- ask and tell

    def ask(self, capacity: int) -> list[Request]:
        """Requests worth at least `capacity` rollouts (retries first), or fewer where the problems run out."""
        requests: list[Request] = []
        wanted = math.ceil(capacity / self.group_size)
        while len(requests) < wanted and self._retries:
            chain = self._retries.popleft()
            chain.waiting = True
            requests.append(Request(chain.problem, self.group_size, chain.id.visit, chain.attempts))
        while len(requests) < wanted:
            drawn = self.stream.next()
            if drawn is None:
                break
            problem, visit = drawn
            chain_id = ChainId(problem.id, visit)
            if chain_id in self._chains:
                raise ValueError(f"the problem stream gave {chain_id} twice: count the visit up with every pass")
            self._chains[chain_id] = Chain(chain_id, problem)
            requests.append(Request(problem, self.group_size, visit, 0))
        return requests

    def tell(self, attempt: Attempt, version: int, fresh: bool = True) -> Verdict:
        """Judge one scored attempt at trainer version `version`.

        Args:
            attempt: Answer to a request of this allocator, with rewards.
            version: Policy version of the trainer now.
            fresh: False: all of it is too old to train on, whatever `max_age` says.

        Returns:
            A verdict with the chain's group and the rollouts whose fate is now settled.

        Raises:
            ValueError: the attempt was not asked for, was told already, or has no rewards.
        """
        chain = self._expected(attempt)
        tally = self._tally
        tally.at(version)
        finals: list[Final] = []
        if self.max_age >= 0:
            self._drop_stale(chain, version - self.max_age, finals)
        told = self._sort(attempt, version, fresh, finals)
        pooled = chain.unjudged
        chain.waiting = False
        chain.attempts += 1
        chain.count += told.valued
        chain.reward_sum += told.reward_sum
        chain.successes += told.successes
        scores = told.scores
        if len(scores) >= min(2, attempt.request.n):
            tally.judged(scores, self._top)
            if pooled:
                scores = [*(self._score(m) for entry in pooled for m in members_of(entry)), *scores]
            chain.resamples = 0
            decision = self._judge(chain, scores)
        else:
            decision = self._unjudged(chain, told)
        members = chain.members()
        members += members_of(told.entry)
        group = self._group(chain, members, told, pooled)
        if decision.kind == "retry":
            self._requeue(chain, told, scores)
        else:
            del self._chains[chain.id]
            if decision.kind != "accept":
                fate, reason = decision.fate, decision.reason
                finals.extend([Final(m, fate, reason) for m in members])
        tally.verdict(decision.kind, decision.fate, chain.attempts)
        return Verdict(decision.kind, decision.reason, group, decision.kind == "accept", decision.counts, tuple(finals))

    def drain(self) -> list[Final]:
        """End of run: forget every open chain and return its buffered rollouts as `unfinished`."""
        finals = [Final(m, "unfinished", "run_ended") for chain in self._chains.values() for m in chain.members()]
        self._chains.clear()
        self._retries.clear()
        return finals

    # -- steps of `tell`

    def _expected(self, attempt: Attempt) -> Chain:
        request = attempt.request
        chain = self._chains.get(request.chain_id)
        if chain is None or not chain.waiting or chain.attempts != request.attempt:
            raise ValueError(
                f"attempt {request.attempt} of {request.chain_id} is not expected: tell each request of `ask` once"
            )
        if attempt.rewards_G is None or len(attempt.rewards_G) != request.n:
            raise ValueError(
                f"attempt {request.attempt} of {request.chain_id} needs {request.n} rewards: score it first"
            )
        return chain

    def _drop_stale(self, chain: Chain, limit: int, finals: list[Final]) -> None:
        """Buffered rollouts from before version `limit` leave the chain; its counts stay."""
        for part in (chain.judged, chain.unjudged):
            if any(entry.oldest < limit for entry in part):
                kept = []
                for entry in part:
                    if entry.oldest < limit:
                        versions = entry.attempt.version_start_G.tolist()
                        young = tuple(i for i in entry.positions if versions[i] >= limit)
                        old = [i for i in entry.positions if versions[i] < limit]
                        finals.extend(Final(Member(entry.attempt, i), "stale", "max_age") for i in old)
                        entry = Buffered(entry.attempt, young, min((versions[i] for i in young), default=0))
                    if entry.positions:
                        kept.append(entry)
                part[:] = kept

    def _sort(self, attempt: Attempt, version: int, fresh: bool, finals: list[Final]) -> _Sorted:
        """Settle members without value and members too old; the rest may be trained on."""
        versions: list[int] = attempt.version_start_G.tolist()
        oldest = min(versions)
        limit = version - self.max_age if self.max_age >= 0 else oldest
        if not fresh:
            limit = max(versions) + 1
        positions, scores = [], []
        total, valued, successes = 0.0, 0, 0
        for i, reward in enumerate(attempt.rewards_G or ()):
            value = reward.value
            score = value if reward.task is None or self.filter_on == "total" else reward.task
            if value is None or score is None or not math.isfinite(value) or not math.isfinite(score):
                finals.append(Final(Member(attempt, i), *_no_value(reward)))
                continue
            valued += 1
            total += value
            successes += score >= self._top
            if versions[i] >= limit:
                positions.append(i)
                scores.append(float(score))
            else:
                finals.append(Final(Member(attempt, i), "stale", "max_age"))
        everyone = self._everyone if len(positions) == len(self._everyone) else tuple(positions)
        if oldest < limit:
            oldest = min((versions[i] for i in positions), default=oldest)
        return _Sorted(Buffered(attempt, everyone, oldest), scores, valued, float(total), successes)

    def _unjudged(self, chain: Chain, told: _Sorted) -> Decision:
        """Too few fresh rewards: again, without a coin, within the bound."""
        reason = "stale_attempt" if told.valued and not told.scores else "too_few_rewards"
        if self._may_resample(chain):
            chain.resamples += 1
            return Decision("retry", reason)
        return Decision("give_up", reason)

    def _requeue(self, chain: Chain, told: _Sorted, scores: Sequence[float]) -> None:
        if chain.resamples:
            if told.entry.positions:
                chain.unjudged.append(told.entry)
        else:
            chain.judged += [*chain.unjudged, told.entry]
            chain.unjudged.clear()
            high = max(scores)
            chain.best = high if chain.best is None else max(chain.best, high)
        self._retries.append(chain)

    def _group(self, chain: Chain, members: list[Member], told: _Sorted, pooled: Sequence[Buffered]) -> Group:
        """The chain as a group: fresh buffered members, then this attempt's."""
        values = (told.valued, told.reward_sum)
        if pooled:
            extra = [m.value for entry in pooled for m in members_of(entry)]
            values = (told.valued + len(extra), told.reward_sum + sum(extra))
        return Group(
            chain.id,
            chain.problem,
            tuple(members),
            chain.count,
            chain.reward_sum,
            chain.successes,
            chain.attempts,
            values,
        )

    def _score(self, member: Member) -> float:
        rewards = member.attempt.rewards_G
        assert rewards is not None, "buffered attempts are scored"
        reward = rewards[member.position]
        score = reward.value if self.filter_on == "total" else reward.task_value
        assert score is not None, "buffered members have a value"
        return float(score)

    # -- state and counters

    def metrics(self) -> dict[str, float]:
        """Counters since the start of the run, and shares and means since the last update (`Tally.metrics`)."""
        return self._tally.metrics() | {"allocation/open_chains": float(len(self._chains))}

    def state_dict(self) -> StateTree:
        """Chains with their buffered attempts, retries in order, counters, and the problem stream."""
        return {
            "rule": self.rule,
            "chains": chains_state(list(self._chains.values())),
            "retries": [list(chain.id) for chain in self._retries],
            "tally": self._tally.state_dict(),
            "stream": self.stream.state_dict(),
        }

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved state.

        Raises:
            ValueError: it was saved by another rule.
        """
        if state["rule"] != self.rule:
            raise ValueError(f"this state was saved by allocation.rule = {state['rule']!r}, not {self.rule!r}")
        self.stream.load_state_dict(state["stream"])
        chains = chains_from_state(state["chains"], self.stream.problem, self._everyone)
        self._chains = {chain.id: chain for chain in chains}
        self._retries = deque(self._chains[ChainId(*pair)] for pair in state["retries"])
        self._tally.load_state_dict(state["tally"])


def _no_value(reward: Reward) -> tuple[Fate, str]:
    """Fate and reason of a rollout without a usable reward value."""
    if reward.status in ("masked", "cancelled"):
        return reward.status, reward.status
    return "error", "no_value" if reward.status == "ok" else reward.status
