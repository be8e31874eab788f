"""What an optimiser is given and what it keeps: decay groups, averaged weights, its state as tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from triplepoint.ops import Derf, NormOp

HALF_LIFE_SHARE = 0.15
"""Half-life of the averaged weights as a share of the steps so far: inside the 10-20 % advised."""


def decay_names(model: nn.Module) -> list[str]:
    """Return the names of the parameters that weight decay is for: those of two axes and more that no norm has.

    Left out are alphas, shifts, gains, biases and scales, whatever their names. NOT the rule of Hugging Face's
    ``Trainer``, which goes by names: it decays the alpha of ``ln_1`` and not that of ``input_layernorm``. There::

        trainer.get_decay_parameter_names = decay_names

    Example:
        >>> decay_names(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
        ['0.weight']
    """
    decays = decay_filter(model)
    return [name for name, _ in model.named_parameters() if decays(name)]


def decay_filter(model: nn.Module) -> Callable[[str], bool]:
    """Return a function of a parameter's name in ``model``: whether weight decay is for it; see :func:`decay_names`.

    Example:
        >>> decays = decay_filter(nn.Sequential(nn.Linear(2, 2)))
        >>> decays("0.weight"), decays("0.bias")
        (True, False)
    """
    norms = (m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm | NormOp))
    gains = {id(p) for norm in norms for p in norm.parameters()}
    named = model.named_parameters(remove_duplicate=False)
    decayed = {name for name, p in named if p.ndim >= 2 and id(p) not in gains}
    return lambda name: name in decayed


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Split parameters for any optimizer: matrices are decayed; alphas, gains, biases, shifts and scales are not."""
    decays = decay_filter(model)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if decays(name)]
    others = [p for name, p in named if not decays(name)]
    groups = [(matrices, weight_decay), (others, 0.0)]
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


def optimizer_family(optimizer: torch.optim.Optimizer) -> str:
    """Return the name of an optimizer's class, looking through Accelerate; ``Muon`` for every variant of it.

    Example:
        >>> optimizer_family(torch.optim.AdamW(nn.Linear(2, 2).parameters()))
        'AdamW'
    """
    name = type(getattr(optimizer, "optimizer", optimizer)).__name__
    return "Muon" if "muon" in name.lower() else name


def warn_of_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Warn of an optimizer that an op in ``model`` is reported to go badly with: Derf with Muon.

    References:
        The pull request to google/flax#5459, citing arXiv 2604.01563: the gap to RMSNorm grows with Muon for Derf,
        not for DyT. Reported at 1B parameters; not measured here.
    """
    derfs = sum(isinstance(module, Derf) for module in model.modules())
    if derfs and optimizer_family(optimizer) == "Muon":
        warnings.warn(
            f"{type(model).__name__} has {derfs} Derf and is trained with Muon, which are reported to go badly together "
            "(arXiv 2604.01563).\n"
            "Try DyT, or AdamW; screen() calibrates with AdamW, so that its verdict says nothing of this.",
            stacklevel=2,
        )


def make_accelerator(precision: str) -> Accelerator:
    """Return an Accelerator of this precision, also where another run of the process had another one."""
    mixed = {"fp32": "no", "bf16": "bf16"}[precision]
    if AcceleratorState._shared_state.get("_mixed_precision", mixed) != mixed:
        AcceleratorState._reset_state()
    return Accelerator(mixed_precision=mixed)


class Average:
    """Exponential average of weights whose half-life grows with the run."""

    def __init__(self, model: nn.Module):
        self.names = [n for n, p in model.named_parameters() if p.is_floating_point()]
        self._live = [p for p in model.parameters() if p.is_floating_point()]
        self.values = [p.detach().clone() for p in self._live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the live weights; at step t the half-life is 0.15 t steps."""
        keep = 0.5 ** (1 / (HALF_LIFE_SHARE * step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self._live], 1 - keep)

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap live and averaged weights; call twice."""
        for value, live in zip(self.values, self._live, strict=True):
            kept = live.detach().clone()
            live.copy_(value)
            value.copy_(kept)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state an optimiser keeps, as ``parameter|key`` -> tensor."""
    names = {id(p): n for n, p in model.named_parameters()}
    states = getattr(optimizer, "optimizer", optimizer).state
    return {
        f"{names[id(p)]}|{key}": value
        for p, state in states.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Give an optimiser the state that :func:`optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    states = getattr(optimizer, "optimizer", optimizer).state
    for name, tensor in tensors.items():
        path, _, key = name.rpartition("|")
        states[parameters[path]][key] = tensor.to(parameters[path].device)
