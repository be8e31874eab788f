"""Read what a norm computes from what it does: random numbers in, known gain and shift, and see what comes out.

Axes: ``token`` one normalised vector, ``dim`` its features.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import warnings
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triplepoint.families.copying import private_copy
from triplepoint.families.differences import difference_of, factor_of, normalised
from triplepoint.families.fitting import TOLERANCE, Formula, close, fitted, is_affine

_LARGE = 1e3
"""Scale of inputs beside whose square every eps in use (up to 1e-2) rounds to nothing."""
_NO_EPS = 1e-30
"""Where none shows: keeps a vector of zeros at zero, as ``F.normalize`` does, and is lost in float32 otherwise."""
EPS_NAMES = (
    "eps",
    "variance_epsilon",
    "epsilon",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_eps",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """What a class of norms computes with given settings, whatever its parameters hold."""

    centred: bool
    eps: float | None
    axis: int
    gain: str | None = None
    """Name of the parameter that is its gain."""
    offset: float = 0.0
    shift: str | None = None
    """Name of the parameter that is added."""


class NotRead(Exception):
    """A module that is not a LayerNorm or RMSNorm over one axis; its text says what differs.

    ``ran`` says whether it could be tried at all, ``normalises`` whether its output then ignored the scale of its
    input, as that of any norm does.
    """

    def __init__(self, reason: str, *, normalises: bool = False, ran: bool = True):
        super().__init__(reason)
        self.normalises = normalises
        self.ran = ran


def read_norm(module: nn.Module, *, dim: int, device: str | torch.device = "cpu") -> Reading:
    """Run a copy of ``module`` on random float32 input and say what it computes.

    The module itself is not run: its parameters, buffers, gradients, mode, hooks and the global random state stay
    as they are. Its copy has random parameters of the same shapes, so one on the meta device can be read as well.

    Args:
        module: A module without children.
        dim: Number of features to try it with.
        device: Where to run it; the CPU unless its code runs on an accelerator only.

    Raises:
        NotRead: If no gain, shift and eps make it a LayerNorm or RMSNorm to rounding.
    """
    _check_arguments(module)
    _check_parameters(module)
    device = torch.device(device)
    with _quietly(device):
        probe = _Probe(module, dim, device)
        outcomes = [probe.outcome(*layout) for layout in _layouts(dim)]
        readings = [o for o in outcomes if isinstance(o, Reading)]
        if len({r.axis for r in readings}) == 1:
            return readings[0]
        if readings:
            reason = "normalises over the last axis or over axis 1, as the input's shape says"
            raise NotRead(reason, normalises=True)
        # once more, to say what differs: that takes longer than to see that something does
        probe = _Probe(module, dim, device, explaining=True)
        outcomes = [probe.outcome(*layout) for layout in _layouts(dim)]
        raise max(outcomes, key=lambda o: (o.normalises, o.ran))


def _check_arguments(module: nn.Module) -> None:
    named = [
        p.name
        for p in inspect.signature(module.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if len(named) > 1:
        raise NotRead(
            f"its forward takes {', '.join(named[1:])} besides the input: a gated or conditional norm"
        )


def _check_parameters(module: nn.Module) -> None:
    for name, parameter in module._parameters.items():
        if parameter is not None and sum(n > 1 for n in parameter.shape) > 1:
            raise NotRead(
                f"its {name} has shape {list(parameter.shape)}, not one value per feature"
            )
        if parameter is not None and not parameter.is_floating_point():
            raise NotRead(f"its {name} is stored as {parameter.dtype}")


def _layouts(dim: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Shapes to try, with the axis of the features; no other axis is as long."""
    a, b, c = [n for n in (3, 5, 7, 11) if n != dim][:3]
    yield -1, (a, b, dim)
    yield -1, (a, b, c, dim)
    yield 1, (a, dim, b, c)
    yield 1, (a, dim, c)


