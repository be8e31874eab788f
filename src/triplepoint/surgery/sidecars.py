"""A description of a swapped model, from which a freshly built one is swapped alike: alpha survives a file of weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from triplepoint.errors import ModelError
from triplepoint.families import locations
from triplepoint.ops import OPS, NormOp
from triplepoint.surgery.births import newborn, parameter_near
from triplepoint.surgery.choosing import op_name, sites_of
from triplepoint.surgery.embeddings import scaled_paths, scaled_tables
from triplepoint.surgery.swapping import put_in_place
from triplepoint.surgery.wrapping import inner_model

VERSION = 1
_SHAPE = ("dim", "affine", "bias", "device", "dtype", "axis")


def sidecar_of(model: nn.Module) -> dict[str, Any]:
    """Describe the swaps of a model, in what JSON can hold; the values of parameters are the state dict's.

    Returns:
        ``version``; ``sites``, one per op, with ``path, aliases, role, op, dim, axis, affine, bias`` and the op's
        constant ``settings``; ``scaled_embeddings``, their paths.

    Raises:
        ModelError: If an op is of a class that is not in ``OPS``: it can't be built by name.
    """
    model = inner_model(model, "sidecar_of")
    paths = {module: path for path, module in model.named_modules()}
    return {
        "version": VERSION,
        "sites": [
            {
                "path": path,
                "aliases": _aliases(model, module, path, paths),
                **_structure(path, module),
            }
            for module, path in paths.items()
            if isinstance(module, NormOp) and "_replaced" in module.__dict__
        ],
        "scaled_embeddings": list(scaled_paths(model)),
    }


def rebuild(model: nn.Module, sidecar: Mapping[str, Any]) -> None:
    """Swap a freshly built model into the structure that ``sidecar`` describes, so that its state dict fits exactly.

    Args:
        model: Built as the swapped one was before its swap; changed in place.
        sidecar: From :func:`sidecar_of`.

    Raises:
        ModelError: If the model is not the one that was swapped: a norm is missing, of another width or shared otherwise.
            The model is left as it was.
    """
    model = inner_model(model, "rebuild")
    if sidecar.get("version") != VERSION:
        raise ModelError(
            f"The description of the swap is of version {sidecar.get('version')}; this is version {VERSION}.\n"
            "Read it with the version of triplepoint that wrote it."
        )
    sites, memo = {site.path: site for site in sites_of(model)}, {}
    paths = {module: path for path, module in model.named_modules()}
    pairs = []
    for wanted in sidecar["sites"]:
        site = sites.get(wanted["path"])
        if site is None or site.facts is None:
            raise _other(wanted, "there is no norm")
        op = newborn(
            OPS[wanted["op"]],
            site,
            born=wanted["settings"],
            near=parameter_near(model, site),
            memo=memo,
        )
        op.role = wanted["role"]
        aliases = _aliases(model, site.module, site.path, paths)
        found = {"path": site.path, "aliases": aliases, **_structure(site.path, op)}
        if different := [key for key in found if wanted[key] != found[key]]:
            key = different[0]
            raise _other(wanted, f"{key} is {found[key]}, not {wanted[key]}")
        pairs.append((site.module, op))
    tables = scaled_tables(model, sidecar["scaled_embeddings"])
    known = [paths[table] for table, _ in tables]
    if missing := [path for path in sidecar["scaled_embeddings"] if path not in known]:
        raise _other({"path": missing[0]}, "there is no plain embedding")
    put_in_place(model, [*pairs, *tables])


def completed(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return ``state`` with the names of tied tensors that its file left out, for a strict load into ``model``.

    Example:
        >>> import torch
        >>> model = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
        >>> model[1].weight = model[0].weight
        >>> sorted(completed({"0.weight": torch.ones(2, 2)}, model))
        ['0.weight', '1.weight']
    """
    stored = {id(t): state[n] for n, t in model.state_dict(keep_vars=True).items() if n in state}
    tied = {
        name: stored[id(tensor)]
        for name, tensor in model.state_dict(keep_vars=True).items()
        if name not in state and id(tensor) in stored
    }
    return {**state, **tied}


def _structure(path: str, op: NormOp) -> dict[str, Any]:
    name = op_name(op)
    if name == "op":
        raise ModelError(
            f"{path} is a {type(op).__name__}, which triplepoint can't build by name.\n"
            f"Known ops: {', '.join(OPS)}. Unswap that site, or save the whole model with torch.save."
        )
    tensors = {n for n, _ in [*op.named_parameters(), *op.named_buffers()]}
    settings = {
        key: getattr(op, key)
        for key in inspect.signature(OPS[name]).parameters
        if key not in _SHAPE and key not in tensors
    }
    return {
        "role": op.role,
        "op": name,
        "dim": op.dim,
        "axis": getattr(op, "axis", -1),
        "affine": op.weight is not None,
        "bias": op.bias is not None,
        "settings": settings,
    }


def _aliases(
    model: nn.Module, module: nn.Module, path: str, paths: Mapping[nn.Module, str]
) -> list[str]:
    """Return the other paths under which a module hangs."""
    every = [f"{paths[parent]}.{name}".lstrip(".") for parent, name in locations(model, module)]
    return [other for other in every if other != path]


def _other(wanted: Mapping[str, Any], difference: str) -> ModelError:
    return ModelError(
        f"This is not the model that was swapped: at {wanted['path']} {difference}.\n"
        "Build it from the same configuration, without swapping it."
    )
