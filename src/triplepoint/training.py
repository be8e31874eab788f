"""One training loop, on Accelerate, with exact resume.

The loop knows neither what is measured nor why: an :class:`Instrument` measures, a run folder keeps.
Random numbers come from three places that never meet: batches (a function of seed and step), dropout
(torch's global generator, saved in every checkpoint), evaluation (fixed windows, drawn beforehand).
So how often a run is evaluated does not change what it learns.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from triplepoint.checkpoints import Checkpoints, Snapshot, best_weights_path
from triplepoint.errors import NonFiniteLossError, PlanError, RunFolderError
from triplepoint.objectives import Objective, slice_of, to_device
from triplepoint.optimisation import (
    Average,
    decay_groups,
    load_optimizer,
    make_accelerator,
    optimizer_tensors,
)
from triplepoint.recipes import Recipe
from triplepoint.records import Record
from triplepoint.resources import PeakMemory, step_clock
from triplepoint.runs import RunFolder, write_arrays
from triplepoint.weights import load_into, load_tensors, save_tensors

OPTIMIZER = torch.optim.AdamW
"""What every run is trained with; the manifest names it."""
DEFINITIONS: dict[str, dict[str, str]] = {
    "train_loss": {
        "definition": "cross-entropy on the fixed train windows, eval mode, raw weights",
        "unit": "nats/token",
        "source": "triplepoint",
    },
    "val_loss": {
        "definition": "cross-entropy on the fixed validation windows, eval mode, raw weights",
        "unit": "nats/token",
        "source": "triplepoint",
    },
    "train_loss_ema": {
        "definition": "train_loss of exponentially averaged weights, half-life 15 % of the steps so far",
        "unit": "nats/token",
        "source": "triplepoint",
    },
    "val_loss_ema": {
        "definition": "val_loss of exponentially averaged weights, half-life 15 % of the steps so far",
        "unit": "nats/token",
        "source": "triplepoint",
    },
    "report_loss": {
        "definition": "cross-entropy on the fixed report windows, text used for nothing else; the best checkpoint is chosen on validation",
        "unit": "nats/token",
        "source": "triplepoint",
    },
    "lr": {"definition": "learning rate of the last update", "unit": "1", "source": "triplepoint"},
    "s1": {
        "definition": "cumulative learning rate S1, the sum over updates: the clock on which arms are compared",
        "unit": "1",
        "source": "arXiv 2408.11029",
    },
    "grad_norm": {
        "definition": "norm of the gradient before clipping, mean over the updates since the last record",
        "unit": "nats/token",
        "source": "triplepoint",
    },
    "clip_rate": {
        "definition": "share of the updates since the last record whose gradient was clipped",
        "unit": "share",
        "source": "triplepoint",
    },
    "loss_spikes": {
        "definition": "updates so far whose batch loss lay over 6 standard deviations above the 50 before",
        "unit": "count",
        "source": "triplepoint",
    },
    "step_time": {
        "definition": "median seconds of one training step without evaluation: process CPU time on a CPU, wall time else",
        "unit": "s",
        "source": "triplepoint",
    },
    "step_wall_time": {
        "definition": "median wall seconds of one training step without evaluation",
        "unit": "s",
        "source": "triplepoint",
    },
    "tokens_per_s": {
        "definition": "tokens of a step over step_time",
        "unit": "tokens/s",
        "source": "triplepoint",
    },
    "peak_memory": {
        "definition": "largest resident memory of the process during the run; on CUDA the allocator's peak",
        "unit": "bytes",
        "source": "triplepoint",
    },
}
"""What each metric is, in what unit and after whom: copied into the manifest of a run."""


class Instrument(Protocol):
    """What the loop asks of whoever measures; :class:`triplepoint.measurement.Probe` is one."""

    def before_step(self, step: int) -> None: ...  # noqa: D102
    def after_backward(self, step: int) -> None: ...  # noqa: D102
    def before_update(self) -> Any: ...  # noqa: D102
    def update_records(self, before: Any, step: int) -> list[Record]: ...  # noqa: D102
    def evaluate(self, step: int) -> tuple[dict[str, np.ndarray], list[Record]]: ...  # noqa: D102
    def losses(self) -> dict[str, np.ndarray]: ...  # noqa: D102
    def report(self) -> np.ndarray | None: ...  # noqa: D102
    def state(self) -> dict[str, Tensor]: ...  # noqa: D102
    def load_state(self, state: Mapping[str, Tensor]) -> None: ...  # noqa: D102


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a run ended."""

    status: Literal["finished", "diverged"]
    step: int
    """Steps done."""
    arrays: dict[str, np.ndarray]
    """``val_loss``, ``train_loss`` [evaluation, window], ``eval_steps``; ``..._ema`` with ``average_steps``."""


