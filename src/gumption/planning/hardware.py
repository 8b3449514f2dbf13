"""Accelerators: what their makers say that one of them can do.

Dense bfloat16 peaks, without sparsity. What a program gets of them is an assumption of `speed.py`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator.

    Args:
        peak_flops: Dense bfloat16 FLOPs per second.
        bandwidth: Bytes per second of its memory.
        memory: Bytes.
        source: Where the numbers are from.
    """

    peak_flops: float
    bandwidth: float
    memory: float
    source: str


PRESETS: dict[str, Hardware] = {
    "a100": Hardware(312e12, 2.039e12, 80e9, "nvidia.com/en-us/data-center/a100 (SXM, 80 GB)"),
    "h100": Hardware(
        989e12, 3.35e12, 80e9, "nvidia.com/en-us/data-center/h100 (SXM; half of the figure with sparsity)"
    ),
    "h200": Hardware(
        989e12, 4.8e12, 141e9, "nvidia.com/en-us/data-center/h200 (SXM; half of the figure with sparsity)"
    ),
    "b200": Hardware(
        2.25e15, 7.7e12, 180e9, "nvidia.com/en-us/data-center/hgx (an eighth of HGX B200; half with sparsity)"
    ),
    "l4": Hardware(121e12, 0.3e12, 24e9, "nvidia.com/en-us/data-center/l4 (half of the figure with sparsity)"),
    "l40s": Hardware(362e12, 0.864e12, 48e9, "nvidia.com/en-us/data-center/l40s (dense)"),
    "rtx4090": Hardware(165.2e12, 1.008e12, 24e9, "NVIDIA Ada GPU architecture white paper (FP32 accumulate, dense)"),
    "mi300x": Hardware(1307.4e12, 5.3e12, 192e9, "amd.com/en/products/accelerators/instinct/mi300/mi300x.html"),
    "tpu-v5e": Hardware(197e12, 0.819e12, 16e9, "cloud.google.com/tpu/docs/v5e"),
}
"""By name, in lower case."""


def preset(name: str) -> Hardware:
    """Look an accelerator up.

    Raises:
        ValueError: there is no preset of that name.

    >>> preset("H100").memory
    80000000000.0
    """
    try:
        return PRESETS[name.lower()]
    except KeyError:
        close = difflib.get_close_matches(name.lower(), PRESETS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown hardware {name!r}; {hint}presets: {', '.join(PRESETS)}") from None
