"""`EngineTestCase`: what every engine must do, whatever generates the tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gumption.testing.builders import problem
from gumption.testing.conversation import copy_state
from gumption.types import FINISHES, Attempt, ChainId, Engine, Problem, Request


class EngineTestCase(ABC):
    """Subclass it in a test file with a `make` method; every check runs against what that returns.

        class TestMyEngine(EngineTestCase):
            def make(self, slots):
                return MyEngine(in_flight=slots, seed=0)

    The engine must have no weight lag and no budget. Override `problems` where it cannot complete the scripted ones,
    and `weights` where `update_weights` needs more than an empty mapping.
    """

    @abstractmethod
    def make(self, slots: int) -> Engine:
        """A new engine with so many slots; each call gives one that generates the same."""

    def problems(self) -> list[Problem]:
        """At least four problems that the engine can complete."""
        return [problem(f"p{i}", pass_rate=0.5) for i in range(6)]

    def weights(self, engine: Engine) -> Any:
        """What `update_weights` takes."""
        return {}

    def requests(self, n: int = 4, *, visit: int = 0) -> list[Request]:
        """One request per problem."""
        return [Request(p, n, visit) for p in self.problems()]

    def finish(self, engine: Engine, limit: int = 100_000) -> list[Attempt]:
        """Poll until nothing is in flight."""
        done: list[Attempt] = []
        for _ in range(limit):
            if engine.in_flight == 0:
                return done
            done += engine.poll()
        raise AssertionError(f"{engine.in_flight} rollouts are still in flight after {limit} polls")

    # -- generation

    def test_idle_engine_returns_nothing(self) -> None:
        """Polling without work is allowed."""
        engine = self.make(8)
        assert engine.poll() == [] and engine.in_flight == 0 and engine.free_slots == 8

    def test_each_request_comes_back_once_and_whole(self) -> None:
        """More requests than slots: all come back, each with its n members, in arrays that fit together."""
        engine = self.make(6)
        requests = self.requests()
        for request in requests:
            engine.submit(request)
        attempts = self.finish(engine)
        assert sorted(_name(a.request) for a in attempts) == sorted(_name(r) for r in requests)
        for attempt in attempts:
            check_attempt(attempt)
            assert "cancelled" not in attempt.finish_G
            assert (attempt.lengths_G > 0).all()

    def test_slots_are_counted(self) -> None:
        """Submitting takes slots (even below zero), finishing gives them back."""
        engine = self.make(6)
        first, second, *_ = self.requests(n=4)
        engine.submit(first)
        assert (engine.free_slots, engine.in_flight) == (2, 4)
        engine.submit(second)
        assert (engine.free_slots, engine.in_flight) == (-2, 8)
        self.finish(engine)
        assert (engine.free_slots, engine.in_flight) == (6, 0)

    def test_rows_add_up_to_the_totals(self) -> None:
        """FLOPs and tokens of what came back, the abandoned rest included, are exactly the running totals."""
        for polls in (0, 1, 2, 5):
            engine = self.make(10)
            for request in self.requests():
                engine.submit(request)
            attempts = [a for _ in range(polls) for a in engine.poll()]
            attempts += engine.abandon()
            assert (engine.in_flight, engine.free_slots) == (0, 10)
            assert sum(int(a.flops_prefill_G.sum()) for a in attempts) == engine.flops_prefill
            assert sum(int(a.flops_decode_G.sum()) for a in attempts) == engine.flops_decode
            assert sum(int(a.offsets_G1[-1]) for a in attempts) == engine.tokens_generated
            assert len(attempts) == len(self.requests())
            for attempt in attempts:
                check_attempt(attempt)

    def test_same_rollouts_whatever_else_is_in_flight(self) -> None:
        """A request's completions alone are its completions among others."""
        requests = self.requests()
        alone = self.make(4)
        alone.submit(requests[2])
        [expected] = self.finish(alone)
        crowded = self.make(9)
        for request in requests:
            crowded.submit(request)
        [found] = [a for a in self.finish(crowded) if a.request == requests[2]]
        assert found.completion_ids_T.tolist() == expected.completion_ids_T.tolist()
        assert found.texts_G == expected.texts_G and found.finish_G == expected.finish_G

    # -- weights

    def test_version_spans(self) -> None:
        """A rollout's span begins with the weights at its first token and ends with those at its last."""
        engine = self.make(4)
        first, second, *_ = self.requests(n=4)
        engine.submit(first)
        engine.update_weights(3, self.weights(engine))
        engine.submit(second)
        attempts = {_name(a.request): a for a in self.finish(engine)}
        assert attempts[_name(second)].version_start_G.tolist() == [3] * 4
        assert (attempts[_name(first)].version_end_G >= attempts[_name(first)].version_start_G).all()
        engine.update_weights(5, self.weights(engine))
        engine.submit(self.requests(visit=1)[0])
        [late] = self.finish(engine)
        assert late.version_start_G.tolist() == late.version_end_G.tolist() == [5] * 4

    # -- stopping

    def test_cancel_stops_one_chain(self) -> None:
        """Its rollouts come back with finish `cancelled`, the others go on; an unknown chain is nothing to cancel."""
        engine = self.make(64)
        first, second, *_ = self.requests()
        engine.submit(first)
        engine.submit(second)
        assert engine.cancel(ChainId("nobody", 0)) == []
        [stopped] = engine.cancel(first.chain_id)
        check_attempt(stopped)
        assert stopped.request == first and set(stopped.finish_G) == {"cancelled"}
        assert engine.in_flight == 4
        [other] = self.finish(engine)
        assert other.request == second and engine.free_slots == 64

    # -- state

    def test_saved_engine_goes_on(self) -> None:
        """What was in flight is in flight after a resume, with the totals; every request comes back once."""
        for polls in (0, 1, 3):
            engine = self.make(10)
            for request in self.requests():
                engine.submit(request)
            before = [a for _ in range(polls) for a in engine.poll()]
            state = copy_state(engine.state_dict())
            twin = self.make(10)
            by_id: Mapping[str, Problem] = {p.id: p for p in self.problems()}
            twin.load_state_dict(state, by_id)
            assert (twin.in_flight, twin.free_slots) == (engine.in_flight, engine.free_slots)
            assert (twin.flops_decode, twin.tokens_generated) == (engine.flops_decode, engine.tokens_generated)
            attempts = before + self.finish(twin)
            assert sorted(_name(a.request) for a in attempts) == sorted(_name(r) for r in self.requests())
            for attempt in attempts:
                check_attempt(attempt)


