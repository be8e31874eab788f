"""What an optimiser is given and what it keeps: decay groups, averaged weights, its state as tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

HALF_LIFE_SHARE = 0.15
"""Half-life of the averaged weights as a share of the steps so far: inside the 10-20 % advised."""


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Split parameters for AdamW: matrices are decayed; alphas, gains, biases, shifts and scales are not."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    groups = [(matrices, weight_decay), (others, 0.0)]
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


def make_accelerator(precision: str) -> Accelerator:
    """Return an Accelerator of this precision, also where another run of the process had another one."""
    mixed = {"fp32": "no", "bf16": "bf16"}[precision]
    if AcceleratorState._shared_state.get("_mixed_precision", mixed) != mixed:
        AcceleratorState._reset_state()
    return Accelerator(mixed_precision=mixed)


class Average:
    """Exponential average of weights whose half-life grows with the run."""

    def __init__(self, model: nn.Module):
        self.names = [n for n, p in model.named_parameters() if p.is_floating_point()]
        self._live = [p for p in model.parameters() if p.is_floating_point()]
        self.values = [p.detach().clone() for p in self._live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the live weights; at step t the half-life is 0.15 t steps."""
        keep = 0.5 ** (1 / (HALF_LIFE_SHARE * step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self._live], 1 - keep)

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap live and averaged weights; call twice."""
        for value, live in zip(self.values, self._live, strict=True):
            kept = live.detach().clone()
            live.copy_(value)
            value.copy_(kept)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state an optimiser keeps, as ``parameter|key`` -> tensor."""
    names = {id(p): n for n, p in model.named_parameters()}
    states = getattr(optimizer, "optimizer", optimizer).state
    return {
        f"{names[id(p)]}|{key}": value
        for p, state in states.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Give an optimiser the state that :func:`optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    states = getattr(optimizer, "optimizer", optimizer).state
    for name, tensor in tensors.items():
        path, _, key = name.rpartition("|")
        states[parameters[path]][key] = tensor.to(parameters[path].device)
