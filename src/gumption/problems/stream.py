"""The order over problems: shuffled or sequential passes, one source or a weighted mixture.

Every pass over a source has its own permutation, a sort by counter-based uniform numbers: the place in the order is the
number of problems drawn from each source, and that is all a checkpoint needs to hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gumption.problems.choosers import choose
from gumption.problems.mixture import check_weights, next_source
from gumption.problems.sets import ProblemSet
from gumption.randomness import key, uniforms
from gumption.types import IntArray, Problem, ProblemStream, StateTree

if TYPE_CHECKING:
    from gumption.config import ProblemsConfig


class Stream:
    """A `ProblemStream`; the visit number of a problem is the number of its source's pass.

    Without weights several sources are one set (so each comes in proportion to its size). With weights they take turns
    in proportion to them; with `epochs`, a source that has had its passes drops out and the others go on.

    Args:
        sections: The problems of each source.
        weights: One per section.
        shuffle: A new order in each pass, else the given one.
        epochs: Passes over each source; `None`: endless.
        seed: The run's seed.

    >>> problems = [Problem(f"{i}-0", "?", None, "exact") for i in range(3)]
    >>> stream = Stream([problems], epochs=2, shuffle=False)
    >>> [(p.id, visit) for p, visit in iter(stream.next, None)]
    [('0-0', 0), ('1-0', 0), ('2-0', 0), ('0-0', 1), ('1-0', 1), ('2-0', 1)]
    """

    def __init__(
        self,
        sections: Sequence[Sequence[Problem]],
        *,
        weights: Sequence[float] | None = None,
        shuffle: bool = True,
        epochs: int | None = None,
        seed: int = 0,
    ) -> None:
        if weights is None:
            sections = [[p for section in sections for p in section]]
        self.weights = check_weights((1.0,) if weights is None else weights, len(sections))
        for i, section in enumerate(sections):
            if not section:
                raise ValueError(f"source {i + 1} of {len(sections)} has no problems to draw from")
        self.sections = [tuple(s) for s in sections]
        self.shuffle = shuffle
        self.epochs = epochs
        self.seed = seed
        self.drawn = [0] * len(self.sections)
        self._orders: list[tuple[int, IntArray] | None] = [None] * len(self.sections)
        self._by_id = {p.id: p for section in self.sections for p in section}
        if len(self._by_id) != sum(map(len, self.sections)):
            raise ValueError("two problems have the same id: combine sources with gumption.problems.combine")

    @property
    def size(self) -> int:
        """Number of problems."""
        return len(self._by_id)

    def next(self) -> tuple[Problem, int] | None:
        """The next problem and its visit number, or `None` when the stream has ended."""
        chosen = self._choose()
        if chosen is None:
            return None
        section = self.sections[chosen]
        visit, position = divmod(self.drawn[chosen], len(section))
        self.drawn[chosen] += 1
        return section[self._order(chosen, visit)[position] if self.shuffle else position], visit

    def _choose(self) -> int | None:
        """The section to draw from, `None` when all have had their passes."""
        epochs = self.epochs
        if len(self.sections) == 1 and epochs is None:
            return 0
        open_ = [epochs is None or n < epochs * len(s) for n, s in zip(self.drawn, self.sections, strict=True)]
        return next_source(self.drawn, self.weights, open_)

    def problem(self, problem_id: str) -> Problem:
        """Look a problem up by id.

        Raises:
            ValueError: there is none.
        """
        try:
            return self._by_id[problem_id]
        except KeyError:
            raise ValueError(
                f"no problem has the id {problem_id!r}: the problems are not those of the saved run"
            ) from None

    def state_dict(self) -> StateTree:
        """How many problems were drawn from each source, and a fingerprint of the problems."""
        return {"drawn": list(self.drawn), "fingerprint": self._fingerprint()}

    def load_state_dict(self, state: StateTree) -> None:
        """Return to a saved position.

        Raises:
            ValueError: the problems are not those that the state was saved with.
        """
        if state["fingerprint"] != self._fingerprint():
            raise ValueError(
                "the problems changed since the checkpoint (source, size, seed, template or a file's content): "
                "restore them, or start a new run"
            )
        self.drawn = [int(n) for n in state["drawn"]]

    def _order(self, section: int, visit: int) -> IntArray:
        cached = self._orders[section]
        if cached is None or cached[0] != visit:
            keys_P = np.full(len(self.sections[section]), key(self.seed, "problems/shuffle", section, visit), np.uint64)
            order_P = np.argsort(uniforms(keys_P, np.arange(len(keys_P))), kind="stable")
            cached = self._orders[section] = (visit, order_P)
        return cached[1]

    def _fingerprint(self) -> str:
        text = "\n".join("\x1f".join(p.id for p in section) for section in self.sections)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def make_stream(problems: ProblemSet | Sequence[Problem], config: ProblemsConfig, seed: int) -> ProblemStream:
    """The stream that a configuration asks for, with its choosers around it.

    Args:
        problems: What `load_problems` returned, or any problems with distinct ids.
        config: `order`, `epochs`, `weights`, `choosers`, `chooser_options`.
        seed: The run's seed.

    Raises:
        ValueError: no problems, weights that do not fit, or a chooser's option is unknown or out of range.
    """
    sections = problems.sections if isinstance(problems, ProblemSet) else [tuple(problems)]
    shuffle = config.order == "shuffle"
    stream = Stream(sections, weights=config.weights, shuffle=shuffle, epochs=config.epochs, seed=seed)
    return choose(stream, config.choosers, config.chooser_options, seed=seed)
