"""A network as one function of one parameter vector, and its Jacobian as two products.

Symbols, as in the paper:
    theta   trainable parameters, flattened in the order of ``named_parameters`` [d]
    F       stacked outputs of all samples [km], row-major: sample first, output last
    J       dF/dtheta [km, d], wide where d > km
    k, m, d samples, outputs of one sample, parameters
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from triplepoint.errors import MetricInputError, ModelError

Inputs = Tensor | tuple[Tensor, ...]
"""What the model is called with: one tensor, or its positional arguments."""


@dataclasses.dataclass(frozen=True)
class Linearisation:
    """F near one theta: its value there, and products with J that never build J."""

    theta: Tensor
    outputs: Tensor
    jvp: Callable[[Tensor], Tensor]
    """v [d] -> J v [km]."""
    vjp: Callable[[Tensor], Tensor]
    """a [km] -> J^T a [d]."""

    def jacobian(self, *, chunk: int = 64) -> Float[Tensor, "km d"]:
        """Return J itself: km backward passes and km d numbers, for small nets and for checks."""
        eye = torch.eye(self.outputs.numel(), dtype=self.theta.dtype, device=self.theta.device)
        return torch.func.vmap(self.vjp, chunk_size=chunk)(eye)


@dataclasses.dataclass(frozen=True)
class Stacked:
    """A network on fixed inputs, as the paper's F: R^d -> R^km."""

    F: Callable[[Tensor], Tensor]
    """theta [d] -> outputs [km]; pure."""
    theta: Tensor
    """Where the network stands."""
    split: Callable[[Tensor], dict[str, Tensor]]
    """theta [d] -> parameters by name, in their shapes; a ``load_state_dict(..., strict=False)`` away."""

    def at(self, theta: Tensor | None = None) -> Linearisation:
        """Linearise at ``theta``, by default where the network stands. One forward pass."""
        where = self.theta if theta is None else theta
        with _forward_differentiable():
            outputs, pull = torch.func.vjp(self.F, where)

        def jvp(v: Tensor) -> Tensor:
            with _forward_differentiable():
                return torch.func.jvp(self.F, (where,), (v,))[1]

        return Linearisation(where, outputs.detach(), jvp, lambda a: pull(a)[0])


@functools.cache
def _load_forward_mode() -> None:
    """Let torch compile its rules once: it warns of its own use of ``torch.jit.script`` meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))


@contextlib.contextmanager
def _forward_differentiable() -> Iterator[None]:
    """Attention in plain matrix products: the fused kernels have no forward-mode derivative."""
    _load_forward_mode()
    with sdpa_kernel(SDPBackend.MATH):
        yield


def stack(model: nn.Module, inputs: Inputs, *, dtype: torch.dtype = torch.float64) -> Stacked:
    """Return the network's outputs on ``inputs`` as a function of its flattened parameters.

    The module itself is not changed: parameters, buffers and inputs are copied in ``dtype``. Parameters that do not
    require a gradient are constants; tied ones count once. Evaluate in the state that is to be described:
    dropout or batch statistics make F random or let samples depend on each other.

    Args:
        model: Any module whose forward returns one floating tensor.
        inputs: One tensor, or a tuple of positional arguments; floating ones are cast, integers are kept.
        dtype: Precision of everything that follows. float64, because J J^T squares the condition of J: at 1e4 of
            J, float32 has no digit left.

    Returns:
        The stacked function, where the network stands, and the way back to named parameters.

    Raises:
        ModelError: If no parameter is trainable, the output is no tensor, or two equal calls differ.
        MetricInputError: If a parameter or an output is not finite.

    Example:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> stacked = stack(net, torch.eye(2))
        >>> stacked.at().jvp(torch.tensor([3.0, 5.0], dtype=torch.float64)).tolist()
        [3.0, 5.0]
    """
    cast = _cast_to(dtype)
    args = tuple(cast(x) for x in (inputs if isinstance(inputs, tuple) else (inputs,)))
    trained = {n: cast(p) for n, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise ModelError(
            "The model has no trainable parameter.\nCall model.requires_grad_(True) first."
        )
    fixed = {n: cast(p) for n, p in model.named_parameters() if not p.requires_grad}
    fixed |= {n: cast(b) for n, b in model.named_buffers()}
    sizes = [p.numel() for p in trained.values()]

    def split(theta: Tensor) -> dict[str, Tensor]:
        parts = theta.split(sizes)
        return {n: part.view_as(p) for (n, p), part in zip(trained.items(), parts, strict=True)}

    def outputs(theta: Tensor) -> Tensor:
        # buffers are cloned: a module in training mode may write to them
        return torch.func.functional_call(
            model, {**split(theta), **{n: b.clone() for n, b in fixed.items()}}, args
        )

    theta = torch.cat([p.reshape(-1) for p in trained.values()])
    _check_outputs(outputs, theta)
    return Stacked(lambda v: outputs(v).reshape(-1), theta, split)


def _cast_to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the copy of a tensor in ``dtype``, or as it is where it holds no floating numbers."""
    return lambda x: x.detach().to(dtype) if x.is_floating_point() else x.detach()


