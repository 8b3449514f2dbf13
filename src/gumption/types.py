"""The nouns of gumption: what flows along the path, stage by stage.

    problems → allocation → rollouts → rewards → (group) → credit → selection → training

`Problem` is asked for as a `Request`, answered by an `Attempt` (n rollouts, array-backed), judged by an allocator's
`Verdict`, which always carries a `Group`. `Credit` says what each member is worth, `Selection` which are trained on,
`TrainBatch` is what the trainer receives.

Axis suffixes: `_G` member of a group or attempt, `_J` kept member, `_T` token, `_B` row of a batch
(see CONTRIBUTING.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

Finish: TypeAlias = Literal["stop", "length", "cancelled", "error"]
FINISHES: tuple[Finish, ...] = ("stop", "length", "cancelled", "error")

RewardStatus: TypeAlias = Literal["ok", "masked", "error", "timeout", "memory", "invalid", "cancelled"]

Fate: TypeAlias = Literal[
    "trained",  # its tokens entered an optimizer step
    "not_selected",  # in an accepted group, left out by the selector
    "solved",  # in a chain dropped because every member already reached the maximum
    "gave_up",  # in a chain that ended without an accepted attempt
    "stale",  # too old for `allocation.max_age` or `training.max_staleness`
    "cancelled",  # stopped for staleness, budget or shutdown
    "error",  # the engine or the verifier failed: no reward value
    "masked",  # truncated, with `rewards.truncated = "mask"`
    "unfinished",  # still being generated, waiting or buffered when the run ended
    "lost",  # generated after the last checkpoint before a crash
]
FATES: tuple[Fate, ...] = (
    "trained", "not_selected", "solved", "gave_up", "stale", "cancelled", "error", "masked", "unfinished", "lost",
)  # fmt: skip

StateTree: TypeAlias = dict[str, Any]
"""Nested dicts and lists of JSON scalars and numpy arrays: what every `state_dict()` returns (no pickle anywhere)."""


class Message(NamedTuple):
    """One turn of a chat prompt."""

    role: str
    content: str


class ChainId(NamedTuple):
    """Names one visit to one problem; the successive attempts of that visit form a *chain*."""

    problem_id: str
    visit: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with a checkable answer.

    Args:
        id: Content hash plus occurrence number, so that two equal rows stay two problems.
        prompt: Plain text (completed as it is) or chat messages (rendered by the model's chat template).
        answer: Ground truth, JSON-serialisable, in whatever form the verifier expects.
        verifier: Name of the verifier that scores completions (`gumption.rewards.make_verifier`).
        meta: Anything else: family, difficulty, dataset columns.

    >>> p = Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math")
    >>> q = Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math", occurrence=1)
    >>> p.id == Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="math").id, p.id == q.id
    (True, False)
    """

    id: str
    prompt: str | tuple[Message, ...]
    answer: Any
    verifier: str
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_row(
        cls,
        row: Mapping[str, Any],
        *,
        verifier: str,
        prompt_field: str = "prompt",
        answer_field: str = "answer",
        occurrence: int = 0,
    ) -> Problem:
        """Build a problem from one data row; other columns go to `meta`.

        Args:
            row: Mapping with at least the prompt field. The prompt is a string, or a list of
                `{"role": …, "content": …}` messages.
            verifier: Name of the verifier.
            prompt_field: Column that holds the prompt.
            answer_field: Column that holds the ground truth (may be missing: `None`).
            occurrence: How many equal rows came before this one.

        Raises:
            ValueError: the prompt is missing, empty or of another type.
        """
        prompt = row.get(prompt_field)
        parsed: str | tuple[Message, ...]
        if isinstance(prompt, str) and prompt.strip():
            parsed = prompt
        elif isinstance(prompt, Sequence) and not isinstance(prompt, str) and len(prompt) > 0:
            try:
                parsed = tuple(Message(str(m["role"]), str(m["content"])) for m in prompt)
            except (KeyError, TypeError) as error:
                raise ValueError(f"prompt field {prompt_field!r}: chat messages need 'role' and 'content'") from error
        else:
            raise ValueError(f"prompt field {prompt_field!r} is missing or empty: {prompt!r}")
        answer = row.get(answer_field)
        meta = {str(k): v for k, v in row.items() if k not in (prompt_field, answer_field)}
        return cls(problem_id(parsed, answer, verifier, occurrence), parsed, answer, verifier, meta)

    @property
    def text(self) -> str:
        """The prompt as one string (chat turns joined by blank lines), for previews and the ledger."""
        return self.prompt if isinstance(self.prompt, str) else "\n\n".join(m.content for m in self.prompt)