class Loop:
    """The state of one run between two steps, and how to take the next."""

    def __init__(
        self,
        model: nn.Module,
        batches: Callable[[int], Iterator[Any]],
        *,
        objective: Objective,
        recipe: Recipe,
        instrument: Instrument,
        folder: RunFolder,
        arm: str,
        tokens_per_step: int,
    ):
        self.recipe, self.objective, self.instrument = recipe, objective, instrument
        self.folder, self._arm, self._tokens = folder, arm, tokens_per_step
        self._batches = batches
        self._accelerator = make_accelerator(recipe.precision)
        if recipe.batch % self._accelerator.num_processes:
            raise PlanError(
                f"A batch of {recipe.batch} does not divide into {self._accelerator.num_processes} processes.\n"
                "Choose a batch that is a multiple of the number of processes."
            )
        fused = self._accelerator.device.type in ("cpu", "cuda")
        optimizer = OPTIMIZER(
            decay_groups(model, recipe.weight_decay), lr=recipe.lr, betas=recipe.betas, fused=fused
        )
        self._following = [m for m in model.modules() if hasattr(m, "advance")]
        self.raw = model
        self._model, self._optimizer = self._accelerator.prepare(model, optimizer)
        self._average = Average(model) if recipe.average_steps else None
        self.step, self._s1 = 0, 0.0
        self._history: dict[str, list[np.ndarray]] = {}
        self._losses: list[float] = []
        self._norms: list[Tensor] = []
        self._recent: list[float] = []
        self._spikes = 0
        self._times: list[tuple[float, float]] = []
        self._records_size = 0
        self._checkpoints = Checkpoints(folder.path / "checkpoints")

    @property
    def main(self) -> bool:
        """Whether this process writes."""
        return self._accelerator.is_main_process

    # -- one step --------------------------------------------------------------------------------------

    def run(self, progress: Callable[[int, float], None], *, until: int) -> TrainResult:
        """Train from where the run stands to step ``until``."""
        recipe = self.recipe
        evaluations, averages = set(recipe.evaluations), set(recipe.average_steps)
        torch.manual_seed(_mix(recipe.seed, 1))
        self._resume()
        if self.step > until:
            raise past(self.folder.path, self.step, until)
        memory = PeakMemory(self._accelerator.device)
        clock = step_clock(self._accelerator.device)
        self._model.train()
        batches = self._batches(self.step)
        while self.step < until:
            step = self.step + 1
            start = clock()
            batch = self._share(next(batches))
            loss, updates = self._update(batch, step, watch=step in averages)
            self.step = step
            end = clock()
            # enough for a median, little enough for a checkpoint
            self._times = [*self._times[-499:], (end[0] - start[0], end[1] - start[1])]
            if not math.isfinite(loss):
                return self._stop_on_non_finite(step)
            if step in evaluations and not self._evaluate(
                step, averaged=step in averages, extra=updates
            ):
                return self._result("diverged")
            if step == until or (recipe.checkpoint_every and step % recipe.checkpoint_every == 0):
                self._save()
            progress(step, loss)
        # the checkpoint knows nothing of what follows: a run that goes on forgets that it has stopped
        if until not in evaluations and not self._evaluate(until, passing=True):
            return self._result("diverged")
        self._accelerator.wait_for_everyone()  # the main process writes the weights that all read next
        self._record(self._closing_records(memory))
        return self._result("finished")

    def _share(self, batch: Any) -> Any:
        """Return this process's rows of a batch, on its device."""
        accelerator = self._accelerator
        if accelerator.num_processes > 1:
            batch = slice_of(batch, accelerator.process_index, None, accelerator.num_processes)
        return to_device(batch, accelerator.device)

    def _update(self, batch: Any, step: int, *, watch: bool) -> tuple[float, list[Record]]:
        lr = self.recipe.lr_at(step)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        for module in self._following:  # what changes by the step, as a taper's gate
            module.advance(step, steps=self.recipe.steps)
        self.instrument.before_step(step)
        with self._accelerator.autocast():
            loss = self.objective.loss(self._model, batch)
        self._accelerator.backward(loss)
        self.instrument.after_backward(step)
        self._norms.append(self._clip())
        before = self.instrument.before_update() if watch else None
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._s1 += lr
        if self._average is not None:
            self._average.update(step)
        value = float(loss.detach())
        self._count_spike(value)
        return value, self.instrument.update_records(before, step) if watch else []

    def _clip(self) -> Tensor:
        limit = self.recipe.clip or math.inf
        return self._accelerator.clip_grad_norm_(self._model.parameters(), limit).detach()

    def _count_spike(self, loss: float) -> None:
        if len(self._recent) == 50 and math.isfinite(loss):
            usual = statistics.fmean(self._recent)
            self._spikes += loss > usual + 6 * statistics.pstdev(self._recent, usual)
        self._recent = [*self._recent[-49:], loss]

    # -- measuring -------------------------------------------------------------------------------------

    def _evaluate(
        self,
        step: int,
        *,
        averaged: bool = False,
        extra: Sequence[Record] = (),
        passing: bool = False,
    ) -> bool:
        """Measure and record; returns whether both losses are finite.

        A ``passing`` evaluation is none of the recipe's: its weights are not kept, even if they are the best.
        """
        arrays, records = self.instrument.evaluate(step)
        if averaged:
            self._average.exchange()
            ema = self.instrument.losses()
            self._average.exchange()
            arrays |= {f"{name}_ema": losses for name, losses in ema.items()}
            arrays["average_steps"] = np.array(step)
        best = min((h.mean() for h in self._history.get("val_loss", [])), default=math.inf)
        if self.main and not passing and arrays["val_loss"].mean() < best:
            save_tensors(best_weights_path(self.folder.path), self.raw.state_dict())
        for name, losses in {**arrays, "eval_steps": np.array(step)}.items():
            self._history.setdefault(name, []).append(losses)
        means = [
            self._row(name, float(losses.mean()), step, n=len(losses))
            for name, losses in arrays.items()
            if name != "average_steps"
        ]
        self._record([*means, *self._loop_records(step), *records, *extra])
        return all(np.isfinite(arrays[name].mean()) for name in ("val_loss", "train_loss"))

    def _loop_records(self, step: int) -> list[Record]:
        norms = torch.stack(self._norms).double().cpu()
        self._norms = []
        limit = self.recipe.clip or math.inf
        return [
            self._row("lr", self.recipe.lr_at(step), step),
            self._row("s1", self._s1, step),
            self._row("grad_norm", float(norms.mean()), step, n=len(norms)),
            self._row("clip_rate", float((norms > limit).double().mean()), step, n=len(norms)),
            self._row("loss_spikes", self._spikes, step),
        ]

    def _closing_records(self, memory: PeakMemory) -> list[Record]:
        """Return the two endpoints and what the run cost."""
        val = np.array([losses.mean() for losses in self._history["val_loss"]])
        steps = [int(s) for s in self._history["eval_steps"]]
        best = int(np.argmin(val))
        rows = [
            self._row("val_loss", float(val[-1]), steps[-1], endpoint="fixed_step"),
            self._row("val_loss", float(val[best]), steps[best], endpoint="best_checkpoint"),
        ]
        rows += self._report_records(steps[-1], steps[best])
        if self._times:
            own, wall = (statistics.median(t) for t in zip(*self._times, strict=True))
            rows += [
                self._row("step_time", own, self.step, n=len(self._times)),
                self._row("step_wall_time", wall, self.step, n=len(self._times)),
                self._row("tokens_per_s", self._tokens / own, self.step),
                self._row("peak_memory", memory.peak(), self.step),
            ]
        return rows

    def _report_records(self, last: int, best: int) -> list[Record]:
        final = self.instrument.report()
        if final is None:
            return []
        chosen = final if best == last else self._report_of_best()
        ends = [("fixed_step", final, last), ("best_checkpoint", chosen, best)]
        return [
            self._row("report_loss", float(x.mean()), step, endpoint=endpoint, n=len(x))
            for endpoint, x, step in ends
        ]

    def _report_of_best(self) -> np.ndarray:
        live = {k: v.detach().clone() for k, v in self.raw.state_dict().items()}
        path = best_weights_path(self.folder.path)
        load_into(self.raw, load_tensors(path), source=path)
        losses = self.instrument.report()
        load_into(self.raw, live, source=path)
        return losses

    def _row(self, metric: str, value: float, step: int, **more: object) -> Record:
        unit = DEFINITIONS[metric]["unit"]
        if metric.endswith(("loss", "loss_ema")) or metric == "grad_norm":
            unit = self.objective.unit
        return Record(
            metric=metric, value=value, unit=unit, step=step, arm=self._arm, seed=self.recipe.seed,
            **more,
        )  # fmt: skip

    def _record(self, records: list[Record]) -> None:
        if self.main:
            self._records_size = self.folder.append(records)

    def _stop_on_non_finite(self, step: int) -> TrainResult:
        if step == 1:
            raise NonFiniteLossError(
                f"The loss of {self._arm} is not finite at the first step.\n"
                "Check the initial weights and the data; try a longer warm-up or fp32."
            )
        self._record(
            [self._row("train_loss", math.nan, step), self._row("val_loss", math.nan, step)]
        )
        return self._result("diverged")

    def _result(self, status: Literal["finished", "diverged"]) -> TrainResult:
        arrays = {name: np.stack(rows) for name, rows in self._history.items()}
        if self.main:
            write_arrays(self.folder.path / "arrays.npz", arrays)
        return TrainResult(status=status, step=self.step, arrays=arrays)

    # -- checkpoints -----------------------------------------------------------------------------------

    def _save(self) -> None:
        if not self.main:
            return
        self.folder.sync()
        counts = {
            "s1": self._s1, "spikes": self._spikes, "recent": self._recent, "times": self._times,
            "records": self._records_size,
        }  # fmt: skip
        tensors = {f"probe|{k}": v for k, v in self.instrument.state().items()}
        if self._norms:
            tensors["norms"] = torch.stack(self._norms)
        if self._average is not None:
            tensors |= {
                f"average|{n}": v
                for n, v in zip(self._average.names, self._average.values, strict=True)
            }
        self._checkpoints.save(
            Snapshot(
                step=self.step,
                model=self.raw.state_dict(),
                optimizer=optimizer_tensors(self.raw, self._optimizer),
                rest=tensors,
                counts=counts,
                history={name: np.stack(rows) for name, rows in self._history.items()},
            )
        )

    def _resume(self) -> None:
        """Take up the newest checkpoint, and forget every record written after it."""
        snapshot = self._checkpoints.latest()
        if snapshot is None:
            if self.main:
                self.folder.rewind(0)
            return
        source = self._checkpoints.path
        self.step = snapshot.step
        load_into(self.raw, snapshot.model, source=source)
        load_optimizer(self.raw, self._optimizer, snapshot.optimizer)
        self._s1, self._spikes = snapshot.counts["s1"], snapshot.counts["spikes"]
        self._recent = list(snapshot.counts["recent"])
        self._times = [tuple(t) for t in snapshot.counts["times"]]
        self._records_size = snapshot.counts["records"]
        device = self._accelerator.device
        norms = snapshot.rest.get("norms")
        self._norms = [] if norms is None else list(norms.to(device).unbind())
        self._history = {name: list(rows) for name, rows in snapshot.history.items()}
        if self._average is not None:
            for name, value in zip(self._average.names, self._average.values, strict=True):
                value.copy_(snapshot.rest[f"average|{name}"])
        probe = {
            k.removeprefix("probe|"): v.to(device)
            for k, v in snapshot.rest.items()
            if k.startswith("probe|")
        }
        self.instrument.load_state(probe)
        if self.main:
            self.folder.rewind(self._records_size)


