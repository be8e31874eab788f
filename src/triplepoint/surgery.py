"""Replace the norms of a model by an op, say exactly what was done, and undo it."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from triplepoint.errors import ModelError
from triplepoint.families import NormSite, find_norms, locations
from triplepoint.ops import OPS, NormOp, facts_of, parse_op_name
from triplepoint.ops.presets import Preset

Where = Callable[[NormSite], bool] | str | Iterable[str] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwapItem:
    """One norm of the model, swapped or not."""

    path: str
    kind: str
    role: str
    reason: str | None = None
    """Why it was skipped; None where it was swapped."""
    warning: str | None = None
    """What is unusual about a swapped site."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwapReport:
    """What :func:`swap_norms` did."""

    op: str
    preset: str | None
    swapped: list[SwapItem]
    skipped: list[SwapItem]
    policies: list[str]
    """What was changed besides the norms, in words."""

    def __str__(self) -> str:
        lines = [f"{self.op}: {len(self.swapped)} norms swapped, {len(self.skipped)} skipped"]
        lines += [
            f"  swapped {i.path} ({i.role})" + (f": {i.warning}" if i.warning else "")
            for i in self.swapped
        ]
        lines += [f"  skipped {i.path} ({i.kind}): {i.reason}" for i in self.skipped]
        return "\n".join(lines + [f"  {policy}" for policy in self.policies])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwapPolicy:
    """What a swap changes besides the norms; None leaves it to the preset."""

    embedding_scale: bool | None = None


def roles(*names: str) -> Callable[[NormSite], bool]:
    """Return a ``where`` that picks the sites of these roles, e.g. ``roles("pre_mlp")``."""
    return lambda site: site.role in names


def swap_norms(
    model: nn.Module,
    op: str | type[NormOp],
    *,
    where: Where = None,
    policy: SwapPolicy | None = None,
) -> SwapReport:
    """Replace the LayerNorms and RMSNorms of ``model`` in place, keeping all that they carried.

    Gain and shift, dtype, device, training mode, ``requires_grad``, hooks and shared use are kept. The
    originals stay outside the module tree, for :func:`unswap_norms`. Build the optimizer afterwards: one
    built before would go on training the old parameters.

    Args:
        model: Any module; changed in place.
        op: A name with or without preset (``dyt``, ``dyt:paper``; no preset means ``recommended``), or a
            :class:`~triplepoint.ops.NormOp` class.
        where: Which sites: None for all, a function of the site, or one or several path globs.
        policy: What else to change; by default what the preset says.

    Returns:
        What was swapped, what was skipped and why.

    Raises:
        UnknownNameError: If there is no such op or preset.
        ModelError: If the model has nothing to swap.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"swap_norms changes an nn.Module in place, got {type(model).__name__}.\nPass the model itself."
        )
    name, op_class, preset = _resolve(op)
    report = SwapReport(op=name, preset=preset and preset.name, swapped=[], skipped=[], policies=[])
    chosen, owners = _chooser(where), _owners(model)
    ties: dict[int, nn.Parameter] = {}
    norms = [site for site in find_norms(model) if not isinstance(site.module, NormOp)]
    for site in [*norms, *_own_ops(model)]:
        item = SwapItem(
            path=site.path,
            kind=site.kind,
            role=site.role,
            reason=site.reason or _shared_outside(site, owners),
        )
        if item.reason is None and not chosen(site):
            item = dataclasses.replace(item, reason="not chosen by where=")
        if item.reason is not None:
            report.skipped.append(item)
            continue
        if site.module is model:
            raise ModelError(
                f"The model is itself a {type(model).__name__}: it has no parent in which to replace it.\n"
                f"Wrap it, e.g. nn.Sequential(model), or build the op with {op_class.__name__}.from_norm(model)."
            )
        op = _born(op_class, site, preset, near=_parameter_near(model, site))
        _keep_ties(site.module, op, ties)
        _replace(model, site.module, op)
        report.swapped.append(dataclasses.replace(item, warning=_warning(site)))
    if not report.swapped:
        raise ModelError(
            f"{type(model).__name__} has no norm to swap"
            + (
                f" ({len(report.skipped)} skipped, the first because: {report.skipped[0].reason})"
                if report.skipped
                else ""
            )
            + ".\nSwappable are nn.LayerNorm, nn.RMSNorm and triplepoint's own ops; see triplepoint.families.find_norms(model)."
        )
    scale = (
        policy.embedding_scale
        if policy and policy.embedding_scale is not None
        else bool(preset and preset.embedding_scale)
    )
    if scale:
        report.policies.append(_scale_embeddings(model))
    elif preset is not None and _unscale_embeddings(model):
        report.policies.append("embedding scale: removed, this preset has none")
    _set_fused_kernels(model)
    return report


def _resolve(op: str | type[NormOp]) -> tuple[str, type[NormOp], Preset | None]:
    if isinstance(op, str):
        name, preset = parse_op_name(op)
        return name, OPS[name], preset
    if not (isinstance(op, type) and issubclass(op, NormOp)):
        raise ModelError(
            f"An op is a name or a NormOp class, got {op!r}.\nKnown names: {', '.join(OPS)}."
        )
    name = next((n for n, known in OPS.items() if known is op), op.__name__)
    return name, op, parse_op_name(name)[1] if name in OPS else None


def _chooser(where: Where) -> Callable[[NormSite], bool]:
    if where is None:
        return lambda site: True
    if callable(where):
        return where
    globs = (
        [where] if isinstance(where, str) else list(where) if isinstance(where, Iterable) else []
    )
    if not globs or not all(isinstance(glob, str) for glob in globs):
        raise ModelError(
            f"where= is a function of the site, a path glob or several, got {where!r}.\n"
            'Try where="h.0.*" or where=roles("pre_mlp").'
        )
    return lambda site: any(fnmatch.fnmatchcase(site.path, glob) for glob in globs)


def _owners(model: nn.Module) -> dict[int, set[nn.Module]]:
    owners: dict[int, set[nn.Module]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            owners.setdefault(id(parameter), set()).add(module)
    return owners


def _shared_outside(site: NormSite, owners: dict[int, set[nn.Module]]) -> str | None:
    """Say why a norm whose parameter also belongs to a module that is no norm can't be replaced: the tie would end."""
    for name, parameter in site.module._parameters.items():
        others = [m for m in owners.get(id(parameter), ()) if not _is_norm(m)]
        if parameter is not None and others:
            return (
                f"shares its {name} with a {type(others[0]).__name__}, a tie that a swap would end"
            )
    return None


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm | nn.RMSNorm | NormOp)


