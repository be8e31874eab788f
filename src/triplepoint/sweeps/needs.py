"""What a cell will cost, estimated before it starts: work, memory and disk."""

from __future__ import annotations

import dataclasses

from triplepoint.checkpoints import KEEP
from triplepoint.models.sizes import Config

PROCESS_BYTES = 500 * 2**20
"""A worker with all that it loads; the peak of a run of 0.4M parameters was 488 MiB on Linux."""
FLOATS_PER_FEATURE = 17
"""Kept for the backward pass per token, layer and feature: 34 bytes at 16 bits without attention scores, arXiv
2205.05198, eq. 1."""
RECORDS_BYTES = 8 * 2**20
"""Records and arrays; a DyT run of 3000 steps at 0.4M parameters wrote 0.9 MB, larger models have more sites."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Need:
    """What one cell takes. Estimates: they decide what is refused and how the time left is told, no result."""

    params: int
    """Parameters in all."""
    work: float
    """Steps x parameters x tokens per step: proportional to the arithmetic."""
    memory: int
    """Bytes of its process at the most."""
    disk: int
    """Bytes of its folder at the most, while it runs."""


def need_of(config: Config, *, params: int, steps: int, batch: int) -> Need:
    """Estimate what a run of a configuration needs.

    Weights, gradients, AdamW's two moments, an average and the best weights make six floats per parameter in
    memory; a checkpoint has four of them, two checkpoints are kept and a third is being written.

    Args:
        config: Shape of the model.
        params: Its parameters, with whatever op stands in it.
        steps: Optimiser steps.
        batch: Sequences, or images, per step.

    Example:
        >>> from triplepoint.models import config_of
        >>> need_of(config_of("gpt2-0.4m"), params=369312, steps=10, batch=8).work == 10 * 369312 * 8 * 128
        True
    """
    tokens = batch * (config.tokens if hasattr(config, "tokens") else config.context)
    kept = tokens * config.layers * config.width * FLOATS_PER_FEATURE
    logits = 4 * batch * getattr(config, "context", 1) * getattr(config, "vocab", 1)
    return Need(
        params=params,
        work=float(steps) * params * tokens,
        memory=PROCESS_BYTES + 4 * (6 * params + kept + logits),
        disk=4 * params * (4 * (KEEP + 1) + 1) + RECORDS_BYTES,
    )
