"""What a run may spend. Asked before each decode step and each update, so a limit is never exceeded."""

from __future__ import annotations

import time
from collections.abc import Callable

from gumption.config import BudgetConfig, RunConfig
from gumption.ledger.recorder import Recorder
from gumption.types import Engine


class Budget:
    """Limits on FLOPs, updates, rollouts, generated tokens and wall time; the first one reached ends the run.

    Args:
        config: The limits.
        largest_request: No request has more rollouts; the rollout limit is kept in whole requests.
        wall_used: Seconds of the loop before a resume.
        clock: Seconds; the simulator passes its virtual clock.
    """

    def __init__(
        self,
        config: BudgetConfig,
        largest_request: int,
        wall_used: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.config = config
        self.largest_request = largest_request
        self.clock = clock
        self.submitted = 0
        self._wall_used = wall_used
        self._start: float | None = None
        self._engine: Engine | None = None
        self._recorder: Recorder | None = None

    def attach(self, engine: Engine, recorder: Recorder) -> None:
        """Say whose totals are limited."""
        self._engine, self._recorder = engine, recorder

    def start(self) -> None:
        """Training begins, or goes on: the clock runs."""
        self._start = self.clock()

    def stop(self) -> bool:
        """The clock stands still (evaluation is outside the budget). Returns whether it was running."""
        running = self._start is not None
        self._wall_used, self._start = self.wall, None
        return running

    @property
    def wall(self) -> float:
        """Seconds of training, earlier sessions included."""
        return self._wall_used + (0.0 if self._start is None else self.clock() - self._start)

    def allows_decode(self, flops: int, tokens: int) -> bool:
        """May the engine take a step of this cost?"""
        if self._engine is None or self._recorder is None:
            return True
        if self.config.tokens is not None and self._engine.tokens_generated + tokens > self.config.tokens:
            return False
        return self.allows_flops(flops)

    def allows_update(self, flops: int, version: int) -> bool:
        """May the trainer at `version` take a step of this cost?"""
        updates = self.config.updates
        return (updates is None or version < updates) and self.allows_flops(flops)

    def allows_flops(self, flops: int) -> bool:
        """May this many FLOPs be spent?"""
        if self.config.flops is None or self._recorder is None:
            return True
        return self._recorder.flops_total + flops <= self.config.flops

    def may_ask(self, capacity: int) -> int:
        """The part of `capacity` that the limit leaves, given that the last request may overshoot it by all but one."""
        if self.config.rollouts is None:
            return capacity
        return min(capacity, self.config.rollouts - self.submitted - self.largest_request + 1)

    @property
    def out_of_rollouts(self) -> bool:
        """The rollout limit leaves no request."""
        return self.config.rollouts is not None and self.may_ask(1 << 30) <= 0

    def refused(self, version: int, in_flight: int) -> str:
        """The limit that refused the next step or update of an engine with so many slots."""
        limit, engine = self.config.tokens, self._engine
        near = limit is not None and engine is not None and engine.tokens_generated + in_flight > limit
        return self.reached(version) or ("tokens" if near else "flops")

    def reached(self, version: int) -> str | None:
        """Which limit is reached, or `None`."""
        if self.config.updates is not None and version >= self.config.updates:
            return "updates"
        if self.config.wall is not None and self.wall >= self.config.wall:
            return "wall"
        return None

    def fraction(self, version: int) -> float | None:
        """How much of the tightest limit is used (0 to 1); `None` without a limit."""
        if self._engine is None or self._recorder is None:
            return None
        c = self.config
        used = [
            (self._recorder.flops_total, c.flops),
            (version, c.updates),
            (self.submitted, c.rollouts),
            (self._engine.tokens_generated, c.tokens),
            (self.wall, c.wall),
        ]
        fractions = [spent / limit for spent, limit in used if limit]
        return min(1.0, max(fractions)) if fractions else None


def nothing_to_learn_after(config: RunConfig, problems: int) -> int:
    """Rollouts without an update after which nothing is left to learn: every problem tried twice over, and more."""
    return 2 * problems * sum(config.allocation.sizes) + 4 * config.rollouts.in_flight
