"""`RunConfig`: one tree of frozen pydantic models that describes a run. TOML in, TOML out; unknown keys are errors.

The tables are the folders of the package. The class defaults are the vetted setting, so a useful recipe is short.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator, model_validator


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LoraConfig(_Table):
    """Low-rank adapters (needs `peft`)."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class ModelConfig(_Table):
    """Which policy, and how it is loaded."""

    path: str = "tiny/skill_chain"
    """A shipped model (`tiny/…`), a Hugging Face folder, or a hub id."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    device: str = "auto"
    """`auto` (CUDA when there is one, else CPU), `cpu`, `cuda`, `cuda:1`."""
    lora: LoraConfig | None = None
    """Train adapters instead of all weights."""
    gradient_checkpointing: bool = False
    """Trade time for memory in the trainer's forward pass."""
    chat_template: str | None = None
    """Jinja template that replaces the tokenizer's own (text, or a path to a file)."""
    system_prompt: str | None = None
    """Put before chat prompts as a system message."""
    trust_remote_code: bool = False
    """Let a hub model run its own code. Off unless you ask for it."""


class ProblemsConfig(_Table):
    """Where questions come from, and in which order."""

    source: str | tuple[str, ...] = "skill_chain"
    """A shipped set (`skill_chain`, `manufactoria`), a file (`jsonl`, `json`, `parquet`, optionally `.gz`), `gym:NAME`,
    `manufactoria:FAMILY`, `datasets:NAME`, `module:function`; several are mixed."""
    weights: tuple[float, ...] | None = None
    """Mixture weights, one per source; default: proportional to size."""
    size: int | None = Field(None, ge=1)
    """How many problems to generate (generators) or to keep (files); default: all of a file, 512 of a generator."""
    held_out: str | None = None
    """A second source, only evaluated; default: the shipped held-out set where there is one."""
    held_out_size: int | None = Field(None, ge=1)
    """How many held-out problems; for generators without a `held_out` source, drawn with another seed."""
    order: Literal["shuffle", "sequential"] = "shuffle"
    choosers: tuple[Literal["no_positive_resampling", "greso", "mopps", "difficulty_pools"], ...] = ()
    """Pass problems over before anything is generated; each looks at what the one before it lets through."""
    chooser_options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Keyword arguments of the choosers, by name, like `{ mopps = { target = 0.5 } }`."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the problems; default: endless."""
    prompt_field: str | None = None
    """Column of the question; default: `prompt`, `question` or `problem`, whichever is there."""
    answer_field: str | None = None
    """Column of the ground truth; default: `answer`, `solution` or `ground_truth`."""
    template: str | None = None
    """Text around the question, with `{prompt}` in it. Default: the source's own."""
    chat: bool = False
    """Turn plain prompts into one user message."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of a generator (`gym:`, `manufactoria:`)."""
    strict: bool = False
    """Make a malformed line fatal instead of counting and skipping it."""


