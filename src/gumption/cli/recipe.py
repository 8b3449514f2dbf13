"""A recipe and its `--set` options, or the options alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gumption.config import RunConfig, apply_overrides


def read_recipe(recipe: Path | None, overrides: Sequence[str]) -> RunConfig:
    """The recipe with its overrides; without one, the defaults with them.

    Raises:
        ValueError: the file or a setting is wrong.
    """
    if recipe is not None:
        return RunConfig.from_toml(recipe, overrides)
    return RunConfig.from_dict(apply_overrides({}, overrides))
