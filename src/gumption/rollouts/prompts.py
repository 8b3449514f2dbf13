"""Problem → prompt ids: plain text as it is, chat messages through the model's chat template."""

from __future__ import annotations

from typing import Any

import numpy as np

from gumption.types import IntArray, Problem


class PromptError(ValueError):
    """A problem without a usable prompt for this model: its rollouts finish with `error`."""


def prompt_text(tokenizer: Any, problem: Problem, system_prompt: str | None = None) -> str:
    """The prompt as the model reads it, special tokens of a chat template included.

    Args:
        tokenizer: Hugging Face tokenizer.
        problem: Its prompt is a string (returned unchanged) or chat messages.
        system_prompt: Put before chat messages that have no system message of their own.

    Raises:
        PromptError: the tokenizer has no chat template, or the template rejects the messages.
    """
    if isinstance(problem.prompt, str):
        return problem.prompt
    messages = [{"role": m.role, "content": m.content} for m in problem.prompt]
    if system_prompt and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system_prompt})
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError("chat prompt, but the tokenizer has no chat template: set model.chat_template")
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs: they raise whatever they like
        raise PromptError(f"the chat template failed: {error}") from error
    return str(text)


def encode_prompt(tokenizer: Any, problem: Problem, *, system_prompt: str | None = None, max_tokens: int) -> IntArray:
    """Token ids of a problem's prompt (int32).

    Plain text gets the special tokens that the tokenizer puts in front by itself; a chat template writes its own.

    Args:
        tokenizer: Hugging Face tokenizer.
        problem: The problem.
        system_prompt: See `prompt_text`.
        max_tokens: Longest prompt that is accepted.

    Raises:
        PromptError: no template, a failing template, no tokens at all, or too many of them.
    """
    text = prompt_text(tokenizer, problem, system_prompt)
    try:
        encoded = tokenizer(text, add_special_tokens=isinstance(problem.prompt, str))["input_ids"]
    except Exception as error:  # a tokenizer without an unknown token, for one
        raise PromptError(f"the tokenizer failed: {error}") from error
    if not encoded:
        raise PromptError("the prompt has no tokens")
    if len(encoded) > max_tokens:
        raise PromptError(f"the prompt has {len(encoded)} tokens; at most {max_tokens} (rollouts.max_prompt_tokens)")
    return np.asarray(encoded, np.int32)