def _keep_ties(norm: nn.Module, op: NormOp, ties: dict[int, nn.Parameter]) -> None:
    """Give ops whose norms shared a gain or a shift one parameter as well."""
    for name in ("weight", "bias"):
        old, new = getattr(norm, name, None), getattr(op, name, None)
        if old is not None and new is not None:
            setattr(op, name, ties.setdefault(id(old), new))


def _own_ops(model: nn.Module) -> list[NormSite]:
    """Norms that are ops of this library already: they can be swapped again."""
    names = {op: name for name, op in OPS.items()}
    return [
        NormSite(path=path, kind=names.get(type(module), "op"), role=getattr(module, "role", "other"), depth=None, module=module, facts=facts_of(module))
        for path, module in model.named_modules()
        if isinstance(module, NormOp)
    ]  # fmt: skip


def _parameter_near(model: nn.Module, site: NormSite) -> Tensor | None:
    parent = model.get_submodule(site.path.rpartition(".")[0])
    nearby = (p for module in (parent, model) for p in module.parameters() if p.is_floating_point())
    return next(nearby, None)


def _born(
    op_class: type[NormOp], site: NormSite, preset: Preset | None, *, near: Tensor | None
) -> NormOp:
    norm = site.module
    born = {}
    if preset is not None and preset.alpha is not None:
        born["alpha"] = preset.alpha(site.facts.dim, site.role)
    op = op_class.from_facts(site.facts, **born)
    if near is not None and next(norm.parameters(), None) is None:
        # a norm without parameters does not say where it is
        op.to(device=near.device, dtype=near.dtype)
    op.train(norm.training)
    op.role = site.role
    op._is_full_backward_hook = norm._is_full_backward_hook
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        getattr(op, hooks).update(getattr(norm, hooks))
    for flags in (
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks_always_called",
    ):
        getattr(op, flags).update(getattr(norm, flags))
    return op


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` wherever ``old`` hangs. The old one is kept in a tuple: not a submodule, not in state_dict."""
    for parent, name in list(locations(model, old)):
        parent._modules[name] = new
    new.__dict__["_replaced"] = (old,)


_FUSED = {
    nn.TransformerEncoderLayer: ("activation_relu_or_gelu", 0),
    nn.TransformerEncoder: ("use_nested_tensor", False),
}
"""What switches off torch's fused inference kernels."""


def _set_fused_kernels(model: nn.Module) -> None:
    """Switch them off around replaced norms, and elsewhere back to what they were."""
    # they compute a real LayerNorm from norm1.weight and norm1.bias, whatever module norm1 is
    for kind, (flag, off) in _FUSED.items():
        for module in [m for m in model.modules() if isinstance(m, kind)]:
            if any("_replaced" in inner.__dict__ for inner in module.modules()):
                module.__dict__.setdefault("_fused_before_swap", getattr(module, flag))
                setattr(module, flag, off)
            elif "_fused_before_swap" in module.__dict__:
                setattr(module, flag, module.__dict__.pop("_fused_before_swap"))


def _warning(site: NormSite) -> str | None:
    if site.role in ("post_attn", "post_mlp"):
        return "a post-norm site: the published ops were tested before attention and MLP only"
    if site.role == "qk":
        return "a query/key norm: it bounds attention logits, which a bounded op does differently"
    return None


class ScaledEmbedding(nn.Embedding):
    """An embedding whose output is multiplied by one learnable scalar, shared by all of a model's embeddings.

    The table itself is not touched, so a head tied to it is not scaled.
    """

    @classmethod
    def of(cls, embedding: nn.Embedding, scale: nn.Parameter) -> ScaledEmbedding:
        """Return ``embedding`` with a scale: the same parameters, hooks and mode."""
        scaled = cls.__new__(cls)
        scaled.__dict__.update(
            {
                k: v.copy() if k.startswith("_") and hasattr(v, "copy") else v
                for k, v in embedding.__dict__.items()
            }
        )
        scaled.scale = scale
        return scaled

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up and scale; the dtype of the table."""
        y = super().forward(tokens)
        return (self.scale * y).to(y.dtype)


def _scale_embeddings(model: nn.Module) -> str:
    # a subclass with a forward of its own may take other arguments, or scale already
    tables = [
        m
        for m in model.modules()
        if isinstance(m, nn.Embedding) and type(m).forward is nn.Embedding.forward
    ]
    if not tables:
        return "embedding scale: not applied, the model has no plain nn.Embedding (or has the scale already)"
    width, like = tables[0].embedding_dim, tables[0].weight
    scale = nn.Parameter(torch.full((1,), math.sqrt(width), device=like.device, dtype=like.dtype))
    for table in tables:
        _replace(model, table, ScaledEmbedding.of(table, scale))
    return f"embedding scale: one learnable scalar on {len(tables)} embeddings, born as sqrt({width}) = {math.sqrt(width):.4g}"


def _unscale_embeddings(model: nn.Module) -> int:
    scaled = [m for m in model.modules() if isinstance(m, ScaledEmbedding)]
    for module in scaled:
        (original,) = module.__dict__["_replaced"]
        _follow(module, original)
        for parent, name in list(locations(model, module)):
            parent._modules[name] = original
    return len(scaled)


def unswap_norms(model: nn.Module, keep_affine: bool = False) -> int:
    """Put the original norms and embeddings back, with their original values.

    Args:
        model: A model that :func:`swap_norms` changed; changed in place.
        keep_affine: Whether to carry the gain and shift that were trained since back into the norms.

    Returns:
        How many modules were restored; 0 for a model that was not swapped.
    """
    swapped = [m for m in model.modules() if "_replaced" in m.__dict__]
    for module in swapped:
        original = module
        while "_replaced" in original.__dict__:
            (original,) = original.__dict__["_replaced"]
        _follow(module, original)
        if keep_affine and isinstance(module, NormOp):
            _carry_affine(module, original)
        for parent, name in list(locations(model, module)):
            parent._modules[name] = original
    _set_fused_kernels(model)
    return len(swapped)


def _follow(module: nn.Module, original: nn.Module) -> None:
    """Bring the original to where its replacement went since: mode, device, dtype, and an embedding's table."""
    original.train(module.training)
    if isinstance(module, ScaledEmbedding):
        original.weight = module.weight
    elif (like := next(module.parameters(), None)) is not None:
        original.to(device=like.device, dtype=like.dtype)


@torch.no_grad()
def _carry_affine(source: nn.Module, target: nn.Module) -> None:
    for name in ("weight", "bias"):
        old, new = getattr(source, name, None), getattr(target, name, None)
        if old is not None and new is not None:
            new.copy_(old)
