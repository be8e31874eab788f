"""States of one step, summed over the processes of a run."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from triplepoint.metrics import State

States = dict[str | None, dict[str, State]]
"""Site -> metric -> state; the site is None for the whole model."""


def sum_over_ranks(states: States, *, device: torch.device) -> States:
    """Return the entry-wise sum of every rank's states: the same on all, which must all call it.

    One exchange of names and shapes, since a rank may not have seen every site, and one all-reduce in float64,
    where counts up to 2^53 are exact. Without a process group the states are returned as they are.

    Args:
        states: What this rank has seen.
        device: Where tensors are exchanged.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return states
    own = {
        (site, metric, entry): tensor
        for site, metrics in states.items()
        for metric, state in metrics.items()
        for entry, tensor in state.items()
    }
    kinds: list[dict] = [{}] * distributed.get_world_size()
    distributed.all_gather_object(kinds, {k: (t.shape, t.dtype) for k, t in own.items()})
    kind = {key: of for found in kinds for key, of in found.items()}
    if not kind:
        return {}
    keys = sorted(kind, key=str)
    own |= {key: torch.zeros(kind[key][0]) for key in keys if key not in own}
    parts = [own[key].to(device, torch.float64).reshape(-1) for key in keys]
    total = torch.cat(parts)
    distributed.all_reduce(total)
    summed: States = {}
    for key, tensor in zip(keys, total.split([p.numel() for p in parts]), strict=True):
        shape, dtype = kind[key]
        site, metric, entry = key
        state = summed.setdefault(site, {}).setdefault(metric, {})
        state[entry] = tensor.view(shape).to(dtype)
    return summed


def whole(parameter: Tensor) -> Tensor:
    """Return a parameter as one tensor; where FSDP2 shards it, every rank must call this."""
    parameter = parameter.detach()
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
