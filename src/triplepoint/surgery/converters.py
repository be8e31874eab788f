"""The converters of DyT's and Derf's repositories by their names: :func:`swap_norms`, for one kind of norm."""

from __future__ import annotations

from typing import Any

from torch import nn

from triplepoint.surgery.choosing import chooser
from triplepoint.surgery.reports import SwapReport
from triplepoint.surgery.swapping import swap_norms


def convert_ln_to_dyt(model: nn.Module, **options: Any) -> SwapReport:
    """Swap the LayerNorms of ``model`` for DyT, in place; ``options`` are those of :func:`swap_norms`.

    NOT the authors' function, which returns the module, starts each gain at 1 and takes no RMSNorm either.

    Example:
        >>> model = nn.Sequential(nn.LayerNorm(2), nn.RMSNorm(2))
        >>> [item.path for item in convert_ln_to_dyt(model).swapped]
        ['0']
    """
    return _convert(model, "dyt", "layernorm", **options)


def convert_rmsnorm_to_dyt(model: nn.Module, **options: Any) -> SwapReport:
    """Swap the RMSNorms of ``model`` for DyT, in place; ``options`` are those of :func:`swap_norms`."""
    return _convert(model, "dyt", "rmsnorm", **options)


def convert_ln_to_derf(model: nn.Module, **options: Any) -> SwapReport:
    """Swap the LayerNorms of ``model`` for Derf, in place; ``options`` are those of :func:`swap_norms`."""
    return _convert(model, "derf", "layernorm", **options)


def convert_rmsnorm_to_derf(model: nn.Module, **options: Any) -> SwapReport:
    """Swap the RMSNorms of ``model`` for Derf, in place; ``options`` are those of :func:`swap_norms`."""
    return _convert(model, "derf", "rmsnorm", **options)


def _convert(model: nn.Module, op: str, kind: str, **options: Any) -> SwapReport:
    chosen = chooser(options.pop("where", None))
    return swap_norms(model, op, where=lambda site: site.kind == kind and chosen(site), **options)
