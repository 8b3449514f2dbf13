"""Pass rates per problem: sample, score, count. Its FLOPs and rollouts are never mixed with training's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from gumption.pipeline import Scoring
from gumption.types import Engine, FloatArray, IntArray, Problem, Request

CHUNK = 64  # rollouts per request: large enough to share the prompt's prefill, small enough to fill slots evenly


@dataclass(frozen=True)
class EvalRow:
    """How often one problem was solved."""

    problem_id: str
    n: int
    successes: int
    mean_reward: float
    mean_length: float
    flops: int

    @property
    def pass_rate(self) -> float:
        """Successes per sample."""
        return self.successes / self.n if self.n else 0.0


def evaluate(
    engine: Engine,
    scorer: Scoring,
    problems: Sequence[Problem],
    samples: int,
    *,
    visit: int,
    max_score: float = 1.0,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[EvalRow]:
    """Sample every problem `samples` times with an otherwise idle engine.

    Args:
        engine: Holds the weights to evaluate.
        scorer: Scores the completions.
        problems: Distinct problems.
        samples: Completions per problem. A completion without a reward counts as a failure here.
        visit: Names the draw: another number gives fresh samples.
        max_score: Reward at which a completion counts as a success.
        on_progress: Called with (rollouts done, rollouts in all).

    Returns:
        One row per problem, in order.
    """
    requests = [
        Request(problem, min(CHUNK, samples - first), visit, first // CHUNK)
        for problem in problems
        for first in range(0, samples, CHUNK)
    ]
    requests.reverse()
    sums = {p.id: np.zeros(5) for p in problems}
    done, total = 0, len(problems) * samples
    while requests or engine.in_flight:
        while requests and engine.free_slots > 0:
            engine.submit(requests.pop())
        attempts = engine.poll()
        scorer.score(attempts)
        for attempt in attempts:
            values = np.nan_to_num(attempt.task_G, nan=0.0)
            flops = int(attempt.flops_prefill_G.sum() + attempt.flops_decode_G.sum())
            sums[attempt.request.problem.id] += (
                attempt.n,
                (values >= max_score - 1e-6).sum(),
                values.sum(),
                attempt.lengths_G.sum(),
                flops,
            )
            done += attempt.n
        if attempts and on_progress is not None:
            on_progress(done, total)
    return [
        EvalRow(p, int(n), int(k), float(r / max(n, 1)), float(length / max(n, 1)), int(flops))
        for p, (n, k, r, length, flops) in sums.items()
    ]


def pass_at_k(n_P: IntArray, successes_P: IntArray, k: int) -> FloatArray:
    """Unbiased pass@k per problem: 1 − C(n − c, k)/C(n, k) (arXiv 2107.03374, eq. 1).

    Args:
        n_P: Samples per problem, ≥ k.
        successes_P: Successes among them.
        k: Attempts allowed, ≥ 1.

    Raises:
        ValueError: a problem has fewer than k samples.

    >>> pass_at_k(np.array([4, 4]), np.array([1, 0]), 2).round(3).tolist()
    [0.5, 0.0]
    """
    if (n_P < k).any():
        raise ValueError(f"pass@{k} needs at least {k} samples per problem, got {int(n_P.min())}")
    failures_P = n_P - successes_P
    log_miss_P = (
        gammaln(failures_P + 1) - gammaln(np.maximum(failures_P - k, 0) + 1) - gammaln(n_P + 1) + gammaln(n_P - k + 1)
    )
    result: FloatArray = np.where(failures_P < k, 1.0, 1.0 - np.exp(log_miss_P))
    return result
