"""`AllocatorTestCase`: what every allocator must do, whatever its rule."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter

from gumption.testing.builders import ListStream, answer, problem
from gumption.testing.conversation import Conversation, copy_state, summary
from gumption.types import FATES, Allocator, Attempt, ChainId, ProblemStream, Request


class AllocatorTestCase(ABC):
    """Subclass it in a test file with a `make` method; every check runs against what that returns.

        class TestMyAllocator(AllocatorTestCase):
            def make(self, stream, seed=0):
                return MyAllocator(stream, group_size=4, seed=seed)

    `seeds` are the random conversations that the checks hold (raise their number for a longer search).
    """

    seeds: range = range(4)
    turns: int = 60

    @abstractmethod
    def make(self, stream: ProblemStream, seed: int = 0) -> Allocator:
        """A new allocator over this stream."""

    def stream(self, n: int = 12, *, epochs: int | None = None) -> ListStream:
        """Problems to talk about."""
        return ListStream([problem(f"p{i}") for i in range(n)], epochs=epochs)

    def conversation(self, seed: int, *, epochs: int | None = None) -> Conversation:
        """A conversation that has not begun; every second one with graded rewards."""
        return Conversation(self.make(self.stream(epochs=epochs), seed), seed=seed, graded=seed % 2 == 1)

    # -- asking

    def test_asks_for_nothing_without_capacity(self) -> None:
        """`ask(0)` and `ask(−3)` are empty and do not touch the stream."""
        stream = self.stream()
        allocator = self.make(stream)
        assert allocator.ask(0) == []
        assert allocator.ask(-3) == []
        assert stream.position == 0

    def test_fills_capacity_and_never_splits_a_request(self) -> None:
        """Requests cover the capacity; without the last one they would not: the overshoot is below its n."""
        for capacity in (1, 2, 7, 8, 9, 50):
            requests = self.make(self.stream(100)).ask(capacity)
            asked = sum(r.n for r in requests)
            assert asked >= capacity, f"asked for {asked} rollouts with {capacity} slots free"
            assert asked - requests[-1].n < capacity, f"asked for {asked} rollouts with only {capacity} slots free"

    def test_asks_for_each_attempt_once(self) -> None:
        """No (chain, attempt) is asked for twice, and the attempts of a chain are 0, 1, 2, …"""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns)
            next_attempt: Counter[tuple[str, int]] = Counter()
            for request in talk.requests:
                assert request.attempt == next_attempt[request.chain_id], f"{request} is out of order"
                next_attempt[request.chain_id] += 1

    def test_retries_stand_first(self) -> None:
        """What is retried comes before any new problem in the next `ask`, in the order of the verdicts.

        (Requests may grow from attempt to attempt: then some retries wait for the `ask` after it.)
        """
        for seed in self.seeds:
            talk = self.conversation(seed)
            waiting: list[ChainId] = []
            for _ in range(self.turns // 4):
                asked = [r.chain_id for r in talk.ask()]
                now = min(len(asked), len(waiting))
                assert asked[:now] == waiting[:now]
                del waiting[:now]
                verdicts = [talk.tell() for _ in range(3)]
                waiting += [v.group.chain_id for v in verdicts if v is not None and v.kind == "retry"]

    def test_stops_asking_when_the_problems_run_out(self) -> None:
        """A stream with an end: every problem is asked for, then `ask` is empty, without an error."""
        for seed in self.seeds:
            talk = self.conversation(seed, epochs=1)
            talk.run(10_000)
            assert talk.in_flight == [] and talk.ask() == []
            assert {r.problem.id for r in talk.requests} == {p.id for p in self.stream().problems}

    # -- telling

    def test_every_verdict_has_the_chain_and_a_reason(self) -> None:
        """Group of the right chain, a reason, `train` exactly on `accept`, a place in the batch for what is trained."""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns)
            assert len(talk.verdicts) == len(talk.told) > 0
            for attempt, verdict in zip(talk.told, talk.verdicts, strict=True):
                assert verdict.group.chain_id == attempt.request.chain_id
                assert verdict.group.problem is attempt.request.problem
                assert verdict.reason
                assert verdict.train == (verdict.kind == "accept")
                assert verdict.counts or not verdict.train
                assert not (verdict.counts and verdict.kind == "retry")
                assert all(f.reason and f.fate in FATES for f in verdict.finals)

    def test_groups_count_every_reward_of_the_chain(self) -> None:
        """Count, reward sum and attempts of a group are those of all attempts of the chain told so far."""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns)
            values: dict[tuple[str, int], list[float]] = {}
            attempts: Counter[tuple[str, int]] = Counter()
            for attempt, verdict in zip(talk.told, talk.verdicts, strict=True):
                chain = values.setdefault(attempt.request.chain_id, [])
                chain += [v for v in attempt.values_G.tolist() if not math.isnan(v)]
                attempts[attempt.request.chain_id] += 1
                group = verdict.group
                assert group.count == len(chain)
                assert math.isclose(group.reward_sum, sum(chain), abs_tol=1e-9)
                assert group.successes == sum(v >= 1 - 1e-6 for v in chain)
                assert group.attempts == attempts[attempt.request.chain_id]

    def test_members_have_rewards(self) -> None:
        """A rollout without a reward value is never a member of a group, and has its fate at once."""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns)
            for attempt, verdict in zip(talk.told, talk.verdicts, strict=True):
                assert all(not math.isnan(m.value) for m in verdict.group.members)
                settled = {f.member.position for f in verdict.finals if f.member.attempt is attempt}
                missing = {i for i, v in enumerate(attempt.values_G.tolist()) if math.isnan(v)}
                assert missing <= settled

    def test_no_rollout_is_lost_or_counted_twice(self) -> None:
        """After the drain every rollout told is in exactly one accepted group or has exactly one final fate."""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns)
            talk.drain()
            once = Counter(talk.accepted()) + Counter(talk.finals())
            assert once == Counter(talk.all_told())

    def test_drain_forgets_open_chains(self) -> None:
        """A second drain is empty, and retries are not asked for any more."""
        talk = self.conversation(0)
        talk.run(self.turns)
        told = {a.request.chain_id for a in talk.told}
        talk.drain()
        assert talk.allocator.drain() == []
        assert not told & {r.chain_id for r in talk.allocator.ask(8)}

    def test_refuses_what_was_not_asked_for(self) -> None:
        """An attempt told twice, or never asked for, is a `ValueError`; so is one without rewards."""
        allocator = self.make(self.stream())
        [first, *_] = allocator.ask(1)
        unscored = answer(first, [0.0] * first.n)
        unscored.rewards_G = None
        assert _refuses(allocator, unscored)
        told = answer(first, [0.0] * first.n)
        allocator.tell(told, 0)
        assert _refuses(allocator, told)
        assert _refuses(allocator, answer(Request(problem("stranger"), first.n), [0.0] * first.n))

    def test_leaves_attempts_alone(self) -> None:
        """Telling an attempt does not change it."""
        talk = self.conversation(1)
        for _ in range(self.turns):
            talk.ask()
            talk.tell()
            again = talk.answer(talk.told[-1].request, 0)
            assert again.rewards_G == talk.told[-1].rewards_G

    # -- determinism and state

    def test_same_seed_same_verdicts(self) -> None:
        """Nothing is drawn from a global generator."""
        for seed in self.seeds:
            first, second = self.conversation(seed), self.conversation(seed)
            first.run(self.turns)
            second.run(self.turns)
            assert first.requests == second.requests
            assert [summary(v) for v in first.verdicts] == [summary(v) for v in second.verdicts]

    def test_state_round_trip_continues_identically(self) -> None:
        """A new allocator that loads a state saved in mid-run asks and judges as the old one does."""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns // 2)
            state = copy_state(talk.allocator.state_dict())
            twin = self.conversation(seed)
            twin.allocator.load_state_dict(state)
            twin.in_flight, twin.version, twin.turn = list(talk.in_flight), talk.version, talk.turn
            before = len(talk.requests), len(talk.verdicts)
            talk.run(self.turns // 2)
            twin.run(self.turns // 2)
            assert twin.requests == talk.requests[before[0] :]
            assert [summary(v) for v in twin.verdicts] == [summary(v) for v in talk.verdicts[before[1] :]]
            assert twin.allocator.metrics() == talk.allocator.metrics()
            talk.drain()
            twin.drain()
            assert len(talk.drained) == len(twin.drained)

    def test_saving_changes_nothing(self) -> None:
        """`state_dict` and `metrics` are pure: called at every turn or never, the run is the same."""
        talk, watched = self.conversation(2), self.conversation(2)
        talk.run(self.turns)
        for _ in range(self.turns):
            watched.allocator.state_dict()
            assert watched.allocator.metrics() == watched.allocator.metrics()
            watched.run(1)
        assert [summary(v) for v in watched.verdicts] == [summary(v) for v in talk.verdicts]

    def test_metrics_are_finite_numbers(self) -> None:
        """Before the first verdict and after many; some are named `allocation/…`."""
        talk = self.conversation(3)
        for turns in (0, self.turns):
            talk.run(turns)
            metrics = talk.allocator.metrics()
            assert all(isinstance(v, float) and math.isfinite(v) for v in metrics.values()), metrics
            assert any(name.startswith("allocation/") for name in metrics)

    def test_batch_ready(self) -> None:
        """Never with nothing in the batch; always when every place is taken."""
        allocator = self.make(self.stream())
        assert not allocator.batch_ready(0, 0, 4)
        assert not allocator.batch_ready(0, 10_000, 4)
        assert allocator.batch_ready(4, 4, 4)
        assert allocator.batch_ready(5, 9, 4)


def _refuses(allocator: Allocator, attempt: Attempt) -> bool:
    """Does `tell` raise a `ValueError`, and leave the state as it was?"""
    before = allocator.metrics()
    try:
        allocator.tell(attempt, 0)
    except ValueError:
        return allocator.metrics() == before
    return False
