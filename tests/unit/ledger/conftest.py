"""Rows that fit the schema, to be varied by the tests."""

from collections.abc import Callable
from typing import Any

import pytest


def _rollout(member: int = 0, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem_id": "p-0",
        "visit": 0,
        "attempt": 0,
        "member": member,
        "fate": "trained",
        "reason": "leverage",
        "version_start": 0,
        "version_end": 0,
        "version_final": 1,
        "reward": 1.0,
        "task_reward": 1.0,
        "status": "ok",
        "parts": (1.0, 0.0),
        "finish": "stop",
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "trained_tokens": 7,
        "flops_prefill": 100 if member == 0 else 0,
        "flops_decode": 10,
        "flops_score": 1,
        "flops_train": 1000,
        "advantage": 0.5,
        "leverage": 2.0,
        "weight": 1.0,
        "importance_ratio": 1.0,
        "update": 1,
        "text": "hello",
        "wall": 0.5,
    }
    return row | changes


def _verdict(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem_id": "p-0",
        "visit": 0,
        "attempt": 0,
        "kind": "accept",
        "reason": "mixed",
        "version": 0,
        "n": 2,
        "valued": 2,
        "successes": 1,
        "reward_sum": 1.0,
        "reward_max": 1.0,
        "chain_count": 2,
        "chain_reward_sum": 1.0,
        "chain_attempts": 1,
        "group_size": 2,
        "wall": 0.5,
    }
    return row | changes


def _group(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem_id": "p-0",
        "visit": 0,
        "kind": "accept",
        "reason": "mixed",
        "update": 1,
        "size": 2,
        "count": 2,
        "reward_sum": 1.0,
        "successes": 1,
        "attempts": 1,
        "p_hat": 0.5,
        "bits": 1.0,
        "leverage_sum": 2.0,
        "kept": 1,
        "kept_leverage": 1.0,
        "kept_tokens": 7,
        "generated_tokens": 14,
        "wall": 0.5,
    }
    return row | changes


def _eval(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "version": 0,
        "set": "train",
        "problem_id": "p-0",
        "n": 64,
        "successes": 16,
        "mean_reward": 0.25,
        "mean_length": 7.0,
        "flops": 500,
        "wall": 0.1,
    }
    return row | changes


_MAKERS = {"rollouts": _rollout, "verdicts": _verdict, "groups": _group, "evals": _eval}


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """`row("rollouts", member=1, fate="stale")` → a row that fits the table."""
    return lambda table, *args, **changes: _MAKERS[table](*args, **changes)
