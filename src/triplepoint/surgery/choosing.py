"""Which norms of a model a swap takes, and why it leaves the others."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator

from torch import nn
from torch.nn.utils import parametrize

from triplepoint.errors import ModelError
from triplepoint.families import NormSite, find_norms
from triplepoint.ops import OPS, NormOp, facts_of
from triplepoint.surgery.origins import facts_of_op, slot_of
from triplepoint.surgery.reports import FINAL_KEPT, NOT_CHOSEN

Where = Callable[[NormSite], bool] | str | Iterable[str] | None
"""None for all; a function of the site (whose ``facts`` are None at a look-alike); one or several path globs."""


def roles(*names: str) -> Callable[[NormSite], bool]:
    """Return a ``where`` that picks the sites of these roles, e.g. ``roles("pre_mlp")``."""
    return lambda site: site.role in names


def chooser(where: Where) -> Callable[[NormSite], bool]:
    """Return ``where`` as a function of the site.

    Raises:
        ModelError: If it is of another kind.
    """
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


def sites_of(model: nn.Module) -> list[NormSite]:
    """Return the norms of ``model`` and its look-alikes, then the norms that are ops of this library already."""
    norms = [site for site in find_norms(model) if not isinstance(site.module, NormOp)]
    return [*map(_parametrised, norms), *_own_ops(model)]


def _parametrised(site: NormSite) -> NormSite:
    """Read a norm of torch whose gain or shift is parametrised: with the parametrisation carried over it can be swapped."""
    norm = site.module
    if site.facts is not None or not parametrize.is_parametrized(norm):
        return site
    for standard, kind in ((nn.LayerNorm, "layernorm"), (nn.RMSNorm, "rmsnorm")):
        plain = isinstance(norm, standard) and type(norm).forward is standard.forward
        if (
            plain
            and len(norm.normalized_shape) == 1
            and set(norm.parametrizations) <= {"weight", "bias"}
        ):
            return dataclasses.replace(site, kind=kind, reason=None, facts=facts_of(norm))
    return site


def _own_ops(model: nn.Module) -> list[NormSite]:
    return [
        NormSite(path=path, kind=op_name(module), role=getattr(module, "role", "other"), depth=None, module=module, facts=facts_of_op(module))
        for path, module in model.named_modules()
        if isinstance(module, NormOp)
    ]  # fmt: skip


def op_name(op: NormOp) -> str:
    """Return the op's name in ``OPS``, or ``op`` where it is a class of one's own."""
    # a parametrised op has a subclass of its class
    return next((name for name, known in OPS.items() if isinstance(op, known)), "op")


def reasons_against(
    model: nn.Module, sites: list[NormSite], where: Where, *, keep_final: bool
) -> dict[int, str]:
    """Return why each site that will not be swapped is not, by its place in ``sites``."""
    chosen, held = chooser(where), _held_elsewhere(model)
    reasons = {}
    for place, site in enumerate(sites):
        if not chosen(site):
            reasons[place] = NOT_CHOSEN
        elif site.reason is not None:
            reasons[place] = site.reason
        elif keep_final and site.role == "final":
            reasons[place] = FINAL_KEPT
        elif "_hf_hook" in site.module.__dict__:
            reasons[place] = "accelerate hooked it to a device or to offloaded weights; swap before"
        elif id(site.module) in held:
            reasons[place] = f"{held[id(site.module)]} holds it as well, out of a swap's reach"
    while more := _ending_ties(model, sites, reasons):
        reasons |= more  # a site that stays may hold back another one
    return reasons


def _held_elsewhere(model: nn.Module) -> dict[int, str]:
    """Return what holds modules in plain attributes: ``id(module) -> holder``. The module tree does not know of these."""
    found = {}
    for path, module in model.named_modules():
        for name, value in module.__dict__.items():
            if name not in ("_modules", "_replaced"):
                for inner in _modules_in(value):
                    found[id(inner)] = f"{path}.{name}".lstrip(".")
    return found


def _modules_in(value: object) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, list | tuple):
        yield from (v for v in value if isinstance(v, nn.Module))
    elif isinstance(value, dict):
        yield from (v for v in value.values() if isinstance(v, nn.Module))


def _ending_ties(
    model: nn.Module, sites: list[NormSite], reasons: dict[int, str]
) -> dict[int, str]:
    """Return the sites whose swap would end a tie: a parameter of theirs also belongs to what stays.

    Norms that are swapped together keep theirs, if they use the parameter alike.
    """
    going = [site for place, site in enumerate(sites) if place not in reasons]
    inside = _inside(model, going)
    uses: dict[int, list[tuple[nn.Module, object]]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                use = _use(inside.get(id(module)), parameter)
                uses.setdefault(id(parameter), []).append((module, use))
    found = {}
    for place, site in enumerate(sites):
        for name, parameter in site.module.named_parameters() if place not in reasons else ():
            mine = _use(site, parameter)
            other = next((module for module, use in uses[id(parameter)] if use != mine), None)
            if other is not None:
                found[place] = (
                    f"shares its {name} with a {type(other).__name__}, a tie that a swap would end"
                )
    return found


def _inside(model: nn.Module, going: list[NormSite]) -> dict[int, NormSite]:
    """Return the site that each module belongs to; a parametrisation that also hangs elsewhere belongs to none."""
    found = {id(module): site for site in going for module in site.module.modules()}
    roots = {id(site.module) for site in going}
    for parent in model.modules():
        for child in parent._modules.values() if id(parent) not in found else ():
            if id(child) in found and id(child) not in roots:
                del found[id(child)]
    return found


def _use(site: NormSite | None, parameter: nn.Parameter) -> tuple[str, float] | None:
    """Return what a norm that is to be swapped uses a parameter as; None for any other module."""
    if site is None:
        return None
    return slot_of(site, parameter) or "inside", site.facts.weight_offset
