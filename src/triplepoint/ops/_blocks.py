"""Gain and shift around a squashing function of ``alpha * x + shift``, computed block by block.

Written as one formula, each step writes a tensor as large as ``x`` to memory, and two or three of them are kept for
backward. Here a block that fits the cache goes through all steps at once, and ``x`` alone is kept: backward computes
the squashing function again. On CPU; other devices take one block.

The formula stays where a tape, a tracer or a tensor subclass has to see every step, and for double backward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

BLOCK = 2**17
"""Elements of a block, the fastest of 2^15 to 2^18: one array of them in float32 takes 512 KB."""
SMALL = BLOCK
"""Elements up to which the formula is as fast, its tensors staying in the cache, and keeps under 2 MB for backward."""

_KEPT = threading.local()


class Curve(NamedTuple):
    """A squashing function f, as a formula and as what backward needs of it."""

    value: Callable[..., Tensor]
    """z -> f(z), differentiable; takes ``out=`` as torch's functions do."""
    split: Callable[[Tensor, Tensor], None]
    """Given z and a tensor of its shape, leaves f(z) in the first and f'(z) in the second."""


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in the dtype that ops compute in: float32, or float64 where it is that already."""
    return x if x.dtype == torch.float64 else x.float()


def argument(x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
    """Return ``alpha * x + shift``, computed wide: a float16 stream of 6e4 times 2 would overflow."""
    z = wide(alpha) * wide(x)
    return z if shift is None else z + wide(shift)


def along(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return a parameter per feature in a shape that broadcasts over ``x``, whose features are on ``axis``."""
    return parameter if axis == -1 else parameter.view(-1, *[1] * (x.ndim - axis - 1))


def affine(y: Tensor, weight: Tensor | None, bias: Tensor | None, axis: int) -> Tensor:
    """Return ``weight * y + bias``, either of which may be absent."""
    y = y if weight is None else along(weight, y, axis) * y
    return y if bias is None else y + along(bias, y, axis)


def squash_affine(
    x: Tensor,
    alpha: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    curve: Curve,
    axis: int = -1,
) -> Tensor:
    """Return ``weight * f(alpha * x + shift) + bias`` in the dtype of ``x``, computed in float32 or wider.

    Args:
        x: Input, its features on ``axis``.
        alpha: Slope ``(1,)``.
        shift: Of the argument, ``(1,)``, or None.
        weight: Gain per feature, or None.
        bias: Shift of the output per feature, or None.
        curve: The squashing function.
        axis: -1, or 1 for ``[batch, dim, *positions]``.
    """
    given = (alpha, shift, weight, bias)
    if not _can_run_in_blocks(x, *given):
        y = curve.value(argument(x, alpha, shift))
        return affine(y, weight, bias, axis).to(x.dtype)
    if axis != -1 and x.movedim(axis, -1).is_contiguous():  # channels-last in memory
        return _Blocks.apply(x.movedim(axis, -1), *given, curve, -1).movedim(-1, axis)
    return _Blocks.apply(x.contiguous(), *given, curve, axis)


def _can_run_in_blocks(x: Tensor, *parameters: Tensor | None) -> bool:
    """Return whether nothing but autograd watches, and everything is a plain tensor of one device."""
    watched = (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()  # as autograd.Function.apply asks
        or torch.autograd.forward_ad._current_level >= 0
    )
    kinds = {type(t) for t in (x, *parameters) if t is not None}
    return not watched and kinds <= {Tensor, nn.Parameter} and x.numel() > SMALL


