"""One arm into its run folder, and out of it again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import PartialState
from torch import nn

import triplepoint
from triplepoint import measurement, training
from triplepoint.errors import (
    ModelError,
    NonFiniteLossError,
    PlanError,
    RunFolderError,
)
from triplepoint.measurement import Probe
from triplepoint.models import parameter_counts
from triplepoint.objectives import Batch, Objective, concatenate, first_tensor, length_of
from triplepoint.phases import diverged_step
from triplepoint.recipes import Recipe, whole_number
from triplepoint.records import Record
from triplepoint.runs import (
    RunFolder,
    identity_of,
    read_arrays,
    read_json,
    read_records,
    write_arrays,
)

Progress = Callable[[int, float], None]

DEFINITIONS = {**training.DEFINITIONS, **measurement.DEFINITIONS}
"""Definition, unit and source of every metric that an arm records."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmRun:
    """A finished run of one arm, as its folder tells it."""

    path: Path
    arm: str
    seed: int
    outcome: Literal["finished", "diverged"]
    last_step: int
    diverged_at: int | None
    plateau: dict[str, float] | None
    facts: dict[str, Any]
    """The manifest."""
    arrays: dict[str, np.ndarray]
    records: list[Record]

    @property
    def until(self) -> int:
        """Step to which it was asked to come: its recipe's last, or one before it."""
        return self.facts.get("until") or self.facts["asked"]["recipe"]["steps"]

    def series(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and values of a whole-model metric along the run."""
        rows = [
            r for r in self.records if r.metric == metric and r.site is None and r.endpoint is None
        ]
        return np.array([r.step for r in rows], dtype=int), np.array([r.value for r in rows])

    def last(self, metric: str) -> float | None:
        """Return the last value of a whole-model metric, or None if it was not recorded."""
        values = self.series(metric)[1]
        return float(values[-1]) if len(values) else None


def load_arm(path: Path) -> ArmRun:
    """Read a finished arm's folder.

    Raises:
        RunFolderError: If the run has not finished, or the folder is no run of one arm.
    """
    facts = read_json(path / "manifest.json")
    kind = facts.get("asked", {}).get("kind")
    if kind != "train":
        raise RunFolderError(
            f"{path} is the folder of a {kind or 'damaged run'}, not of one run.\n"
            "Give one that triplepoint train made, or a folder under arms/ in a screen's."
        )
    if facts.get("status") != "finished":
        raise RunFolderError(f"{path} is not finished.\nRun its command again; it resumes.")
    return ArmRun(
        path=path,
        arm=facts["arm"],
        seed=facts["seed"],
        outcome=facts["outcome"],
        last_step=facts["last_step"],
        diverged_at=facts["diverged_at"],
        plateau=facts.get("plateau"),
        facts=facts,
        arrays=read_arrays(path / "arrays.npz"),
        records=read_records(path, facts["records_size"]),
    )


def run_arm(
    path: Path,
    *,
    asked: Mapping[str, object],
    build: Callable[[int], nn.Module],
    batches: Callable[[int], Iterator[Batch]],
    windows: Mapping[str, Batch],
    objective: Objective,
    recipe: Recipe,
    arm: str,
    facts: Mapping[str, object],
    must_start: bool = True,
    until: int | None = None,
    progress: Progress = lambda step, loss: None,
) -> ArmRun:
    """Train one arm into the run folder ``path``; a finished one is read, an interrupted one resumed.

    A run may be trained in parts: to step ``until``, later on to another. ``until`` is no part of its identity, and the
    parts are bit-equal to one run, with the same records but those of a clock.

    Args:
        path: The arm's folder.
        asked: What identifies the run besides the recipe.
        build: ``build(seed)`` returns the arm's model.
        batches: ``batches(k)`` yields the batches from the (k+1)-th on.
        windows: ``val``, ``train`` and perhaps ``report``: fixed windows.
        objective: The loss.
        recipe: Hyperparameters; its seed is the run's.
        arm: Name in records.
        facts: More for the manifest, e.g. data and plateau.
        must_start: Whether a loss that is not finite at the first step is an error; else the arm diverged.
        until: Step at which it stops for now; None for the recipe's last.
        progress: Called after each step.

    Raises:
        PlanError: If ``until`` lies beyond the recipe.
        RunFolderError: If the folder is another run's, or the run is past ``until`` already.
    """
    last = _last_step(until, recipe)
    asked = _asked(asked, arm=arm, recipe=recipe)
    with _claimed(path, asked) as folder, torch.random.fork_rng():
        main = is_main_process()
        if folder.state == "finished" and (done := _done(path, last)) is not None:
            if main and done.until < last:  # stopped by its loss: there is nothing to go on from
                folder.write_manifest({**done.facts, "until": last})
            return load_arm(path)
        torch.manual_seed(recipe.seed)
        model = checked_model(build(recipe.seed))
        manifest = {
            **facts,
            "arm": arm,
            "seed": recipe.seed,
            "tokens_per_step": _tokens_of(next(iter(batches(0)))),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": triplepoint.__version__,
            "versions": versions(),
            "optimizer": training.OPTIMIZER.__name__,
            "model": {**dict(facts.get("model", {})), **parameter_counts(model)},
            "metrics": DEFINITIONS,
            **({} if until is None else {"until": until}),
        }
        if main:
            folder.write_manifest({**manifest, "status": "running"})
        probe = Probe(
            model, objective, windows, every=recipe.sample_every, rows=recipe.batch,
            dtype=DTYPES[recipe.precision], arm=arm, seed=recipe.seed,
        )  # fmt: skip
        try:
            result = training.train(
                model, batches, objective=objective, recipe=recipe, instrument=probe, folder=folder,
                arm=arm, tokens_per_step=manifest["tokens_per_step"], until=last, progress=progress,
            )  # fmt: skip
            ended = _ending(result, manifest.get("plateau"), recipe)
        except NonFiniteLossError:
            if must_start:
                raise
            if main:
                write_arrays(path / "arrays.npz", {})
            ended = {"outcome": "diverged", "last_step": 1, "diverged_at": 1}
        finally:
            probe.close()
        if main:
            folder.finish({**manifest, **ended})
    PartialState().wait_for_everyone()
    return load_arm(path)


def _last_step(until: int | None, recipe: Recipe) -> int:
    if until is None:
        return recipe.steps
    whole_number("until", until)
    if not 1 <= until <= recipe.steps:
        raise PlanError(
            f"A run of {recipe.steps} steps cannot stop at step {until}.\nGive until from 1 to {recipe.steps}."
        )
    return until


def _done(path: Path, until: int) -> ArmRun | None:
    """Return a finished run that has come to ``until`` or can come no further; None where it is to go on."""
    run = load_arm(path)
    if run.last_step > until:
        raise training.past(path, run.last_step, until)
    return None if run.last_step == run.until < until else run


def _asked(asked: Mapping[str, object], *, arm: str, recipe: Recipe) -> dict[str, object]:
    return {**asked, "arm": arm, "recipe": dataclasses.asdict(recipe)}


def identity_of_arm(asked: Mapping[str, object], *, arm: str, recipe: Recipe) -> str:
    """Return the identity of the run folder that :func:`run_arm` fills when asked this."""
    return identity_of({"kind": "train", **_asked(asked, arm=arm, recipe=recipe)})


def checked_model(model: object) -> nn.Module:
    """Return ``model`` if it can be trained.

    Raises:
        ModelError: If it is no module, or has nothing to train.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"build(seed) must return an nn.Module, got {type(model).__name__}.\nCheck that it ends with return model."
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise ModelError(
            f"{type(model).__name__} has no parameter that requires a gradient.\n"
            "Unfreeze some with requires_grad_(True) before it is returned."
        )
    return model


def _tokens_of(batch: Batch) -> int:
    """Count what a batch asks to be predicted: positions of token windows, samples of anything else."""
    if isinstance(batch, torch.Tensor) and batch.ndim == 2 and not batch.is_floating_point():
        return batch.shape[0] * (batch.shape[1] - 1)
    first = first_tensor(batch)
    return first.numel() if not first.is_floating_point() else len(first)


def _ending(
    result: training.TrainResult, plateau: Mapping[str, float] | None, recipe: Recipe
) -> dict[str, object]:
    """Say how a run ended: one that goes on with finite losses may have diverged all the same."""
    at = result.step if result.status == "diverged" else None
    if at is None and plateau is not None:
        at = diverged_step(
            [int(s) for s in result.arrays["eval_steps"]],
            result.arrays["train_loss"].mean(axis=1).tolist(),
            plateau["train"],
            warmup=recipe.warmup,
            uniform=plateau.get("uniform"),
        )
    return {
        "outcome": "finished" if at is None else "diverged",
        "last_step": result.step,
        "diverged_at": at,
    }


def is_main_process() -> bool:
    """Return whether this is the process that writes: the only one, or the first of ``accelerate launch``."""
    return PartialState().is_main_process


@contextlib.contextmanager
def _claimed(path: Path, asked: Mapping[str, object]) -> Iterator[RunFolder]:
    """Open the run folder: the main process claims it, then the others look at it."""
    state = PartialState()
    with contextlib.ExitStack() as stack:
        if state.is_main_process:
            folder = stack.enter_context(RunFolder(path, asked=asked, kind="train"))
        state.wait_for_everyone()
        if not state.is_main_process:
            folder = stack.enter_context(RunFolder(path, asked=asked, kind="train", writer=False))
        state.wait_for_everyone()
        yield folder


def versions() -> dict[str, str]:
    """Return the versions that decide a run's numbers."""
    import platform

    return {
        "triplepoint": triplepoint.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }


def fixed_windows(batches: Iterable[Batch], count: int) -> Batch:
    """Join the first batches until there are at least ``count`` windows, or as many as there are."""
    taken, total = [], 0
    for batch in batches:
        taken.append(batch)
        total += length_of(batch)
        if total >= count:
            break
    if not taken:
        raise PlanError(
            "The batches are empty.\nLet batches(seed) yield at least one batch per step."
        )
    return concatenate(taken)
