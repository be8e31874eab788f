"""How a live model is looked at: where, in which mode, and what is counted at an op."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from triplepoint.families import find_norms
from triplepoint.metrics import THRESHOLDS, Metric, saturation
from triplepoint.ops import NormOp


def sites_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return path -> module of every op and every recognised norm of ``model``, in module order."""
    # by identity: the paths of norms leave out what wraps the model
    recognised = {site.module for site in find_norms(model) if site.reason is None}
    return {
        path: module
        for path, module in model.named_modules()
        if module in recognised or isinstance(module, NormOp)
    }


def saturation_of(op: nn.Module, *, dtype: torch.dtype) -> Metric | None:
    """Return the saturation metric with the edges of ``op``, or None where it squashes nothing."""
    if getattr(op, "slope_edge", None) is None:
        return None
    edges = {f"@{t:g}": t for t in THRESHOLDS}
    return saturation(edges | {"_slope": op.slope_edge, "_exact": op.exact_edge(dtype)})


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode without gradients, and leave modes and random numbers as they were."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
