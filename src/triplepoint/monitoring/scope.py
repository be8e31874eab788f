"""Which parts of a grokking monitor apply to a model, and why the others do not."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from triplepoint.families import find_norms
from triplepoint.monitoring.histories import Clock
from triplepoint.monitoring.meters import Meter
from triplepoint.monitoring.networks import Head, LastOutput, Samples, TwoLayers
from triplepoint.observation import evaluating


class Part(NamedTuple):
    """One part of the monitor and whether it applies."""

    part: str
    applies: bool
    reason: str


def is_homogeneous(model: nn.Module, X: Tensor, *, tol: float = 1e-4) -> bool:
    """Whether scaling all trainable parameters by 2 scales the outputs by one power of 2, an integer one."""
    net = LastOutput(model)
    doubled = {n: 2 * p.detach() for n, p in net.named_parameters() if p.requires_grad}
    with evaluating(model):
        once, twice = net(X), torch.func.functional_call(net, doubled, (X,))
    if not once.norm() > 0:
        return False
    degree = round((twice.norm() / once.norm()).log2().item())
    return bool((twice - 2**degree * once).norm() <= tol * twice.norm())


def parts_of(meter: Meter, *, clock: Clock | None, diagnosed: bool) -> list[Part]:
    """Return every part with its reason.

    Args:
        meter: Of the model.
        clock: Slow time, or None.
        diagnosed: Whether tangent diagnostics were asked for.
    """
    model, samples, layers = meter.model, meter.train, meter.layers
    mse, validated = meter.loss == "mse", meter.validation is not None
    softmax = "squared error has no softmax" if mse else "share of losses that are exactly 0"
    return [
        _accuracies(meter.width, validated),
        _clock(clock),
        _norm(model),
        _head(meter.head),
        _complexity(mse, layers),
        Part("unit imbalance", layers is not None, "it is about two bias-free layers"),
        _manifold(model, samples, mse=mse, diagnosed=diagnosed),
        _homogeneity(model, samples.X[:8], mse),
        _kinks(layers, mse=mse, diagnosed=diagnosed),
        _validity(mse, clock),
        Part("softmax collapse", not mse, softmax),
        Part(
            "Fourier features",
            meter.no_embedding is None,
            meter.no_embedding or "a row per residue",
        ),
    ]


def _accuracies(classes: int, validated: bool) -> Part:
    if classes == 1:
        return Part(
            "accuracies and times", False, "one output is no class: only losses are recorded"
        )
    held = "with held-out samples" if validated else "T_mem only: there are no held-out samples"
    return Part("accuracies and times", True, held)


def _clock(clock: Clock | None) -> Part:
    if clock is None:
        return Part(
            "slow time", False, "no clock was given: pass slow_clock(lr=..., weight_decay=...)"
        )
    nominal = clock.lam is None
    return Part(
        "slow time", True, "nominal: lr * weight_decay, as for AdamW" if nominal else "exact"
    )


def _norm(model: nn.Module) -> Part:
    norms = find_norms(model)
    if norms:
        return Part(
            "total norm as a measure",
            False,
            f"recorded, but partly inert: {len(norms)} normalisation layers, the first at "
            f"'{norms[0].path}', undo the scale of what comes before them",
        )
    return Part("total norm as a measure", True, "no normalisation layer undoes a scale")


def _head(head: Head | None) -> Part:
    if head is None:
        return Part("refit head", False, "no nn.Linear computes the outputs")
    return Part("refit head", True, f"the outputs are what '{head.path}' computes")


def _complexity(mse: bool, layers: TwoLayers | None) -> Part:
    if layers is None:
        return Part(
            "complexity C", False, "it is about two bias-free layers; deeper nets have none"
        )
    if not mse:
        return Part(
            "complexity C",
            False,
            "recorded, but it does not order cross-entropy runs: compare accuracies",
        )
    return Part("complexity C", True, "two bias-free layers and squared error")


def _manifold(model: nn.Module, samples: Samples, *, mse: bool, diagnosed: bool) -> Part:
    name = "zero-loss manifold"
    if not mse:
        return Part(name, False, "cross-entropy has no zero-loss set: its infimum is at infinity")
    d, km = sum(p.numel() for p in model.parameters() if p.requires_grad), samples.Y.numel()
    if d < km:
        return Part(name, False, f"{d} parameters cannot meet {km} targets: there is no such set")
    if not diagnosed:
        return Part(name, False, "not asked for: pass diagnose_every, e.g. 1000")
    return Part(name, True, f"{d} parameters for {km} targets")


def _homogeneity(model: nn.Module, X: Tensor, mse: bool) -> Part:
    name = "homogeneity lemma"
    biases = [n for n, p in model.named_parameters() if n.rpartition(".")[2] == "bias"]
    if not mse:
        return Part(
            name, False, "it is about the zero-loss manifold, which cross-entropy does not have"
        )
    if biases:
        return Part(name, False, f"biases, the first '{biases[0]}', break it")
    if not is_homogeneous(model, X):
        return Part(
            name,
            False,
            "outputs do not scale by a power when all weights do: a smooth activation, or a norm",
        )
    return Part(name, True, "outputs scale by a power when all weights do")


def _kinks(layers: TwoLayers | None, *, mse: bool, diagnosed: bool) -> Part:
    if layers is None or layers.activation.name != "relu":
        return Part("kink sliding", False, "it is about two bias-free layers with ReLU")
    if not layers.trained:
        return Part("kink sliding", False, "it is about two layers that are both trained")
    if not (mse and diagnosed):
        return Part(
            "kink sliding", False, "it comes with the diagnostics of the zero-loss manifold"
        )
    return Part("kink sliding", True, "two bias-free layers with ReLU")


def _validity(mse: bool, clock: Clock | None) -> Part:
    if not mse or clock is None or clock.lam is None:
        why = (
            "cross-entropy has no zero-loss set"
            if not mse
            else "it needs a lam: AdamW, or no clock, has none"
        )
        return Part("validity number", False, why)
    return Part("validity number", True, "lam beside the sum of squares is known")
