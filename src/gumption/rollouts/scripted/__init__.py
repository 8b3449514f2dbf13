"""An engine and a trainer without a model, and without torch: the pipeline cannot tell them from the real ones.

Tests and the planner run the code that training runs. One step of the virtual clock is one token of every active
rollout. Every draw is keyed by (seed, stage, chain, attempt, member): what a rollout is does not depend on what else is
in flight, and a resumed run makes the same rollouts.
"""

from __future__ import annotations

from collections.abc import Callable

from gumption.config import RunConfig
from gumption.rollouts.scripted.engine import ScriptedEngine
from gumption.rollouts.scripted.policy import ScriptedOptions, ScriptedTrainer, pass_rate

__all__ = ["ScriptedEngine", "ScriptedOptions", "ScriptedTrainer", "make_scripted", "pass_rate"]


def make_scripted(
    config: RunConfig, seed: int, *, allow: Callable[[int, int], bool] | None = None
) -> tuple[ScriptedEngine, ScriptedTrainer]:
    """Engine and trainer of a scripted run.

    Args:
        config: `rollouts` with its options, and `training`.
        seed: Run seed.
        allow: See `ScriptedEngine`.

    Raises:
        ValueError: an option is unknown or wrong.

    >>> engine, trainer = make_scripted(RunConfig(), seed=0)
    >>> engine.free_slots, trainer.version
    (128, 0)
    """
    return ScriptedEngine(config, seed=seed, allow=allow), ScriptedTrainer(config)
