"""Counters of an allocator, under the names that the ledger uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from gumption.allocation.chain import TOLERANCE
from gumption.types import Fate, StateTree, VerdictKind


@dataclass(slots=True)
class _Window:
    """What was told at one policy version: since the last update."""

    version: int = -1
    attempts: int = 0
    judged: int = 0
    zero_std: int = 0
    none: int = 0
    all: int = 0
    accepted: int = 0
    accepted_attempts: int = 0


@dataclass(slots=True)
class Tally:
    """Verdicts so far (whole run), and what happened since the last update (`window`).

    >>> tally = Tally()
    >>> tally.at(3); tally.judged(0.0, 0.0, 1.0); tally.verdict("retry", "gave_up", 1)
    >>> tally.judged(0.0, 1.0, 1.0); tally.verdict("accept", "gave_up", 2)
    >>> tally.metrics()["frac_reward_zero_std"], tally.metrics()["allocation/attempts_per_group"]
    (0.5, 2.0)
    """

    attempts: int = 0
    accepted: int = 0
    retries: int = 0
    unjudged: int = 0
    solved: int = 0
    gave_up: int = 0
    window: _Window = field(default_factory=_Window)

    def at(self, version: int) -> None:
        """The next verdict comes at this trainer version; another version begins a new window."""
        self.attempts += 1
        self.unjudged += 1
        if version != self.window.version:
            self.window = _Window(version)
        self.window.attempts += 1

    def judged(self, low: float, high: float, top: float) -> None:
        """An attempt with scores from `low` to `high` was judged; `top` and above is a success."""
        self.unjudged -= 1
        w = self.window
        w.judged += 1
        if high - low <= TOLERANCE:
            w.zero_std += 1
        if high < top:
            w.none += 1
        elif low >= top:
            w.all += 1

    def verdict(self, kind: VerdictKind, fate: Fate, attempts: int) -> None:
        """A verdict was given after so many attempts of its chain; `fate` is that of the members of an ended one."""
        if kind == "accept":
            self.accepted += 1
            self.window.accepted += 1
            self.window.accepted_attempts += attempts
        elif kind == "retry":
            self.retries += 1
        elif fate == "solved":
            self.solved += 1
        else:
            self.gave_up += 1

    def metrics(self) -> dict[str, float]:
        """Totals since the start of the run, then shares and means since the last update.

        Totals: `allocation/attempts`, `accepted`, `retries`, `unjudged` (attempts with too few fresh rewards), `solved`
        and `gave_up` (chains that ended untrained). Since the last update, where there is anything:
        `allocation/attempts_per_group` (mean over accepted groups), and over judged attempts the shares
        `frac_reward_zero_std` (equal rewards), `solved_none` (no success), `solved_all` (nothing but successes).
        """
        w = self.window
        result = {
            "allocation/attempts": float(self.attempts),
            "allocation/accepted": float(self.accepted),
            "allocation/retries": float(self.retries),
            "allocation/unjudged": float(self.unjudged),
            "allocation/solved": float(self.solved),
            "allocation/gave_up": float(self.gave_up),
        }
        if w.accepted:
            result["allocation/attempts_per_group"] = w.accepted_attempts / w.accepted
        if w.judged:
            result["frac_reward_zero_std"] = w.zero_std / w.judged
            result["solved_none"] = w.none / w.judged
            result["solved_all"] = w.all / w.judged
        return result

    def state_dict(self) -> StateTree:
        """All counters."""
        return asdict(self)

    def load_state_dict(self, state: StateTree) -> None:
        """Return to saved counters."""
        for name, value in state.items():
            setattr(self, name, _Window(**value) if name == "window" else value)