@contextlib.contextmanager
def _quietly(device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, no warnings of a stranger's code, and the random state of before."""
    accelerators = [] if device.type == "cpu" else [device]
    with (
        warnings.catch_warnings(action="ignore"),
        torch.no_grad(),
        torch.autocast(device.type, enabled=False),
        device,
        torch.random.fork_rng(accelerators, device_type=device.type if accelerators else "cuda"),
    ):
        yield


class _Probe:
    """A copy of a module with known parameters, and what it does to tokens of ``dim`` features."""

    def __init__(
        self, module: nn.Module, dim: int, device: torch.device, *, explaining: bool = False
    ):
        self._dim = dim
        self._device = device
        self._explaining = explaining
        self._random = torch.Generator("cpu").manual_seed(0)
        self._copy = private_copy(module, self._random, device)
        self._parameters = {n: p.cpu() for n, p in self._copy._parameters.items() if p is not None}
        self._named_eps = [getattr(module, name) for name in EPS_NAMES if hasattr(module, name)]

    def outcome(self, axis: int, shape: tuple[int, ...]) -> Reading | NotRead:
        """Read it under the assumption that the features are on ``axis``."""
        try:
            return self._read(axis, shape)
        except NotRead as refused:
            return refused
        except Exception as error:  # a stranger's code may raise anything
            first = str(error).split("\n")[0][:120]
            return NotRead(
                f"could not be run by itself: {type(error).__name__}: {first}", ran=False
            )

    def _read(self, axis: int, shape: tuple[int, ...]) -> Reading:
        x = self._tokens(shape, axis)
        y = self._run(x * _LARGE, axis)
        if not close(self._run(2 * _LARGE * x, axis), y):
            raise NotRead("does not normalise: its output grows with its input")
        formula = fitted(x, y, centred=True) or fitted(x, y, centred=False)
        if formula is None:
            raise NotRead(self._difference(x, y), normalises=True)
        names = self._names(formula)
        eps = self._eps(x, formula, axis)
        self._verify(x, formula, eps, axis)
        return Reading(centred=formula.centred, eps=self._as_named(eps), axis=axis, **names)

    def _difference(self, x: Tensor, y: Tensor) -> str:
        if not self._explaining:
            return "differs"
        return difference_of(x, lambda u: is_affine(u, y))

    def _tokens(self, shape: tuple[int, ...], axis: int) -> Float[Tensor, "*positions dim"]:
        """Random tokens, each with a mean of its own: features last, whatever the layout."""
        order = torch.empty(shape, device="meta").movedim(axis, -1).shape
        x = torch.randn(order, generator=self._random, device="cpu")
        return x + torch.randn(*order[:-1], 1, generator=self._random, device="cpu")

    def _call(self, x: Tensor, axis: int) -> Tensor:
        y = self._copy.forward(x.movedim(-1, axis).contiguous().to(self._device))
        if not isinstance(y, Tensor) or y.ndim != x.ndim:
            raise NotRead("does not return one tensor of its input's shape")
        return y.movedim(axis, -1).cpu()

    def _run(self, x: Tensor, axis: int) -> Tensor:
        y = self._call(x, axis)
        if y.shape != x.shape or not y.isfinite().all():
            raise NotRead("does not return finite numbers in its input's shape")
        return y.float()

    def _names(self, formula: Formula) -> dict[str, object]:
        """Tell which parameters the fitted gain and shift are."""
        gain, shift = formula.gain, formula.shift
        found: dict[str, object] = {}
        for name, values in self._parameters.items():
            if values.numel() != self._dim:
                raise NotRead(
                    f"its {name} has shape {list(values.shape)}, not one value per feature",
                    normalises=True,
                )
            known = values.flatten()
            if close(gain, known):
                found |= {"gain": name, "offset": 0.0}
            elif close(gain, 1 + known):
                found |= {"gain": name, "offset": 1.0}
            elif close(shift, known):
                found["shift"] = name
            else:
                reason = factor_of(gain, known, self._dim)
                raise NotRead(
                    reason or f"its {name} is neither gain, gain - 1 nor shift", normalises=True
                )
        one = torch.ones_like(gain)
        if "gain" not in found and not close(gain, one):
            reason = factor_of(gain, one, self._dim)
            raise NotRead(reason or "has a gain that is not a parameter", normalises=True)
        if "shift" not in found and shift.abs().max() > TOLERANCE * gain.abs().max():
            raise NotRead("has a shift that is not a parameter", normalises=True)
        return found

    def _eps(self, x: Tensor, formula: Formula, axis: int) -> float:
        """Solve ``r^2 = v / (v + eps)`` where the mean square v is nearest to eps; r is the share of full size."""
        u, best = normalised(x, centred=formula.centred) * formula.gain, (0.45, _NO_EPS)
        for exponent in range(0, -19, -1):
            small = x * 10.0 ** (exponent / 2)
            y = self._run(small, axis) - formula.shift
            r2 = ((y * u).sum(-1) / (u * u).sum(-1)).double().square()
            v = formula.mean_square(small).squeeze(-1).double()
            # of one token: tokens differ in v, and so in r
            best = min(
                best, (abs(float(r2.flatten()[0]) - 0.5), float((v * (1 / r2 - 1)).flatten()[0]))
            )
        return best[1]

    def _as_named(self, eps: float) -> float | None:
        """Prefer the number that the module states over the one that was solved, and two digits over rounding."""
        for named in self._named_eps:
            if isinstance(named, float | int) and math.isclose(eps, named, rel_tol=1e-3):
                return float(named)
            if named is None and math.isclose(eps, torch.finfo(torch.float32).eps, rel_tol=1e-3):
                return None
        rounded = float(f"{eps:.1e}")
        return rounded if math.isclose(eps, rounded, rel_tol=1e-3) else eps

    def _verify(self, x: Tensor, formula: Formula, eps: float, axis: int) -> None:
        """Compare with the formula around eps, where its other uses show."""
        for scale in (math.sqrt(eps) / 3, math.sqrt(eps), 3 * math.sqrt(eps), 1.0):
            if scale < 1e-9:  # squares would underflow in float32
                continue
            if not close(self._run(x * scale, axis), formula.output(x * scale, eps), 1e-3):
                reason = "does not add its eps to the mean square under the root"
                raise NotRead(reason, normalises=True)
        self._copy.train()  # the copy only
        trained = self._run(x, axis)
        self._copy.eval()
        if not close(trained, formula.output(x, eps), 1e-3):
            reason = "computes something else in training than in evaluation, such as dropout"
            raise NotRead(reason, normalises=True)
