"""Orders and thresholds that chance decides where values are equal: position is completion order, hence length."""

from __future__ import annotations

import numpy as np

from gumption.types import FloatArray, IntArray

NOISE = 1e-9
"""Values that differ by no more than this share of the largest are equal."""


def levels(values_G: FloatArray) -> FloatArray:
    """Values ≥ 0 on a grid on which float noise is invisible: integers, 0 for nothing.

    >>> levels(np.array([0.3, 0.1 + 0.2, 0.0])).tolist()
    [1000000000.0, 1000000000.0, 0.0]
    """
    top = float(values_G.max(initial=0.0))
    if top <= 0:
        return np.zeros(values_G.shape)
    result: FloatArray = np.rint(values_G / (top * NOISE))
    return result


def descending(values_G: FloatArray, rng: np.random.Generator) -> IntArray:
    """Indices by descending value; equal ones (up to float noise) in random order.

    >>> descending(np.array([0.0, 2.0, 1.0]), np.random.default_rng(0)).tolist()
    [1, 2, 0]
    """
    order_G: IntArray = np.lexsort((rng.random(values_G.size), -levels(values_G)))
    return order_G
