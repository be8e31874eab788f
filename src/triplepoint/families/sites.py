"""Find the norms of a model, and what looks like one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from torch import nn

from triplepoint.ops import NormFacts, facts_of

ROLES = (
    "pre_attn", "post_attn", "pre_mlp", "post_mlp", "qk", "embed", "inner", "final", "other",
)  # fmt: skip
"""What a norm stands before or after."""

_ROLE_OF_NAME = [  # the last part of the path, first match wins
    (r"^(q|k|query|key)_?(layer)?_?norm|qk_?norm", "qk"),
    (r"^(subln|sub_norm|sub_?layer_?norm|inner_attn_ln)$", "inner"),
    (r"emb", "embed"),
    (r"^(ln_1|ln1|norm_?1|input_layernorm|attention_norm|attn_norm|pre_attn_norm|self_attn_layer_norm)$", "pre_attn"),
    (r"^(ln_2|ln2|norm_?2|post_attention_layernorm|ffn_norm|mlp_norm|pre_mlp_norm)$", "pre_mlp"),
    (r"^(ln_f|norm_f|final_layernorm|final_layer_norm|final_norm|ln_final|ln_out)$", "final"),
]  # fmt: skip

_REFUSED = {
    nn.modules.batchnorm._BatchNorm: "normalises over the batch, which a per-token op cannot stand in for",
    nn.GroupNorm: "normalises over groups of channels and positions, which a per-token op cannot stand in for",
    nn.modules.instancenorm._InstanceNorm: "normalises over positions, which a per-token op cannot stand in for",
    nn.LocalResponseNorm: "normalises over neighbouring channels only",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormSite:
    """One norm of a model.

    ``kind`` is ``layernorm``, ``rmsnorm`` or ``look-alike``; for the last, ``reason`` says why it can't be
    replaced. A module under several paths is one site, at its first path.
    """

    path: str
    kind: str
    role: str
    depth: int | None
    module: nn.Module = dataclasses.field(repr=False)
    facts: NormFacts | None = None
    """What it is; None for a look-alike."""
    reason: str | None = None


def find_norms(model: nn.Module) -> list[NormSite]:
    """Return every norm of ``model``, and everything that looks like one, in the order of its modules.

    Recognised are ``nn.LayerNorm`` and ``nn.RMSNorm`` over the last axis, and subclasses that keep their
    ``forward``. Whatever else has ``norm`` in its class name and no children is a look-alike.
    """
    return [site for path, module in model.named_modules() if (site := _site(model, path, module))]


def _site(model: nn.Module, path: str, module: nn.Module) -> NormSite | None:
    kind, reason = _kind(module)
    if kind is None:
        return None
    numbers = re.findall(r"(?:^|\.)(\d+)(?:\.|$)", path)
    return NormSite(
        path=path,
        kind=kind,
        role=_role(model, path),
        depth=int(numbers[0]) if numbers else None,
        module=module,
        facts=facts_of(module) if reason is None else None,
        reason=reason,
    )


def _kind(module: nn.Module) -> tuple[str | None, str | None]:
    if isinstance(module, nn.LayerNorm | nn.RMSNorm) and set(module._parameters) - {
        "weight",
        "bias",
    }:
        return (
            "look-alike",
            f"its parameters are {', '.join(module._parameters)}: its weight is computed from others",
        )
    if isinstance(module, nn.LayerNorm | nn.RMSNorm) and hasattr(module, "parametrizations"):
        return "look-alike", "its weight is parametrised, which an op would not be"
    for standard, kind in ((nn.LayerNorm, "layernorm"), (nn.RMSNorm, "rmsnorm")):
        if isinstance(module, standard):
            if type(module).forward is not standard.forward:
                return "look-alike", f"its class {type(module).__name__} has a forward of its own"
            if len(module.normalized_shape) != 1:
                return "look-alike", f"normalises over {len(module.normalized_shape)} axes"
            return kind, None
    for refused, reason in _REFUSED.items():
        if isinstance(module, refused):
            return "look-alike", reason
    if "norm" in type(module).__name__.lower() and not any(module.children()):
        return (
            "look-alike",
            f"its class {type(module).__name__} is not one that is known to be a LayerNorm or RMSNorm",
        )
    return None, None


def _role(model: nn.Module, path: str) -> str:
    parent_path, _, name = path.rpartition(".")
    role = next((r for pattern, r in _ROLE_OF_NAME if re.search(pattern, name.lower())), None)
    if (
        role is None
        and re.fullmatch(r"norm|ln|layer_?norm", name.lower())
        and not re.search(r"\d", path)
    ):
        # a lone norm outside the numbered blocks, as in `model.norm` and `embeddings.LayerNorm`
        role = "embed" if "emb" in parent_path.lower() else "final"
    if getattr(model.get_submodule(parent_path), "norm_first", None) is False:
        # nn.TransformerEncoderLayer and its decoder twin, in their default post-norm form
        role = {"pre_attn": "post_attn", "pre_mlp": "post_mlp"}.get(role, role)
    return role or "other"


def locations(model: nn.Module, module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield every (parent, name) under which ``module`` hangs in ``model``: a shared module has several."""
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is module:
                yield parent, name
