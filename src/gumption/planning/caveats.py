"""Where a configuration breaks the identity E[g] = w(p)·∇p, in sentences.

The identity needs 0/1 rewards, a rule that looks only at them, rollouts of the current policy, and a loss that is
linear in the scores. What of this a run will really have is partly up to its problems; said here is what the recipe
tells.
"""

from __future__ import annotations

from typing import Final

from gumption.config import RunConfig

LENGTH_RULES: Final = ("cost_aware",)
MEMORY_RULES: Final = ("until_success",)
MEMORY_ADVANTAGES: Final = ("tracked",)


def caveats(config: RunConfig) -> list[str]:
    """What in this recipe makes w(p) an approximation, most important first.

    Args:
        config: A run.

    >>> lines = caveats(RunConfig())
    >>> [line.split(":")[0] for line in lines]
    ['training.max_staleness = 4', 'training.denominator = "tokens"']
    """
    return [line for line in (*_rewards(config), *_rule(config), *_training(config)) if line]


def _rewards(config: RunConfig) -> list[str]:
    r = config.rewards
    lines = []
    if r.overlong_buffer > 0:
        lines.append(
            f"rewards.overlong_buffer = {r.overlong_buffer}: rewards are shaped by length, so they are graded and "
            "depend on more than success; the direction is biased too"
        )
    if r.options.get("mode") == "per_test" and r.binarize_at is None:
        lines.append(
            'rewards.options.mode = "per_test": rewards are graded, and selecting by value biases the direction; '
            "w(p) holds for 0/1 rewards (rewards.binarize_at)"
        )
    if r.truncated == "mask":
        lines.append('rewards.truncated = "mask": what is counted depends on length')
    return lines


def _rule(config: RunConfig) -> list[str]:
    a, s = config.allocation, config.selection
    lines = []
    if str(s.rule) in LENGTH_RULES:
        lines.append(f"selection.rule = {s.rule!r}: what is kept depends on length; the curve is for equal lengths")
    if str(a.rule) in MEMORY_RULES:
        lines.append(f"allocation.rule = {a.rule!r}: adds rollouts of earlier visits; the curve is for a first visit")
    if config.advantage in MEMORY_ADVANTAGES:
        lines.append(
            f"credit.advantage = {config.advantage!r}: the baseline remembers earlier visits; the curve is for a first "
            "one"
        )
    if str(s.share) == "auto":
        lines.append('selection.share = "auto": moves during the run, and w with it; the curve is for ½')
    if s.count == "kept" and s.rule != "all":
        lines.append(
            'selection.count = "kept": the denominator moves with what is kept; one scalar per batch, so it scales '
            "steps and not problems"
        )
    return lines


def _training(config: RunConfig) -> list[str]:
    t = config.training
    lines = []
    steps = t.passes * t.minibatches
    if steps > 1:
        clipped = "" if t.loss == "reinforce" else f", and {t.loss} clips ratios"
        lines.append(
            f"training.passes × minibatches = {steps}: all steps but the first are off-policy{clipped}; the identity "
            "holds for the first"
        )
    stale = []
    if t.max_staleness > 0:
        stale.append(f"training.max_staleness = {t.max_staleness}")
    if config.rollouts.weight_lag > 0:
        stale.append(f"rollouts.weight_lag = {config.rollouts.weight_lag}")
    if stale:
        how = "not corrected" if t.correction == "none" else f"corrected by {t.correction!r}, which truncates or masks"
        lines.append(
            f"{', '.join(stale)}: rollouts may come from older policies ({how}), and those that get too old leave "
            "their groups; the curve is for fresh ones"
        )
    if t.denominator == "tokens":
        lines.append(
            'training.denominator = "tokens": each batch is divided by its own tokens, so long completions make small '
            'steps; "sequences" and "constant" do not look at length'
        )
    if t.kl_coef > 0:
        lines.append(f"training.kl_coef = {t.kl_coef:g}: a KL term is added to the objective")
    return lines
