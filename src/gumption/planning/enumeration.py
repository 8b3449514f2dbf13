"""Every way in which a chain of 0/1 rewards can end, with its exact weight: the real stages are driven.

Members of an attempt are exchangeable, so an attempt is its number of successes k, which C(n, k) sequences have. Each
path through the rule is told to a fresh allocator from its first attempt on; a coin is followed both ways, with its
probability. A chain that ends with N rollouts and K successes by a path of weight c has probability c·p^K·(1 − p)^(N−K)
for every p, so one enumeration serves all p. Nothing gets stale, and every reward has a value.

A selector may break ties at random. Sums over a class that come out equal in `DRAWS` draws are taken to be exact;
others are averaged over more draws, and their standard errors go along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from gumption.types import (
    Allocator,
    Attempt,
    ChainId,
    Credit,
    FloatArray,
    Group,
    Problem,
    Request,
    Reward,
    Selection,
    Selector,
    StateTree,
    Verdict,
)

DRAWS: Final = 8
MORE_DRAWS: Final = 64
MAX_TOLD: Final = 60_000
"""Attempts that an enumeration may tell before it is called infeasible."""

CreditStage: TypeAlias = Callable[[Sequence[Group]], list[Credit]]


class Rule(NamedTuple):
    """The stages that decide what is trained on; `make_allocator` gives a fresh one (of one problem, endless)."""

    make_allocator: Callable[[], Allocator]
    credit: CreditStage
    selector: Selector
    top: float = 1.0  # reward of a success


class TooManyPathsError(Exception):
    """The rule has too many paths to enumerate."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What an accepted group brings into the gradient, as expectations over ties.

    Args:
        alpha: Summed coefficient (weight times advantage) on kept successes.
        beta: Summed coefficient against kept failures.
        squares: Sum of the squared coefficients.
        successes: Successes kept; `failures` likewise.
        errors: Standard errors of alpha, beta and squares; 0 where ties do not move them.
    """

    alpha: float = 0.0
    beta: float = 0.0
    squares: float = 0.0
    successes: float = 0.0
    failures: float = 0.0
    errors: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def over(self, divisor: float) -> Sums:
        """The same group with its coefficients divided by a number."""
        a, b, s = self.errors
        return replace(
            self,
            alpha=self.alpha / divisor,
            beta=self.beta / divisor,
            squares=self.squares / divisor**2,
            errors=(a / divisor, b / divisor, s / divisor**2),
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """One way in which a chain can end.

    Args:
        count: Rollouts N.
        successes: K of them.
        attempts: Attempts told.
        weight: Number of reward sequences that lead here, times the probability of their coins.
        size: Members of the trained group; 0: the chain ends untrained.
        sums: Its coefficients.
        group: The trained group of one such path.
    """

    count: int
    successes: int
    attempts: int
    weight: Fraction
    size: int = 0
    sums: Sums = Sums()
    group: Group | None = None

    @property
    def failures(self) -> int:
        """M = N − K."""
        return self.count - self.successes

    def probability(self, p_P: FloatArray) -> FloatArray:
        """Probability of this ending at each success rate in (0, 1)."""
        log = math.log(self.weight.numerator) - math.log(self.weight.denominator)
        result: FloatArray = np.exp(log + self.successes * np.log(p_P) + self.failures * np.log1p(-p_P))
        return result


def enumerate_chains(rule: Rule, *, tail: float = 0.0, floor: float = 0.02) -> list[Ending]:
    """All endings of a rule, those that look alike from outside (N, K, attempts, trained) merged; `sums` are not set.

    Args:
        rule: Stages.
        tail: Paths less likely than this at every p in [floor, 1 − floor] are left out: for rules without a cap.
        floor: See `tail`.

    Returns:
        Endings; their probabilities sum to 1 (less the tail) at every p.

    Raises:
        TooManyPathsError: more than `MAX_TOLD` attempts would have to be told.
    """
    found: dict[tuple[int, int, int, bool], tuple[Fraction, Verdict]] = {}
    for weight, verdict in _paths(rule, tail, floor):
        g = verdict.group
        key = (g.count, g.successes, g.attempts, verdict.train)
        found[key] = (found[key][0] + weight if key in found else weight, verdict)
    return [
        Ending(n, k, attempts, weight, *((verdict.group.size, Sums(), verdict.group) if train else ()))
        for (n, k, attempts, train), (weight, verdict) in sorted(found.items(), key=lambda item: item[0])
    ]


def with_sums(rule: Rule, endings: Sequence[Ending]) -> list[Ending]:
    """The same endings with what their groups bring into the gradient.

    Args:
        rule: Stages; credit and selector must look at one group at a time (`looks_at_batch`).
        endings: Of this rule's allocator.
    """
    rng = np.random.default_rng(0)
    return [e if e.group is None else replace(e, sums=group_sums(rule, e.group, rng)) for e in endings]


def group_sums(rule: Rule, group: Group, rng: np.random.Generator) -> Sums:
    """Coefficients of one group, averaged over the selector's ties.

    Args:
        rule: Its credit and selector.
        group: A trained group with 0/1 rewards.
        rng: For the selector.
    """
    [credit] = rule.credit([group])
    rows = [selected_sums(group, credit, *rule.selector.select([group], [credit], rng)) for _ in range(DRAWS)]
    if np.allclose(rows, rows[0], rtol=1e-12, atol=1e-15):
        alpha, beta, squares, right, wrong = rows[0]
        return Sums(alpha, beta, squares, right, wrong)
    for _ in range(MORE_DRAWS - len(rows)):
        rows.append(selected_sums(group, credit, *rule.selector.select([group], [credit], rng)))
    alpha, beta, squares, right, wrong = np.mean(rows, axis=0).tolist()
    errors = np.std(rows, axis=0, ddof=1) / math.sqrt(len(rows))
    return Sums(alpha, beta, squares, right, wrong, (float(errors[0]), float(errors[1]), float(errors[2])))


def looks_at_batch(rule: Rule, endings: Sequence[Ending]) -> bool:
    """Does credit or selection of a group depend on the other groups of its batch?

    Args:
        rule: Stages.
        endings: Its endings; at most 24 of their groups are put together in one batch and compared with themselves
            alone.
    """
    groups = [e.group for e in endings if e.group is not None][:24]
    if len(groups) < 2:
        return False
    credits = rule.credit(groups)
    rng = np.random.default_rng(1)
    together = rule.selector.select(groups, credits, rng)
    for group, credit, selection in zip(groups, credits, together, strict=True):
        [alone] = rule.credit([group])
        if not np.allclose(credit.advantages_G, alone.advantages_G):
            return True
        draws = (rule.selector.select([group], [alone], rng) for _ in range(8 * DRAWS))
        if all(_kept(group, *draw) != _kept(group, selection) for draw in draws):
            return True
    return False


def coefficients(credit: Credit, selection: Selection) -> FloatArray:
    """Weight times advantage of each kept member; a selector may bring advantages of its own."""
    own_J = selection.advantages_J
    advantages_J: FloatArray = credit.advantages_G[selection.indices_J] if own_J is None else own_J
    return selection.weights_J * advantages_J


def _kept(group: Group, selection: Selection) -> tuple[int, int]:
    right_J = group.rewards_G[selection.indices_J] > 0
    return int(right_J.sum()), int((~right_J).sum())


def selected_sums(group: Group, credit: Credit, selection: Selection) -> tuple[float, float, float, float, float]:
    """alpha, beta, squares, kept successes and kept failures of one selection, in the order of `Sums`."""
    a_J = coefficients(credit, selection)
    right_J = group.rewards_G[selection.indices_J] > 0
    right, wrong = _kept(group, selection)
    return float(a_J[right_J].sum()), float(-a_J[~right_J].sum()), float(np.sum(a_J**2)), right, wrong


class _Coins:
    """Answers coins as it is told to, and `True` beyond that; remembers the probabilities."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self.answers = answers
        self.given: list[bool] = []
        self.weight = Fraction(1)

    def __call__(self, probability: float, chain_id: ChainId, attempt: int) -> bool:
        i = len(self.given)
        heads = self.answers[i] if i < len(self.answers) else True
        self.given.append(heads)
        p = Fraction(repr(probability))  # .9 is nine tenths, not the double next to it
        self.weight *= p if heads else 1 - p
        return heads