class RewardsConfig(_Table):
    """How completions are checked."""

    verifier: str = "auto"
    """`auto` (the one each problem names), `math`, `exact`, `gym`, `manufactoria`, `skill_chain` or `module:function`
    with TRL's signature (prompts, completions, **columns → list of float or None)."""
    time_limit: float = Field(10.0, gt=0)
    """Seconds for one completion."""
    memory_limit_mb: int = Field(4096, ge=64)
    """Address space of a verifier worker process."""
    workers: int = Field(0, ge=0)
    """Verifier processes; 0: in-process where the verifier is trusted and cheap, else one per core (at most 8)."""
    max_score: float = 1.0
    """Reward at which a problem counts as solved."""
    binarize_at: float | None = None
    """Turn graded rewards into 0/1 at this threshold."""
    filter_on: Literal["task", "total"] = "task"
    """Which reward the allocators look at: the task's own (before length shaping) or the total."""
    truncated: Literal["fail", "mask"] = "fail"
    """A completion cut at `max_tokens`: an ordinary failure, or left out of counts and training."""
    overlong_buffer: int = Field(0, ge=0)
    """Tokens before `max_tokens` over which a linear penalty grows (DAPO, arXiv 2503.14476); 0: none."""
    overlong_penalty: float = Field(1.0, ge=0)
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the verifier (for manufactoria: `mode = "all_pass" | "per_test"`)."""


class AllocationConfig(_Table):
    """How many rollouts each problem gets, and when to stop. Each rule reads the keys under its name."""

    rule: Literal[
        "fixed", "dynamic", "never_give_up", "reinforce_ada", "pilot_commit", "screen", "until_success", "estimate"
    ] = "never_give_up"
    group_size: int = Field(8, ge=1)
    """`fixed`, `dynamic`, `never_give_up`: rollouts per attempt (K of the NGU paper)."""
    max_age: int = Field(4, ge=-1)
    """Buffered rollouts of earlier attempts that are older than this many updates are not trained on; −1 keeps all."""
    # fixed, dynamic, estimate
    drop_zero_variance: bool = True
    """`fixed`, `estimate`: groups of equal rewards are not trained on (they keep their place in the batch)."""
    max_refills: int = Field(10, ge=0)
    """`dynamic`: generation batches beyond the first for one update; at the bound, train on what there is."""
    # never_give_up
    retry_probability: float = Field(0.875, gt=0, le=1)
    """Chance that an unsolved problem is tried again."""
    accept_on: Literal["better", "different"] = "better"
    """A later attempt is accepted when it beats the chain's best reward, or when anything differs."""
    rescale: Literal["anchor_pos", "ratio", "count_ratio", "none"] = "anchor_pos"
    """How advantages are rebalanced when stale failures count in the baseline but are not trained on."""
    max_attempts: int | None = Field(16, ge=1)
    """Attempts per visit; `"none"` for no cap (the published rule: unsolvable problems then eat most rollouts)."""
    # reinforce_ada, until_success
    round_size: int = Field(8, ge=1)
    """Rollouts per round."""
    max_rounds: int = Field(4, ge=1)
    """Rounds at most."""
    exit: Literal["positive", "balanced"] = "balanced"
    """`reinforce_ada`: stop at one success, or at keep/2 successes and keep/2 failures."""
    keep: int = Field(4, ge=2, multiple_of=2)
    """`reinforce_ada`: rollouts of a group that are trained on, half of each class where possible."""
    memory_age: int = Field(-1, ge=-1)
    """`until_success`: a remembered success older than this many updates is not used; −1: any age."""
    # pilot_commit
    pilot_size: int = Field(16, ge=2)
    """Rollouts of the pilot."""
    commit_size: int = Field(48, ge=1)
    """Rollouts after a pilot inside the band."""
    pilot_low: float = Field(0.125, ge=0, le=1)
    """Lower end of the band of pilot success rates."""
    pilot_high: float = Field(0.75, ge=0, le=1)
    """Upper end."""
    # screen
    screen_size: int = Field(4, ge=2)
    """Rollouts of the screening."""
    continue_size: int = Field(12, ge=1)
    """Rollouts after a screening whose rewards differ."""
    # estimate
    profile: str | None = None
    """Pass-rate profile (`gumption eval --out`) that sets the rollouts of each problem."""
    unknown_size: int = Field(8, ge=1)
    """Rollouts of a problem that the profile does not name."""

    @field_validator("max_attempts", mode="before")
    @classmethod
    def _none_word(cls, value: Any) -> Any:
        return None if value == "none" else value

    @field_serializer("max_attempts")
    def _none_as_word(self, value: int | None) -> int | str:
        return "none" if value is None else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pilot_low > self.pilot_high:
            raise ValueError(f"pilot_low = {self.pilot_low} is above pilot_high = {self.pilot_high}")
        if self.rule == "reinforce_ada" and self.keep > self.round_size * self.max_rounds:
            raise ValueError(
                f"keep = {self.keep} is more than {self.max_rounds} rounds of {self.round_size} can bring: "
                "lower it, or raise round_size or max_rounds"
            )
        if self.rule == "estimate" and self.profile is None:
            raise ValueError('rule = "estimate" needs profile: a file that `gumption eval --out` has written')
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rollouts of the requests of one visit in order, if it is as long as it can be (without a cap: of the first).

        Of `estimate`, which asks once, the sizes that there are.

        >>> AllocationConfig(rule="screen").sizes, AllocationConfig(rule="fixed").sizes
        ((4, 12), (8,))
        """
        if self.rule in ("reinforce_ada", "until_success"):
            return (self.round_size,) * self.max_rounds
        if self.rule == "pilot_commit":
            return (self.pilot_size, self.commit_size)
        if self.rule == "screen":
            return (self.screen_size, self.continue_size)
        if self.rule == "estimate":
            return tuple(sorted({4, 8, 16, 32, self.unknown_size}))
        if self.rule == "never_give_up":
            return (self.group_size,) * (self.max_attempts or 1)
        return (self.group_size,)


class CreditConfig(_Table):
    """What a rollout is worth."""

    objective: Literal["as_published", "expected_reward", "max_rl", "log_likelihood"] = "as_published"
    """What is optimised. `as_published`: whatever the rules imply (`gumption explain` says what). The others rebuild
    the coefficients so that this objective's gradient is estimated without bias (docs/objectives.md); they need 0/1
    rewards and chains of bounded length. `log_likelihood` is `max_rl` with the largest truncation that there is."""
    truncation: int | None = Field(None, ge=1)
    """T of `max_rl`: the likelihood objective truncated at order T; default: the most rollouts a chain can have."""
    advantage: Literal["auto", "centered", "rloo", "grpo", "dr_grpo", "max_rl", "batch_std", "chain", "tracked"] = (
        "auto"
    )
    """`auto`: `chain` with `never_give_up` and `reinforce_ada`, else `grpo`."""
    chain_max_rl: bool = False
    """`chain` divided by the accepted attempt's success rate (MaxRL, arXiv 2602.02710)."""
    tracker_decay: float = Field(0.875, gt=0, lt=1)
    """`tracked`: what a problem's earlier rewards still count for after each visit (SPO moves it in .875 … .96)."""
    tracker_count: float = Field(8.0, gt=0)
    """`tracked`: rollouts that the first guess of a problem's reward counts for."""


