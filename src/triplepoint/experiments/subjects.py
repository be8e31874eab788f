"""From a path to a network and its task: what ``grok analyse`` looks at."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from triplepoint.errors import CheckpointError, ModelError, PlanError
from triplepoint.experiments.folders import KIND
from triplepoint.experiments.specs import TaskSpec
from triplepoint.experiments.training import TWO_LAYER, TrainingSpec
from triplepoint.grokking import Task, as_module
from triplepoint.runs import read_json
from triplepoint.weights import load_into, open_checkpoint, steps_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A network, the task it was trained on, and what is known of its training."""

    model: nn.Module
    spec: TrainingSpec
    """Its task, activation, loss and rates; the rates count only where ``trained``."""
    task: Task
    step: int
    """Optimiser steps done; 0 where nobody says."""
    trained: bool
    """Whether the rates are those of the run that it comes from."""
    times: Mapping[str, Mapping[str, float | None]]
    """The run's, where it comes from one."""
    digest: str
    """Of the weights."""

    @property
    def W1(self) -> Tensor | None:
        """First layer [d_in, h] of a two-layer net, float64; None for another."""
        return self.model[0].weight.detach().double().T if self.spec.model == TWO_LAYER else None


def subject_of(path: Path, given: TrainingSpec | None, *, step: int | None = None) -> Subject:
    """Read a network and its task.

    Args:
        path: A run folder of ``grok train``, ``simulate`` or ``fast-forward``, or any checkpoint of a bias-free
            two-layer net: two matrices that chain, as ``nn.Linear`` stores them.
        given: Task, activation and loss; None to take them from the run folder.
        step: Which checkpoint of a run folder; None for the last.

    Raises:
        CheckpointError: If there is nothing to read, or it is damaged.
        ModelError: If the weights are no two-layer net, or do not fit the task.
        PlanError: If the task is neither given nor known.
    """
    if not path.exists():
        raise CheckpointError(
            f"There is no {path}.\nGive a run folder of triplepoint grok, or a checkpoint."
        )
    manifest = read_json(path / "manifest.json") if (path / "manifest.json").exists() else {}
    asked = manifest.get("asked") or {}
    ours = asked.get("kind") == KIND and asked.get("command") in (
        "train",
        "simulate",
        "fast-forward",
    )
    if given is None and not ours:
        raise PlanError(
            f"{path} does not say which task it was trained on.\n"
            "Give --operation, --p, --fraction and --seed as in its training, or a folder that triplepoint grok wrote."
        )
    spec = _spec_of(asked) if given is None else given
    checkpoint = open_checkpoint(path, step=step)
    tensors = {
        name: checkpoint.read(name)
        for name, entry in checkpoint.entries.items()
        if entry.tied_to is None
    }
    task = spec.task.build()
    if ours and spec.model != TWO_LAYER:
        model = spec.build(task)
        load_into(model, {**model.state_dict(), **tensors}, source=path)
    else:
        model = _two_layer(tensors, task, spec.activation, path)
    steps = steps_of(path)
    return Subject(
        model=model,
        spec=spec,
        task=task,
        step=step if step is not None else max(steps, default=0),
        trained=ours and asked["command"] == "train",
        times=manifest.get("times") or {},
        digest=_digest(tensors),
    )


def _spec_of(asked: Mapping) -> TrainingSpec:
    names = {field.name for field in dataclasses.fields(TrainingSpec)}
    try:
        task = TaskSpec(**asked["task"])
        known = {k: v for k, v in asked.items() if k in names and k not in ("task", "betas")}
        return TrainingSpec(**{**known, "task": task})
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"The manifest of the run does not describe its task ({error}).\n"
            "It was written by another version: give --operation, --p, --fraction and --seed."
        ) from error


def _two_layer(
    tensors: Mapping[str, Tensor], task: Task, activation: str, path: Path
) -> nn.Sequential:
    matrices = [t for t in tensors.values() if t.ndim == 2 and t.is_floating_point()]
    others = [name for name, t in tensors.items() if t.ndim != 2 or not t.is_floating_point()]
    d_in, o = task.X.shape[1], task.Y.shape[1]
    if len(matrices) != 2 or others:
        raise ModelError(
            f"{path} holds {', '.join(f'{n} {list(t.shape)}' for n, t in list(tensors.items())[:6])}: no bias-free "
            "two-layer net.\nFor another model watch the run with triplepoint.GrokMonitor, or give a folder of triplepoint grok train."
        )
    for first, last in (matrices, matrices[::-1]):
        if first.shape[1] == d_in and last.shape == (o, first.shape[0]):
            _check_finite(matrices, path)
            return as_module(first.T.double(), last.T.double(), activation=activation)
    shapes = " and ".join(str(list(m.shape)) for m in matrices)
    raise ModelError(
        f"{path} has matrices of {shapes}; {task.name} needs [h, {d_in}] and [{o}, h].\n"
        "Give the --operation and --p that it was trained on."
    )


def _check_finite(matrices: list[Tensor], path: Path) -> None:
    wrong = sum(int((~torch.isfinite(m)).sum()) for m in matrices)
    if wrong:
        raise ModelError(
            f"{path} holds {wrong} weights that are not finite.\nGive a checkpoint from before the run diverged."
        )


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
