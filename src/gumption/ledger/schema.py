"""What the ledger's tables hold: the columns of each, with unit and meaning, as data.

`docs/ledger.md` prints these specifications and a test compares the two, so a column cannot be added in one place only.
Cumulative FLOP counters are 128-bit integers (decimal128(38, 0) on disk): a day on eight large GPUs passes 2⁶³.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1
"""Raised when a column changes its meaning or goes; new columns alone do not raise it (readers fill them with null)."""

TEXT_SAMPLE = 16
"""With the text policy "sample", one rollout in so many keeps its completion text."""

_TYPES: dict[str, Any] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "int128": pa.decimal128(38, 0),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "list<float32>": pa.list_(pa.float32()),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Args:
        name: Column name.
        type: One of string, int32, int64, int128, float64, bool, list<float32>.
        unit: Unit of the value, "" where there is none.
        meaning: One line for people.
        nullable: May be null, and may be left out of the row that is appended.
    """

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False


def _columns(text: str) -> tuple[Column, ...]:
    """Parse `name type[?] | unit | meaning` lines; a question mark behind the type makes the column nullable."""
    columns = []
    for line in text.strip().splitlines():
        head, unit, meaning = (part.strip() for part in line.split("|"))
        name, kind = head.split()
        columns.append(Column(name, kind.removesuffix("?"), unit, meaning, kind.endswith("?")))
    return tuple(columns)


TABLES: dict[str, tuple[Column, ...]] = {
    "problems": _columns("""
        problem_id string       |           | content hash and occurrence number of the problem
        set string              |           | `train` or `held_out`
        prompt string?          |           | the question as text (chat turns joined by blank lines)
        verifier string         |           | name of the verifier that scores it
        meta string?            | JSON      | family, difficulty, the shipped profile's `n` and `successes`, …
    """),
    "rollouts": _columns("""
        problem_id string       |           | the problem
        visit int32             |           | which visit to the problem; (problem_id, visit) names the chain
        attempt int32           |           | which attempt of the chain, from 0
        member int32            |           | which rollout of the attempt, from 0
        fate string             |           | what became of it: one word of the list of fates
        reason string           |           | why: the verdict's, the selector's or the engine's reason
        version_start int32     | updates   | policy version when generation began
        version_end int32       | updates   | policy version when generation ended
        version_final int32?    | updates   | policy version when the fate was settled
        reward float64?         | score     | total reward; null where there is none (`status` says why)
        task_reward float64?    | score     | the task's own reward, before any length penalty
        status string?          |           | ok, or: masked, error, timeout, memory, invalid, cancelled
        parts list<float32>?    | score     | per-test results
        finish string           |           | why generation ended: stop, length, cancelled, error
        prompt_tokens int32     | tokens    | length of the prompt
        completion_tokens int32 | tokens    | tokens generated
        trained_tokens int32    | tokens    | tokens that entered an optimizer step; 0 unless trained
        flops_prefill int64     | FLOPs     | prompt prefill; a group's shared prefill is booked on member 0
        flops_decode int64      | FLOPs     | token by token generation
        flops_score int64       | FLOPs     | log-prob passes (reference, old policy)
        flops_train int64       | FLOPs     | forward and backward passes of the update
        advantage float64?      | score     | advantage, in groups that came into a batch
        leverage float64?       |           | leverage (squared normalised advantage), likewise
        weight float64?         |           | the selector's weight; null unless selected
        importance_ratio float64? |         | mean over its tokens of π/μ at the update; null unless trained
        update int32?           | updates   | version its batch was made at (the step's is one more)
        replay bool?            |           | an earlier rollout, trained on once more: no generation in this row
        text string?            |           | completion text, by the text policy
        wall float64            | s         | seconds since the run began, when the fate was settled
    """),
    "verdicts": _columns("""
        problem_id string       |           | the problem
        visit int32             |           | the visit
        attempt int32           |           | the attempt that was judged
        kind string             |           | accept, retry, give_up or drop
        reason string           |           | why: mixed, better, all_equal, solved, coin, …
        version int32           | updates   | policy version of the trainer at the verdict
        n int32                 | rollouts  | rollouts of the attempt
        valued int32            | rollouts  | … that have a reward
        successes int32         | rollouts  | … that reached the maximal score
        reward_sum float64      | score     | sum of the attempt's rewards
        reward_max float64?     | score     | best reward of the attempt
        chain_count int64       | rollouts  | valued rollouts of all attempts so far
        chain_reward_sum float64 | score    | sum of their rewards
        chain_attempts int32    | attempts  | attempts told so far
        group_size int32        | rollouts  | fresh, valued rollouts of the chain: what an accepted group would hold
        wall float64            | s         | seconds since the run began
    """),
    "groups": _columns("""
        problem_id string       |           | the problem
        visit int32             |           | the visit
        kind string             |           | how the chain ended: accept, give_up or drop
        reason string           |           | why
        update int32?           | updates   | version its batch was made at; null unless accepted
        size int32              | rollouts  | members (G)
        count int64             | rollouts  | valued rollouts of all attempts
        reward_sum float64      | score     | sum of their rewards
        successes int64         | rollouts  | how many of them reached the maximal score
        attempts int32          | attempts  | attempts of the chain
        p_hat float64?          | fraction  | success rate that leverage used
        bits float64?           | bits      | reward entropy per rollout (Miller–Madow)
        leverage_sum float64?   |           | sum of the members' leverage
        kept int32              | rollouts  | members that were selected for training
        kept_leverage float64?  |           | leverage of the selected members
        kept_tokens int64       | tokens    | completion tokens of the selected members
        generated_tokens int64  | tokens    | completion tokens of all members
        wall float64            | s         | seconds since the run began
    """),
    "steps": _columns("""
        version int32           | updates   | policy version after the update (unchanged if it was skipped)
        wall float64            | s         | seconds since the run began
        skipped bool?           |           | the update was not applied: a loss or gradient was not finite
        rollouts int64?         | rollouts  | rollouts whose fate is settled so far
        tokens/prompt int64?    | tokens    | prompt tokens prefilled so far
        tokens/generated int64? | tokens    | completion tokens so far, those in flight included
        tokens/trained int64?   | tokens    | tokens that entered an update so far
        flops/prefill int128?   | FLOPs     | prefill so far
        flops/decode int128?    | FLOPs     | decoding so far, in flight included
        flops/score int128?     | FLOPs     | log-prob passes so far
        flops/train int128?     | FLOPs     | updates so far
        flops/total int128?     | FLOPs     | all of these, and what crashes lost
        flops/wasted int128?    | FLOPs     | so far spent on rollouts whose fate is neither trained nor not_selected
    """),
    "evals": _columns("""
        version int32           | updates   | policy version that was evaluated
        set string              |           | `train` or `held_out`
        problem_id string       |           | the problem
        n int32                 | rollouts  | completions drawn
        successes int32         | rollouts  | how many reached the maximal score
        mean_reward float64?    | score     | mean task reward
        mean_length float64?    | tokens    | mean completion length
        flops int64             | FLOPs     | prefill and decoding of these completions (outside budget and counters)
        run_flops int128?       | FLOPs     | what the run itself had spent when it was evaluated
        wall float64            | s         | seconds since the run began
    """),
}
"""Every table the pipeline writes, in the order in which a flush writes them (a step only after its rollouts)."""

