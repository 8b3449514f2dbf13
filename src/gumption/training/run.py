"""One run, from a configuration to a folder: evaluation, budget, checkpoints, signals, summary, report.

`gumption.train(config)` and the command line both end up here. The training loop itself is `gumption.pipeline`; this
file decides when it starts, when it stops, and what is kept.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gumption.budget import nothing_to_learn_after
from gumption.config import RunConfig
from gumption.ledger.track import make_trackers
from gumption.ledger.writer import LedgerWriter
from gumption.training.checkpoint import latest_checkpoint, load_tree, write_checkpoint
from gumption.training.evaluate import EvalRow, evaluate
from gumption.training.folder import clear_folder, default_folder, point_latest
from gumption.training.parts import Parts, build_parts
from gumption.training.state import places_from_state, places_state
from gumption.training.summary import make_summary, write_summary
from gumption.types import StateTree

CHECKPOINT_SHARE = (
    20  # a checkpoint waits until this many times what the last one cost has passed: at most 5 % overhead
)


class Observer:
    """What a display listens to. Every method may be overridden; none has to be."""

    def phase(self, name: str) -> None:
        """A new phase begins: "loading", "evaluating before", "training", …."""

    def progress(self, done: int, total: int) -> None:
        """Rollouts of an evaluation."""

    def step(self, metrics: Mapping[str, float], fraction: float | None) -> None:
        """An optimizer step was made; `fraction` of the budget is used."""

    def message(self, text: str) -> None:
        """Something that a person should know."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Args:
        folder: The run folder.
        summary: Contents of `summary.json`.
        reason: "updates", "flops", "tokens", "rollouts", "wall", "problems", "nothing_to_learn" or "interrupted".
        report: The HTML report, where it could be written.
    """

    folder: Path
    summary: dict[str, Any]
    reason: str
    report: Path | None

    @property
    def interrupted(self) -> bool:
        """It was stopped by a signal and can be resumed."""
        return self.reason == "interrupted"


def train(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    observer: Observer | None = None,
    overwrite: bool = False,
) -> RunResult:
    """Train a policy as `config` says; what `gumption train` does.

    Args:
        config: A `RunConfig`, a nested mapping, or the path of a TOML recipe.
        out: Run folder; default `runs/<time>`.
        observer: Gets progress; default: silent.
        overwrite: Start again in a folder that holds a run.

    Returns:
        The run's folder, summary and reason to stop.

    Raises:
        ValueError: the configuration or its inputs are wrong.
        FileExistsError: the folder holds a run already.

    >>> recipe = {"rollouts": {"engine": "scripted"}, "problems": {"source": "scripted"}, "budget": {"updates": 2}}
    >>> result = train(recipe, out=getfixture("tmp_path") / "run")
    >>> result.reason, result.summary["updates"]
    ('updates', 2)
    """
    if isinstance(config, (str, Path)):
        config = RunConfig.from_toml(config)
    elif not isinstance(config, RunConfig):
        config = RunConfig.from_dict(config)
    if not config.budget.limited and config.problems.epochs is None:
        raise ValueError(
            'nothing ends this run: say what it may spend, for example budget.wall = "2h" '
            "(or flops, updates, rollouts, tokens; on the command line --set budget.wall=2h)"
        )
    folder = Path(out) if out is not None else default_folder("train")
    if (folder / "config.toml").exists() and not overwrite:
        raise FileExistsError(f"{folder} holds a run already: resume it, choose another --out, or pass --overwrite")
    if overwrite:
        clear_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    point_latest(folder)
    return Run(config, folder, observer or Observer()).execute()


def resume(folder: str | Path, *, observer: Observer | None = None, overrides: tuple[str, ...] = ()) -> RunResult:
    """Go on with a run from its newest complete checkpoint; what `gumption resume` does.

    Args:
        folder: The run folder.
        observer: Gets progress.
        overrides: `a.b=c` settings, for example a larger budget.

    Raises:
        ValueError: the folder holds no run.
    """
    folder = Path(folder)
    if not (folder / "config.toml").is_file():
        raise ValueError(f"{folder} holds no run (no config.toml): give the folder that `gumption train` printed")
    config = RunConfig.from_toml(folder / "config.toml", overrides)
    if overrides:
        (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    return Run(config, folder, observer or Observer(), resumed=True).execute()


class Run:
    """The state of one run. Use `train` or `resume`."""

    def __init__(self, config: RunConfig, folder: Path, observer: Observer, *, resumed: bool = False) -> None:
        self.config = config
        self.folder = folder
        self.observer = observer
        self.evals: list[StateTree] = []  # {"version", "set", "rows"}
        self.signalled: str | None = None
        self.idle_since = 0  # rollouts submitted at the last update
        self.wall_eval = 0.0
        self._saved_at, self._save_seconds = (0, time.perf_counter()), 0.0
        checkpoint = latest_checkpoint(folder / "checkpoints") if resumed else None
        if resumed and checkpoint is None:
            observer.message("no complete checkpoint yet: starting from the beginning")
            clear_folder(folder, keep="config.toml")
        self.state: StateTree | None = None if checkpoint is None else load_tree(checkpoint)
        wall = 0.0 if self.state is None else float(self.state["wall"])
        observer.phase("loading")
        if self.state is None:
            self.writer = LedgerWriter(folder / "ledger", text=config.ledger.text, flush_rows=config.ledger.flush_rows)
        else:
            self.writer = LedgerWriter.resume(
                folder / "ledger",
                self.state["ledger"],
                discard=bool(self.state["finished"]),
                text=config.ledger.text,
                flush_rows=config.ledger.flush_rows,
            )
        self.parts: Parts = build_parts(config, self.writer, wall_used=wall)
        self.trackers = make_trackers(config.ledger, folder)
        if self.state is not None:
            self._load(self.state)
        else:
            self._write_problems()

    # -- the run

    def execute(self) -> RunResult:
        """Evaluate, train until a limit or a signal, evaluate, and write everything."""
        p = self.parts
        try:
            with self._signals():
                if self.state is None:
                    self._evaluate("before", self.config.eval.samples)
                    self._checkpoint()
                self.observer.phase("training")
                p.budget.start()
                reason = self._loop()
                p.budget.stop()
                if reason == "interrupted":
                    self._checkpoint()
                    self.writer.close()
                    return RunResult(self.folder, self._summary(reason), reason, None)
                return self._finish(reason)
        finally:
            p.close()
            for tracker in self.trackers:
                tracker.close()

    def _loop(self) -> str:
        p = self.parts
        pipeline, budget = p.pipeline, p.budget
        while True:
            if self.signalled:
                return "interrupted"
            if reason := budget.reached(p.trainer.version):
                return reason
            before = pipeline.submitted
            updates = pipeline.cycle()
            budget.submitted = pipeline.submitted
            for result in updates:
                self._after_update(result.skipped)
            if pipeline.spent or p.engine.exhausted:
                return budget.refused(p.trainer.version, self.config.rollouts.in_flight)
            if pipeline.ended and not updates:
                if budget.out_of_rollouts:
                    return "rollouts"
                if p.stream_ended is not None:
                    self.observer.message(f"no more problems: {p.stream_ended}")
                return "problems"
            if self._starved(moved=pipeline.submitted > before):
                return "nothing_to_learn"

    def _after_update(self, skipped: bool) -> None:
        p = self.parts
        self.idle_since = p.pipeline.submitted
        metrics, version = p.recorder.last_step, p.trainer.version
        if p.auto is not None:
            p.auto.observe(metrics)
            p.recorder.extra["leverage/share"] = p.auto.share
        for tracker in self.trackers:
            tracker.log(version, metrics)
        self.observer.step(metrics, p.budget.fraction(version))
        if skipped:
            self.observer.message(f"update after version {version} skipped: loss or gradient was not finite")
        every = self.config.eval.every
        if every and version % every == 0 and not skipped and version != self.config.budget.updates:
            self._evaluate("during", self.config.eval.samples_during)
            self.observer.phase("training")
        updates, at = self._saved_at
        c = self.config.training
        waited = time.perf_counter() - at
        due = version - updates >= c.checkpoint_every or waited >= c.checkpoint_seconds
        if due and waited >= CHECKPOINT_SHARE * self._save_seconds:
            self._checkpoint()

    def _starved(self, moved: bool) -> bool:
        """Rollouts go on, and no group was worth training on for as long as anybody should wait."""
        waited = self.parts.pipeline.submitted - self.idle_since
        return moved and waited > nothing_to_learn_after(self.config, len(self.parts.train_set))

    def _finish(self, reason: str) -> RunResult:
        p = self.parts
        self._checkpoint(finished=True)
        p.pipeline.finish(p.engine.abandon())
        self._evaluate("after", self.config.eval.samples)
        self.writer.flush()
        self.observer.phase("writing")
        p.export(self.folder / "model")
        summary = self._summary(reason)
        self.writer.close()
        return RunResult(self.folder, summary, reason, self._report())

    def _summary(self, reason: str) -> dict[str, Any]:
        summary = make_summary(self.config, self.parts, self.evals, reason=reason, wall_eval=self.wall_eval)
        write_summary(self.folder / "summary.json", summary)
        return summary

    def _report(self) -> Path | None:
        try:
            from gumption.report import write_report

            return write_report(self.folder)
        except ImportError as error:
            self.observer.message(f"no report: {error}")
            return None

    # -- evaluation

    def _evaluate(self, when: str, samples: int) -> None:
        p, config = self.parts, self.config.eval
        if samples == 0:
            return
        start = time.perf_counter()
        running = p.budget.stop()
        version = p.trainer.version
        for name, problems in (("train", p.train_set), ("held_out", p.held_out)):
            chosen = problems[: config.problems]
            if not chosen:
                continue
            self.observer.phase(f"evaluating {when}{' (held-out)' if name == 'held_out' else ''}")
            rows = evaluate(
                p.eval_engine(),
                p.scorer,
                chosen,
                samples,
                visit=len(self.evals),
                max_score=self.config.rewards.max_score,
                on_progress=self.observer.progress,
            )
            self.evals.append({"version": version, "set": name, "when": when, "rows": [asdict(r) for r in rows]})
            self._write_eval(version, name, rows)
        self.wall_eval += time.perf_counter() - start
        if running:
            p.budget.start()

    def _write_eval(self, version: int, name: str, rows: list[EvalRow]) -> None:
        wall = self.parts.recorder.clock()
        flops = self.parts.recorder.flops_total
        for row in rows:
            self.writer.append(
                "evals", {"version": version, "set": name, "wall": wall, "run_flops": flops, **asdict(row)}
            )

    def _write_problems(self) -> None:
        for name, problems in (("train", self.parts.train_set), ("held_out", self.parts.held_out)):
            for p in problems:
                row = {"problem_id": p.id, "set": name, "prompt": p.text, "verifier": p.verifier}
                self.writer.append("problems", {**row, "meta": json.dumps(dict(p.meta), default=str)})

    # -- checkpoints

    def _checkpoint(self, finished: bool = False) -> None:
        p = self.parts
        start = time.perf_counter()
        self.writer.flush()
        tree: StateTree = {
            "finished": finished,
            "wall": p.budget.wall,
            "wall_eval": self.wall_eval,
            "evals": self.evals,
            "submitted": p.pipeline.submitted,
            "told": p.pipeline.told,
            "idle_since": self.idle_since,
            "places": places_state(p.pipeline.places),
            "allocator": p.allocator.state_dict(),
            "engine": p.engine.state_dict(),
            "trainer": p.trainer.state_dict(),
            "recorder": p.recorder.state_dict(),
            "tracker": None if p.tracker is None else p.tracker.state_dict(),
            "auto": None if p.auto is None else p.auto.state_dict(),
            "ledger": self.writer.position(),
        }
        version = p.trainer.version
        write_checkpoint(self.folder / "checkpoints", version, tree, keep=self.config.training.keep_checkpoints)
        self._saved_at = (version, time.perf_counter())
        self._save_seconds = self._saved_at[1] - start

    def _load(self, state: StateTree) -> None:
        p = self.parts
        self.evals = state["evals"]
        self.wall_eval = state["wall_eval"]
        self.idle_since = state["idle_since"]
        p.trainer.load_state_dict(state["trainer"])
        p.allocator.load_state_dict(state["allocator"])
        p.engine.update_weights(p.trainer.version, p.trainer.weights())
        p.engine.load_state_dict(state["engine"], p.by_id)
        p.recorder.load_state_dict(state["recorder"])
        if p.tracker is not None and state["tracker"] is not None:
            p.tracker.load_state_dict(state["tracker"])
        if p.auto is not None and state["auto"] is not None:
            p.auto.load_state_dict(state["auto"])
            p.recorder.extra["leverage/share"] = p.auto.share
        p.recorder.flops_lost += self.writer.lost_flops
        p.recorder.rollouts_lost += self.writer.lost_rollouts
        p.pipeline.submitted = p.budget.submitted = state["submitted"]
        p.pipeline.told = state["told"]
        p.pipeline.places = places_from_state(state["places"], p.by_id.__getitem__)
        self._saved_at = (p.trainer.version, time.perf_counter())
        self.observer.message(f"resumed at update {p.trainer.version}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """First Ctrl-C or SIGTERM: stop after this cycle, with a checkpoint. Second Ctrl-C: at once."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self.signalled and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.signalled = signal.Signals(number).name
            self.observer.message(f"{self.signalled}: writing a checkpoint (Ctrl-C again to stop at once)")

        try:
            old = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: the caller handles signals
            yield
            return
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
