"""The model of a cell: a named size for its data, changed, with an op at its norm sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from triplepoint.errors import PlanError
from triplepoint.models import config_of, model_of
from triplepoint.models.sizes import Config
from triplepoint.ops import NormOp
from triplepoint.surgery import swap_norms


def config_for(
    size: str,
    *,
    changes: Mapping[str, Any],
    dropout: float = 0.0,
    vocab: int | None = None,
    context: int | None = None,
    image: tuple[int, int, int] | None = None,
) -> Config:
    """Return a named size's configuration for its data, with fields changed.

    Args:
        size: A named size.
        changes: Field -> value.
        dropout: The model's.
        vocab: Of the text; None for the size's own.
        context: Tokens per sequence; None for the size's own.
        image: Height (and width), channels and classes of the images, for a ``vit`` size.

    Raises:
        PlanError: If the size has no such field, the shape is impossible, or the images are of another shape.

    Example:
        >>> config_for("gpt2-0.1m", changes={"heads": 2}, context=64).heads
        2
    """
    config = config_of(size, vocab=vocab, context=context, dropout=dropout)
    if image is not None:
        config = dataclasses.replace(config, classes=_classes_for(size, config, image))
    known = {field.name for field in dataclasses.fields(config)}
    foreign = sorted(set(changes) - known)
    if foreign:
        raise PlanError(
            f"{size} has no {', '.join(foreign)} to choose.\nLeave it out for this size; it has: {', '.join(sorted(known))}."
        )
    return dataclasses.replace(config, **changes)


def _classes_for(size: str, config: Config, image: tuple[int, int, int]) -> int:
    height, channels, classes = image
    if (config.image, config.channels) != (height, channels):
        raise PlanError(
            f"{size} reads images of {config.image} pixels in {config.channels} channels, the data have "
            f"{height} in {channels}.\nUse vit-4.8m for CIFAR, the other vit sizes for the digits."
        )
    return classes


def build_model(
    size: str,
    *,
    op: str | None,
    vocab: int | None = None,
    context: int | None = None,
    dropout: float = 0.0,
    image: tuple[int, int, int] | None = None,
    alpha: float | None = None,
    changes: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Build a named size with its norms replaced by ``op``, and perhaps with another alpha or shape.

    Raises:
        PlanError: If ``alpha`` is given to an op that has none, or the shape is impossible.
    """
    config = config_for(
        size, changes=changes or {}, vocab=vocab, context=context, dropout=dropout, image=image
    )
    model = model_of(config)
    if op is not None:
        swap_norms(model, op)
    if alpha is not None:
        set_alpha(model, alpha, op=op)
    return model


def set_alpha(model: nn.Module, alpha: float, *, op: str | None) -> None:
    """Give every op of ``model`` the same initial alpha.

    Raises:
        PlanError: If there is no op with an alpha, or ``alpha`` is not positive and finite.
    """
    alphas = [m.alpha for m in model.modules() if isinstance(m, NormOp) and hasattr(m, "alpha")]
    if not alphas:
        raise PlanError(
            f"{op or 'The model as it is'} has no alpha, so it cannot be born as {alpha:g}.\n"
            "Give alpha with dyt, derf or hardtanh_alpha only."
        )
    if not (math.isfinite(alpha) and alpha > 0):
        raise PlanError(f"alpha must be positive and finite, got {alpha}.\nTry alpha = 1.0.")
    with torch.no_grad():
        for own in alphas:
            own.fill_(alpha)