FLUSH_ORDER: tuple[str, ...] = ("problems", "rollouts", "verdicts", "groups", "evals", "steps")

LOST_COLUMN = Column("lost_fate", "string", "", "the fate the row had before the crash took it back")
"""The `lost` table has the columns of `rollouts`, `fate` = "lost" everywhere, and this one."""

OPEN_TABLES: frozenset[str] = frozenset({"steps"})
"""Tables that take further float columns (metrics); columns may differ between segments."""


def arrow_type(column: Column) -> Any:
    """The column's type on disk."""
    return _TYPES[column.type]


def schema(table: str) -> Any:
    """The pyarrow schema of a table (its fixed columns).

    >>> schema("evals").names[:4], schema("steps").field("flops/train").type.precision
    (['version', 'set', 'problem_id', 'n'], 38)
    """
    return pa.schema([pa.field(c.name, arrow_type(c), c.nullable) for c in columns(table)])


def columns(table: str) -> tuple[Column, ...]:
    """Columns of a table, `lost` included.

    Raises:
        ValueError: there is no such table.
    """
    if table == "lost":
        return (*TABLES["rollouts"], LOST_COLUMN)
    if table not in TABLES:
        raise ValueError(f"unknown ledger table {table!r}; known: {', '.join([*TABLES, 'lost'])}")
    return TABLES[table]


def markdown(table: str) -> str:
    """The table's columns as rows of a Markdown table: what `docs/ledger.md` holds."""
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for c in columns(table):
        kind = f"{c.type}, nullable" if c.nullable else c.type
        lines.append(f"| `{c.name}` | {kind} | {c.unit} | {c.meaning} |")
    return "\n".join(lines)
