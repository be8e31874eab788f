"""What data show of a model: saturation, rank and dead units by site, noise stability, train/val gap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from triplepoint.capture import Capture
from triplepoint.errors import DataError
from triplepoint.families import find_norms
from triplepoint.inspection.definitions import DEFINITIONS
from triplepoint.inspection.stability import noise_stability
from triplepoint.metrics import METRICS, State, add_states
from triplepoint.metrics.activation_rank import activation_rank
from triplepoint.objectives import Batch, Objective
from triplepoint.observation import evaluating, saturation_of
from triplepoint.ops import NormOp
from triplepoint.records import Record

DEAD = 1e-3
"""A unit is dead if it never exceeds this share of its layer's root mean square. After a ReLU it is then always 0; after
a GELU of standard normal inputs (root mean square 0.65) its input stays below -3.5, where the slope is 2e-3 at most."""
_RANKS = (activation_rank(), activation_rank(centred=True, name="activation_rank_centred"))
"""Two readings of the same sums."""


def inspect_activations(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    validation: Iterable[Batch] = (),
    objective: Objective | None = None,
    noise: tuple[float, ...] = (0.01, 0.1),
    seed: int = 0,
    step: int | None = None,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> list[Record]:
    """Run batches through a model and measure what happens inside; the model is left as it was.

    Sites are the norms and the ops in their place, and what is measured there is their input: saturation
    where something is squashed, effective rank over all tokens. Dead units are counted in what enters each
    linear layer. Noise stability is measured on the first batch. Kept are 8 d^2 bytes a site, and no activations.

    Args:
        model: The model.
        batches: Training data, in any form that :class:`~triplepoint.objectives.Objective` takes.
        validation: Held-out data; with it come ``val_loss`` and ``train_val_gap``.
        objective: The loss; by default the model's own, or cross-entropy of its logits.
        noise: Sizes of the noise, in units of the embedding; empty for none.
        seed: Of the noise.
        step: Written into the records.
        progress: Called with (what, batches done, batches in all).

    Raises:
        DataError: If there are no batches.
        ModelError: If the loss or the noise stability is not defined for this model.

    References:
        arXiv 2604.23434, where saturation is measured on training windows in bfloat16, noise stability at
        eps 0.01 and 0.1 with three draws.
    """
    batches, validation, objective = list(batches), list(validation), objective or Objective()
    if not batches:
        raise DataError("inspect_activations got no batches.\nPass at least one batch of data.")
    watcher = _Watcher(model)
    total = len(batches) + len(validation)
    with evaluating(model), watcher:
        losses = {"train_loss": _losses(model, objective, batches, "train", 0, total, progress)}
    if validation:
        with evaluating(model):
            done = len(batches)
            losses["val_loss"] = _losses(model, objective, validation, "val", done, total, progress)
    found = [*watcher.values(), *_loss_values(losses)]
    found += [
        (f"noise_stability@{eps:g}", noise_stability(model, batches[0], eps=eps, seed=seed), None, None)
        for eps in noise
    ]  # fmt: skip
    return [
        Record(metric=m, value=v, n=n, site=site, unit=unit_of(m), step=step)
        for m, v, n, site in found
    ]


Value = tuple[str, float, int | None, str | None]
"""Metric, value, over how many things, site."""


def unit_of(metric: str) -> str:
    """Return the unit of a metric; the size behind ``@`` does not change it."""
    return DEFINITIONS[metric if metric in DEFINITIONS else metric.partition("@")[0]]["unit"]


def _losses(
    model: nn.Module,
    objective: Objective,
    batches: list[Batch],
    name: str,
    done: int,
    total: int,
    progress: Callable[[str, int, int], None],
) -> Tensor:
    losses = []
    for number, batch in enumerate(batches, done + 1):
        losses.append(objective.per_window(model, batch).double().cpu())
        progress(name, number, total)
    return torch.cat(losses)


def _loss_values(losses: dict[str, Tensor]) -> list[Value]:
    found: list[Value] = [(m, float(v.mean()), len(v), None) for m, v in losses.items()]
    if len(found) == 2:
        found.append(("train_val_gap", found[1][1] - found[0][1], None, None))
    return found


class _Watcher:
    """Adds up what enters norm sites and linear layers while it is open."""

    def __init__(self, model: nn.Module):
        sites = {s.path: s.module for s in find_norms(model) if s.reason is None}
        ops = {n: m for n, m in model.named_modules() if isinstance(m, NormOp)}
        self._sites = sites | ops
        self._linear = {n: m for n, m in model.named_modules() if _is_linear(m)}
        self._saturation = {
            n: m for n, op in ops.items() if (m := saturation_of(op, dtype=_dtype_of(op)))
        }
        self._states: dict[tuple[str, str], State] = {}
        self._largest: dict[str, Tensor] = {}
        self._captures: list[Capture] = []

    def __enter__(self) -> _Watcher:
        self._captures = [
            Capture(self._sites, self._see_site),
            Capture(self._linear, self._see_linear),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for capture in self._captures:
            capture.close()

    def _add(self, name: str, site: str, state: State) -> None:
        self._states[name, site] = add_states(self._states.get((name, site)), state)

    def _see_site(self, site: str, module: nn.Module, x: Tensor) -> None:
        self._add("rank", site, _RANKS[0].update(x))
        if site in self._saturation:
            z = module.pre_activation(x)
            self._add("saturation", site, self._saturation[site].update(z))

    def _see_linear(self, site: str, module: nn.Module, x: Tensor) -> None:
        rows = x.float().reshape(-1, x.shape[-1])
        largest = rows.abs().amax(0) if len(rows) else rows.new_zeros(rows.shape[-1])
        seen = self._largest.get(site)
        self._largest[site] = largest if seen is None else torch.maximum(seen, largest)
        self._add("input_rms", site, METRICS["input_rms"].update(x))

    def values(self) -> Iterator[Value]:
        """Yield what was measured, site by site."""
        for (name, site), state in self._states.items():
            metrics = {"rank": _RANKS, "saturation": (self._saturation.get(site),)}.get(name, ())
            for metric in metrics:
                for key, value in metric.compute(state).items():
                    yield key, value, int(state["n"]), site
        for site, largest in self._largest.items():
            rms = METRICS["input_rms"].compute(self._states["input_rms", site])["input_rms"]
            dead = int((largest <= DEAD * rms).sum())
            yield "dead_units", dead / len(largest), len(largest), site


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _dtype_of(op: NormOp) -> torch.dtype:
    parameter = next(op.parameters(), None)
    return torch.float32 if parameter is None else parameter.dtype
