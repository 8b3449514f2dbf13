"""`mopps`: of some candidates, the one whose pass rate is believed to be nearest 1/2 (arXiv 2507.04632).

Each problem has a Beta belief; Thompson sampling from it tries problems that may have become learnable. Assumption: the
gradient is largest at a pass rate of 1/2. Rule of the belief as in the authors' code (thu-rllab/MoPPS): at each visit
α ← λα + (1 − λ)α0 + successes, β likewise with failures.

Departures: the authors draw a large candidate batch for each step and take the best of it; here each problem asked is
the best of `candidates`, so that the choice uses what was learned until then; their ratio of candidates to taken ones
was not found, 4 is ours. The candidates that are not taken are passed over until the next pass.
"""

from __future__ import annotations

from typing import ClassVar, final

from gumption import randomness
from gumption.allocation.pass_rates import PassRates
from gumption.problems.choosers.base import Chooser, within
from gumption.types import Group, Problem, ProblemStream, StateTree


@final
class Mopps(Chooser):
    """Thompson sampling towards a target pass rate.

    A stream with an end ends when it is drawn up; its last candidates may be fewer. Each pass asks one problem in
    `candidates`.

    Args:
        inner: Where problems come from.
        target: Pass rate that is looked for, in [0, 1].
        candidates: Problems to choose one from, ≥ 1.
        alpha: Prior successes α0, > 0.
        beta: Prior failures β0, > 0.
        decay: λ: how much of the past counts at each visit, in [0, 1]; 1 forgets nothing.
        seed: Run seed.

    Raises:
        ValueError: an option is out of range.

    >>> from gumption.testing import ListStream, problem, scored_group
    >>> stream = Mopps(ListStream([problem("easy"), problem("even")]), candidates=2)
    >>> stream.observe(scored_group([1.0] * 64, "easy"), version=0)
    >>> stream.observe(scored_group([1.0, 0.0] * 32, "even"), version=0)
    >>> [stream.next()[0].id for _ in range(3)]
    ['even', 'even', 'even']
    """

    name: ClassVar[str] = "mopps"

    def __init__(
        self,
        inner: ProblemStream,
        *,
        target: float = 0.5,
        candidates: int = 4,
        alpha: float = 1.0,
        beta: float = 1.0,
        decay: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(inner, seed=seed)
        self.target = within("target", target, 0, 1)
        self.candidates = int(within("candidates", candidates, 1, 2**31))
        self.alpha = within("alpha", alpha, 0, 2.0**31, above=True)
        self.beta = within("beta", beta, 0, 2.0**31, above=True)
        self._rates = PassRates(within("decay", decay, 0, 1))

    def next(self) -> tuple[Problem, int] | None:
        """The best of the next candidates, with its visit; `None` when the stream has ended."""
        drawn = [d for _ in range(self.candidates) if (d := self.inner.next()) is not None]
        if not drawn:
            return None
        self.skipped += len(drawn) - 1
        return min(drawn, key=lambda d: abs(self._believed(*d) - self.target))

    def _chance(self, problem: Problem, visit: int) -> float:
        return 1.0  # nobody asks: candidates are compared with each other

    def _believed(self, problem: Problem, visit: int) -> float:
        """One pass rate drawn from the belief about a problem."""
        n, k = self._rates.counts(problem.id)
        luck = randomness.generator(self.seed, self.name, problem.id, visit)
        return float(luck.beta(self.alpha + k, self.beta + n - k))

    def _learn(self, group: Group, version: int) -> None:
        self._rates.see(group)

    def _state(self) -> StateTree:
        return self._rates.state_dict()

    def _load(self, state: StateTree) -> None:
        self._rates.load_state_dict(state)
