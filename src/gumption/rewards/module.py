"""Verifier `module:function`: a reward function with TRL's signature.

    def reward(prompts, completions, answer, **kwargs) -> list[float | None]: ...

As in TRL it is called with keywords: `prompts` and `completions`, `completion_ids`, every column of the data set as a
list (one entry per completion), `trainer_state`, `log_extra` and `log_metric`. Where the prompt is a chat, prompts are
lists of messages and completions are `[{"role": "assistant", "content": …}]`. `None` means that the function does not
apply: the rollout is left out (status `masked`). The function may be `async`. Unlike TRL, a function without `**kwargs`
gets only the parameters that it names, and it is called with one completion at a time, so that a failure costs one
reward; `rewards.options = { batch = true }` calls it with all completions of an attempt.

Also taken: a class with `score(problem, completion)` (`gumption.types.Verifier`), made with `rewards.options`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from gumption.problems.module import find
from gumption.rewards.base import as_reward
from gumption.types import Problem, Reward

_NOT_COLUMNS = frozenset({"prompt", "completion", "completion_ids", "prompts", "completions"})


class ModuleVerifier:
    """Calls the user's function; imported at the first use, in the worker process.

    Args:
        name: `module:function`.
        batch: Call it once per attempt instead of once per completion.
        options: Further keyword arguments of the function (they win over columns of the same name), or of the class.
    """

    wants_ids = True

    def __init__(self, name: str, batch: bool = False, **options: Any) -> None:
        self.name = name
        self.batched = bool(batch)
        self.options = options

    def prepare(self) -> None:
        """Import the module.

        Raises:
            ValueError: there is no such function.
        """
        _ = self._target

    @functools.cached_property
    def _target(self) -> Callable[..., Any]:
        found = find(self.name)
        if inspect.isclass(found) and hasattr(found, "score"):
            made = found(**self.options)
            return functools.partial(_score_each, made)
        return found

    @functools.cached_property
    def _accepts(self) -> frozenset[str] | None:
        """Names of the function's parameters; `None`: it takes any keyword."""
        parameters = inspect.signature(self._target).parameters.values()
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return None
        return frozenset(p.name for p in parameters)

    def score(self, problem: Problem, completion: str, completion_ids: Sequence[int] = ()) -> Reward:
        """The reward of one completion."""
        return self.score_many(problem, [completion], [completion_ids])[0]

    def score_many(
        self, problem: Problem, completions: Sequence[str], completion_ids: Sequence[Sequence[int]] = ()
    ) -> list[Reward]:
        """The rewards of several completions of one problem, from one call."""
        target = self._target
        if isinstance(target, functools.partial):
            result = target(problem, completions)
        else:
            result = target(**self._arguments(problem, completions, completion_ids))
            if inspect.isawaitable(result):
                result = asyncio.run(_wait(result))
        return _rewards(result, len(completions))

    def _arguments(
        self, problem: Problem, completions: Sequence[str], completion_ids: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        n = len(completions)
        if isinstance(problem.prompt, str):
            prompts: list[Any] = [problem.prompt] * n
            texts: list[Any] = list(completions)
        else:
            prompts = [[m._asdict() for m in problem.prompt] for _ in range(n)]
            texts = [[{"role": "assistant", "content": text}] for text in completions]
        columns = {k: v for k, v in {"answer": problem.answer, **problem.meta}.items() if k not in _NOT_COLUMNS}
        given = {
            **{k: [v] * n for k, v in columns.items()},
            "trainer_state": None,
            "log_extra": _ignore,
            "log_metric": _ignore,
            **self.options,
            "prompts": prompts,
            "completions": texts,
            "completion_ids": [list(ids) for ids in completion_ids] or [[] for _ in range(n)],
        }
        return given if self._accepts is None else {k: v for k, v in given.items() if k in self._accepts}


def _score_each(verifier: Any, problem: Problem, completions: Sequence[str]) -> list[Any]:
    return [as_reward(verifier.score(problem, text)) for text in completions]


def _rewards(result: Any, n: int) -> list[Reward]:
    """What the function returned, checked: a list (or array) of n numbers or `None`s."""
    if hasattr(result, "tolist"):
        result = result.tolist()
    if not isinstance(result, (list, tuple)):
        return [Reward(None, status="invalid", detail=f"returned {type(result).__name__}, not a list")] * n
    if len(result) != n:
        detail = f"returned {len(result)} rewards for {n} completions"
        return [Reward(None, status="invalid", detail=detail)] * n
    return [Reward(None, status="masked", detail="returned None") if r is None else as_reward(r) for r in result]


async def _wait(result: Any) -> Any:
    return await result


def _ignore(*args: Any, **kwargs: Any) -> None:
    pass
