"""What wraps a model without being part of it: compilation, data parallelism, adapters."""

from __future__ import annotations

from torch import nn

from triplepoint.errors import ModelError

_WRAPPED_AS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module")
"""Where ``torch.compile``, FSDP, activation checkpointing, and DDP, DataParallel and DeepSpeed keep the model."""


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside its wrappers; a model without any is returned itself.

    Wrappers are told by structure, so that none of their libraries is imported: a module whose only child is
    called as ``torch.compile``, DDP, FSDP or DeepSpeed call it, and PEFT's two shells (``base_model.model``).

    Raises:
        ModelError: If it is no module.

    Example:
        >>> inner = nn.Linear(2, 2)
        >>> unwrapped(nn.DataParallel(inner)) is inner
        True
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"A model is an nn.Module, got {type(model).__name__}.\nPass the model itself."
        )
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def _inside(model: nn.Module) -> nn.Module | None:
    children = dict(model.named_children())  # TorchScript's own mapping has no get
    if len(children) == 1 and (name := next(iter(children))) in _WRAPPED_AS:
        return children[name]
    tuner = children.get("base_model")
    if tuner is None or not hasattr(model, "peft_config"):
        return None
    # LoRA and its like keep the model one level deeper; prompt tuning does not
    return tuner._modules.get("model", tuner) if hasattr(tuner, "peft_config") else tuner


def plain_path(path: str) -> str:
    """Return a dotted path without the parts that wrappers around inner modules add.

    Example:
        >>> plain_path("layers.0._orig_mod.ln_1")
        'layers.0.ln_1'
    """
    return ".".join(part for part in path.split(".") if part not in _WRAPPED_AS[:3])


def adapter_around(model: nn.Module, path: str) -> str | None:
    """Return the path of the adapter that holds the module at ``path`` in two versions, or None.

    PEFT keeps a frozen original beside its trained copies (``modules_to_save``) or additions (``base_layer``).
    """
    parts = path.split(".")
    for end in range(len(parts)):
        above = ".".join(parts[:end])
        children = dict(model.get_submodule(above).named_children())
        if {"original_module", "modules_to_save"} <= set(children):
            return above
        if "base_layer" in children and len(children) > 1:
            return above
    return None