def _check_outputs(outputs: Callable[[Tensor], Tensor], theta: Tensor) -> None:
    """Refuse a network that the geometry cannot describe."""
    if not torch.isfinite(theta).all():
        bad = int((~torch.isfinite(theta)).sum())
        raise MetricInputError(
            f"{bad} of {theta.numel()} parameters are inf or nan.\n"
            "The run has diverged: take an earlier checkpoint."
        )
    with torch.no_grad(), _forward_differentiable():
        first, second = outputs(theta), outputs(theta)
    if not (isinstance(first, Tensor) and first.is_floating_point()):
        raise ModelError(
            f"The model returns {type(first).__name__}, not one floating tensor.\n"
            "Wrap it in a module whose forward returns the outputs that enter the squared error."
        )
    if not torch.isfinite(first).all():
        raise MetricInputError(
            "The model's outputs are not finite.\nCheck the inputs, or take an earlier checkpoint."
        )
    if not torch.equal(first, second):
        raise ModelError(
            "Two calls on the same inputs gave different outputs.\n"
            "Call model.eval() first: dropout has no Jacobian."
        )


def match_targets(lin: Linearisation, targets: Tensor) -> Float[Tensor, " km"]:
    """Return the targets stacked like the outputs, in their dtype.

    Args:
        lin: The linearised network.
        targets: As many entries as it has outputs, in the same order.

    Returns:
        The flattened targets.

    Raises:
        MetricInputError: If the number of entries differs, or one is not finite.
    """
    if targets.numel() != lin.outputs.numel():
        raise MetricInputError(
            f"There are {targets.numel()} target entries for {lin.outputs.numel()} outputs.\n"
            "Give targets in the shape of model(inputs); one-hot rows, not class numbers."
        )
    if not torch.isfinite(targets).all():
        raise MetricInputError("A target is not finite.\nRemove the sample or repair its label.")
    return targets.reshape(-1).to(lin.outputs)


def check_wide(lin: Linearisation) -> None:
    """Raise :class:`ModelError` unless there are at least as many parameters as outputs."""
    d, km = lin.theta.numel(), lin.outputs.numel()
    if d < km:
        raise ModelError(
            f"{d} parameters cannot meet {km} targets: there is no zero-loss manifold to slide on.\n"
            "Take fewer samples, or a wider model."
        )


def warn_of_precision(condition: float, dtype: torch.dtype) -> None:
    """Warn where rounding, times the condition number of J J^T, exceeds 1 % of the answer."""
    error = condition * torch.finfo(dtype).eps
    if error > 0.01:
        warnings.warn(
            f"J J^T has condition number {condition:.1e}: in {str(dtype).removeprefix('torch.')} the result may be "
            f"wrong by {min(error, 1.0):.0%} of its size. Try dtype=torch.float64, or route='eigh'.",
            RuntimeWarning,
            stacklevel=3,
        )