def problem_id(prompt: str | tuple[Message, ...], answer: Any, verifier: str, occurrence: int = 0) -> str:
    """Content hash of a problem (16 hex digits) and its occurrence number.

    >>> problem_id("2+2=", "4", "math").count("-"), problem_id("2+2=", "4", "math", 3)[-2:]
    (1, '-3')
    """
    content = [prompt if isinstance(prompt, str) else [list(m) for m in prompt], answer, verifier]
    digest = hashlib.blake2b(
        json.dumps(content, sort_keys=True, ensure_ascii=False, default=str).encode(), digest_size=8
    ).hexdigest()
    return f"{digest}-{occurrence}"


@dataclass(frozen=True, slots=True)
class Request:
    """Asks for `n` rollouts of a problem: attempt number `attempt` (from 0) of the chain `(problem, visit)`."""

    problem: Problem
    n: int
    visit: int = 0
    attempt: int = 0

    @property
    def chain_id(self) -> ChainId:
        """The chain that this attempt belongs to."""
        return ChainId(self.problem.id, self.visit)


@dataclass(frozen=True, slots=True)
class Reward:
    """What a verifier said of one completion.

    Args:
        value: Score, or `None` when there is none (status says why); `None` leaves every count alone.
        parts: Per-test results, each in [0, 1], where the verifier has them.
        status: "ok" with a value; otherwise masked, error, timeout, memory, invalid or cancelled.
        detail: One line for people: the exception, the extracted answer.
        task: The task's own score where `value` also holds a length penalty; `None`: they are the same.
    """

    value: float | None
    parts: tuple[float, ...] = ()
    status: RewardStatus = "ok"
    detail: str = ""
    task: float | None = None

    @property
    def task_value(self) -> float | None:
        """The score before length shaping. Filters look at this one: a shaped reward lets all-fail groups through."""
        return self.value if self.value is None or self.task is None else self.task


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled completion, as a view into an `Attempt`.

    `completion_ids_T`, `loss_mask_T` and `logprobs_T` have the same length. Tokens that the policy did not sample (tool
    results) have `loss_mask` False and log-prob 0. Log-probs are those of the distribution that was sampled from
    (temperature and top-p applied).
    """

    request: Request
    member: int
    prompt_ids_T: IntArray
    completion_ids_T: IntArray
    loss_mask_T: BoolArray
    logprobs_T: FloatArray
    version_start: int
    version_end: int
    finish: Finish
    text: str
    reward: Reward | None
    flops_prefill: int
    flops_decode: int

    @property
    def trained_tokens(self) -> int:
        """Tokens that carry loss."""
        return int(np.count_nonzero(self.loss_mask_T))


_TRUE_T = np.ones(0, np.bool_)


def _all_true(n: int) -> BoolArray:
    """A read-only mask of n ones; all of them share one block, as most rollouts need one and none changes it."""
    global _TRUE_T
    if n > len(_TRUE_T):
        _TRUE_T = np.ones(2 * n, np.bool_)
        _TRUE_T.flags.writeable = False
    return _TRUE_T[:n]


@dataclass(slots=True, eq=False)
class Attempt:
    """A `Request` with its n rollouts, array-backed: token arrays of all members are concatenated.

    Member i owns `[offsets_G1[i], offsets_G1[i + 1])` of the `_T` arrays. Engines fill everything but `rewards`; the
    scorer fills those. FLOPs are exact integers so that rows and counters agree; the shared prompt prefill is booked on
    member 0.

    A *replay* is an earlier rollout that an allocator trains on once more, as an attempt of its own that nobody asked
    for: n = 1, no generation FLOPs, log-probs and versions of when it was sampled. `max_staleness` does not apply to
    it, for its allocator has decided about its age.

    >>> a = Attempt.empty(Request(Problem("x-0", "2+2=", "4", "math"), n=2))
    >>> a.n, a.values_G.tolist()
    (2, [nan, nan])
    """

    request: Request
    prompt_ids_T: IntArray  # int32
    completion_ids_T: IntArray  # int32
    logprobs_T: FloatArray  # float32
    offsets_G1: IntArray  # int64, n + 1
    version_start_G: IntArray  # int32
    version_end_G: IntArray  # int32
    finish_G: tuple[Finish, ...]
    texts_G: tuple[str, ...]
    flops_prefill_G: IntArray  # int64
    flops_decode_G: IntArray  # int64
    loss_mask_T: BoolArray | None = None  # None: every completion token was sampled by the policy
    rewards_G: tuple[Reward, ...] | None = None
    replay: bool = False

    @classmethod
    def empty(cls, request: Request, *, version: int = 0, rewards: Sequence[float | None] | None = None) -> Attempt:
        """An attempt without tokens; with `rewards`, already scored. For tests, simulators and ask/tell users."""
        n = request.n
        scored = None
        if rewards is not None:
            if len(rewards) != n:
                raise ValueError(f"request wants {n} rollouts, got {len(rewards)} rewards")
            scored = tuple(Reward(v, status="ok" if v is not None else "error") for v in rewards)
        zeros = np.zeros(n, np.int64)
        stop: Finish = "stop"
        return cls(
            request=request,
            prompt_ids_T=np.zeros(0, np.int32),
            completion_ids_T=np.zeros(0, np.int32),
            logprobs_T=np.zeros(0, np.float32),
            offsets_G1=np.zeros(n + 1, np.int64),
            version_start_G=np.full(n, version, np.int32),
            version_end_G=np.full(n, version, np.int32),
            finish_G=(stop,) * n,
            texts_G=("",) * n,
            flops_prefill_G=zeros,
            flops_decode_G=zeros,
            rewards_G=scored,
        )

    @property
    def n(self) -> int:
        """Number of rollouts."""
        return self.request.n

    @property
    def values_G(self) -> FloatArray:
        """Reward values as float64; NaN where there is none (or the attempt is not scored yet)."""
        if self.rewards_G is None:
            return np.full(self.n, np.nan)
        return np.array([np.nan if r.value is None else r.value for r in self.rewards_G], np.float64)

    @property
    def task_G(self) -> FloatArray:
        """The task's own reward, before any length shaping; NaN where there is none. Allocators look at this one."""
        if self.rewards_G is None:
            return np.full(self.n, np.nan)
        return np.array([np.nan if r.task_value is None else r.task_value for r in self.rewards_G], np.float64)

    @property
    def lengths_G(self) -> IntArray:
        """Completion tokens per member."""
        return np.diff(self.offsets_G1)

    def rollout(self, member: int) -> Rollout:
        """Member `member` as a view (no token is copied)."""
        lo, hi = int(self.offsets_G1[member]), int(self.offsets_G1[member + 1])
        mask_T = _all_true(hi - lo) if self.loss_mask_T is None else self.loss_mask_T[lo:hi]
        return Rollout(
            request=self.request,
            member=member,
            prompt_ids_T=self.prompt_ids_T,
            completion_ids_T=self.completion_ids_T[lo:hi],
            loss_mask_T=mask_T,
            logprobs_T=self.logprobs_T[lo:hi],
            version_start=int(self.version_start_G[member]),
            version_end=int(self.version_end_G[member]),
            finish=self.finish_G[member],
            text=self.texts_G[member],
            reward=None if self.rewards_G is None else self.rewards_G[member],
            flops_prefill=int(self.flops_prefill_G[member]),
            flops_decode=int(self.flops_decode_G[member]),
        )

    def __iter__(self) -> Iterator[Rollout]:
        return (self.rollout(i) for i in range(self.n))


