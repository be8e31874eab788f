"""The contract a norm replacement fulfils, and the helpers that ops share."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from triplepoint.errors import ModelError
from triplepoint.ops._blocks import affine
from triplepoint.ops.facts import NormFacts, facts_of


class NormOp(nn.Module, abc.ABC):
    """A layer that can stand where a normalisation layer stood.

    Subclasses are final. To vary an op, compose it or write a sibling file.
    """

    slope_edge: ClassVar[float | None] = None
    """The size of the pre-activation beyond which the squashing function's slope is under 7.07 % of its
    largest, as tanh's is beyond 2; None where nothing is squashed, or where the slope at 0 has no bound."""

    def __init_subclass__(cls, **options: object):
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            cls.forward = _by_any_name(cls.forward)

    @classmethod
    @abc.abstractmethod
    def from_facts(cls, facts: NormFacts, **born: bool | float | None) -> NormOp:
        """Build the op that takes the place of the norm that was read: same affine, dtype and device.

        Args:
            facts: The norm; not changed.
            born: Initial scalars of the op, e.g. ``alpha=1.0``; its own defaults for those left out.
        """

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register as any module does, and note where a scalar was born, for :meth:`reset_parameters`."""
        super().register_parameter(name, param)
        if hasattr(param, "born"):
            # not left on the parameter: leaving the meta device makes a new one
            self.__dict__.setdefault("_born", {})[name] = param.__dict__.pop("born")

    def reset_parameters(self) -> None:
        """Start all parameters anew, as after ``to_empty``: gain 1, shift 0, scalars where they were born."""
        for name, value in {"weight": 1.0, "bias": 0.0, **self.__dict__.get("_born", {})}.items():
            if self._parameters.get(name) is not None:
                nn.init.constant_(self._parameters[name], value)

    @classmethod
    def from_norm(cls, norm: nn.Module, **born: bool | float | None) -> NormOp:
        """Build the op that takes the place of a norm of torch or of this library; see :meth:`from_facts`."""
        return cls.from_facts(facts_of(norm), **born)

    def pre_activation(self, x: Tensor) -> Tensor | None:
        """Return what enters the squashing function, or None where nothing is squashed."""
        return None

    @classmethod
    def exact_edge(cls, dtype: torch.dtype) -> float | None:
        """Return the size of the pre-activation from which the squashed value rounds to exactly 1 in ``dtype``.

        Infinite where it comes nowhere so near to 1; None where nothing is squashed.
        """
        return None


def _by_any_name(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a forward take its input by whatever keyword the norm took it: ``input``, ``hidden_states``."""

    @functools.wraps(forward)
    def renamed(self: NormOp, *inputs: Tensor, **named: Tensor) -> Tensor:
        return forward(self, *inputs, *named.values())

    return renamed


def last_below_one(dtype: torch.dtype) -> float:
    """Return the largest real number that does not round to 1 in ``dtype``: 1 minus a quarter of its eps.

    Example:
        >>> 1 - last_below_one(torch.bfloat16) == 2**-9
        True
    """
    return 1.0 - torch.finfo(dtype).eps / 4


class Affine(NormOp):
    """Shared by all ops: a gain ``weight`` and a shift ``bias`` per feature, either of which may be absent.

    Args:
        dim: Number of features.
        affine: Whether to learn a gain; a norm without one gives an op without.
        bias: Whether to learn a shift.
        axis: Where the features are in the input: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    Raises:
        ModelError: If ``axis`` is another.
    """

    def __init__(
        self,
        dim: int,
        *,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if axis not in (-1, 1):
            raise ModelError(
                f"The features are on axis -1 or 1, got axis={axis}.\n"
                "Move them to the last axis, or leave this site out with where=."
            )
        self.dim, self.axis = dim, axis
        like = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.ones(dim, **like)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim, **like)) if bias else None

    @classmethod
    def from_facts(cls, facts: NormFacts, **born: bool | float | None) -> Affine:
        """Build the op that takes the place of the norm that was read: same affine, dtype and device."""
        like = facts.weight if facts.weight is not None else facts.bias
        near = {} if like is None else {"device": like.device, "dtype": like.dtype}
        op = cls(
            facts.dim, affine=facts.weight is not None, bias=facts.bias is not None, axis=facts.axis,
            **born, **near,
        )  # fmt: skip
        with torch.no_grad():
            for own, old, offset in (
                (op.weight, facts.weight, facts.weight_offset),
                (op.bias, facts.bias, 0.0),
            ):
                if own is not None:
                    own.copy_(old + offset if offset else old)
                    own.requires_grad_(old.requires_grad)
        return op

    def _affine(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Apply gain and shift, and cast: the shared last step of every forward."""
        return affine(y, self.weight, self.bias, self.axis).to(dtype)

    def extra_repr(self) -> str:
        """Show the width and which affine parameters there are."""
        axis = "" if self.axis == -1 else f", axis={self.axis}"
        return f"{self.dim}, affine={self.weight is not None}, bias={self.bias is not None}{axis}"


class Squashing(Affine):
    """Shared by the ops that bound: gain and shift around a squashing function of the pre-activation."""

    @staticmethod
    @abc.abstractmethod
    def squash(z: Tensor) -> Tensor:
        """Bound each element to [-1, 1]; odd and rising."""

    @abc.abstractmethod
    def pre_activation(self, x: Tensor) -> Tensor:
        """Return what is squashed, in float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the op: computed in float32, returned in the dtype of ``x``."""
        return self._affine(self.squash(self.pre_activation(x)), x.dtype)


class Tanh(Squashing):
    """Squashes by the hyperbolic tangent."""

    slope_edge = 2.0
    """1 - tanh(2)^2 = 0.0707."""

    @classmethod
    def exact_edge(cls, dtype: torch.dtype) -> float:
        """Return the |z| from which tanh(z) rounds to 1: 3.47 in bfloat16, 9.01 in float32."""
        return math.atanh(last_below_one(dtype))

    @staticmethod
    def squash(z: Tensor) -> Tensor:
        """Return ``tanh(z)``."""
        return torch.tanh(z)


class Clip(Squashing):
    """Squashes by clipping at one."""

    slope_edge = 1.0
    """The slope is 1 inside and 0 outside."""

    @classmethod
    def exact_edge(cls, dtype: torch.dtype) -> float:
        """Return 1: beyond it the output is exactly 1 in every dtype."""
        return 1.0

    @staticmethod
    def squash(z: Tensor) -> Tensor:
        """Return ``z`` clipped to [-1, 1]."""
        return z.clamp(-1.0, 1.0)


def scalar(value: float, *, device: torch.device | None, dtype: torch.dtype | None) -> nn.Parameter:
    """Return a learnable scalar of shape ``(1,)``: FSDP refuses 0-dimensional parameters."""
    parameter = nn.Parameter(torch.full((1,), value, device=device, dtype=dtype))
    parameter.born = value
    return parameter