class SelectionConfig(_Table):
    """Which rollouts are trained on."""

    rule: Literal["all", "leverage", "pods", "cppo", "cost_aware", "top"] = "leverage"
    count: Literal["generated", "kept"] = "generated"
    """What the loss denominator counts: the full groups, or what was kept."""
    # leverage
    share: float | Literal["auto"] = 0.5
    """Share ℓ of a group's leverage that is kept; `auto` moves it until training takes as long as generation."""
    share_low: float = Field(0.2, gt=0, le=1)
    """Lower bound of `auto`."""
    share_high: float = Field(1.0, gt=0, le=1)
    """Upper bound of `auto`."""
    # pods, cost_aware, top
    keep: int = Field(16, ge=1)
    """Rollouts of a group that are kept (`cost_aware`: on average)."""
    recompute: bool = True
    """`pods`: compute advantages again on what is kept, as published."""
    scope: Literal["group", "batch"] = "group"
    """`cost_aware`: keep so many of each group, or so many per group over the batch."""
    # cppo
    rate: float = Field(0.5, ge=0, lt=1)
    """Share of the batch that is dropped."""

    @field_validator("share")
    @classmethod
    def _in_range(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value <= 1:
            raise ValueError(f"share = {value!r} must be in (0, 1], or 'auto'")
        return value

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.share_low > self.share_high:
            raise ValueError(f"share_low = {self.share_low} is above share_high = {self.share_high}")
        return self


class RolloutsConfig(_Table):
    """How completions are generated."""

    engine: Literal["torch", "scripted"] = "torch"
    in_flight: int = Field(128, ge=1)
    """Rollouts generated at the same time."""
    max_tokens: int = Field(32, ge=1)
    """Completion tokens at most."""
    max_prompt_tokens: int = Field(4096, ge=1)
    """Longer prompts are skipped and counted."""
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    """0: off."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion (kept in it), beside the end-of-sequence token."""
    weight_lag: int = Field(0, ge=0)
    """Updates by which the engine's weights lag behind the trainer's, to study staleness anywhere."""
    decode_steps: int = Field(8, ge=1)
    """Decode steps per poll: how finely generation and updates interleave."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the engine (`scripted`: pass_rate, mean_length, …)."""


class TrainingConfig(_Table):
    """How the policy is updated."""

    loss: Literal["reinforce", "ppo_clip", "cispo", "gspo", "decoupled_ppo"] = "reinforce"
    correction: Literal["none", "tis", "mis", "icepop"] = "tis"
    """Importance weight towards the policy that sampled, per token: truncated at a cap (`tis`), or tokens masked above
    the cap (`mis`) or outside a band (`icepop`)."""
    tis_cap: float = Field(2.0, gt=0)
    """Largest weight of `tis` and `mis`."""
    icepop_low: float = Field(0.5, ge=0)
    icepop_high: float = Field(5.0, gt=0)
    """The band of `icepop`."""
    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.28, ge=0)
    """Bounds of the ratio in `ppo_clip` and `decoupled_ppo`."""
    gspo_low: float = Field(3e-4, ge=0)
    gspo_high: float = Field(4e-4, ge=0)
    """Bounds of the sequence ratio in `gspo`, far narrower since it is a geometric mean over tokens."""
    cispo_high: float = Field(5.0, gt=0)
    """CISPO's upper bound on the ratio (1 + ε_high)."""
    denominator: Literal["tokens", "sequences", "constant"] = "tokens"
    """One scalar per batch."""
    constant: float | None = Field(None, gt=0)
    """With `denominator = "constant"`: tokens per sequence in the divisor; default `rollouts.max_tokens`."""
    groups_per_update: int = Field(4, ge=1)
    minibatches: int = Field(1, ge=1)
    passes: int = Field(1, ge=1)
    """With 1 × 1 the ratio to π_old is 1 and every clip is inert."""
    learning_rate: float = Field(1e-4, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Decay over `decay_updates`."""
    warmup_updates: int = Field(0, ge=0)
    decay_updates: int | None = Field(None, ge=1)
    """Default: `budget.updates`."""
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = Field(1.0, gt=0)
    tokens_per_microbatch: int = Field(16384, ge=1)
    """Padded tokens in one forward pass."""
    logits_chunk_tokens: int = Field(2048, ge=1)
    """Completion tokens whose logits are held at once."""
    max_staleness: int = Field(4, ge=0)
    """Rollouts older than this many updates are not trained on; 0 drains the engine before each update."""
    queue_batches: int | None = Field(None, ge=1)
    """Batches that may wait for a busy trainer; beyond, the oldest group is dropped. Default: any number."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the k3 estimate of KL(π ‖ reference); 0: no reference model."""
    grad_noise: bool = True
    """Measure the gradient noise scale from two half-batch gradients."""
    checkpoint_every: int = Field(100, ge=1)
    """Updates between checkpoints; one is also written at the end and on a signal."""
    checkpoint_seconds: float = Field(60.0, gt=0)
    """…and at least this often, but never so often that saving takes more than 5 % of the time."""
    keep_checkpoints: int = Field(2, ge=1)
    threads: int | None = Field(None, ge=1)
    """Torch threads; default: the cores this process may use."""

    @model_validator(mode="after")
    def _band(self) -> Self:
        if self.icepop_low > self.icepop_high:
            raise ValueError(f"icepop_low = {self.icepop_low} is above icepop_high = {self.icepop_high}")
        return self


_WALL = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


class BudgetConfig(_Table):
    """What the run may spend; the first limit reached ends it. Evaluation is outside."""

    flops: float | None = Field(None, gt=0)
    updates: int | None = Field(None, ge=1)
    rollouts: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    """Generated tokens."""
    wall: float | None = Field(None, gt=0)
    """Seconds; "90s", "5m" and "1h30m" are read too."""

    @property
    def limited(self) -> bool:
        """Some limit is set."""
        return any(v is not None for v in (self.flops, self.updates, self.rollouts, self.tokens, self.wall))

    @field_validator("wall", mode="before")
    @classmethod
    def _wall(cls, value: Any) -> Any:
        if isinstance(value, str):
            match = _WALL.fullmatch(value.strip())
            if not match or not any(match.groups()):
                raise ValueError(f"wall time {value!r}: write it like 90s, 5m or 1h30m")
            hours, minutes, seconds = (float(g or 0) for g in match.groups())
            return 3600 * hours + 60 * minutes + seconds
        return value


class EvalConfig(_Table):
    """Pass rates before, during and after."""

    samples: int = Field(64, ge=0)
    """Completions per problem at the start and at the end; 0: no evaluation."""
    every: int | None = Field(None, ge=1)
    """Also every so many updates, with `samples_during`."""
    samples_during: int = Field(16, ge=1)
    problems: int | None = Field(None, ge=1)
    """At most so many problems of each set (the first ones)."""
    in_flight: int = Field(512, ge=1)
    """Rollouts at a time during evaluation."""
    max_k: int = Field(64, ge=1)
    """Largest k of the pass@k table."""


class LedgerConfig(_Table):
    """What is written down."""

    text: Literal["none", "sample", "all"] = "sample"
    """Completion texts: none, about one rollout in 16, or all."""
    flush_rows: int = Field(20_000, ge=1)
    """Rows held in memory before a segment is written."""
    track: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Also log the step metrics there."""
    project: str = "gumption"
    """Project name for W&B and trackio."""


GROUP_BASELINES: tuple[str, ...] = ("centered", "rloo", "grpo", "dr_grpo", "max_rl")
"""Advantages that need nothing but the rewards of one group."""


CHAINED: tuple[str, ...] = ("never_give_up", "reinforce_ada", "pilot_commit", "screen")
"""Rules for which the mean over all attempts of a visit is a baseline of what is trained on."""


class SimulationConfig(_Table):
    """What `gumption simulate` assumes of problems, policy and machine. `gumption train` does not look at it.

    Keys that are left out are those of `rollouts.options` where the engine is `scripted`, else the scripted engine's
    defaults.
    """

    problems: str | None = None
    """`mixture`, `beta(a, b)`, pass rates ("0.01, 0.5"), or a pass-rate profile (parquet, jsonl, run folder)."""
    size: int | None = Field(None, ge=1)
    """How many problems; default: all of a profile, `problems.size` or 512 of a distribution."""
    mean_length: float | None = Field(None, gt=0)
    """Mean completion tokens, before the cut at `rollouts.max_tokens`."""
    length_cv: float | None = Field(None, ge=0)
    """Coefficient of variation of lengths (lognormal)."""
    lengths: str | None = None
    """Run folder whose completion lengths are used (`mean_length` rescales them)."""
    prompt_tokens: int | None = Field(None, ge=1)
    tokens_per_second: float | None = Field(None, gt=0)
    """Of one of the `rollouts.in_flight` slots."""
    trainer_tokens_per_second: float | None = Field(None, gt=0)
    """Tokens, prompts included, that the trainer takes; default: an update takes no time."""
    trainer_flops_per_second: float | None = Field(None, gt=0)
    """The same in FLOPs; with both, an update takes the longer time."""
    weight_sync_seconds: float = Field(0.0, ge=0)
    """After each update, until the engine has its weights; the trainer waits, generation goes on."""
    learning_rate: float | None = Field(None, ge=0)
    """Logits by which a pass rate moves per unit of signal; 0: it never moves."""
    matmul_params: int | None = Field(None, ge=0)
    """Parameters in matrix multiplications (N of the FLOP formula)."""
    layers: int | None = Field(None, ge=0)
    heads: int | None = Field(None, ge=0)
    head_dim: int | None = Field(None, ge=0)


class RunConfig(_Table):
    """A whole run.

    >>> RunConfig().allocation.rule, RunConfig.from_dict({"budget": {"wall": "5m"}}).budget.wall
    ('never_give_up', 300.0)
    """

    seed: int = Field(0, ge=0)
    model: ModelConfig = ModelConfig()
    problems: ProblemsConfig = ProblemsConfig()
    rewards: RewardsConfig = RewardsConfig()
    allocation: AllocationConfig = AllocationConfig()
    credit: CreditConfig = CreditConfig()
    selection: SelectionConfig = SelectionConfig()
    rollouts: RolloutsConfig = RolloutsConfig()
    training: TrainingConfig = TrainingConfig()
    budget: BudgetConfig = BudgetConfig()
    eval: EvalConfig = EvalConfig()
    ledger: LedgerConfig = LedgerConfig()
    simulation: SimulationConfig = SimulationConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.credit.advantage == "chain" and self.allocation.rule not in CHAINED:
            raise ValueError(
                f"credit.advantage = 'chain' needs an allocation.rule with several attempts whose counts it can use "
                f"({', '.join(CHAINED)}), not {self.allocation.rule!r}"
            )
        if self.credit.chain_max_rl and self.advantage != "chain":
            raise ValueError("credit.chain_max_rl = true needs the chain advantage")
        if self.selection.rule == "pods" and self.selection.recompute and self.advantage not in GROUP_BASELINES:
            raise ValueError(
                f"selection.rule = 'pods' cannot compute the {self.advantage!r} advantage again on what it keeps: set "
                f"selection.recompute = false, or credit.advantage to one of {', '.join(GROUP_BASELINES)}"
            )
        if self.credit.truncation is not None and self.credit.objective != "max_rl":
            raise ValueError(f"credit.truncation = {self.credit.truncation} needs credit.objective = 'max_rl'")
        self._exact_objective_possible()
        if self.training.schedule != "constant" and not (self.training.decay_updates or self.budget.updates):
            raise ValueError(
                f"training.schedule = {self.training.schedule!r} needs training.decay_updates or budget.updates"
            )
        unused = [name for name in self.problems.chooser_options if name not in self.problems.choosers]
        if unused:
            raise ValueError(
                f"problems.chooser_options names {unused[0]!r}, which is not in problems.choosers = "
                f"{list(self.problems.choosers)}"
            )
        sources = self.problems.source
        if self.problems.weights is not None and (
            isinstance(sources, str) or len(sources) != len(self.problems.weights)
        ):
            raise ValueError("problems.weights needs a list of sources of the same length")
        return self

    def _exact_objective_possible(self) -> None:
        """What can be told without enumerating the rule; the rest is told when it is solved."""
        name = self.credit.objective
        if name == "as_published":
            return
        if self.credit.advantage != "auto" or self.credit.chain_max_rl:
            raise ValueError(
                f"credit.objective = {name!r} makes its own advantages: leave out credit.advantage and "
                "credit.chain_max_rl"
            )
        if self.allocation.rule == "never_give_up" and self.allocation.max_attempts is None:
            raise ValueError(f"credit.objective = {name!r} needs a cap: set allocation.max_attempts")
        if self.rewards.overlong_buffer > 0:
            raise ValueError(
                f"credit.objective = {name!r} needs 0/1 rewards: rewards.overlong_buffer = "
                f"{self.rewards.overlong_buffer} shapes them, set it to 0"
            )

    @property
    def advantage(self) -> str:
        """The advantage after `auto` is resolved."""
        if self.credit.advantage != "auto":
            return self.credit.advantage
        return "chain" if self.allocation.rule in ("never_give_up", "reinforce_ada") else "grpo"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunConfig:
        """Validate a nested mapping. Raises `ValueError` with one line per mistake."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(_explain(error)) from None

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
        """Read a recipe, then apply `a.b=c` overrides.

        Raises:
            ValueError: the file is missing, is not TOML, or has wrong keys or values.
        """
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"no recipe at {path}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
            raise ValueError(f"{path} is not a TOML file: {error}") from None
        try:
            return cls.from_dict(apply_overrides(data, overrides))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def to_toml(self) -> str:
        """The resolved configuration as TOML (keys that are `None` are left out; they are the defaults)."""
        return dump_toml(self.model_dump(mode="json"))


def apply_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `a.b=c` settings to a nested mapping; values are TOML, bare words are strings.

    >>> apply_overrides({"model": {"path": "x"}}, ["model.path=y", "seed=3", "budget.wall=5m"])
    {'model': {'path': 'y'}, 'seed': 3, 'budget': {'wall': '5m'}}
    """
    result: dict[str, Any] = json.loads(json.dumps(data, default=str))
    for item in overrides:
        key, sep, raw = item.partition("=")
        if not sep or not key.strip():
            raise ValueError(f"--set {item!r}: write it as table.key=value")
        try:
            value = tomllib.loads(f"v = {raw}")["v"]
        except tomllib.TOMLDecodeError:
            value = raw
        node = result
        *tables, leaf = key.strip().split(".")
        for table in tables:
            child = node.setdefault(table, {})
            if not isinstance(child, dict):
                raise ValueError(f"--set {item!r}: {table!r} is not a table")
            node = child
        node[leaf] = value
    return result


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        where = ".".join(str(p) for p in item["loc"]) or "recipe"
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown key {where!r}{_did_you_mean(item['loc'])}")
        else:
            message = str(item["msg"]).removeprefix("Value error, ")
            got = item.get("input")
            shown = "" if isinstance(got, dict) or item["type"] == "value_error" else f" (got {got!r})"
            lines.append(f"{where}: {message}{shown}" if item["loc"] else message)
    return "; ".join(lines)


def _did_you_mean(loc: tuple[int | str, ...]) -> str:
    import difflib

    table: Any = RunConfig
    for part in loc[:-1]:
        info = table.model_fields.get(str(part)) if hasattr(table, "model_fields") else None
        table = getattr(info, "annotation", None)
    names = list(getattr(table, "model_fields", {}))
    close = difflib.get_close_matches(str(loc[-1]), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}" if names else ""


def dump_toml(data: Mapping[str, Any]) -> str:
    """Keys and one level of tables as TOML; what is `None` is left out."""
    top: list[str] = []
    tables: list[str] = []
    for key, value in data.items():
        if isinstance(value, dict):
            rows = [f"{k} = {_toml_value(v)}" for k, v in value.items() if v is not None]
            tables.append("\n".join([f"[{key}]", *rows]))
        elif value is not None:
            top.append(f"{key} = {_toml_value(value)}")
    return "\n\n".join([*(["\n".join(top)] if top else []), *tables]) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml_value(v)}" for k, v in value.items() if v is not None) + " }"
    return "[" + ", ".join(_toml_value(v) for v in value) + "]"
