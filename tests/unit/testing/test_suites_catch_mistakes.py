"""The public suites can fail: each mistake that they exist for turns a check red."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from gumption.allocation import NeverGiveUp
from gumption.config import RunConfig
from gumption.rollouts.scripted import ScriptedEngine
from gumption.selection import All
from gumption.testing import AllocatorTestCase, EngineTestCase, SelectorTestCase
from gumption.types import Request, Selection


def failures(suite):
    """Names of the checks that fail on this suite."""
    found = set()
    for name in sorted(n for n in dir(suite) if n.startswith("test_")):
        try:
            getattr(suite, name)()
        except Exception:
            found.add(name)
    return found


class Wrapped:
    """Passes everything on to a good allocator; subclasses break one thing."""

    def __init__(self, stream, seed=0):
        self.inner = NeverGiveUp(stream, group_size=4, max_age=3, seed=seed)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def ask(self, capacity):
        return self.inner.ask(capacity)

    def tell(self, attempt, version, fresh=True):
        return self.inner.tell(attempt, version, fresh)


class AsksTooMuch(Wrapped):
    def ask(self, capacity):
        return self.inner.ask(capacity + 4) if capacity > 0 else []


class SplitsRequests(Wrapped):
    def ask(self, capacity):
        asked = self.inner.ask(capacity)
        if asked and sum(r.n for r in asked) > capacity:
            asked[-1] = Request(asked[-1].problem, 1, asked[-1].visit, asked[-1].attempt)
        return asked


class RetriesLast(Wrapped):
    def ask(self, capacity):
        return sorted(self.inner.ask(capacity), key=lambda r: r.attempt > 0)


class LosesStaleRollouts(Wrapped):
    def tell(self, attempt, version, fresh=True):
        verdict = self.inner.tell(attempt, version, fresh)
        return replace(verdict, finals=tuple(f for f in verdict.finals if f.fate != "stale"))


class TrainsWithoutReward(Wrapped):
    def tell(self, attempt, version, fresh=True):
        verdict = self.inner.tell(attempt, version, fresh)
        missing = [f.member for f in verdict.finals if f.member.attempt is attempt and f.fate == "error"]
        return replace(verdict, group=replace(verdict.group, members=(*verdict.group.members, *missing)))


class ForgetsCounts(Wrapped):
    def tell(self, attempt, version, fresh=True):
        verdict = self.inner.tell(attempt, version, fresh)
        return replace(verdict, group=replace(verdict.group, count=verdict.group.size))


class GlobalCoins(Wrapped):
    def tell(self, attempt, version, fresh=True):
        self.inner.seed = int(np.random.default_rng().integers(2**32))
        self.inner.retry_probability = 0.5
        return self.inner.tell(attempt, version, fresh)


class SavesTooLittle(Wrapped):
    def load_state_dict(self, state):
        self.inner.load_state_dict(state)
        for chain in self.inner._chains.values():
            chain.judged.clear()


class SavesObjects(Wrapped):
    def state_dict(self):
        return self.inner.state_dict() | {"chains_too": object()}


class ResetsMetrics(Wrapped):
    def metrics(self):
        metrics = self.inner.metrics()
        self.inner._tally.attempts = 0
        return metrics


class SwallowsMistakes(Wrapped):
    last = None

    def tell(self, attempt, version, fresh=True):
        try:
            self.last = self.inner.tell(attempt, version, fresh)
        except ValueError:
            return self.last
        return self.last


class ImpatientBatches(Wrapped):
    def batch_ready(self, counted, told, groups_per_update):
        return told >= groups_per_update


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (AsksTooMuch, "test_fills_capacity_and_never_splits_a_request"),
        (SplitsRequests, "test_fills_capacity_and_never_splits_a_request"),
        (RetriesLast, "test_retries_stand_first"),
        (LosesStaleRollouts, "test_no_rollout_is_lost_or_counted_twice"),
        (TrainsWithoutReward, "test_members_have_rewards"),
        (ForgetsCounts, "test_groups_count_every_reward_of_the_chain"),
        (GlobalCoins, "test_same_seed_same_verdicts"),
        (SavesTooLittle, "test_state_round_trip_continues_identically"),
        (SavesObjects, "test_state_round_trip_continues_identically"),
        (ResetsMetrics, "test_saving_changes_nothing"),
        (SwallowsMistakes, "test_refuses_what_was_not_asked_for"),
        (ImpatientBatches, "test_batch_ready"),
    ],
)
def test_broken_allocators_are_caught(broken, check):
    class Suite(AllocatorTestCase):
        def make(self, stream, seed=0):
            return broken(stream, seed)

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()


def test_the_unbroken_wrapper_passes():
    class Suite(AllocatorTestCase):
        def make(self, stream, seed=0):
            return Wrapped(stream, seed)

    assert failures(Suite()) == set()


class Dropper:
    def __init__(self, change):
        self.change = change

    def select(self, groups, credits, rng):
        return [self.change(s, g) for s, g in zip(All().select(groups, credits, rng), groups, strict=True)]


LUCK = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda s, g: replace(s, reason=""), "test_one_selection_per_group_with_a_reason"),
        (lambda s, g: replace(s, indices_J=s.indices_J + 1), "test_indices_are_distinct_members"),
        (lambda s, g: replace(s, indices_J=np.zeros_like(s.indices_J)), "test_indices_are_distinct_members"),
        (lambda s, g: replace(s, weights_J=s.weights_J[:0]), "test_weights_are_visible"),
        (lambda s, g: replace(s, weights_J=s.weights_J * 0), "test_weights_are_visible"),
        (lambda s, g: replace(s, weights_J=s.weights_J * LUCK.random()), "test_same_generator_same_selection"),
        (
            lambda s, g: Selection(np.zeros(0, np.int64), np.zeros(0), "none"),
            "test_something_is_kept_of_a_mixed_group",
        ),
    ],
)
def test_broken_selectors_are_caught(change, check):
    class Suite(SelectorTestCase):
        def make(self):
            return Dropper(change)

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()


def test_selector_that_writes_into_its_input_is_caught():
    class Writer:
        def select(self, groups, credits, rng):
            for credit in credits:
                credit.advantages_G[:] = 0
            return All().select(groups, credits, rng)

    class Suite(SelectorTestCase):
        def make(self):
            return Writer()

    assert failures(Suite()) == {"test_leaves_its_input_alone"}


class LosesOne(ScriptedEngine):
    def poll(self):
        return super().poll()[1:]


class BooksTwice(ScriptedEngine):
    def submit(self, request):
        super().submit(request)
        self.flops_decode += 1


class OneGenerator(ScriptedEngine):
    """Draws from one stream, so that a rollout depends on what came before it."""

    def submit(self, request):
        self.seed += 1
        super().submit(request)


class ForgetsVersions(ScriptedEngine):
    def update_weights(self, version, state):
        super().update_weights(0, state)


class ForgetsState(ScriptedEngine):
    def load_state_dict(self, state, problem):
        state = copy.deepcopy(state)
        state["totals"]["tokens_generated"] = 0
        super().load_state_dict(state, problem)


class CancelsEverything(ScriptedEngine):
    def cancel(self, chain_id):
        return self.abandon()


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (LosesOne, "test_each_request_comes_back_once_and_whole"),
        (BooksTwice, "test_rows_add_up_to_the_totals"),
        (OneGenerator, "test_same_rollouts_whatever_else_is_in_flight"),
        (ForgetsVersions, "test_version_spans"),
        (ForgetsState, "test_saved_engine_goes_on"),
        (CancelsEverything, "test_cancel_stops_one_chain"),
    ],
)
def test_broken_engines_are_caught(broken, check):
    class Suite(EngineTestCase):
        def make(self, slots):
            return broken(RunConfig.from_dict({"rollouts": {"in_flight": slots}}), seed=0)

    with pytest.raises((AssertionError, ValueError)):
        getattr(Suite(), check)()
