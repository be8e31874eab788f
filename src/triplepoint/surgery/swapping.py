"""The swap: decide and build everything first, then put it in place in one go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.families import NormSite, locations
from triplepoint.ops import OPS, NormOp, Preset, parse_op_name
from triplepoint.surgery.births import newborn, parameter_near
from triplepoint.surgery.choosing import Where, reasons_against, sites_of
from triplepoint.surgery.embeddings import plan_scale
from triplepoint.surgery.kernels import set_fused_kernels
from triplepoint.surgery.optimisers import mark_departures
from triplepoint.surgery.policies import SwapPolicy, alphas_of, said_of
from triplepoint.surgery.reports import ASKED, SwapItem, SwapReport, warning_at
from triplepoint.surgery.wrapping import inner_model


@torch.inference_mode(False)  # parameters born in inference mode could never be trained
def swap_norms(
    model: nn.Module,
    op: str | type[NormOp],
    *,
    where: Where = None,
    policy: SwapPolicy | None = None,
    strict: bool = False,
) -> SwapReport:
    """Replace the LayerNorms and RMSNorms of ``model`` in place, keeping all that they carried.

    Gain and shift, dtype, device, training mode, ``requires_grad``, hooks, parametrisations, tied and shared use are
    kept. The originals stay outside the module tree, for :func:`unswap_norms`. Everything is decided and built before
    the first module is replaced: an error leaves the model as it was. Build the optimizer afterwards: one built before
    refuses its next step.

    Args:
        model: Any module, also inside ``torch.compile`` or PEFT; changed in place.
        op: A name with or without preset (``dyt``, ``dyt:paper``; no preset means ``recommended``), or a
            :class:`~triplepoint.ops.NormOp` class.
        where: Which sites: None for all, a function of the site, or one or several path globs.
        policy: What else to change; by default what the preset says.
        strict: Whether to refuse if a site that ``where`` chose can't be swapped.

    Returns:
        What was swapped, what was skipped and why; paths are those in the innermost model.

    Raises:
        UnknownNameError: If there is no such op or preset.
        PlanError: If the policy sets the alpha of an op that has none, or of a site that there is not.
        ModelError: If the model has nothing to swap, is distributed already, or is a norm itself; with ``strict``
            also if something was skipped.
    """
    model = inner_model(model, "swap_norms")
    name, op_class, preset = _resolve(op)
    policy = policy or SwapPolicy()
    sites = sites_of(model)
    reasons = reasons_against(model, sites, where, keep_final=policy.final_norm == "keep")
    report = _report(name, preset, sites, reasons)
    report.policies.extend(said_of(policy))
    going = [site for place, site in enumerate(sites) if place not in reasons]
    _refuse(model, op_class, report, strict=strict)
    alphas, memo = alphas_of(op_class, preset, policy, sites), {}
    pairs = [
        (
            site.module,
            newborn(op_class, site, born=alphas(site), near=parameter_near(model, site), memo=memo),
        )
        for site in going
    ]
    scale = plan_scale(model, wanted=_scale_wanted(policy, preset), may_remove=preset is not None)
    report.policies.extend([scale.policy] if scale.policy else [])
    put_in_place(model, [*pairs, *scale.pairs])
    return report


def put_in_place(model: nn.Module, pairs: Iterable[tuple[nn.Module, nn.Module]]) -> None:
    """Replace modules wherever they hang, all or none; and what depends on which modules there are."""
    pairs = list(pairs)
    places = [
        (parent, name, old, new) for old, new in pairs for parent, name in locations(model, old)
    ]
    try:
        for parent, name, _, new in places:
            parent._modules[name] = new
    except BaseException:  # an interrupt as well
        for parent, name, old, _ in places:
            parent._modules[name] = old
        raise
    set_fused_kernels(model)
    here = list(model.parameters())
    staying = {id(p) for p in here}
    mark_departures((p for old, _ in pairs for p in old.parameters() if id(p) not in staying), here)


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


def _report(
    name: str, preset: Preset | None, sites: list[NormSite], reasons: dict[int, str]
) -> SwapReport:
    report = SwapReport(op=name, preset=preset and preset.name, swapped=[], skipped=[], policies=[])
    for place, site in enumerate(sites):
        item = SwapItem(path=site.path, kind=site.kind, role=site.role, reason=reasons.get(place))
        if item.reason is None:
            report.swapped.append(dataclasses.replace(item, warning=warning_at(site.role)))
        else:
            report.skipped.append(item)
    return report


def _refuse(model: nn.Module, op_class: type[NormOp], report: SwapReport, *, strict: bool) -> None:
    """Raise if the swap can't be, or by ``strict`` is not to be."""
    skipped = report.skipped
    if [item.path for item in report.swapped] == [""]:
        raise ModelError(
            f"The model is itself a {type(model).__name__}: it has no parent in which to replace it.\n"
            f"Wrap it, e.g. nn.Sequential(model), or build the op with {op_class.__name__}.from_norm(model)."
        )
    if not report.swapped:
        why = (
            f" ({len(skipped)} skipped, the first because: {skipped[0].reason})" if skipped else ""
        )
        raise ModelError(
            f"{type(model).__name__} has no norm to swap{why}.\nSwappable are nn.LayerNorm, nn.RMSNorm and "
            "triplepoint's own ops; see triplepoint.families.find_norms(model)."
        )
    failed = [item for item in skipped if item.reason not in ASKED] if strict else []
    if failed:
        raise ModelError(
            f"{len(failed)} of {len(failed) + len(report.swapped)} norms can't be swapped, and strict=True asks for all: "
            + "; ".join(f"{item.path} ({item.reason})" for item in failed)
            + ".\nLeave them out with where=, or swap without strict=True; nothing was changed."
        )


def _scale_wanted(policy: SwapPolicy, preset: Preset | None) -> bool:
    if policy.embedding_scale is not None:
        return policy.embedding_scale
    return bool(preset and preset.embedding_scale)
