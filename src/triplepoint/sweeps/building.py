"""The model of a cell, for its data, perhaps changed, with an op at its norm sites."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from triplepoint.blueprints import AS_IT_IS, Shape, blueprint_of
from triplepoint.errors import PlanError
from triplepoint.families import find_norms
from triplepoint.ops import NormOp
from triplepoint.surgery import swap_norms


def build_model(
    model: str,
    *,
    op: str | None,
    shape: Shape = AS_IT_IS,
    alpha: float | None = None,
    changes: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Build MODEL with its norms replaced by ``op``, and perhaps with another alpha or shape.

    Args:
        model: As :func:`triplepoint.blueprints.blueprint_of` takes it.
        op: With or without preset; None to leave the norms.
        shape: What the model takes from its data.
        alpha: At every site of the op; None for the preset's.
        changes: Fields of its configuration that differ from its own; of a function, keywords.

    Raises:
        PlanError: If ``alpha`` is given to an op that has none, or the shape is impossible.
    """
    blueprint = blueprint_of(model)
    if changes:
        blueprint = blueprint.changed(changes)
    built = blueprint.build(shape)
    if op is not None:
        swap_norms(built, op)
    if alpha is not None:
        set_alpha(built, alpha, op=op)
    return built


def own_norm(model: nn.Module) -> str:
    """Return the name of a model's own norm, which its baseline is called by: ``baseline`` where it has several kinds."""
    kinds = {s.kind for s in find_norms(model) if s.reason is None}
    kinds |= {type(m).__name__.lower() for m in model.modules() if isinstance(m, NormOp)}
    return kinds.pop() if len(kinds) == 1 else "baseline"


def set_alpha(model: nn.Module, alpha: float, *, op: str | None) -> None:
    """Give every op of ``model`` the same initial alpha.

    Raises:
        PlanError: If there is no op with an alpha, or ``alpha`` is not positive and finite.
    """
    alphas = [m.alpha for m in model.modules() if isinstance(m, NormOp) and hasattr(m, "alpha")]
    if not alphas:
        raise PlanError(
            f"{op or 'The model as it is'} has no alpha, so it cannot be born as {alpha:g}.\n"
            "Give alpha with an op that has one, e.g. dyt, derf or hardtanh_alpha."
        )
    if not (math.isfinite(alpha) and alpha > 0):
        raise PlanError(f"alpha must be positive and finite, got {alpha}.\nTry alpha = 1.0.")
    with torch.no_grad():
        for own in alphas:
            own.fill_(alpha)