def check_attempt(attempt: Attempt) -> None:
    """The arrays of an attempt fit together.

    Raises:
        AssertionError: they do not.
    """
    n, tokens = attempt.n, len(attempt.completion_ids_T)
    offsets_G1 = attempt.offsets_G1
    assert offsets_G1.shape == (n + 1,) and offsets_G1[0] == 0 and offsets_G1[-1] == tokens
    assert (np.diff(offsets_G1) >= 0).all()
    assert attempt.logprobs_T.shape == (tokens,) and np.isfinite(attempt.logprobs_T).all()
    assert attempt.loss_mask_T is None or attempt.loss_mask_T.shape == (tokens,)
    per_member: Sequence[Any] = (
        attempt.version_start_G,
        attempt.version_end_G,
        attempt.finish_G,
        attempt.texts_G,
        attempt.flops_prefill_G,
        attempt.flops_decode_G,
    )
    assert all(len(values) == n for values in per_member)
    assert set(attempt.finish_G) <= set(FINISHES)
    assert (attempt.version_start_G <= attempt.version_end_G).all()
    assert (attempt.flops_prefill_G >= 0).all() and (attempt.flops_decode_G >= 0).all()


def _name(request: Request) -> tuple[str, int, int]:
    return request.problem.id, request.visit, request.attempt
