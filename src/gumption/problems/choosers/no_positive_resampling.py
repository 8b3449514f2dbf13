"""`no_positive_resampling`: a problem that is solved nearly always is never asked again (ScaleRL, arXiv 2510.13786).

Assumption: what the policy solves now it will go on solving; nothing checks that. (Of the problems solved in one epoch,
81 % still were in the next, as reported in arXiv 2605.26606.) Departure: the history is the success rate over all
rollouts of all visits; the paper does not say over what it is taken.
"""

from __future__ import annotations

from typing import ClassVar, final

from gumption.allocation.pass_rates import PassRates
from gumption.problems.choosers.base import Chooser, within
from gumption.types import Group, Problem, ProblemStream, StateTree


@final
class NoPositiveResampling(Chooser):
    """Retires a problem for good once its success rate has reached `threshold`.

    When every problem is retired, the stream has ended.

    Args:
        inner: Where problems come from.
        threshold: Success rate at which a problem is retired, in (0, 1].
        min_rollouts: …once it was measured on at least so many rollouts, ≥ 1.
        seed: Not used: nothing is drawn.

    Raises:
        ValueError: an option is out of range.

    >>> from gumption.testing import ListStream, problem, scored_group
    >>> stream = NoPositiveResampling(ListStream([problem("p-0"), problem("q-0")]))
    >>> stream.observe(scored_group([1.0] * 9 + [0.0], "p-0"), version=0)
    >>> [stream.next()[0].id for _ in range(2)], stream.metrics()["choosers/retired"]
    (['q-0', 'q-0'], 1.0)
    """

    name: ClassVar[str] = "no_positive_resampling"

    def __init__(self, inner: ProblemStream, *, threshold: float = 0.9, min_rollouts: int = 1, seed: int = 0) -> None:
        super().__init__(inner, seed=seed)
        self.threshold = within("threshold", threshold, 0, 1, above=True)
        self.min_rollouts = within("min_rollouts", min_rollouts, 1, 2**31)
        self._rates = PassRates()
        self._retired: dict[str, None] = {}  # in order of retirement

    def _chance(self, problem: Problem, visit: int) -> float:
        return 0.0 if problem.id in self._retired else 1.0

    def _learn(self, group: Group, version: int) -> None:
        self._rates.see(group)
        problem_id = group.chain_id.problem_id
        n, k = self._rates.counts(problem_id)
        if n >= self.min_rollouts and k >= self.threshold * n - 1e-9:
            self._retired[problem_id] = None

    def metrics(self) -> dict[str, float]:
        """Also `choosers/retired`: problems that are never asked again."""
        return super().metrics() | {"choosers/retired": float(len(self._retired))}

    def _state(self) -> StateTree:
        return {"rates": self._rates.state_dict(), "retired": list(self._retired)}

    def _load(self, state: StateTree) -> None:
        self._rates.load_state_dict(state["rates"])
        self._retired = dict.fromkeys(state["retired"])
