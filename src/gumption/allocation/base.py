"""What every allocator shares: chains of attempts, buffers, ages, resamples, state. One hook, `_judge`, is left open.

Rules whose requests differ in size override `_size`; those that train on part of what a chain has brought, `_train_on`.

A *chain* is one visit to one problem. Its attempts come one after the other; each is told back once, with rewards. The
rules here are the same for all allocators (architecture.md, section 3):

- Rollouts without a reward value get their fate at once and are never members of a group.
- A rollout older than `max_age` policy versions is never trained on; its reward stays in the chain's counts.
- An attempt that is too old as a whole, or that has fewer than two valued fresh rollouts, is not judged: the counts
  move, the chain's best does not, and the same problem is asked for again without a coin, at most `max_resamples` times
  in a row. What it brought is buffered and judged together with the next attempt.
- Retries stand at the head of the next `ask`; a request is never split.
- A problem stream with an `observe(group, version)` method hears of every chain that ends (choosers learn from it), and
  one with `metrics()` adds to the allocator's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple, TypeGuard

from gumption.allocation.chain import NEVER, TOLERANCE, Chain, chains_from_state, chains_state
from gumption.allocation.tally import Tally
from gumption.types import (
    Attempt,
    ChainId,
    Fate,
    Final,
    Group,
    Member,
    Members,
    Picked,
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


class Told(NamedTuple):
    """One attempt, sorted.

    Args:
        picked: Its fresh and valued members.
        scores: Their scores (the reward that rules look at).
        low: Lowest score (infinity without any).
        high: Highest score (−infinity without any).
        valued: Valued members, those too old to train on included; `reward_sum` their rewards, `successes` those at
            the maximum.
    """

    picked: Picked
    scores: Sequence[float]
    low: float
    high: float
    valued: int
    reward_sum: float
    successes: int


class ChainAllocator(ABC):
    """Ask/tell over chains. A rule is a final subclass with `_judge`.

    Args:
        stream: Where problems come from.
        group_size: Rollouts per request (of the first, where requests differ).
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
        self._observe: Callable[[Group, int], None] | None = getattr(stream, "observe", None)
        self._everyone = tuple(range(group_size))  # shared by all buffered attempts whose members are all kept

    # -- the rule

    @abstractmethod
    def _judge(self, chain: Chain, told: Told) -> Decision:
        """Decide about one attempt. The counts of `chain` include it, its best and its buffers do not."""

    def _size(self, chain: Chain) -> int:
        """Rollouts of this chain's next request."""
        return self.group_size

    def _train_on(self, chain: Chain, members: Sequence[Member], finals: list[Final]) -> Sequence[Member]:
        """The members of an accepted group. A rule that leaves some out puts their fates into `finals`."""
        return members

    def _exhausted(self, chain: Chain, told: Told, reason: str) -> Decision:
        """The chain may not be asked again, and its last attempt cannot be judged. `told` has what is fresh of it."""
        return Decision("give_up", reason)

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
        while capacity > 0 and self._retries:
            chain = self._retries.popleft()
            chain.waiting = True
            n = self._size(chain)
            requests.append(Request(chain.problem, n, chain.id.visit, chain.attempts))
            capacity -= n
        while capacity > 0:
            drawn = self.stream.next()
            if drawn is None:
                break
            problem, visit = drawn
            chain_id = ChainId(problem.id, visit)
            if chain_id in self._chains:
                raise ValueError(f"the problem stream gave {chain_id} twice: count the visit up with every pass")
            self._chains[chain_id] = chain = Chain(chain_id, problem)
            n = self._size(chain)
            requests.append(Request(problem, n, visit, 0))
            capacity -= n
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
        self._tally.at(version)
        finals: list[Final] = []
        if self.max_age >= 0 and chain.oldest < version - self.max_age:
            self._drop_stale(chain, version - self.max_age, finals)
        told = self._sort(attempt, version, fresh, finals)
        chain.waiting = False
        chain.attempts += 1
        chain.count += told.valued
        chain.reward_sum += told.reward_sum
        chain.successes += told.successes
        values = (told.valued, told.reward_sum)
        if len(told.scores) >= min(2, attempt.request.n):
            self._tally.judged(told.low, told.high, self._top)
            if chain.unjudged:
                told, values = self._pool(chain, told)
            chain.resamples = 0
            chain.rounds += 1
            decision = self._judge(chain, told)
        else:
            decision = self._unjudged(chain, told)
        members: Sequence[Member] = Members((*chain.judged, *chain.unjudged, told.picked))
        kind, reason, counts, fate = decision
        if kind == "accept":
            members = self._train_on(chain, members, finals)
        group = Group(
            chain.id, chain.problem, members, chain.count, chain.reward_sum, chain.successes, chain.attempts, values
        )
        self._tally.verdict(kind, fate, chain.attempts)
        if kind == "retry":
            self._requeue(chain, told)
        else:
            del self._chains[chain.id]
            if kind != "accept":
                finals += [Final(m, fate, reason) for m in members]
            if self._observe is not None:
                self._observe(group, version)
        return Verdict(kind, reason, group, kind == "accept", counts, tuple(finals))

    def drain(self) -> list[Final]:
        """End of run: forget every open chain and return its buffered rollouts as `unfinished`."""
        waiting = [Members((*chain.judged, *chain.unjudged)) for chain in self._chains.values()]
        finals = [Final(m, "unfinished", "run_ended") for members in waiting for m in members]
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
        chain.oldest = NEVER
        for buffer in (chain.judged, chain.unjudged):
            kept = []
            for attempt, positions in buffer:
                versions = attempt.version_start_G.tolist()
                finals += [Final(Member(attempt, i), "stale", "max_age") for i in positions if versions[i] < limit]
                young = tuple(i for i in positions if versions[i] >= limit)
                if young:
                    kept.append(Picked(attempt, positions if len(young) == len(positions) else young))
                    chain.oldest = min(chain.oldest, *(versions[i] for i in young))
            buffer[:] = kept

    def _sort(self, attempt: Attempt, version: int, fresh: bool, finals: list[Final]) -> Told:
        """Settle members without value and members too old; the rest may be trained on."""
        rewards = attempt.rewards_G
        assert rewards is not None
        values = [r.value for r in rewards]
        tasks = [r.task for r in rewards]
        shaped = self.filter_on == "task" and tasks.count(None) < len(tasks)
        scores = [v if t is None else t for v, t in zip(values, tasks, strict=True)] if shaped else values
        versions: list[int] = attempt.version_start_G.tolist()
        limit = NEVER if not fresh else version - self.max_age if self.max_age >= 0 else -NEVER
        if min(versions) >= limit and _finite(values):  # the usual case: all may be trained on
            if not shaped:
                return self._whole(attempt, values, values)
            if _finite(scores):
                return self._whole(attempt, values, scores)
        valued: list[tuple[float, float]] = []
        picked: list[int] = []
        for i, (value, score) in enumerate(zip(values, scores, strict=True)):
            if value is None or score is None or not math.isfinite(value + score):
                finals.append(Final(Member(attempt, i), *_no_value(rewards[i])))
                continue
            valued.append((value, score))
            if versions[i] >= limit:
                picked.append(i)
            else:
                finals.append(Final(Member(attempt, i), "stale", "max_age"))
        young = [s for i in picked if (s := scores[i]) is not None]
        return Told(
            Picked(attempt, tuple(picked)),
            young,
            float(min(young, default=math.inf)),
            float(max(young, default=-math.inf)),
            len(valued),
            float(sum(v for v, _ in valued)),
            sum(s >= self._top for _, s in valued),
        )

    def _whole(self, attempt: Attempt, values: Sequence[float], scores: Sequence[float]) -> Told:
        """An attempt all of whose members are fresh and valued."""
        positions = self._everyone if len(values) == self.group_size else tuple(range(len(values)))
        low, high = float(min(scores)), float(max(scores))
        successes = sum([s >= self._top for s in scores]) if high >= self._top else 0
        return Told(Picked(attempt, positions), scores, low, high, len(values), float(sum(values)), successes)

    def _pool(self, chain: Chain, told: Told) -> tuple[Told, tuple[int, float]]:
        """Add what earlier attempts left unjudged to the scores, and to the counts of the judged attempt."""
        waiting = list(Members(tuple(chain.unjudged)))
        scores = [*map(self._score, waiting), *told.scores]
        values = told.valued + len(waiting), told.reward_sum + float(sum(m.value for m in waiting))
        return told._replace(scores=scores, low=float(min(scores)), high=float(max(scores))), values

    def _unjudged(self, chain: Chain, told: Told) -> Decision:
        """Too few fresh rewards: again, without a coin, within the bound."""
        reason = "stale_attempt" if told.valued and not told.scores else "too_few_rewards"
        if self._may_resample(chain):
            chain.resamples += 1
            return Decision("retry", reason)
        return self._exhausted(chain, told, reason)

    def _requeue(self, chain: Chain, told: Told) -> None:
        """Buffer the attempt, and put the chain where the next `ask` looks first."""
        judged = chain.resamples == 0
        if judged:
            if chain.unjudged:
                chain.judged += chain.unjudged
                chain.unjudged.clear()
            chain.best = told.high if chain.best is None else max(chain.best, told.high)
        if told.picked.positions:
            chain.keep(told.picked, judged=judged)
        self._retries.append(chain)

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
        metrics = self._tally.metrics() | {"allocation/open_chains": float(len(self._chains))}
        of_stream = getattr(self.stream, "metrics", None)
        return metrics if of_stream is None else metrics | of_stream()

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


def _finite(values: Sequence[float | None]) -> TypeGuard[Sequence[float]]:
    """Is there a finite number everywhere? (A sum of such is finite; NaN and infinity spoil it.)"""
    return None not in values and math.isfinite(sum(values))  # type: ignore[arg-type]


def _no_value(reward: Reward) -> tuple[Fate, str]:
    """Fate and reason of a rollout without a usable reward value."""
    if reward.status in ("masked", "cancelled"):
        return reward.status, reward.status
    return "error", "no_value" if reward.status == "ok" else reward.status
