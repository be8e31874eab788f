"""The birth of an op: all that the norm carried, on the op that takes its place."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import _WrappedHook
from torch.nn.utils import parametrize

from triplepoint.families import NormSite
from triplepoint.ops import NormOp
from triplepoint.surgery.origins import origin_of_site, tensor_named

HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    "_is_full_backward_hook",
)  # fmt: skip
"""What a module keeps its hooks in, but for those before loading, which know their module."""


def newborn(
    op_class: type[NormOp],
    site: NormSite,
    *,
    born: dict[str, Any],
    near: Tensor | None,
    memo: dict[Any, Any],
) -> NormOp:
    """Return the op for a site; the model and its norm are not changed.

    Args:
        op_class: What to build.
        site: Where it will stand.
        born: Initial scalars and settings of the op.
        near: A parameter that says where an op is to lie whose norm has none.
        memo: Shared by all births of one swap, so that what two norms share stays shared.
    """
    norm = site.module
    op = op_class.from_facts(site.facts, **born)
    if near is not None and site.facts.weight is None and site.facts.bias is None:
        op.to(device=near.device, dtype=near.dtype)
    op.train(norm.training)
    op.role = site.role
    op.__dict__["_replaced"] = origin_of_site(site)
    _carry_tensors(site, op, memo)
    _carry_parametrisations(norm, op, memo)
    _carry_hooks(norm, op)
    return op


def _carry_tensors(site: NormSite, op: NormOp, memo: dict[Any, Any]) -> None:
    """Give gain and shift the dtype, the hooks, the attributes and the ties of the norm's."""
    origin = op.__dict__["_replaced"]
    for slot, name in (("weight", origin.gain), ("bias", origin.shift)):
        new = getattr(op, slot, None)
        if name is None or new is None:
            continue
        old = tensor_named(site.module, name)
        new.data = new.data.to(old.dtype)
        new.__dict__.update(old.__dict__)
        for hook in (old._backward_hooks or {}).values():
            new.register_hook(hook)
        for hook in (getattr(old, "_post_accumulate_grad_hooks", None) or {}).values():
            new.register_post_accumulate_grad_hook(hook)
        setattr(op, slot, memo.setdefault(("tied", id(old)), new))


def _carry_parametrisations(norm: nn.Module, op: NormOp, memo: dict[Any, Any]) -> None:
    for slot in getattr(norm, "parametrizations", {}):
        # registered for the property on the class; then the norm's own list, values and all
        parametrize.register_parametrization(op, slot, nn.Identity())
        op.parametrizations[slot] = copy.deepcopy(norm.parametrizations[slot], memo)


def _carry_hooks(norm: nn.Module, op: NormOp) -> None:
    """Share the norm's hooks with the op, so that the handles which remove them go on working."""
    for name in HOOKS:
        setattr(op, name, getattr(norm, name))
    for key, hook in norm._load_state_dict_pre_hooks.items():
        mine = _WrappedHook(hook.hook, op) if hook.with_module else hook
        op._load_state_dict_pre_hooks[key] = mine


def parameter_near(model: nn.Module, site: NormSite) -> Tensor | None:
    """Return a floating-point parameter of the site's parent, or else of the model."""
    parent = model.get_submodule(site.path.rpartition(".")[0])
    nearby = (p for module in (parent, model) for p in module.parameters() if p.is_floating_point())
    return next(nearby, None)
