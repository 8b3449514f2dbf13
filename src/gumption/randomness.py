"""Counter-based random numbers: every draw is a hash of what it is for, so nothing depends on batch composition.

No generator object is kept per rollout and no global generator is touched: the same seed gives the same draw whatever
else is in flight, after a resume too.
"""

from __future__ import annotations

import hashlib

import numpy as np

from gumption.types import FloatArray, IntArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def key(seed: int, stage: str, *parts: str | int) -> int:
    """64-bit key of (run seed, stage, whatever names the draw).

    >>> key(0, "coin", "x-0", 1) == key(0, "coin", "x-0", 1), key(0, "coin", "x-0", 1) == key(0, "coin", "x-0", 2)
    (True, False)
    """
    text = "\x1f".join((str(seed), stage, *map(str, parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform(seed: int, stage: str, *parts: str | int) -> float:
    """One uniform number in [0, 1).

    >>> 0.0 <= uniform(0, "coin", "x-0", 1) < 1.0
    True
    """
    return (key(seed, stage, *parts) >> 11) * 2.0**-53


def uniforms(keys_B: IntArray, counters_B: IntArray) -> FloatArray:
    """Uniform numbers in [0, 1), one for each (key, counter): splitmix64 of key + counter · golden ratio.

    Args:
        keys_B: uint64 keys from `key`.
        counters_B: Non-negative integers (the token index within the completion).

    Returns:
        float64, shape of the broadcast inputs.

    >>> u = uniforms(np.array([7, 7], np.uint64), np.array([0, 1]))
    >>> bool(0 <= u.min() and u.max() < 1 and u[0] != u[1])
    True
    """
    if np.ndim(keys_B) or np.ndim(counters_B):
        return _mixed(keys_B, counters_B)
    with np.errstate(over="ignore"):  # numpy warns of scalars that wrap around, not of arrays
        return _mixed(keys_B, counters_B)


def _mixed(keys_B: IntArray, counters_B: IntArray) -> FloatArray:
    z = keys_B.astype(np.uint64, copy=False) + (counters_B.astype(np.uint64, copy=False) + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z = z ^ (z >> np.uint64(31))
    result: FloatArray = (z >> np.uint64(11)) * 2.0**-53
    return result


def generator(seed: int, stage: str, *parts: str | int) -> np.random.Generator:
    """A numpy generator for one named purpose (a selector's tie-breaks in one update)."""
    return np.random.default_rng(key(seed, stage, *parts))
