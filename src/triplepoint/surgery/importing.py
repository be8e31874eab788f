"""Weights of DyT and Derf under the names that other libraries give them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from torch import Tensor

from triplepoint.errors import unknown_name


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Spelling:
    """How a library names an op's parameters, and what it stores in place of the value."""

    names: Mapping[str, str]
    """Its name -> ours."""
    offsets: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Its name -> what it adds to what it stores."""
    marks: frozenset[str]
    """Names, all of which a module has to have to be an op in this spelling."""


_AFFINE = {"gamma": "weight", "beta": "bias"}
_XT_DYT = {"pre_tanh_scale": "alpha", **_AFFINE}
_XT_DERF = {"alpha": "alpha", "s": "shift", **_AFFINE}

SOURCES: dict[str, tuple[Spelling, ...]] = {
    "liger": (Spelling(names={"alpha": "alpha", **_AFFINE}, marks=frozenset({"alpha", "gamma"})),),
    "x-transformers": (
        Spelling(
            names=_XT_DYT,
            offsets={"pre_tanh_scale": 1.0, "gamma": 1.0},
            marks=frozenset({"pre_tanh_scale", "gamma"}),
        ),
        Spelling(
            names=_XT_DERF,
            offsets={"alpha": 1.0, "gamma": 1.0},
            marks=frozenset({"alpha", "s", "gamma"}),
        ),
    ),
    "x-transformers-plain": (
        Spelling(names=_XT_DYT, marks=frozenset({"pre_tanh_scale", "gamma"})),
        Spelling(names=_XT_DERF, marks=frozenset({"alpha", "s", "gamma"})),
    ),
    "flax": (
        Spelling(
            names={"alpha": "alpha", "shift": "shift", "scale": "weight", "bias": "bias"},
            marks=frozenset({"alpha", "scale"}),
        ),
    ),
    "dyt": (
        Spelling(
            names={"alpha": "alpha", "shift": "shift", "weight": "weight", "bias": "bias"},
            marks=frozenset({"alpha", "weight"}),
        ),
    ),
}
"""Library -> its spellings. ``x-transformers`` is its default, which stores distances from 1 (from ``init_alpha``, 1 by
default, for DyT's alpha); with ``norm_add_unit_offset=False`` it is ``x-transformers-plain``. ``dyt`` are the authors'
own repositories, whose names are ours."""


def convert_state_dict(state: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return a state dict with the ops' parameters named and stored as this library has them.

    Only modules that have an op's parameters are touched: a LayerNorm's ``gamma`` in the same file keeps its name. An
    alpha without dimensions becomes one of shape ``(1,)``.

    Args:
        state: Names and tensors; not changed.
        source: ``liger``, ``x-transformers``, ``x-transformers-plain``, ``flax`` (names joined by dots) or ``dyt``.

    Raises:
        UnknownNameError: If the source is another.

    Example:
        >>> import torch
        >>> state = {"norm.alpha": torch.tensor(0.5), "norm.gamma": torch.ones(2), "head.gamma": torch.ones(2)}
        >>> {name: list(t.shape) for name, t in convert_state_dict(state, "liger").items()}
        {'norm.alpha': [1], 'norm.weight': [2], 'head.gamma': [2]}
    """
    if source not in SOURCES:
        raise unknown_name("source of weights", source, SOURCES)
    members: dict[str, set[str]] = {}
    for name in state:
        prefix, _, last = name.rpartition(".")
        members.setdefault(prefix, set()).add(last)
    convert = {prefix: _converter(SOURCES[source], found) for prefix, found in members.items()}
    return dict(convert[name.rpartition(".")[0]](name, tensor) for name, tensor in state.items())


def _converter(
    spellings: tuple[Spelling, ...], members: set[str]
) -> Callable[[str, Tensor], tuple[str, Tensor]]:
    spelling = next((s for s in spellings if s.marks <= members), None)

    def converted(name: str, tensor: Tensor) -> tuple[str, Tensor]:
        prefix, dot, last = name.rpartition(".")
        if spelling is None or last not in spelling.names:
            return name, tensor
        if last in spelling.offsets:
            tensor = tensor + spelling.offsets[last]
        return prefix + dot + spelling.names[last], tensor.reshape(1) if not tensor.ndim else tensor

    return converted
