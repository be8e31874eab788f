"""Which modules of a model could be norms, and what each of them is."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from triplepoint.families.probing import EPS_NAMES, NotRead, Reading, read_norm
from triplepoint.families.wrappers import adapter_around
from triplepoint.ops import NormFacts, NormOp, facts_of

_REFUSED = {
    nn.modules.batchnorm._BatchNorm: "normalises over the batch, which a per-token op cannot stand in for",
    nn.GroupNorm: "normalises over groups of channels and positions, which a per-token op cannot stand in for",
    nn.modules.instancenorm._InstanceNorm: "normalises over positions, which a per-token op cannot stand in for",
    nn.LocalResponseNorm: "normalises over neighbouring channels only",
}
_FUNCTIONAL = {"layer_norm", "rms_norm", "group_norm"}
_MAKINGS = _FUNCTIONAL | {
    "rsqrt",
    "sqrt",
    "var",
    "var_mean",
    "mean",
    "std",
    "norm",
    "normalize",
    "pow",
}
"""Names in the code of a forward that a norm may be made of."""
_WIDTH_NAMES = ("normalized_shape", "hidden_size", "dim", "d_model", "num_features", "embed_dim")
_ANY_WIDTH = 8
"""What to try a norm with that has no parameters and states no width: such norms take any."""


class Finder:
    """Says of each module of one model whether it is a norm; modules of one class and settings are run once."""

    def __init__(self, model: nn.Module):
        self._model = model
        self._readings: dict[tuple, Reading | NotRead] = {}

    def look_at(self, path: str, module: nn.Module) -> tuple[str, NormFacts | str] | None:
        """Return where a norm sits and what it is, or why it can't be replaced; None for what is no norm."""
        if "parametrizations" in path.split(
            "."
        ):  # computes a weight, as weight and spectral norm do
            return None
        seen = self._seen(path, module)
        if seen is None or (around := adapter_around(self._model, path)) is None:
            return None if seen is None else (path, seen)
        kind = type(self._model.get_submodule(around)).__name__
        return around, f"a {kind} keeps it in two versions: swap before adding the adapter"

    def _seen(self, path: str, module: nn.Module) -> NormFacts | str | None:
        if isinstance(module, torch.jit.ScriptModule):
            return _scripted(module)
        for refused, reason in _REFUSED.items():
            if isinstance(module, refused):
                return reason
        if "running_mean" in module._buffers:
            return "normalises by the statistics of earlier batches, not of the token"
        if _is_standard(module):
            return _standard(module)
        if any(module.children()):
            return _composed(module)
        if not _could_be(module):
            return None
        return self._probed(path, module)

    def _probed(self, path: str, module: nn.Module) -> NormFacts | str | None:
        reading = self._reading(module)
        if isinstance(reading, NotRead):
            # what is neither called a norm nor acts like one is none
            listed = reading.normalises or _is_called_norm(module)
            return str(reading) if listed and not isinstance(module, NormOp) else None
        dim = _width(module) or self._width_around(path)
        if dim is None:
            return "has no parameters and states no width, nor do the modules around it"
        return NormFacts(
            dim=dim,
            centred=reading.centred,
            eps=reading.eps,
            axis=reading.axis,
            weight=_one_axis(module, reading.gain),
            weight_offset=reading.offset,
            bias=_one_axis(module, reading.shift),
        )

    def _reading(self, module: nn.Module) -> Reading | NotRead:
        key = _settings(module)
        if key not in self._readings:
            self._readings[key] = _read(module)
        return self._readings[key]

    def _width_around(self, path: str) -> int | None:
        """Take the width from the modules around, innermost first; a head's where the norm is one of q, k or v."""
        parts = path.split(".")
        heads = (
            ("head_dim",)
            if re.match(r"(q|k|v|qk|query|key|value)_?(layer_?)?norm", parts[-1])
            else ()
        )
        for end in range(len(parts) - 1, -1, -1):
            around = self._model.get_submodule(".".join(parts[:end]))
            for holder in (around, getattr(around, "config", None)):
                for name in (*heads, *_WIDTH_NAMES):
                    if (width := _whole(getattr(holder, name, None))) is not None:
                        return width
        return None


