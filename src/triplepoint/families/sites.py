"""Find the norms of a model, and what looks like one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.families.candidates import Finder
from triplepoint.families.roles import roles_of
from triplepoint.families.wrappers import plain_path, unwrapped
from triplepoint.ops import NormFacts


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormSite:
    """One norm of a model.

    ``kind`` is ``layernorm``, ``rmsnorm`` or ``look-alike``; for the last, ``reason`` says why it can't be
    replaced. A module under several paths is one site, at its first path. ``path`` is relative to the model
    inside its wrappers, see :func:`~triplepoint.families.unwrapped`.
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

    A norm is told by what it computes, not by its class: whatever could be one is run by itself on random
    numbers, and is a LayerNorm or RMSNorm if gain, shift and eps reproduce its output. ``model`` is not run or
    changed. Of norms that are refused, ``reason`` says what differs.

    Args:
        model: Any module. Wrappers (``torch.compile``, DDP, FSDP, PEFT) are looked through.

    Raises:
        ModelError: If it is no module, or was compiled by TorchScript as a whole.

    Example:
        >>> [(s.path, s.kind, s.role) for s in find_norms(nn.TransformerEncoderLayer(4, 1, norm_first=True))]
        [('norm1', 'layernorm', 'pre_attn'), ('norm2', 'layernorm', 'pre_mlp')]
    """
    model = unwrapped(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError(
            "The model is compiled by TorchScript, which no longer calls its modules.\n"
            "Pass the model from before torch.jit.script or torch.jit.trace."
        )
    found: dict[str, NormFacts | str] = {}
    finder = Finder(model)
    for path, module in model.named_modules():
        if (seen := finder.look_at(path, module)) is not None:
            found.setdefault(*seen)
    modules = {path: model.get_submodule(path) for path in found}
    roles = roles_of(model, set(modules.values()))
    return [_site(path, modules[path], found[path], roles.get(path, "other")) for path in found]


def _site(path: str, module: nn.Module, seen: NormFacts | str, role: str) -> NormSite:
    facts, reason = (None, seen) if isinstance(seen, str) else (seen, None)
    kind = "look-alike" if facts is None else "layernorm" if facts.centred else "rmsnorm"
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", plain_path(path))
    depth = int(numbers[0]) if numbers else None
    return NormSite(
        path=path, kind=kind, role=role, depth=depth, module=module, facts=facts, reason=reason
    )


def locations(model: nn.Module, module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield every (parent, name) under which ``module`` hangs in ``model``: a shared module has several."""
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is module:
                yield parent, name
