"""Names, units and meanings of the metrics in the `steps` table (those of the field, see docs/ledger.md).

A step holds what happened since the step before it, unless the meaning says "so far". Trainers and allocators may add
more; a metric that a run does not have is null.
"""

from __future__ import annotations

from gumption.ledger.schema import Column


def _metrics(text: str) -> tuple[Column, ...]:
    rows = ([part.strip() for part in line.split("|")] for line in text.strip().splitlines())
    return tuple(Column(name, "float64", unit, meaning, nullable=True) for name, unit, meaning in rows)


METRICS: tuple[Column, ...] = _metrics("""
    reward/mean | score | mean task reward of the judged rollouts
    frac_reward_zero_std | fraction | attempts whose rewards are all equal: they teach nothing
    solved_none | fraction | attempts without a success
    solved_all | fraction | attempts with nothing but successes
    completions/mean_length | tokens | mean completion length
    completions/clipped_ratio | fraction | completions cut at `rollouts.max_tokens`
    entropy | nats/token | entropy of the policy on the trained tokens
    loss | | the loss
    grad_norm | | gradient norm before clipping
    learning_rate | | learning rate of the step
    kl | nats/token | k3 estimate of KL(policy ‖ reference), with `training.kl_coef` > 0
    mismatch_kl | nats/token | k3 estimate of the KL between engine and trainer on the trained tokens
    importance_ratio/mean | | mean of π/μ over the trained tokens
    importance_ratio/max | | its maximum
    importance_ratio/ess_frac | fraction | effective sample size of these ratios per token: 1 is on-policy
    clip_ratio/low_mean | fraction | trained tokens clipped at the lower bound
    clip_ratio/high_mean | fraction | trained tokens clipped at the upper bound
    clip_ratio/region_mean | fraction | trained tokens clipped at either bound
    clip_ratio/tis | fraction | trained tokens whose importance weight was truncated or masked
    off_policy/mean | updates | mean age of the trained rollouts
    off_policy/max | updates | age of the oldest one
    leverage/share | fraction | share ℓ in use (only with `selection.share = "auto"`)
    leverage/kept_share | fraction | leverage of the kept rollouts in that of all members
    leverage/kept_rollouts | fraction | kept rollouts of all members
    allocation/attempts_per_group | attempts | mean attempts of the accepted groups
    allocation/attempts | attempts | judged so far
    allocation/accepted | chains | accepted so far
    allocation/retries | attempts | retries so far
    allocation/unjudged | attempts | with too few fresh rewards to judge, so far
    allocation/solved | chains | dropped as solved so far
    allocation/gave_up | chains | given up so far
    allocation/open_chains | chains | being tried now
    allocation/refills | batches | generation batches beyond the first (`dynamic`)
    allocation/remembered | problems | with a success in memory (`until_success`)
    allocation/replays | rollouts | remembered successes trained on once more, so far
    choosers/skipped | problems | passed over by the choosers so far
    choosers/retired | problems | never asked again (`no_positive_resampling`)
    choosers/p_easy | | `greso`'s p for problems solved throughout
    choosers/p_hard | | its p for problems failed throughout
    batch/version | updates | policy version that the batch was trained at
    batch/groups | groups | places in the batch
    batch/rollouts | rollouts | trained on
    batch/tokens | tokens | trained on
    info/reward_entropy | bits/rollout | mean reward entropy of the chains that ended (Miller–Madow), a ceiling
    info/cum_bits | bits | sum of reward entropy over all rollouts of ended chains so far
    info/bits_per_ktok | bits/ktok | cum_bits per thousand generated tokens so far
    info/bits_per_pflop | bits/PFLOP | cum_bits per 10¹⁵ FLOPs so far, discarded rollouts included
    grad_noise/signal_sq | | smoothed ⟨g_A, g_B⟩ of two half-batch gradients: the squared true gradient
    grad_noise/noise_tr | | smoothed ‖g_A − g_B‖²/4: variance of the batch gradient
    grad_noise/b_simple | rollouts | gradient noise scale, N · noise_tr / signal_sq
    grad_noise/snr_db | dB | signal-to-noise ratio of the batch gradient
    time/generation | s | wall time of generation
    time/verify | s | wall time of scoring
    time/train | s | wall time of the update
    time/weight_sync | s | wall time of handing over the weights
""")


def metric(name: str) -> Column | None:
    """Unit and meaning of a metric; `None` if it is not one of ours.

    >>> metric("off_policy/max").unit, metric("mood")
    ('updates', None)
    """
    return next((c for c in METRICS if c.name == name), None)


def markdown() -> str:
    """The metrics as rows of a Markdown table: what `docs/ledger.md` holds."""
    lines = ["| metric | unit | meaning |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| `{c.name}` | {c.unit} | {c.meaning} |" for c in METRICS)])
