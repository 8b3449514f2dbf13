"""`Scorer`: finished attempts in, rewards out, whatever the verifiers do.

Trusted verifiers (`gumption.rewards.base.TRUSTED`, and what a verifier's own `in_process` or `quick` vouches for) run
here; everything else runs in worker processes with a time and a memory limit. A verifier that raises, hangs, eats
memory, returns nonsense or kills its process costs one reward: value `None` with a status, counted, never an exception.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gumption.rewards.base import TRUSTED, as_reward, failure, make_verifier
from gumption.rewards.pool import Job, Pool
from gumption.types import Attempt, Problem, Reward, Verifier

if TYPE_CHECKING:
    from gumption.config import RewardsConfig

_MAX_WORKERS = 8
_CANCELLED = Reward(None, status="cancelled", detail="stopped before it was finished")
_ENGINE_ERROR = Reward(None, status="error", detail="the engine failed")
_MASKED = Reward(None, status="masked", detail="truncated")
_TRUNCATED = Reward(0.0, detail="truncated")


class _Checker:
    """A verifier and how it is to be called."""

    def __init__(self, name: str, options: dict[str, Any], in_pool: bool) -> None:
        self.name = name
        self.options = options
        self.verifier: Verifier = make_verifier(name, **options)
        self.batched = bool(getattr(self.verifier, "batched", False))
        self.wants_ids = bool(getattr(self.verifier, "wants_ids", False))
        self.quick = None if in_pool else getattr(self.verifier, "quick", None)
        self._asked = getattr(self.verifier, "in_process", None)
        self._always = not in_pool and name in TRUSTED
        self._never = in_pool or (not self._always and self._asked is None)

    def here(self, problem: Problem) -> bool:
        """Does this problem's verifier run in the trainer's process?"""
        if self._always or self._never or self._asked is None:
            return self._always
        return bool(self._asked(problem))


class Scorer:
    """Scores attempts in order, synchronously: same attempts, same rewards.

    Args:
        config: Verifier, limits, shaping.
        max_tokens: Completion length at most (for the length penalty).

    >>> from gumption.config import RewardsConfig
    >>> from gumption.types import Request
    >>> attempt = Attempt.empty(Request(Problem("x-0", "2+2=", "4", "exact"), n=2))
    >>> attempt.texts_G = ("4", "5")
    >>> scorer = Scorer(RewardsConfig(), max_tokens=8)
    >>> scorer.score([attempt])
    >>> attempt.values_G.tolist(), scorer.counts()
    ([1.0, 0.0], {'ok': 2})
    """

    def __init__(self, config: RewardsConfig, *, max_tokens: int) -> None:
        self.config = config
        self.max_tokens = max_tokens
        self.seconds = 0.0
        self._counts: Counter[str] = Counter()
        self._checkers: dict[str, _Checker] = {}
        self._pool: Pool | None = None

    def prepare(self, problems: Iterable[Problem]) -> None:
        """Make the verifiers of these problems, in workers where they run there, so that mistakes show at once.

        Raises:
            ValueError: an unknown verifier or option, a function that cannot be imported.
        """
        seen: set[str] = set()
        for problem in problems:
            checker = self._checker(problem)
            if checker.name in seen:
                continue
            seen.add(checker.name)
            if checker.here(problem):
                if hasattr(checker.verifier, "prepare"):
                    checker.verifier.prepare()
            else:
                pool = self._workers()
                pool.prove(pool.slot(checker.name, checker.options))

    def score(self, attempts: Sequence[Attempt]) -> None:
        """Set `rewards_G` of each attempt.

        Raises:
            ValueError: a problem names an unknown verifier, or one that cannot be imported.
        """
        start = time.perf_counter()
        jobs: list[tuple[Job, list[int], list[Reward | None]]] = []
        rows = [self._start(attempt, jobs) for attempt in attempts]
        if jobs:
            self._workers().score([job for job, _, _ in jobs])
            for job, members, rewards in jobs:
                for member, reward in zip(members, job.rewards, strict=True):
                    rewards[member] = reward
        for attempt, rewards in zip(attempts, rows, strict=True):
            attempt.rewards_G = self._shaped(attempt, rewards)
            for reward in attempt.rewards_G:
                self._counts[reward.status] += 1
        self.seconds += time.perf_counter() - start

    def counts(self) -> dict[str, int]:
        """Rewards so far by status."""
        return dict(self._counts)

    @property
    def restarts(self) -> int:
        """Worker processes that had to be replaced."""
        return 0 if self._pool is None else self._pool.restarts

    def close(self) -> None:
        """End the worker processes; they start again if they are needed again."""
        if self._pool is not None:
            self._pool.close()

    def _start(self, attempt: Attempt, jobs: list[tuple[Job, list[int], list[Reward | None]]]) -> list[Reward | None]:
        """Rewards that are known at once; the others go to `jobs`."""
        problem = attempt.request.problem
        checker = self._checker(problem)
        here, quick, verifier = checker.here(problem), checker.quick, checker.verifier
        masked = self.config.truncated == "mask"
        rewards: list[Reward | None] = []
        waiting: list[int] = []
        for finish, text in zip(attempt.finish_G, attempt.texts_G, strict=True):
            reward: Reward | None
            if finish == "stop":
                try:
                    reward = as_reward(verifier.score(problem, text)) if here else quick and quick(problem, text)
                except Exception as error:
                    reward = failure(error)
                if reward is None:
                    waiting.append(len(rewards))
            elif finish == "length":
                reward = _MASKED if masked else _TRUNCATED
            else:
                reward = _CANCELLED if finish == "cancelled" else _ENGINE_ERROR
            rewards.append(reward)
        if waiting:
            jobs.append((self._job(checker, attempt, waiting), waiting, rewards))
        return rewards

    def _job(self, checker: _Checker, attempt: Attempt, members: list[int]) -> Job:
        offsets, ids = attempt.offsets_G1, None
        if checker.wants_ids:
            ids = [attempt.completion_ids_T[offsets[i] : offsets[i + 1]].tolist() for i in members]
        slot = self._workers().slot(checker.name, checker.options)
        texts = [attempt.texts_G[i] for i in members]
        return Job(slot, attempt.request.problem, texts, ids, checker.batched)

    def _shaped(self, attempt: Attempt, rewards: Sequence[Reward | None]) -> tuple[Reward, ...]:
        """Binarised and with the length penalty, where the configuration asks for it."""
        assert all(r is not None for r in rewards)
        done = tuple(r for r in rewards if r is not None)
        c = self.config
        if c.binarize_at is not None:
            at = c.binarize_at
            done = tuple(r if r.value is None else replace(r, value=float(r.value >= at)) for r in done)
        if c.overlong_buffer > 0:
            lengths = attempt.lengths_G.tolist()
            done = tuple(self._penalised(r, n) for r, n in zip(done, lengths, strict=True))
        return done

    def _penalised(self, reward: Reward, length: int) -> Reward:
        if reward.value is None:
            return reward
        penalty = overlong_penalty(length, self.max_tokens, self.config.overlong_buffer, self.config.overlong_penalty)
        return replace(reward, value=reward.value - penalty, task=reward.value) if penalty else reward

    def _checker(self, problem: Problem) -> _Checker:
        name = problem.verifier if self.config.verifier == "auto" else self.config.verifier
        checker = self._checkers.get(name)
        if checker is None:
            checker = self._checkers[name] = _Checker(name, self._options(name), self.config.workers > 0)
        return checker

    def _options(self, name: str) -> dict[str, Any]:
        """`rewards.options`; a table named like the verifier in it is for that verifier alone."""
        own = self.config.options.get(name)
        if isinstance(own, dict):
            return dict(own)
        return {k: v for k, v in self.config.options.items() if not isinstance(v, dict)}

    def _workers(self) -> Pool:
        if self._pool is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            workers = self.config.workers or min(cores, _MAX_WORKERS)
            self._pool = Pool(workers, self.config.time_limit, self.config.memory_limit_mb)
        return self._pool


def overlong_penalty(length: int, max_tokens: int, buffer: int, penalty: float) -> float:
    r"""Length penalty that grows over the last `buffer` tokens: penalty · min(max(L − (L_max − buffer), 0)/buffer, 1).

    Soft overlong punishment of DAPO (arXiv 2503.14476, eq. 13), written as a number to subtract.

    Args:
        length: Completion tokens L.
        max_tokens: L_max.
        buffer: Tokens over which it grows, > 0.
        penalty: Its value at L_max and beyond.

    Returns:
        0 up to L_max − buffer, then linear up to `penalty`.

    >>> [overlong_penalty(n, 100, 20, 1.0) for n in (80, 90, 100, 120)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return penalty * min(max(length - (max_tokens - buffer), 0) / buffer, 1.0)
