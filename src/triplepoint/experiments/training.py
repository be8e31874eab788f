"""A real training run on a task that may grok: AdamW on all layers, in the project's loop, watched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from triplepoint.errors import PlanError
from triplepoint.experiments.embeddings import EMBEDDING_DEFINITIONS, EmbeddingWatch, with_fourier
from triplepoint.experiments.folders import GrokRun, load_run, open_run
from triplepoint.experiments.specs import TaskSpec
from triplepoint.grokking import Task, as_module, initial_first_layer, slow_clock
from triplepoint.models import config_of, model_of
from triplepoint.monitoring import GrokInstrument, GrokMonitor
from triplepoint.phases import Judgement
from triplepoint.recipes import Recipe
from triplepoint.records import Record
from triplepoint.training import DEFINITIONS as LOOP_DEFINITIONS
from triplepoint.training import train

TWO_LAYER = "two-layer"
LOOKS = 40
"""Looks at the embedding along a run: frames of the report's slider."""
SCOPE = {
    True: "A bias-free two-layer net trained by AdamW: C, the refitted head and the manifold part apply with squared error.",
    False: "A deeper net: refitted head, norms and times apply; C and the closed forms do not.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """One training run."""

    task: TaskSpec = TaskSpec()
    model: str = TWO_LAYER
    """``two-layer``, or a named size that reads the samples as tokens, e.g. ``gpt2-0.1m``."""
    hidden: int = 256
    """Of the two-layer net."""
    activation: str = "relu"
    """Of the two-layer net."""
    loss: str = "mse"
    """``mse`` or ``cross_entropy``."""
    steps: int = 6000
    lr: float = 1e-3
    weight_decay: float = 1.0
    """AdamW's; about 1 is what the field groks with."""
    betas: tuple[float, float] = (0.9, 0.999)
    """torch's."""
    eval_every: int = 50
    diagnose_every: int | None = 1000
    """Steps between two tangent diagnostics; None for none."""
    checkpoint_every: int = 1000

    def recipe(self) -> Recipe:
        """Return what the loop takes: full batch, constant rate, nothing clipped.

        Raises:
            PlanError: If a number is out of range.
        """
        if self.eval_every < 1:
            raise PlanError(
                f"--eval-every must be at least 1, got {self.eval_every}.\nTry --eval-every 50."
            )
        return Recipe(
            steps=self.steps, batch=1, lr=self.lr, warmup=0, schedule="constant", clip=0.0,
            weight_decay=self.weight_decay, betas=self.betas, seed=self.task.seed, sample_every=0,
            eval_steps=tuple(range(self.eval_every, self.steps + 1, self.eval_every)),
            checkpoint_every=self.checkpoint_every,
        )  # fmt: skip

    def build(self, task: Task) -> nn.Module:
        """Build the network, float32; a two-layer net with entries of deviation fan_in^-1/2.

        Raises:
            UnknownNameError: If there is no such size or activation.
            PlanError: If the size does not read tokens.
        """
        if self.model != TWO_LAYER:
            if self.model.startswith("vit-"):
                raise PlanError(f"{self.model} reads images, not pairs.\nTry --model gpt2-0.1m.")
            torch.manual_seed(self.task.seed)
            return model_of(config_of(self.model, vocab=task.vocab, context=task.tokens.shape[1]))
        d_in, o, seed = task.X.shape[1], task.Y.shape[1], self.task.seed
        W1 = initial_first_layer(d_in, self.hidden, std=d_in**-0.5, seed=seed, dtype=torch.float32)
        W2 = initial_first_layer(self.hidden, o, std=self.hidden**-0.5, seed=seed + 1000, dtype=torch.float32)  # fmt: skip
        return as_module(W1, W2, activation=self.activation)

    def samples(self, task: Task) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return training and held-out samples in the coding that the model reads."""
        X = task.X.float() if self.model == TWO_LAYER else task.tokens
        Y = task.labels if self.model != TWO_LAYER else task.Y.float()
        return (X[task.train], Y[task.train]), (X[task.test], Y[task.test])


def run_training(
    path: Path,
    spec: TrainingSpec,
    *,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> GrokRun:
    """Train into a run folder: an interrupted run goes on, a finished one is read.

    Args:
        path: The run folder.
        spec: What to train.
        watch: Called after each step with the step and the loss.

    Raises:
        PlanError: If a setting is out of range.
        NonFiniteLossError: If the loss is not finite at the first step.
    """
    recipe = spec.recipe()
    task = spec.task.build()
    model = spec.build(task)
    asked = {"command": "train", **dataclasses.asdict(spec)}
    with open_run(path, asked) as run:
        if run is not None:
            monitor = monitor_of(spec, task, model)
            instrument = _WithCircles(monitor, spec, model)
            result = train(
                model, instrument.batches, objective=instrument.objective, recipe=recipe,
                instrument=instrument, folder=run.folder, arm=spec.model,
                tokens_per_step=int(task.train.sum()), progress=watch,
            )  # fmt: skip
            instrument.close()
            arrays = {**result.arrays, **instrument.circles.arrays()}
            run.finish(_facts(spec, task, instrument, result.status), arrays)
    return load_run(path)


def monitor_of(spec: TrainingSpec, task: Task, model: nn.Module) -> GrokMonitor:
    """Return the monitor of a run of ``spec``."""
    clock = slow_clock(lr=spec.lr, weight_decay=spec.weight_decay, optimizer="adamw")
    training, held_out = spec.samples(task)
    return GrokMonitor(
        model, train=training, validation=held_out, clock=clock, loss=spec.loss,
        every=spec.eval_every, diagnose_every=spec.diagnose_every, arm=spec.model, seed=spec.task.seed,
    )  # fmt: skip


class _WithCircles(GrokInstrument):
    """The monitor's instrument, which also looks at the embedding: it knows the group's order, the monitor does not."""

    def __init__(self, monitor: GrokMonitor, spec: TrainingSpec, model: nn.Module):
        super().__init__(monitor)
        self.circles = EmbeddingWatch(spec.task.residues, arm=spec.model, seed=spec.task.seed)
        self._table = embedding_table(model)
        evaluations = max(1, spec.steps // spec.eval_every // LOOKS)
        self._look_every = evaluations * spec.eval_every

    def evaluate(self, step: int) -> tuple[dict[str, np.ndarray], list[Record]]:
        """Measure as the monitor does, the embedding apart."""
        arrays, records = super().evaluate(step)
        records = [r for r in records if r.metric not in EMBEDDING_DEFINITIONS]
        if step % self._look_every == 0:
            records += self.circles.look(step, self._table())
        return arrays, records

    def state(self) -> dict[str, Tensor]:
        """Return what a restart needs."""
        return {**super().state(), **self.circles.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        self.circles.load_state(state)
        super().load_state(state)


def embedding_table(model: nn.Module) -> Callable[[], Tensor]:
    """Return a function that returns the table of first vectors, a row per input or token."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            return lambda: module.weight.detach().double()
        if isinstance(module, nn.Linear):
            return lambda: module.weight.detach().T.double()
    raise PlanError(
        "The model has neither an embedding nor a linear layer.\nTry --model two-layer."
    )


def _facts(
    spec: TrainingSpec, task: Task, instrument: _WithCircles, status: str
) -> dict[str, object]:
    monitor = instrument.monitor
    facts = monitor.facts()
    phase = monitor.phase
    if status == "diverged":  # the loop stops there, and the monitor's last look was before
        phase = Judgement("diverged", "the loss is not finite")
    return {
        **facts,
        "scope": SCOPE[spec.model == TWO_LAYER],
        "task": task.name,
        "model": {"name": spec.model},
        "samples": {"train": int(task.train.sum()), "val": int(task.test.sum())},
        "outcome": status,
        "phase": None if phase is None else phase._asdict(),
        "applies": with_fourier(facts["applies"], spec.task),
        "metrics": {
            **LOOP_DEFINITIONS,
            **facts["metrics"],
            "grad_norm": {**LOOP_DEFINITIONS["grad_norm"], "unit": instrument.objective.unit},
        },
    }