class Member(NamedTuple):
    """Points at one rollout: member `position` of `attempt`."""

    attempt: Attempt
    position: int

    @property
    def rollout(self) -> Rollout:
        """The rollout as a view."""
        return self.attempt.rollout(self.position)

    @property
    def value(self) -> float:
        """Its reward value, NaN where there is none."""
        rewards = self.attempt.rewards_G
        value = None if rewards is None else rewards[self.position].value
        return float("nan") if value is None else value


class Picked(NamedTuple):
    """Some members of one attempt."""

    attempt: Attempt
    positions: tuple[int, ...]


class Members(Sequence[Member]):
    """Members of several attempts in order, each made when it is looked at.

    Allocators report a chain's group at every attempt; making all `Member`s each time would be most of their cost.

    >>> a = Attempt.empty(Request(Problem("x-0", "2+2=", "4", "math"), n=3))
    >>> members = Members((Picked(a, (0, 2)),))
    >>> len(members), [m.position for m in members], members[-1].position
    (2, [0, 2], 2)
    """

    __slots__ = ("picked",)

    def __init__(self, picked: tuple[Picked, ...]) -> None:
        self.picked = picked

    def __len__(self) -> int:
        return sum([len(positions) for _, positions in self.picked])

    def __iter__(self) -> Iterator[Member]:
        return (Member(attempt, i) for attempt, positions in self.picked for i in positions)

    @overload
    def __getitem__(self, index: int) -> Member: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Member, ...]: ...

    def __getitem__(self, index: int | slice) -> Member | tuple[Member, ...]:
        return tuple(self)[index]


