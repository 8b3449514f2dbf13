"""Tokens per second of a generator and a trainer, from peaks: a roofline with stated efficiencies.

A decode step of S sequences reads all weights and every sequence's KV cache once, and computes 2N + attention per
sequence; it takes the longer of the two times. A trainer does three forward passes' worth of FLOPs per token.

Assumed: bfloat16 weights and KV cache; each accelerator has its share of the slots, and models that do not fit into one
are spread without loss; 60 % of the bandwidth and 50 % of the FLOPs in decoding (continuous batching, CUDA graphs);
40 % of the FLOPs in training; prefill takes no time. Where it matters, measure your system and put its rates into
[simulation].
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gumption.flops import ModelShape
from gumption.planning.hardware import Hardware

BYTES = 2
BANDWIDTH_SHARE, DECODE_SHARE, TRAIN_SHARE = 0.6, 0.5, 0.4
KV_HEADS = 8
_SHAPES = (  # parameters, layers, heads, head size: configurations of the Qwen3 family, as published on the hub
    (0.6e9, 28, 16, 128),
    (1.7e9, 28, 16, 128),
    (4.0e9, 36, 32, 128),
    (8.2e9, 36, 32, 128),
    (14.8e9, 40, 40, 128),
    (32.8e9, 64, 64, 128),
)


def shape_for(params: float) -> ModelShape:
    """A decoder of about this size: layers and heads of the Qwen3 model that is nearest in size.

    Below 0.3 B they shrink with the cube root of the size.

    Raises:
        ValueError: not above 0.

    >>> shape_for(4e9)
    ModelShape(matmul_params=4000000000, layers=36, heads=32, head_dim=128)
    """
    if not (params >= 1 and math.isfinite(params)):
        raise ValueError(f"model parameters must be a number above 0, got {params!r}")
    _, layers, heads, head_dim = min(_SHAPES, key=lambda s: abs(math.log(s[0] / params)))
    shrink = min(1.0, (params / 0.3e9) ** (1 / 3))
    return ModelShape(round(params), max(1, round(layers * shrink)), max(1, round(heads * shrink)), head_dim)


class Rates(NamedTuple):
    """Speeds of a system.

    Args:
        per_slot: Tokens per second of one slot.
        trainer_flops: FLOPs per second of the trainer.
        bound: What limits decoding: "bandwidth" or "compute".
    """

    per_slot: float
    trainer_flops: float
    bound: str


def rates(
    shape: ModelShape, hardware: Hardware, *, generators: int, trainers: int, slots: int, context: float
) -> Rates:
    """Speeds with so many accelerators on each side.

    t_step = max((2N + S·KV·context)/(bandwidth share), S·(2N + 4LHQ·context)/(FLOP share)), S slots per accelerator

    Args:
        shape: The policy.
        hardware: One accelerator.
        generators: Accelerators that generate.
        trainers: Accelerators that train.
        slots: Rollouts in flight on all generators together.
        context: Mean tokens in a sequence's cache.

    Raises:
        ValueError: a count below 1.

    >>> from gumption.planning.hardware import preset
    >>> r = rates(shape_for(4e9), preset("h100"), generators=6, trainers=2, slots=384, context=1000)
    >>> round(r.per_slot), r.bound
    (115, 'bandwidth')
    """
    if min(generators, trainers, slots) < 1:
        raise ValueError(f"generators = {generators}, trainers = {trainers}, slots = {slots} must be at least 1")
    each = slots / generators
    kv = 2 * shape.layers * min(KV_HEADS, shape.heads) * shape.head_dim * BYTES
    reading = (BYTES * shape.matmul_params + each * kv * context) / (hardware.bandwidth * BANDWIDTH_SHARE)
    computing = (
        each * (2 * shape.matmul_params + shape.attention_flops * context) / (hardware.peak_flops * DECODE_SHARE)
    )
    return Rates(
        1 / max(reading, computing),
        trainers * hardware.peak_flops * TRAIN_SHARE,
        "bandwidth" if reading >= computing else "compute",
    )


def slots_that_fit(shape: ModelShape, hardware: Hardware, *, generators: int, longest: int) -> int:
    """Rollouts whose KV caches, at their longest, fit beside the weights into 90 % of the generators' memory (0: none).

    >>> from gumption.planning.hardware import preset
    >>> slots_that_fit(shape_for(4e9), preset("h100"), generators=1, longest=4096)
    105
    """
    kv = 2 * shape.layers * min(KV_HEADS, shape.heads) * shape.head_dim * BYTES
    free = 0.9 * hardware.memory * generators - BYTES * shape.matmul_params * max(
        1, generators if BYTES * shape.matmul_params < 0.9 * hardware.memory else 1
    )
    return max(0, int(free / (kv * longest)))
