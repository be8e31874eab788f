"""What a replacement knows of the module whose place it took."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from torch import Tensor, nn

from triplepoint.families import NormSite
from triplepoint.ops import NormFacts, NormOp, facts_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """The module that was replaced, and how its affine parameters map to the op's.

    It sits in the replacement's ``__dict__``: no submodule, so not in ``modules()``, ``state_dict()`` or the
    optimizer, yet copied and pickled along.
    """

    module: nn.Module
    facts: NormFacts | None = None
    """What the norm is, without its tensors; None for an embedding."""
    gain: str | None = None
    """Name of the norm's own gain tensor; None where it has none, or a parametrisation computes it."""
    shift: str | None = None


def origin_of_site(site: NormSite) -> Origin:
    """Return what an op that takes the site's place is to know of it."""
    norm, facts = site.module, site.facts
    return Origin(
        module=norm,
        facts=dataclasses.replace(facts, weight=None, bias=None),
        gain=_name_of(norm, facts.weight),
        shift=_name_of(norm, facts.bias),
    )


def first_origin(module: nn.Module) -> Origin:
    """Return the origin at the end of the chain: of a swap of a swap, the norm that was there first."""
    origin = module.__dict__["_replaced"]
    while "_replaced" in origin.module.__dict__:
        origin = origin.module.__dict__["_replaced"]
    return origin


def facts_of_op(op: NormOp) -> NormFacts:
    """Read an op: its gain and shift, and what the norm was whose place it has (kind, eps, axis)."""
    if "_replaced" not in op.__dict__:
        return facts_of(op)
    return dataclasses.replace(
        first_origin(op).facts,
        weight=getattr(op, "weight", None),
        bias=getattr(op, "bias", None),
        weight_offset=0.0,
    )


def slot_of(site: NormSite, parameter: Tensor) -> str | None:
    """Return what a parameter of the site's norm is, ``weight`` or ``bias``; None where it is neither."""
    for slot, tensor in (("weight", site.facts.weight), ("bias", site.facts.bias)):
        if tensor is not None and _same_storage(tensor, parameter):
            return slot
    return None


def original_of(op: nn.Module) -> nn.Module | None:
    """Return the norm or embedding that was there first, brought to where the op is; None for what replaces nothing.

    It shares its hooks with the op: call its ``forward``, which fires none.
    """
    if "_replaced" not in op.__dict__:
        return None
    origin = first_origin(op)
    follow(op, origin)
    return origin.module


def follow(op: nn.Module, origin: Origin) -> None:
    """Bring the original to where its replacement went since: mode, device, dtype, frozen or not; a table itself."""
    original = origin.module
    original.train(op.training)
    if isinstance(op, nn.Embedding):
        original._parameters["weight"] = op.weight
        return
    like = next(op.parameters(), None)
    if like is not None and any(t.device != like.device for t in _tensors(original)):
        if any(t.is_meta for t in _tensors(original)) and not like.is_meta:
            original.to_empty(device=like.device)
            carry_affine(op, origin)  # on meta there were no values to go back to
        original.to(device=like.device)
    for old, new, _ in _pairs(op, origin):
        old.data = old.data.to(new.dtype)
        # asked first: a tensor of inference mode refuses even what it is
        if old.requires_grad != new.requires_grad:
            old.requires_grad_(new.requires_grad)


def carry_affine(op: nn.Module, origin: Origin) -> None:
    """Copy the op's gain and shift into the original, which may store the gain's distance from 1."""
    for old, new, offset in _pairs(op, origin):
        values = new.detach().reshape(old.shape)
        old.data.copy_(values - offset if offset else values)


def _pairs(op: nn.Module, origin: Origin) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Yield (the norm's tensor, the op's, what the norm adds to its own), those under a parametrisation included."""
    for slot, name, offset in (
        ("weight", origin.gain, origin.facts.weight_offset),
        ("bias", origin.shift, 0.0),
    ):
        if name is not None and (new := getattr(op, slot, None)) is not None:
            yield tensor_named(origin.module, name), new, offset
    for name, computed in getattr(origin.module, "parametrizations", {}).items():
        for old, new in zip(
            computed.parameters(), op.parametrizations[name].parameters(), strict=True
        ):
            yield old, new, 0.0


def tensor_named(module: nn.Module, path: str) -> Tensor:
    """Return a parameter or buffer by its dotted name."""
    parent, _, name = path.rpartition(".")
    return getattr(module.get_submodule(parent), name)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _name_of(norm: nn.Module, tensor: Tensor | None) -> str | None:
    own = itertools.chain(norm.named_parameters(), norm.named_buffers())
    return None if tensor is None else next((n for n, t in own if _same_storage(t, tensor)), None)


def _same_storage(one: Tensor, other: Tensor) -> bool:
    # a gain stored as [dim, 1, 1] is read as a view of it; data_ptr is 0 for all on meta
    return one is other or one.untyped_storage()._cdata == other.untyped_storage()._cdata