@dataclass(eq=False)
class Group:
    """The rollouts of a chain that may be trained on, with the counts of **all** its attempts.

    Args:
        chain_id: The chain.
        problem: Its problem.
        members: Fresh, valued rollouts, oldest attempt first. Any size.
        count: Valued rollouts of all attempts of the chain, those that are too old to train on included.
        reward_sum: Sum of their rewards.
        successes: How many of them reached `max_score`.
        attempts: Attempts told so far.
        attempt_values: Valued rollouts in the accepted (last) attempt, and their reward sum: the success rate that a
            MaxRL advantage on chains divides by. (With those of attempts too short to be judged that were judged
            together with it.)

    >>> r = Request(Problem("x-0", "2+2=", "4", "math"), n=2)
    >>> a = Attempt.empty(r, rewards=[1.0, 0.0])
    >>> g = Group(r.chain_id, r.problem, (Member(a, 0), Member(a, 1)), 2, 1.0, 1, 1, (2, 1.0))
    >>> g.size, g.rewards_G.tolist(), g.baseline
    (2, [1.0, 0.0], 0.5)
    """

    chain_id: ChainId
    problem: Problem
    members: Sequence[Member]
    count: int
    reward_sum: float
    successes: int
    attempts: int
    attempt_values: tuple[int, float]

    @property
    def size(self) -> int:
        """Number of members (G)."""
        return len(self.members)

    @property
    def baseline(self) -> float:
        """Mean reward over every valued rollout of the chain; 0 when there is none."""
        return self.reward_sum / self.count if self.count else 0.0

    @cached_property
    def rewards_G(self) -> FloatArray:
        """Rewards of the members."""
        rewards = [(a.rewards_G, i) for a, i in self._places()]
        values = [None if r is None else r[i].value for r, i in rewards]
        return np.array([np.nan if v is None else v for v in values], np.float64)

    @cached_property
    def lengths_G(self) -> IntArray:
        """Completion tokens of the members."""
        return np.array([a.offsets_G1[i + 1] - a.offsets_G1[i] for a, i in self._places()], np.int64)

    @cached_property
    def versions_G(self) -> IntArray:
        """Policy version at the start of each member."""
        return np.array([a.version_start_G[i] for a, i in self._places()], np.int64)

    def _places(self) -> Iterable[tuple[Attempt, int]]:
        """Attempt and position of each member; quicker than making `Member`s where they are not made yet."""
        if isinstance(self.members, Members):
            return [(attempt, i) for attempt, positions in self.members.picked for i in positions]
        return self.members

    @cached_property
    def replays_G(self) -> BoolArray:
        """Which members are replays."""
        return np.array([m.attempt.replay for m in self.members], np.bool_)

    def keep(self, mask_G: BoolArray) -> Group:
        """The same chain with only the members where `mask_G` is true; counts stay."""
        return replace(self, members=tuple(m for m, k in zip(self.members, mask_G, strict=True) if k))


VerdictKind: TypeAlias = Literal["accept", "retry", "give_up", "drop"]


