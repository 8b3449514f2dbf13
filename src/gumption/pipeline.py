"""START HERE: the path, in order. One `cycle` is ask → generate → score → tell, and an update when a batch is ready.

    problems → allocation → rollouts → rewards → (group) → credit → selection → training
                   ↑______________ verdict ______________|              |
                                                   ledger ← every stage writes here

The trainer, the simulator and the tests all call this file; it has no options of its own. It departs from a textbook
loop in three ways: generation never waits for training (rollouts in flight continue across updates and carry their
version span, and get new weights when the trainer is free); whatever is dropped becomes a ledger row with a fate and a
reason; and costs are asked for before they are spent, so that a budget is never exceeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gumption import randomness
from gumption.config import RunConfig
from gumption.ledger.recorder import Recorder
from gumption.selection.batch import make_batch
from gumption.types import (
    Allocator,
    Attempt,
    Credit,
    Engine,
    Final,
    Group,
    Selector,
    Trainer,
    UpdateResult,
    Verdict,
)


class Scoring(Protocol):
    """Fills in the rewards of finished attempts."""

    def score(self, attempts: Sequence[Attempt]) -> None:
        """Set `rewards_G` of each attempt."""


@dataclass
class Place:
    """One place in the next batch: a group to train on, or `None` for a dropped group that counts all the same."""

    group: Group | None
    verdict: Verdict


@dataclass
class Pipeline:
    """The stages, wired.

    `allows(flops, version)`: the budget covers an update; `may_ask(capacity)`: the rollouts that it leaves;
    `trainer_free()`: the last update is done. Until then no other begins, and the engine keeps the old weights.
    """

    config: RunConfig
    allocator: Allocator
    engine: Engine
    scorer: Scoring
    credit: Callable[[Sequence[Group]], list[Credit]]
    selector: Selector
    trainer: Trainer
    recorder: Recorder
    allows: Callable[[int, int], bool] = lambda flops, version: True
    may_ask: Callable[[int], int] = lambda capacity: capacity
    trainer_free: Callable[[], bool] = lambda: True
    places: list[Place] = field(default_factory=list)
    told: int = 0
    submitted: int = 0  # rollouts
    ended: bool = False  # the problems ran out
    spent: bool = False  # the budget does not cover the next update
    unsent: bool = False  # an update whose weights the engine does not have yet

    def cycle(self) -> list[UpdateResult]:
        """Once round the path. Returns the updates that were made (usually none or one)."""
        self.sync()
        free, asked = self.trainer_free(), self.ask()
        with self.recorder.timed("generation"):
            attempts = self.engine.poll()
        with self.recorder.timed("verify"):
            self.scorer.score(attempts)
        for attempt in attempts:
            self.judge(attempt)
        idle = free and not asked and not attempts  # an attempt may have queued a retry
        self.ended = idle and self.engine.in_flight == 0 and self.engine.free_slots > 0 and not self._full()
        updates = []
        while not self.spent and self.trainer_free() and (self._ready() or (self.ended and self.places)):
            if (result := self.update()) is not None:
                updates.append(result)
        self._drop_oldest()
        return updates

    def sync(self) -> None:
        """Hand the weights of an update that is done to the engine."""
        if self.unsent and self.trainer_free():
            with self.recorder.timed("weight_sync"):
                self.engine.update_weights(self.trainer.version, self.trainer.weights())
            self.unsent = False

    def ask(self) -> int:
        """Fill the engine's free slots. Returns how many rollouts were submitted."""
        capacity = self.engine.free_slots
        if self.config.training.max_staleness == 0:  # on-policy: no more than this batch still needs
            missing = self.config.training.groups_per_update - len(self.places)
            wanted = missing * self.config.allocation.sizes[0] - self.engine.in_flight
            capacity = min(capacity, wanted) if self.trainer_free() else 0
        capacity = self.may_ask(capacity)
        requests = self.allocator.ask(capacity) if capacity > 0 else []
        for request in requests:
            self.engine.submit(request)
        asked = sum(r.n for r in requests)
        self.submitted += asked
        return asked

    def judge(self, attempt: Attempt) -> None:
        """Tell the allocator; what it accepts takes a place in the batch."""
        version = self.trainer.version
        age = version - int(attempt.version_start_G.max(initial=0))
        verdict = self.allocator.tell(attempt, version, fresh=age <= self.config.training.max_staleness)
        self.told += 1
        self.recorder.verdict(attempt, verdict, version)
        for final in verdict.finals:
            self.recorder.final(final, version)
        if verdict.train or verdict.counts:
            self.places.append(Place(verdict.group if verdict.train else None, verdict))
        if verdict.kind != "retry" and not verdict.train:
            self.recorder.untrained_group(verdict, self.credit([verdict.group])[0])

    def update(self) -> UpdateResult | None:
        """Credit, select, train, hand the new weights to the engine."""
        self.sync()
        version = self.trainer.version
        places = self.places[: self.config.training.groups_per_update]
        fresh = [(p.verdict, self._fresh(p.group, version)) for p in places if p.group is not None]
        groups = [g for _, (g, _) in fresh]
        credits = self.credit(groups)
        rng = randomness.generator(self.config.seed, "selection", version, self.recorder.skipped_updates)
        selections = self.selector.select(groups, credits, rng)
        batch = make_batch(groups, credits, selections, version, count=self.config.selection.count)
        result = None
        if batch.rows_B:
            if not self.allows(self.trainer.estimate_flops(batch), version):
                self.spent = True
                return None
            with self.recorder.timed("train"):
                result = self.trainer.update(batch)
        del self.places[: len(places)]
        self.told = 0
        for _, (_, stale) in fresh:
            for final in stale:
                self.recorder.final(final, version)
        self.recorder.trained([v for v, _ in fresh], groups, credits, selections, batch, result)
        if result is not None and not result.skipped:
            self.unsent = True
            self.sync()
        if result is not None:
            self.recorder.step(result, len(places), self.allocator.metrics(), self.trainer.version)
        return result

    def finish(self, leftovers: Sequence[Attempt]) -> None:
        """End of run: everything that has no fate yet is `unfinished`."""
        version = self.trainer.version
        for member in [m for attempt in leftovers for m in self.recorder.members(attempt)]:
            self.recorder.final(Final(member, "unfinished", "run_ended"), version)
        for place in self.places:
            for m in place.group.members if place.group is not None else ():
                self.recorder.final(Final(m, "unfinished", "waiting_for_batch"), version)
        self.places.clear()
        for final in self.allocator.drain():
            self.recorder.final(final, version)

    def _ready(self) -> bool:
        wanted = self.config.training.groups_per_update
        ready = self._full() or self.allocator.batch_ready(len(self.places), self.told, wanted)
        return ready and (self.config.training.max_staleness > 0 or self.engine.in_flight == 0)

    def _full(self) -> bool:
        return len(self.places) >= self.config.training.groups_per_update

    def _drop_oldest(self) -> None:
        """A full queue in front of a busy trainer loses its oldest groups: a choice that no length plays a part in."""
        batches, version = self.config.training.queue_batches, self.trainer.version
        while batches is not None and len(self.places) > batches * self.config.training.groups_per_update:
            place = self.places.pop(0)
            if place.group is not None:
                for m in place.group.members:
                    self.recorder.final(Final(m, "stale", "queue_full"), version)
                self.recorder.untrained_group(place.verdict, self.credit([place.group])[0])

    def _fresh(self, group: Group, version: int) -> tuple[Group, list[Final]]:
        """Members young enough for `training.max_staleness` (replays are of any age), and the others' fates."""
        young_G = (version - group.versions_G <= self.config.training.max_staleness) | group.replays_G
        pairs = zip(group.members, young_G, strict=True)
        stale = [Final(m, "stale", "max_staleness") for m, young in pairs if not young]
        return (group.keep(young_G) if stale else group), stale
