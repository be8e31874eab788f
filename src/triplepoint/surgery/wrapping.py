"""Models inside a wrapper: looked through where that is safe, refused where it is not."""

from __future__ import annotations

from torch import nn

from triplepoint.errors import ModelError
from triplepoint.families.wrappers import unwrapped


def inner_model(model: nn.Module, verb: str) -> nn.Module:
    """Return the model inside its wrappers, whose modules may be replaced.

    A compiled model is fine: torch compiles anew when a module has changed its class. So is PEFT. Not so what
    keeps a list of the parameters of its own, which a swap would leave out of step.

    Raises:
        ModelError: If it is no module, or is wrapped for distributed training already.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{verb} changes an nn.Module in place, got {type(model).__name__}.\nPass the model itself."
        )
    if wrapper := _distributed(model):
        raise ModelError(
            f"{type(model).__name__} is distributed already ({wrapper}): new parameters would not be "
            f"synchronised across processes.\nCall {verb} before wrapping or sharding the model."
        )
    return unwrapped(model)


def _distributed(model: nn.Module) -> str | None:
    """Return what holds the parameters of a model that is distributed; None where nothing does."""
    for module in model.modules():
        # by name: importing torch's sharding takes longer than a swap
        if type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
            return type(module).__name__
    sharded = any(type(p).__name__ == "DTensor" for p in model.parameters())
    return "its parameters are DTensors" if sharded else None
