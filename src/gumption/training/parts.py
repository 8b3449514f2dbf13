"""Builds the stages of a run from its configuration. The only place where names become objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gumption.allocation import make_allocator
from gumption.allocation.tracker import RewardTracker
from gumption.budget import Budget
from gumption.config import RunConfig
from gumption.ledger.recorder import Recorder, Sink
from gumption.pipeline import Pipeline
from gumption.planning import make_stages
from gumption.planning.enumeration import CreditStage
from gumption.problems import load_problems, make_stream
from gumption.rewards import Scorer
from gumption.training.share import AutoShare
from gumption.types import Allocator, Credit, Engine, Group, Problem, ProblemStream


@dataclass
class Parts:
    """The wired stages of one run."""

    config: RunConfig
    pipeline: Pipeline
    stream: ProblemStream
    allocator: Allocator
    engine: Engine
    trainer: Any  # a Trainer that can be saved
    scorer: Scorer
    recorder: Recorder
    budget: Budget
    tracker: RewardTracker | None
    auto: AutoShare | None
    train_set: tuple[Problem, ...]
    held_out: tuple[Problem, ...]
    by_id: Mapping[str, Problem]
    skipped_problems: int
    make_eval_engine: Callable[[], Engine]
    export: Callable[[Path], object]
    _eval_engine: Engine | None = None

    @property
    def stream_ended(self) -> str | None:
        """Why the choosers let no problem through any more, where that is so."""
        stream: Any = self.stream
        while stream is not None:
            if getattr(stream, "ended", None):
                return str(stream.ended)
            stream = getattr(stream, "inner", None)
        return None

    def eval_engine(self) -> Engine:
        """The engine for evaluation, with the trainer's newest weights."""
        if self._eval_engine is None:
            self._eval_engine = self.make_eval_engine()
        self._eval_engine.update_weights(self.trainer.version, self.trainer.weights())
        return self._eval_engine

    def close(self) -> None:
        """Free workers and memory."""
        self.scorer.close()
        self.engine.close()
        if self._eval_engine is not None:
            self._eval_engine.close()


def build_parts(config: RunConfig, sink: Sink, *, wall_used: float = 0.0) -> Parts:
    """Load problems and policy, and wire the stages.

    Raises:
        ValueError: a source, model or option is wrong.
    """
    train = load_problems(config.problems, seed=config.seed)
    held_out = load_problems(config.problems, seed=config.seed, held_out=True)
    budget = Budget(config.budget, max(config.allocation.sizes), wall_used)
    stream = make_stream(train, config.problems, config.seed)
    allocator = make_allocator(config, stream, config.seed)
    made = make_engines(config, budget)
    engine, trainer = made.engine, made.trainer
    scorer = Scorer(config.rewards, max_tokens=config.rollouts.max_tokens)
    recorder = Recorder(sink, engine, lambda: budget.wall, max_score=config.rewards.max_score)
    tracker = None
    if config.advantage == "tracked":
        tracker = RewardTracker(config.credit.tracker_decay, config.credit.tracker_count)
    auto = None
    if config.selection.share == "auto" and config.selection.rule == "leverage":
        auto = AutoShare(config.selection.share_low, config.selection.share_high)
    budget.attach(engine, recorder)
    if auto is not None:
        recorder.extra["leverage/share"] = auto.share
    credit, selector = make_stages(config, auto, None if tracker is None else tracker.value)
    pipeline = Pipeline(
        config=config,
        allocator=allocator,
        engine=engine,
        scorer=scorer,
        credit=credit if tracker is None else _watched(credit, tracker),
        selector=selector,
        trainer=trainer,
        recorder=recorder,
        allows=budget.allows_update,
        may_ask=budget.may_ask,
    )
    return Parts(
        config=config,
        pipeline=pipeline,
        stream=stream,
        allocator=allocator,
        engine=engine,
        trainer=trainer,
        scorer=scorer,
        recorder=recorder,
        budget=budget,
        tracker=tracker,
        auto=auto,
        train_set=train.problems,
        held_out=held_out.problems,
        by_id={p.id: p for p in (*train.problems, *held_out.problems)},
        skipped_problems=len(train.skipped),
        make_eval_engine=made.make_eval_engine,
        export=made.export,
    )


def _watched(credit: CreditStage, tracker: RewardTracker) -> CreditStage:
    """Credit that lets the tracker see each group afterwards: a chain is credited once, when it has ended."""

    def watched(groups: Sequence[Group]) -> list[Credit]:
        credits = credit(groups)
        for group in groups:
            tracker.see(group)
        return credits

    return watched


@dataclass
class Engines:
    """A policy's engine, trainer and makers of what else runs it."""

    engine: Engine
    trainer: Any
    make_eval_engine: Callable[[], Engine]
    export: Callable[[Path], object]


def make_engines(config: RunConfig, budget: Budget | None) -> Engines:
    """Load the policy and build its engine and trainer; without a budget nothing is limited."""
    allow = None if budget is None else budget.allows_decode
    return _scripted(config, allow) if config.rollouts.engine == "scripted" else _torch(config, allow)


_Allow = Callable[[int, int], bool] | None


def _scripted(config: RunConfig, allow: _Allow) -> Engines:
    from gumption.rollouts.scripted import ScriptedEngine, ScriptedTrainer

    return Engines(
        ScriptedEngine(config, seed=config.seed, allow=allow),
        ScriptedTrainer(config),
        lambda: ScriptedEngine(config, seed=config.seed, stage="eval", in_flight=config.eval.in_flight),
        lambda folder: None,
    )


def _torch(config: RunConfig, allow: _Allow) -> Engines:
    try:
        import torch
    except ImportError:
        raise ValueError("training needs PyTorch: pip install 'gumption[train]'") from None
    from transformers.utils import logging as transformers_logging

    from gumption.rollouts.engine import TorchEngine
    from gumption.training.export import export_model
    from gumption.training.model import load_policy
    from gumption.training.trainer import TorchTrainer

    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    torch.manual_seed(config.seed)
    if config.model.path.startswith("tiny/") or Path(config.model.path).is_dir():
        transformers_logging.disable_progress_bar()  # nothing is downloaded, and the run has a display of its own
    policy = load_policy(config.model, seed=config.seed)
    trainer = TorchTrainer(policy, config)

    def make_engine(stage: str, in_flight: int, may: _Allow) -> Engine:
        rollouts = config.rollouts.model_copy(update={"weight_lag": 0}) if stage == "eval" else config.rollouts
        engine: Engine = TorchEngine(
            policy.plain_model(),
            policy.tokenizer,
            config=rollouts,
            seed=config.seed,
            stage=stage,
            shape=policy.shape,
            system_prompt=config.model.system_prompt,
            in_flight=in_flight,
            allow=may,
        )
        return engine

    return Engines(
        make_engine("rollouts", config.rollouts.in_flight, allow),
        trainer,
        lambda: make_engine("eval", config.eval.in_flight, None),
        lambda folder: export_model(policy, folder),
    )