def _paths(rule: Rule, tail: float, floor: float) -> Iterator[tuple[Fraction, Verdict]]:
    """Weight and last verdict of each path; depth first."""
    grid_P = np.linspace(floor, 1 - floor, 25)
    told = 0
    open_paths: list[tuple[tuple[int, ...], tuple[bool, ...]]] = [((), ())]
    while open_paths:
        path, answers = open_paths.pop()
        k, n = 0, 1
        while k <= n:
            branches: list[tuple[bool, ...]] = [answers]
            while branches:
                told += len(path) + 1
                if told > MAX_TOLD:
                    raise TooManyPathsError(f"more than {MAX_TOLD:,} attempts to tell")
                known = branches.pop()
                coins = _Coins(known)
                n, weight, verdict = _replay(rule, (*path, k), coins)
                given = tuple(coins.given)
                branches += [(*given[:i], False) for i in range(len(known), len(given))]
                if verdict.kind != "retry":
                    yield weight, verdict
                    continue
                g = verdict.group
                end = Ending(g.count, g.successes, g.attempts, weight)
                if tail == 0 or float(end.probability(grid_P).max()) > tail:
                    open_paths.append(((*path, k), given))
            k += 1


def _replay(rule: Rule, path: tuple[int, ...], coins: _Coins) -> tuple[int, Fraction, Verdict]:
    """Tell attempts with these numbers of successes; size of the last request, weight of the path, last verdict."""
    allocator = rule.make_allocator()
    if hasattr(allocator, "coin"):
        allocator.coin = coins
    ways = 1
    for k in path:
        [request, *_] = allocator.ask(1)
        n = request.n
        verdict = allocator.tell(scored(request, k, rule.top), 0)
        ways *= math.comb(n, k)
    return n, ways * coins.weight, verdict


def scored(request: Request, successes: int, top: float = 1.0) -> Attempt:
    """An answer whose first members succeed; each completion is one token long."""
    n = request.n
    attempt = Attempt.empty(request)
    attempt.rewards_G = (Reward(top),) * successes + (Reward(0.0),) * (n - successes)
    attempt.completion_ids_T = np.zeros(n, np.int32)
    attempt.logprobs_T = np.zeros(n, np.float32)
    attempt.offsets_G1 = np.arange(n + 1)
    return attempt


class OneProblem:
    """A problem stream of one problem, visited without end."""

    def __init__(self) -> None:
        self._problem = Problem("any-0", "any", None, "scripted")
        self._visit = -1

    def next(self) -> tuple[Problem, int]:
        """The problem, with a new visit number."""
        self._visit += 1
        return self._problem, self._visit

    def state_dict(self) -> StateTree:
        """The visit."""
        return {"visit": self._visit}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a visit."""
        self._visit = state["visit"]

    def problem(self, problem_id: str) -> Problem:
        """The problem."""
        return self._problem