def _read(module: nn.Module) -> Reading | NotRead:
    """Read a module on the CPU, or where it lives if its code, as that of a Triton kernel, runs only there."""
    refusals = []
    for device in _devices(module):
        try:
            return read_norm(module, dim=_width(module) or _ANY_WIDTH, device=device)
        except NotRead as refused:
            refusals.append(refused)
            if refused.ran:
                break
    return refusals[-1]


def _devices(module: nn.Module) -> list[torch.device]:
    home = next((p.device for p in module._parameters.values() if p is not None), None)
    cpu = torch.device("cpu")
    return [cpu] if home is None or home.type in ("cpu", "meta") else [cpu, home]


def _one_axis(module: nn.Module, name: str | None) -> Tensor | None:
    parameter = None if name is None else module._parameters[name]
    # channels-first norms may store theirs as [1, dim, 1, 1]; the others keep the parameter itself
    return parameter if parameter is None or parameter.ndim == 1 else parameter.flatten()


def _is_standard(module: nn.Module) -> bool:
    """Whether this is torch's own norm, or a subclass that computes the same."""
    kind = next((k for k in (nn.LayerNorm, nn.RMSNorm) if isinstance(module, k)), None)
    return (
        kind is not None and type(module).forward is kind.forward and "forward" not in vars(module)
    )


def _standard(module: nn.Module) -> NormFacts | str:
    if others := set(module._parameters) - {"weight", "bias"}:
        return f"its weight is computed from {', '.join(sorted(others))}"
    if len(module.normalized_shape) != 1:
        return f"normalises over {len(module.normalized_shape)} axes"
    facts = facts_of(module)
    if facts.weight is not None and facts.weight.numel() != facts.dim:
        return f"its weight holds {facts.weight.numel()} of {facts.dim} values here: swap before sharding"
    return facts


def _scripted(module: torch.jit.ScriptModule) -> str | None:
    """Say why a norm of TorchScript, whose code is no Python any more, can't be replaced; None for all others."""
    if any(module.children()) or "norm" not in module.original_name.lower():
        return None
    return "is compiled by TorchScript, which no longer calls its modules: swap before"


def _composed(module: nn.Module) -> str | None:
    """Say why a module with children that normalises by itself can't be replaced; None for all others."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return (
            f"its class {type(module).__name__} has parts of its own: {', '.join(module._modules)}"
        )
    called = _FUNCTIONAL & set(_names_in_code(module))
    # `self.layer_norm(x)` names a child, not the function
    called -= {name for m in module.modules() for name in called if hasattr(m, name)}
    if not called:
        return None
    return f"its forward calls {', '.join(sorted(called))} itself: make that a module of its own to replace it"


def _could_be(module: nn.Module) -> bool:
    if _is_called_norm(module):
        return True
    sizes = {p.numel() for p in module._parameters.values() if p is not None}
    if len(sizes) > 1 or len(module._parameters) > 2:
        return False
    has_eps = any(name in vars(module) for name in EPS_NAMES)
    return has_eps or bool(_MAKINGS & set(_names_in_code(module)))


def _is_called_norm(module: nn.Module) -> bool:
    return any("norm" in kind.__name__.lower() for kind in type(module).__mro__)


def _names_in_code(module: nn.Module) -> Iterator[str]:
    """Names that the code of a forward uses, that of functions inside it included."""
    codes = [getattr(inspect.unwrap(type(module).forward), "__code__", None)]
    while codes:
        if (code := codes.pop()) is not None:
            yield from code.co_names
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _settings(module: nn.Module) -> tuple:
    """Return what decides what a module computes besides the values of its parameters."""
    shapes = [
        (name, None if p is None else tuple(p.shape)) for name, p in module._parameters.items()
    ]
    plain = (bool, int, float, str, tuple, type(None))
    values = [
        (name, value if isinstance(value, plain) else id(getattr(value, "__func__", value)))
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training"
    ]
    buffers = [(name, id(buffer)) for name, buffer in module._buffers.items()]
    return type(module), str(shapes), str(values), str(buffers)


def _width(module: nn.Module) -> int | None:
    """Return the number of features that a module has parameters for, or states."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return max(parameter.shape, default=1)
    return next((w for name in _WIDTH_NAMES if (w := _whole(getattr(module, name, None)))), None)


def _whole(value: object) -> int | None:
    value = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
    return value if isinstance(value, int) and value > 1 else None