def train(
    model: nn.Module,
    batches: Callable[[int], Iterator[Any]],
    *,
    objective: Objective,
    recipe: Recipe,
    instrument: Instrument,
    folder: RunFolder,
    arm: str,
    tokens_per_step: int,
    until: int | None = None,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> TrainResult:
    """Train ``model`` as ``recipe`` says; an interrupted run goes on from its last checkpoint.

    On a CPU a resumed run ends with bit-equal losses, and so does one that was stopped and went on. The caller
    finishes the folder.

    Args:
        model: Newly built; changed in place.
        batches: ``batches(k)`` yields the batches from the (k+1)-th on.
        objective: The loss.
        recipe: Hyperparameters.
        instrument: What measures, made from this very model.
        folder: Where records, arrays and checkpoints go.
        arm: Name of the run in records.
        tokens_per_step: For the throughput; sequences x tokens.
        until: Step at which to stop for now; None for the recipe's last. It is evaluated and checkpointed.
        progress: Called after each step with the step and the batch loss.

    Raises:
        NonFiniteLossError: If the loss is not finite at the first step.
        CheckpointError: If the newest checkpoint is damaged.
        RunFolderError: If the run is past ``until`` already.
    """
    loop = Loop(
        model, batches, objective=objective, recipe=recipe, instrument=instrument, folder=folder,
        arm=arm, tokens_per_step=tokens_per_step,
    )  # fmt: skip
    return loop.run(progress, until=recipe.steps if until is None else until)


def past(path: Path, step: int, until: int) -> RunFolderError:
    """Return the error of a run that is asked to stop where it was before."""
    return RunFolderError(
        f"{path} has come to step {step} already, past the {until} asked for.\n"
        f"Ask for {step} steps or more, or choose another folder with --out."
    )


def _mix(seed: int, stream: int) -> int:
    """Return the seed of a numbered stream: neighbouring run seeds do not share one."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> 1)