class _Blocks(torch.autograd.Function):
    """The op on a contiguous input."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        alpha: Tensor,
        shift: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        curve: Curve,
        axis: int,
    ) -> Tensor:
        ctx.save_for_backward(x, alpha, shift, weight)
        ctx.curve, ctx.axis = curve, axis
        y = torch.empty_like(x)
        slope, offset, gain, base = _widened(x, axis, alpha, shift, weight, bias)
        for xs, ys in _blocks(axis, x, y):
            z = ys if ys.dtype == slope.dtype else _scratch(xs, slope.dtype, 1)[0]
            torch.mul(xs, slope, out=z)
            _add(z, offset)
            curve.value(z, out=z)
            if gain is not None:
                z.mul_(gain)
            _add(z, base)
            if z is not ys:
                ys.copy_(z)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # the gradient is to be differentiated in its turn
            return *_formula_gradients(ctx, g), None, None
        x, alpha, shift, weight = ctx.saved_tensors
        slope, offset, gain, _ = _widened(x, ctx.axis, alpha, shift, weight, None)
        gx = torch.empty_like(x)
        dims = _all_but(ctx.axis)
        of_alpha, of_shift, of_weight, of_bias = (slope.new_zeros(1) for _ in range(4))
        for xs, gs, out in _blocks(ctx.axis, x, g.contiguous(), gx):
            value, steep = _scratch(xs, slope.dtype, 2)
            torch.mul(xs, slope, out=value)
            _add(value, offset)
            ctx.curve.split(value, steep)
            of_bias = of_bias + gs.sum(dims, dtype=slope.dtype)
            of_weight = of_weight + value.mul_(gs).sum(dims)
            steep.mul_(gs)
            if gain is not None:
                steep.mul_(gain)
            if shift is not None:
                of_shift = of_shift + steep.sum()
            of_alpha = of_alpha + torch.dot(steep.view(-1), xs.to(steep.dtype).reshape(-1))
            torch.mul(steep, slope, out=out)
        found = (gx, of_alpha, of_shift, of_weight, of_bias, None, None)
        return tuple(f if n else None for f, n in zip(found, ctx.needs_input_grad, strict=True))


def _formula_gradients(ctx: Any, g: Tensor) -> list[Tensor | None]:
    """Return the gradients of ``x, alpha, shift, weight, bias``, with the graph that leads to them."""
    x, alpha, shift, weight = ctx.saved_tensors
    y = affine(ctx.curve.value(argument(x, alpha, shift)), weight, None, ctx.axis).to(x.dtype)
    of_bias = wide(_rows(g, ctx.axis)).sum(_all_but(ctx.axis)) if ctx.needs_input_grad[4] else None
    asked = [n and t for t, n in zip((x, alpha, shift, weight), ctx.needs_input_grad, strict=False)]
    wanted = [t for t in asked if isinstance(t, Tensor)]
    found = iter(torch.autograd.grad(y, wanted, g, create_graph=True) if wanted else ())
    return [next(found) if isinstance(t, Tensor) else None for t in asked] + [of_bias]


def _rows(x: Tensor, axis: int) -> Tensor:
    """Return a view ``[row, dim]``, or ``[batch, dim, position]`` where the features are on axis 1."""
    return x.view(-1, x.shape[-1]) if axis == -1 else x.view(x.shape[0], x.shape[1], -1)


def _all_but(axis: int) -> tuple[int, ...]:
    """Return the axes of :func:`_rows` other than the features'."""
    return (0,) if axis == -1 else (0, 2)


def _blocks(axis: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of one shape into blocks of at most ``BLOCK`` elements, or a row; off the CPU into one block."""
    rows = [_rows(t, axis) for t in tensors]
    count = -(-tensors[0].numel() // BLOCK)
    if count == 1 or tensors[0].device.type != "cpu":
        return iter([tuple(rows)])
    return zip(*(r.chunk(count) for r in rows), strict=True)


def _widened(
    x: Tensor, axis: int, alpha: Tensor, *rest: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Return alpha, shift, gain and bias in the dtype to compute in, the last two to broadcast over blocks of x."""
    dtype = torch.float64 if torch.float64 in (x.dtype, alpha.dtype) else torch.float32
    alpha, shift, *per_feature = (None if p is None else p.to(dtype) for p in (alpha, *rest))
    if axis != -1:
        per_feature = [None if p is None else p.view(-1, 1) for p in per_feature]
    return alpha, shift, *per_feature


def _scratch(block: Tensor, dtype: torch.dtype, count: int) -> list[Tensor]:
    """Return tensors of the shape of ``block`` with anything in them, kept on the CPU from one call to the next.

    New memory is dear there: the first touch of its pages takes longer than all the arithmetic on them.
    """
    if block.device.type != "cpu" or block.numel() > BLOCK:
        return [torch.empty_like(block, dtype=dtype) for _ in range(count)]
    kept = getattr(_KEPT, "of", None)
    if kept is None:
        kept = _KEPT.of = {}
    if dtype not in kept:
        with torch.inference_mode(False):  # else it could not be written to outside
            kept[dtype] = torch.empty(2, BLOCK, dtype=dtype, device="cpu").unbind()
    return [flat[: block.numel()].view(block.shape) for flat in kept[dtype][:count]]


def _add(z: Tensor, offset: Tensor | None) -> None:
    if offset is not None:
        z.add_(offset)
