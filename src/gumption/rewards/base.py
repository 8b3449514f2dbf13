"""Verifiers by name, and what they may hand back.

A verifier has `score(problem, completion) -> Reward` (`gumption.types.Verifier`). It may also have

    quick(problem, completion) -> Reward | None   decide at once and safely, or leave it to `score` in a worker process
    in_process(problem) -> bool                   `score` is cheap and cannot hang on anything that a model writes
    prepare()                                     import what is heavy; outside the time limit
    wants_ids = True                              `score` has a keyword `completion_ids`
    batched = True                                `score_many(problem, completions, completion_ids)` is called instead

and its module may have `gold_completion(problem)` and `mutated_completion(problem)`: a completion that must get the
full score, and one that must not (`gumption problems check`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import numbers
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, get_args

from gumption.types import Problem, Reward, RewardStatus, Verifier

VERIFIERS: dict[str, str] = {
    "exact": "gumption.rewards.exact:ExactVerifier",
    "math": "gumption.rewards.math:MathVerifier",
    "gym": "gumption.rewards.gym:GymVerifier",
    "skill_chain": "gumption.rewards.skill_chain:SkillChainVerifier",
    "manufactoria": "gumption.rewards.manufactoria:ManufactoriaVerifier",
    "scripted": "gumption.rewards.scripted:ScriptedVerifier",
}
"""Name → `module:class`."""

TRUSTED = frozenset({"exact", "skill_chain", "scripted"})
"""Score in the trainer's own process: a few microseconds, bounded for any text."""

_STATUSES = frozenset(get_args(RewardStatus))
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def make_verifier(name: str, **options: Any) -> Verifier:
    """The verifier of that name.

    Args:
        name: A key of `VERIFIERS`, or `module:function` with TRL's signature.
        options: Its keyword arguments.

    Raises:
        ValueError: no such verifier or option. A `module:function` is imported at its first use.

    >>> make_verifier("exact").score(Problem("x-0", "2+2=", "4", "exact"), " 4 ").value
    1.0
    """
    if name in VERIFIERS:
        module, _, attribute = VERIFIERS[name].partition(":")
        factory: Callable[..., Verifier] = getattr(importlib.import_module(module), attribute)
    elif _FUNCTION.fullmatch(name):
        from gumption.rewards.module import ModuleVerifier

        return ModuleVerifier(name, **options)
    elif name == "none":
        raise ValueError(
            "these problems have no answer column, so no verifier: set problems.answer_field, or rewards.verifier"
        )
    else:
        close = difflib.get_close_matches(name, VERIFIERS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown verifier {name!r}; {hint}known: {', '.join(VERIFIERS)}, module:function")
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        known = ", ".join(inspect.signature(factory).parameters) or "none"
        raise ValueError(f"verifier {name!r}: {error}; its options: {known}") from None
    return factory(**options)


def as_reward(result: object) -> Reward:
    """What a verifier handed back as a `Reward`: numbers become values, nonsense becomes status `invalid`.

    >>> as_reward(1).value, as_reward("abc").status, as_reward(float("nan")).status, as_reward(None).status
    (1.0, 'invalid', 'invalid', 'invalid')
    """
    if type(result) is not Reward:
        value = _number(result)
        return _invalid(result) if value is None else Reward(value)
    value = result.value
    if result.status != "ok" or value is None:
        if value is None and result.status != "ok" and result.status in _STATUSES:
            return result
        return Reward(None, status="invalid", detail=f"value {value!r} with status {result.status!r}"[:200])
    parts = result.parts
    if type(value) is float and all(type(p) is float for p in parts) and math.isfinite(value + sum(parts)):
        return result
    number = _number(value)
    if number is None:
        return _invalid(value)
    checked = tuple(_number(p) for p in parts)
    if any(p is None for p in checked):
        return _invalid(parts)
    return Reward(number, tuple(p for p in checked if p is not None), "ok", str(result.detail)[:200], result.task)


def _number(value: object) -> float | None:
    if not isinstance(value, numbers.Real) and hasattr(value, "item") and getattr(value, "size", 1) in (1, ()):
        value = value.item()  # a numpy or torch scalar
    if not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError, TypeError):
        return None
    return number if math.isfinite(number) else None


def _invalid(result: object) -> Reward:
    shown = repr(result) if isinstance(result, (str, int, float, list, tuple, dict, type(None))) else ""
    return Reward(None, status="invalid", detail=f"returned {type(result).__name__} {shown}".strip()[:200])


def failure(error: BaseException) -> Reward:
    """The reward of a verifier that raised: status `memory` or `error`, with the place where it happened.

    >>> failure(ValueError("no")).status, failure(MemoryError()).status
    ('error', 'memory')
    """
    status: RewardStatus = "memory" if isinstance(error, MemoryError) else "error"
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place, trace = f" ({code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno})", trace.tb_next
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception that cannot even be printed
        text = ""
    return Reward(None, status=status, detail=f"{type(error).__name__}: {text[:160]}{place}")


Hook = Callable[[Problem], str | None]


def hooks(name: str) -> tuple[Hook, Hook]:
    """`gold_completion` and `mutated_completion` of a verifier's module.

    Returns:
        Functions that give a completion, or `None` where the problem has none; where a module has no such
        function, the answer itself is gold and nothing is known about mutated ones.

    >>> gold, mutated = hooks("math")
    >>> mutated(Problem("x-0", "2+2=", "4", "math")) != gold(Problem("x-0", "2+2=", "4", "math"))
    True
    """
    try:
        module: ModuleType | None = importlib.import_module(VERIFIERS.get(name, name).partition(":")[0])
    except ImportError:
        module = None
    gold: Hook = getattr(module, "gold_completion", _answer)
    mutated: Hook = getattr(module, "mutated_completion", lambda problem: None)
    return gold, mutated


def _answer(problem: Problem) -> str | None:
    return None if problem.answer is None else str(problem.answer)
