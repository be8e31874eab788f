"""A copy of a small module that can be run without a trace in the original."""

from __future__ import annotations

import functools
import types

import torch
from torch import Tensor, nn


def private_copy(
    module: nn.Module, random: torch.Generator, device: torch.device | str = "cpu"
) -> nn.Module:
    """Return a module of the same class and settings, in eval mode, with parameters and state of its own.

    Running it leaves ``module`` alone. Parameters are drawn from [0.5, 1.5), float32, whatever those of ``module``
    hold, so that one on the meta device has a copy as well. Hooks and children are left out.

    Args:
        module: A module without children.
        random: Where the parameters are drawn from; of the CPU.
        device: Where the copy lives.

    Example:
        >>> copy = private_copy(nn.LayerNorm(3, device="meta"), torch.Generator().manual_seed(0))
        >>> type(copy).__name__, copy.weight.shape, copy.weight.device.type, copy.training
        ('LayerNorm', torch.Size([3]), 'cpu', False)
    """
    # not copy.copy: FSDP changes the class of what it wraps so that copies are of another class
    copy = object.__new__(type(module))
    plain = {
        n: v.copy() if isinstance(v, list | dict | set) else v for n, v in vars(module).items()
    }
    vars(copy).update(plain)
    fresh = nn.Module()
    vars(copy).update({n: v for n, v in vars(fresh).items() if n != "training"}, training=False)
    for name, parameter in module._parameters.items():
        values = (
            None
            if parameter is None
            else torch.rand(parameter.shape, generator=random, device="cpu")
        )
        copy._parameters[name] = None if values is None else nn.Parameter((values + 0.5).to(device))
    for name, buffer in module._buffers.items():
        copy._buffers[name] = None if buffer is None else _own(buffer, device)
    _rebind(module, copy)
    return copy


def _own(buffer: Tensor, device: torch.device | str) -> Tensor:
    if buffer.is_meta:
        return torch.zeros(buffer.shape, dtype=buffer.dtype, device=device)
    return buffer.detach().to(device, copy=True)


def _rebind(module: nn.Module, copy: nn.Module) -> None:
    """Let a forward that was patched onto the instance work on the copy; Accelerate keeps the real one aside."""
    forward = vars(module).get("_old_forward", vars(module).get("forward"))
    if isinstance(forward, types.MethodType) and forward.__self__ is module:
        copy.__dict__["forward"] = types.MethodType(forward.__func__, copy)
    elif isinstance(forward, functools.partial):
        arguments = [copy if a is module else a for a in forward.args]
        copy.__dict__["forward"] = functools.partial(forward.func, *arguments, **forward.keywords)
    elif forward is not None:
        copy.__dict__["forward"] = forward