class Final(NamedTuple):
    """The fate of one rollout, decided for good, with its reason."""

    member: Member
    fate: Fate
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What an allocator decided about one attempt.

    Args:
        kind: `accept` (the group is for training), `retry` (the same problem comes first in the next `ask`), `give_up`
            (the chain ends without training), `drop` (it ends because there is nothing to learn).
        reason: Why: "mixed", "better", "all_equal", "solved", "coin", "max_attempts", "stale_attempt", ….
        group: The chain so far. Always there, also for retries, solved and given-up chains.
        train: The group joins the batch.
        counts: The group takes a place in the batch (dropped groups of the `fixed` rule do, without being trained).
        finals: Rollouts whose fate this verdict settles (stale ones leaving the buffer, members of a chain that ends
            untrained, errors). Members of an accepted group are settled later, when the batch is trained.
    """

    kind: VerdictKind
    reason: str
    group: Group
    train: bool
    counts: bool
    finals: tuple[Final, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What each member of one group is worth.

    Args:
        advantages_G: Advantage per member; 0 for constant rewards.
        leverage_G: Leverage per member (≥ 0; mean 1 over a mixed group when the baseline is the group's own).
        p_hat: Success rate that leverage used (the chain's when the advantage is `chain`, else the group's).
        bits: Reward entropy per rollout of this problem, in bits, Miller–Madow corrected.
    """

    advantages_G: FloatArray
    leverage_G: FloatArray
    p_hat: float
    bits: float


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Which members of one group are trained on. "No weight" is a visible 1.0.

    Args:
        indices_J: The kept members.
        weights_J: Their weights in the loss, > 0.
        reason: Names the rule, or says why nothing is kept.
        advantages_J: Replace the credit's advantages, for rules that compute them again on what is kept.
    """

    indices_J: IntArray
    weights_J: FloatArray
    reason: str
    advantages_J: FloatArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TrainRow:
    """One rollout on its way into an optimizer step."""

    rollout: Rollout
    advantage: float
    weight: float
    half: int  # 0 or 1: problems are split in two disjoint halves to measure gradient noise


@dataclass(frozen=True, slots=True, eq=False)
class TrainBatch:
    """Everything one `Trainer.update` receives.

    Args:
        rows_B: Kept rollouts.
        version: Policy version before the update.
        count_sequences: Rollouts that the `sequences` denominator counts (the full groups' or the kept ones).
        count_tokens: Loss tokens that the `tokens` denominator counts, likewise.
    """

    rows_B: tuple[TrainRow, ...]
    version: int
    count_sequences: int
    count_tokens: int


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one optimizer step did.

    Args:
        metrics: Field-standard names (docs/ledger.md) to floats.
        flops_score_B: FLOPs spent on log-prob scoring (reference and π_old passes), per row of the batch.
        flops_train_B: FLOPs of forward and backward, per row of the batch.
        skipped: No step was applied (NaN guard); the ids of the batch's chains are in the ledger.
        importance_ratio_B: Mean of π/μ over each row's tokens at the start of the update; `None`: not measured.
        applied_B: Whether each row was in an applied step: with several minibatches the NaN guard may have skipped
            those of one. `None`: all were, or with `skipped` none.
    """

    metrics: Mapping[str, float]
    flops_score_B: tuple[int, ...]
    flops_train_B: tuple[int, ...]
    skipped: bool = False
    importance_ratio_B: tuple[float, ...] | None = None
    applied_B: tuple[bool, ...] | None = None

    def applied(self, row: int) -> bool:
        """Was this row of the batch in an applied step?"""
        return not self.skipped and (self.applied_B is None or self.applied_B[row])


# ---------------------------------------------------------------------------------------------------------------------
# What users may supply


@runtime_checkable
class ProblemStream(Protocol):
    """An order over problems; endless unless it has a number of epochs."""

    def next(self) -> tuple[Problem, int] | None:
        """The next problem and its visit number, or `None` when the stream has ended."""
        ...

    def state_dict(self) -> StateTree:
        """Position in the order."""
        ...

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved position."""
        ...

    def problem(self, problem_id: str) -> Problem:
        """Look a problem up by id (chains are saved by id)."""
        ...


@runtime_checkable
class Allocator(Protocol):
    """How many rollouts each problem gets and when to stop: ask/tell, the caller owns the loop."""

    def ask(self, capacity: int) -> list[Request]:
        """Requests worth about `capacity` rollouts: stops at the first that reaches it; never splits one."""
        ...

    def tell(self, attempt: Attempt, version: int, fresh: bool = True) -> Verdict:
        """Judge one scored attempt at trainer version `version`."""
        ...

    def batch_ready(self, counted: int, told: int, groups_per_update: int) -> bool:
        """Is it time to update? `counted` groups have a place in the batch, `told` verdicts came since the last one."""
        ...

    def drain(self) -> list[Final]:
        """End of run: forget every open chain and return its buffered rollouts as `unfinished`."""
        ...

    def metrics(self) -> dict[str, float]:
        """Counters named as in docs/ledger.md (`allocation/…`)."""
        ...

    def state_dict(self) -> StateTree:
        """Chains, retries, counters and the problem stream."""
        ...

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved state."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Generates rollouts. Requests go in with `submit`; finished attempts come out of `poll`.

    The four running totals count everything spent so far, rollouts in flight included; they are exact integers.
    """

    flops_prefill: int
    flops_decode: int
    tokens_prompt: int
    tokens_generated: int
    exhausted: bool  # `allow` refused the next step: nothing more will come out

    @property
    def free_slots(self) -> int:
        """Rollouts that can be submitted before the engine is full (may be negative after an overshoot)."""
        ...

    @property
    def in_flight(self) -> int:
        """Rollouts submitted and not yet returned."""
        ...

    def submit(self, request: Request) -> None:
        """Queue a request."""
        ...

    def poll(self) -> list[Attempt]:
        """Do some work and return attempts whose members have all finished (maybe none)."""
        ...

    def update_weights(self, version: int, state: Any) -> None:
        """New policy weights; rollouts in flight continue with them and record their version span."""
        ...

    def cancel(self, chain_id: ChainId) -> list[Attempt]:
        """Stop a chain's rollouts; they come back with finish `cancelled`."""
        ...

    def abandon(self) -> list[Attempt]:
        """End of run: everything in flight comes back as it is, with finish `cancelled`; the engine is empty."""
        ...

    def state_dict(self) -> StateTree:
        """Partial rollouts (tokens, log-probs, spans)."""
        ...

    def load_state_dict(self, state: StateTree, problem: Mapping[str, Problem]) -> None:
        """Take up saved partial rollouts (caches are rebuilt)."""
        ...

    def close(self) -> None:
        """Free workers and memory."""
        ...


@runtime_checkable
class Verifier(Protocol):
    """Scores completions of a problem."""

    def score(self, problem: Problem, completion: str) -> Reward:
        """The reward of one completion. Must not raise for anything a model can write."""
        ...


@runtime_checkable
class Selector(Protocol):
    """Which rollouts of a batch are trained on."""

    def select(self, groups: Sequence[Group], credits: Sequence[Credit], rng: np.random.Generator) -> list[Selection]:
        """One selection per group."""
        ...


@runtime_checkable
class Trainer(Protocol):
    """Turns a batch into new weights."""

    @property
    def version(self) -> int:
        """Optimizer steps applied so far: the policy version."""
        ...

    def estimate_flops(self, batch: TrainBatch) -> int:
        """What `update` would cost, so that a budget can be kept."""
        ...

    def update(self, batch: TrainBatch) -> UpdateResult:
        """One optimizer step (or `passes × minibatches` of them, one version)."""
        ...

    def weights(self) -> Any:
        """The policy's weights in the form that the engine takes."""
        ...


def attempt_state(attempt: Attempt) -> StateTree:
    """An attempt as a `StateTree` (its problem by id)."""
    return {
        "problem_id": attempt.request.problem.id,
        "n": attempt.request.n,
        "visit": attempt.request.visit,
        "attempt": attempt.request.attempt,
        "prompt_ids": attempt.prompt_ids_T,
        "completion_ids": attempt.completion_ids_T,
        "logprobs": attempt.logprobs_T,
        "loss_mask": attempt.loss_mask_T,
        "replay": attempt.replay,
        "offsets": attempt.offsets_G1,
        "version_start": attempt.version_start_G,
        "version_end": attempt.version_end_G,
        "finish": list(attempt.finish_G),
        "texts": list(attempt.texts_G),
        "flops_prefill": attempt.flops_prefill_G,
        "flops_decode": attempt.flops_decode_G,
        "rewards": None
        if attempt.rewards_G is None
        else [[r.value, list(r.parts), r.status, r.detail, r.task] for r in attempt.rewards_G],
    }


def attempt_from_state(state: StateTree, problem: Problem) -> Attempt:
    """The inverse of `attempt_state`."""
    rewards = state["rewards"]
    return Attempt(
        request=Request(problem, state["n"], state["visit"], state["attempt"]),
        prompt_ids_T=state["prompt_ids"],
        completion_ids_T=state["completion_ids"],
        logprobs_T=state["logprobs"],
        offsets_G1=state["offsets"],
        version_start_G=state["version_start"],
        version_end_G=state["version_end"],
        finish_G=tuple(state["finish"]),
        texts_G=tuple(state["texts"]),
        flops_prefill_G=state["flops_prefill"],
        flops_decode_G=state["flops_decode"],
        loss_mask_T=state["loss_mask"],
        replay=state["replay"],
        rewards_G=None if rewards is None else tuple(Reward(v, tuple(p), s, d, t) for v, p, s, d, t in rewards),
    )
