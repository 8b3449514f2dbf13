"""`ChooserTestCase`: what every problem chooser must do, whatever its rule."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from gumption.allocation import Fixed, NeverGiveUp
from gumption.testing.builders import ListStream, problem
from gumption.testing.conversation import Conversation, copy_state
from gumption.testing.selectors import scored_group
from gumption.types import Group, ProblemStream


class ChooserTestCase(ABC):
    """Subclass it in a test file with a `make` method; every check runs against what that returns.

    class TestMyChooser(ChooserTestCase):
        def make(self, inner, seed=0):
            return MyChooser(inner, seed=seed)
    """

    seeds: range = range(4)
    turns: int = 80

    @abstractmethod
    def make(self, inner: ProblemStream, seed: int = 0) -> ProblemStream:
        """A new chooser around this stream. It has `observe(group, version)` besides what every stream has."""

    def inner(self, n: int = 12, *, epochs: int | None = None) -> ListStream:
        """Problems to choose from."""
        return ListStream([problem(f"p{i}") for i in range(n)], epochs=epochs)

    def conversation(self, seed: int) -> Conversation:
        """An allocator that asks through the chooser; it has not begun."""
        return Conversation(Fixed(self.make(self.inner(), seed), group_size=4, seed=seed), seed=seed)

    def test_every_problem_has_a_chance_before_anything_is_known(self) -> None:
        """Nothing learned, nothing lost: within twenty passes every problem comes once."""
        stream = self.make(self.inner(6))
        seen = set()
        for _ in range(6 * 20):
            drawn = stream.next()
            assert drawn is not None
            seen.add(drawn[0].id)
        assert seen == {f"p{i}" for i in range(6)}

    def test_gives_each_visit_once_and_only_visits_of_the_inner_stream(self) -> None:
        """Chains are named by (problem, visit): the same one twice would be two chains of one name."""
        for seed in self.seeds:
            talk = self.conversation(seed)
            talk.run(self.turns)
            first = [(r.problem.id, r.visit) for r in talk.requests if r.attempt == 0]
            assert len(set(first)) == len(first)
            given = self.inner()
            possible = [given.next() for _ in range(20_000)]
            assert set(first) <= {(p.id, visit) for p, visit in filter(None, possible)}

    def test_ends_with_the_inner_stream_and_stays_ended(self) -> None:
        """A stream of two epochs ends after at most two passes."""
        stream = self.make(self.inner(5, epochs=2))
        drawn = [stream.next() for _ in range(20)]
        count = len([d for d in drawn if d is not None])
        assert 0 < count <= 10 and drawn[count:] == [None] * (20 - count)

    def test_never_searches_for_ever(self) -> None:
        """Whatever it has seen of all the problems, `next` returns: a problem, or `None` at the end."""
        for rewards in ([1.0] * 8, [0.0] * 8, [1.0, 0.0] * 4):
            stream = self.make(self.inner())
            for visit in range(12):
                for i in range(12):
                    self.observe(stream, scored_group(rewards, f"p{i}"), visit)
            for _ in range(50):
                drawn = stream.next()
                assert drawn is None or drawn[0].id.startswith("p")

    def test_accepts_groups_without_a_rewarded_rollout(self) -> None:
        """A chain whose attempts all failed to be scored says nothing about its problem."""
        stream = self.make(self.inner(2))
        self.observe(stream, scored_group([], "p0"), 0)
        assert {d[0].id for d in (stream.next() for _ in range(40)) if d is not None} == {"p0", "p1"}

    def test_inner_choosers_learn_too(self) -> None:
        """Choosers are put around one another: each hears of every chain."""

        class Listener(ListStream):
            heard: list[str]

            def observe(self, group: Group, version: int) -> None:
                self.heard.append(group.chain_id.problem_id)

        listener = Listener([problem("p0")])
        listener.heard = []
        self.observe(self.make(listener), scored_group([1.0, 0.0], "p0"), 3)
        assert listener.heard == ["p0"]

    def test_looks_problems_up(self) -> None:
        """Chains are saved by id, those of problems that are passed over now included."""
        inner = self.inner()
        assert all(self.make(inner).problem(p.id) is p for p in inner.problems)

    def test_same_seed_same_choice(self) -> None:
        """Nothing is drawn from a global generator."""
        for seed in self.seeds:
            one, two = self.conversation(seed), self.conversation(seed)
            one.run(self.turns)
            two.run(self.turns)
            assert one.requests == two.requests

    def test_state_round_trip_continues_identically(self) -> None:
        """A new chooser that loads a state saved in mid-run chooses as the old one does."""
        for seed in self.seeds:
            talk, twin = self.conversation(seed), self.conversation(seed)
            talk.run(self.turns)
            twin.allocator.load_state_dict(copy_state(talk.allocator.state_dict()))
            twin.in_flight, twin.version, twin.turn = list(talk.in_flight), talk.version, talk.turn
            before = len(talk.requests)
            talk.run(self.turns)
            twin.run(self.turns)
            assert twin.requests == talk.requests[before:]
            assert twin.allocator.metrics() == talk.allocator.metrics()

    def test_saving_changes_nothing(self) -> None:
        """`state_dict` and `metrics` are pure: called at every turn or never, the choice is the same."""
        talk, watched = self.conversation(1), self.conversation(1)
        talk.run(self.turns)
        for _ in range(self.turns):
            watched.allocator.state_dict()
            metrics = watched.allocator.metrics()
            assert metrics == watched.allocator.metrics()
            assert all(isinstance(v, float) and math.isfinite(v) for v in metrics.values()), metrics
            watched.run(1)
        assert watched.requests == talk.requests

    def test_goes_with_rules_that_ask_again(self) -> None:
        """Retries do not pass through the chooser, and it hears of each chain once, at its end."""
        talk = Conversation(NeverGiveUp(self.make(self.inner()), group_size=2), seed=3)
        talk.run(self.turns)
        ended = [v for v in talk.verdicts if v.kind != "retry"]
        assert ended and len(talk.requests) > len(ended)

    @staticmethod
    def observe(stream: ProblemStream, group: Group, version: int) -> None:
        """Tell the chooser that a chain has ended."""
        stream.observe(group, version)  # type: ignore[attr-defined]
