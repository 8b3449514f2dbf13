"""Does a verifier know right from wrong? A set's gold answers, and changed ones, through a `Scorer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gumption.problems.sets import ProblemSet, SkippedRow
from gumption.rewards.base import hooks
from gumption.rewards.scorer import Scorer
from gumption.types import Attempt, Problem, Request, Reward

if TYPE_CHECKING:
    from gumption.config import RewardsConfig

_BATCH = 64
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class BadRow:
    """A problem on which the verifier was wrong, or failed."""

    where: str
    id: str
    reason: str


def _zeros() -> dict[str, int]:
    return {"accepted": 0, "rejected": 0, "failed": 0, "none": 0}


@dataclass
class Report:
    """What a check found.

    Args:
        source: Name of the problem set.
        verifier: Names of the verifiers.
        problems: How many were checked.
        gold: Gold answers that were accepted, rejected, failed (no value), and problems that have none.
        changed: The same for changed answers.
        bad: Gold answers not accepted and changed ones not rejected.
        skipped: Malformed rows.
        seconds: Time that scoring took.
    """

    source: str
    verifier: str
    problems: int = 0
    gold: dict[str, int] = field(default_factory=_zeros)
    changed: dict[str, int] = field(default_factory=_zeros)
    bad: list[BadRow] = field(default_factory=list)
    skipped: tuple[SkippedRow, ...] = ()
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "source": self.source,
            "verifier": self.verifier,
            "problems": self.problems,
            "gold": self.gold,
            "changed": self.changed,
            "bad": [{"where": b.where, "id": b.id, "reason": b.reason} for b in self.bad],
            "skipped": [{"file": s.file, "line": s.line, "reason": s.reason} for s in self.skipped],
            "seconds": round(self.seconds, 3),
        }


def check(
    problems: ProblemSet,
    config: RewardsConfig,
    *,
    limit: int | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Report:
    """Score the gold answer and a changed one of each problem (hooks: see `gumption.rewards.base`).

    Args:
        problems: The problems.
        config: Verifier, limits, `max_score`.
        limit: Only the first so many.
        on_progress: Called with the number of problems done.

    Raises:
        ValueError: a verifier is unknown or cannot be made.

    >>> from gumption.config import RewardsConfig
    >>> p = Problem.from_row({"prompt": "2+2=", "answer": "4"}, verifier="exact")
    >>> report = check(ProblemSet((p,), "mine"), RewardsConfig())
    >>> report.gold["accepted"], report.changed["rejected"], report.bad
    (1, 1, [])
    """
    chosen = problems.problems[:limit]
    names = dict.fromkeys(_name(p, config) for p in chosen)
    report = Report(problems.name, ", ".join(names), len(chosen), skipped=problems.skipped)
    found = {name: hooks(name) for name in names}
    scorer = Scorer(config, max_tokens=1)
    try:
        scorer.prepare(chosen)
        for first in range(0, len(chosen), _BATCH):
            batch = chosen[first : first + _BATCH]
            pairs = [[hook(p) for hook in found[_name(p, config)]] for p in batch]
            attempts = [_attempt(p, [t for t in pair if t is not None]) for p, pair in zip(batch, pairs, strict=True)]
            scorer.score([a for a in attempts if a.n])
            for i, (attempt, pair) in enumerate(zip(attempts, pairs, strict=True)):
                rewards = iter(attempt.rewards_G or ())
                gold, changed = (None if text is None else next(rewards) for text in pair)
                _book(report, problems.where(first + i), attempt.request.problem, gold, changed, config.max_score)
            on_progress(first + len(batch))
    finally:
        scorer.close()
    report.seconds = scorer.seconds
    return report


def _name(problem: Problem, config: RewardsConfig) -> str:
    return problem.verifier if config.verifier == "auto" else config.verifier


def _attempt(problem: Problem, texts: list[str]) -> Attempt:
    attempt = Attempt.empty(Request(problem, n=len(texts)))
    attempt.texts_G = tuple(texts)
    return attempt


def _book(
    report: Report, where: str, problem: Problem, gold: Reward | None, changed: Reward | None, max_score: float
) -> None:
    for counts, reward, wanted, what in (
        (report.gold, gold, "accepted", "gold answer"),
        (report.changed, changed, "rejected", "changed answer"),
    ):
        if reward is None:
            counts["none"] += 1
            continue
        value = reward.task_value
        verdict = "failed" if value is None else "accepted" if value >= max_score - _TOLERANCE else "rejected"
        counts[verdict] += 1
        if verdict != wanted:
            said = reward.status if value is None else f"{verdict} with {value:g}"
            why = f"{said} ({reward.detail})"
            report.bad.append(BadRow(where, problem.id, f"{what} {why}"))
