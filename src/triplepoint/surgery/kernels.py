"""Torch's fused inference kernels, which compute a real LayerNorm whatever module stands there."""

from __future__ import annotations

from torch import nn

_FUSED = {
    nn.TransformerEncoderLayer: ("activation_relu_or_gelu", 0),
    nn.TransformerEncoder: ("use_nested_tensor", False),
}
"""What switches off torch's fused inference kernels."""


def set_fused_kernels(model: nn.Module) -> None:
    """Switch them off around replaced norms, and elsewhere back to what they were."""
    # they compute a real LayerNorm from norm1.weight and norm1.bias, whatever module norm1 is
    for kind, (flag, off) in _FUSED.items():
        for module in [m for m in model.modules() if isinstance(m, kind)]:
            if any("_replaced" in inner.__dict__ for inner in module.modules()):
                module.__dict__.setdefault("_fused_before_swap", getattr(module, flag))
                setattr(module, flag, off)
            elif "_fused_before_swap" in module.__dict__:
                setattr(module, flag, module.__dict__.pop("_fused_before_swap"))
