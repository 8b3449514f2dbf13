"""Keeps credentials out of what a run writes down: values of keys that look like secrets are replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"

_SECRET = re.compile(
    r"(^|_)(secret|password|passwd|passphrase|credentials?|authorization|auth|bearer|api_?key|access_?key|private_?key"
    r"|secret_?key|(hf|api|auth|access|bearer|github|wandb)_?token|token)s?$",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"(^|_)(pad|eos|bos|unk|sep|cls|mask|stop|end|start|special|max|min)_tokens?$", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Does a key of this name usually hold a credential?

    >>> [is_secret_key(k) for k in ("api_key", "hf-token", "WANDB_API_KEY", "max_tokens", "pad_token", "author")]
    [True, True, True, False, False, False]
    """
    key = key.replace("-", "_")
    return bool(_SECRET.search(key)) and not _NOT_SECRET.search(key)


def redact(tree: Any) -> Any:
    """A copy of nested mappings and lists in which text under secret-looking keys reads "[redacted]".

    Numbers stay (`tokens = 5` is a budget), empty strings too.

    >>> redact({"rewards": {"options": {"api_key": "abc", "tokens": 5}}})
    {'rewards': {'options': {'api_key': '[redacted]', 'tokens': 5}}}
    """
    if isinstance(tree, Mapping):
        return {k: _value(str(k), v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [redact(v) for v in tree]
    return tree


def _value(key: str, value: Any) -> Any:
    if is_secret_key(key):
        if isinstance(value, str):
            return REDACTED if value else value
        if isinstance(value, (list, tuple)):
            return [REDACTED if isinstance(v, str) and v else redact(v) for v in value]
    return redact(value)
