"""Many runs: one arm into its folder, and several arms side by side, each resumable."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import PartialState
from torch import nn

import triplepoint
from triplepoint import measurement, training
from triplepoint.data import Corpus, load_corpus
from triplepoint.errors import (
    ModelError,
    NonFiniteLossError,
    PlanError,
    RunFolderError,
    TriplepointError,
)
from triplepoint.measurement import Probe
from triplepoint.models import GPT2, config_of, parameter_counts
from triplepoint.objectives import Batch, Objective, concatenate, first_tensor, length_of
from triplepoint.phases import diverged_step
from triplepoint.recipes import Recipe
from triplepoint.records import Record
from triplepoint.runs import RunFolder, read_arrays, read_json, read_records, write_arrays
from triplepoint.surgery import swap_norms

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
        RunFolderError: If the run has not finished.
    """
    facts = read_json(path / "manifest.json")
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
    progress: Progress = lambda step, loss: None,
) -> ArmRun:
    """Train one arm into the run folder ``path``; a finished one is read, an interrupted one resumed.

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
        progress: Called after each step.
    """
    asked = {**asked, "arm": arm, "recipe": dataclasses.asdict(recipe)}
    with _claimed(path, asked) as folder, torch.random.fork_rng():
        if folder.state == "finished":
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
            "model": {**dict(facts.get("model", {})), **parameter_counts(model)},
            "metrics": DEFINITIONS,
        }
        main = is_main_process()
        if main:
            folder.write_manifest({**manifest, "status": "running"})
        probe = Probe(
            model, objective, windows, every=recipe.sample_every, rows=recipe.batch,
            dtype=DTYPES[recipe.precision], arm=arm, seed=recipe.seed,
        )  # fmt: skip
        try:
            result = training.train(
                model, batches, objective=objective, recipe=recipe, instrument=probe, folder=folder,
                arm=arm, tokens_per_step=manifest["tokens_per_step"], progress=progress,
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


# -- cells: runs that can be described in a file and run in another process ------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Which text, and how much of it."""

    path: str | None = None
    """A text file or folder, a ``.bin`` file, a ``datasets`` folder; None for the embedded corpus."""
    tokenizer: str | None = None
    vocab: int | None = None
    train_tokens: int | None = None
    context: int = 128
    windows: int = 128
    """Fixed windows per split."""

    def load(self) -> Corpus:
        """Read the corpus."""
        return load_corpus(
            self.path, context=self.context, train_tokens=self.train_tokens,
            tokenizer=self.tokenizer, vocab=self.vocab,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a named size on a text: everything that its numbers depend on."""

    path: Path
    arm: str
    op: str | None
    """Op with or without preset, swapped in for the model's norms; None to leave them."""
    size: str
    data: DataSpec
    recipe: Recipe
    dropout: float = 0.0
    must_start: bool = True
    """Whether a loss that is not finite at the first step is an error; else the arm diverged."""


def build_model(
    size: str, *, op: str | None, vocab: int, context: int, dropout: float
) -> nn.Module:
    """Build a named size with its norms replaced by ``op``."""
    model = GPT2(config_of(size, vocab=vocab, context=context, dropout=dropout))
    if op is not None:
        swap_norms(model, op)
    return model


def run_cell(cell: Cell, progress: Progress = lambda step, loss: None) -> ArmRun:
    """Run one cell in this process."""
    corpus, recipe, spec = cell.data.load(), cell.recipe, cell.data

    def build(seed: int) -> nn.Module:
        return build_model(
            cell.size, op=cell.op, vocab=corpus.vocab, context=spec.context, dropout=cell.dropout
        )

    windows = {
        name: corpus.windows(split, context=spec.context, count=spec.windows)
        for name, split in (("val", "validation"), ("train", "train"), ("report", "report"))
    }
    return run_arm(
        cell.path,
        asked={"op": cell.op, "size": cell.size, "dropout": cell.dropout, "data": corpus.sha256,
               "context": spec.context, "windows": spec.windows},
        build=build,
        batches=lambda start: corpus.batches(
            recipe.seed, batch=recipe.batch, context=spec.context, start=start
        ),
        windows=windows,
        objective=Objective(),
        recipe=recipe,
        arm=cell.arm,
        facts={
            "data": corpus.describe(),
            "plateau": {
                **{k: corpus.unigram_cross_entropy(windows[k]) for k in ("val", "train")},
                "uniform": math.log(corpus.vocab),
            },
            "model": {"name": cell.size},
            "op": cell.op,
        },
        must_start=cell.must_start,
        progress=progress,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Event:
    """News of a cell that runs in another process."""

    index: int
    kind: Literal["step", "done", "error"]
    step: int = 0
    loss: float = float("nan")
    error: BaseException | None = None


def run_cells(
    cells: Sequence[Cell], *, workers: int = 1, watch: Callable[[Event], None] = lambda event: None
) -> list[ArmRun]:
    """Run cells side by side, one thread each, and return them in order.

    The first error stops the rest; what has finished stays finished, and what was interrupted resumes.

    Args:
        cells: What to run.
        workers: Processes at a time; 1 runs all in this process.
        watch: Called with every step of every cell.
    """
    if workers <= 1 or len(cells) == 1:
        runs = []
        with _threads(1):
            for index, cell in enumerate(cells):
                runs.append(run_cell(cell, lambda s, x, i=index: watch(Event(i, "step", s, x))))
                watch(Event(index, "done"))
        return runs
    _run_in_processes(cells, workers, watch)
    return [load_arm(cell.path) for cell in cells]


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    # two threads in one process wait for each other at every op; on a busy machine that is 16 x slower
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_in_processes(cells: Sequence[Cell], workers: int, watch: Callable[[Event], None]) -> None:
    context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload(["triplepoint.sweeps"])
    events = context.Queue()
    waiting = list(enumerate(cells))
    running: dict[int, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                index, cell = waiting.pop(0)
                running[index] = context.Process(
                    target=_work, args=(index, cell, events), daemon=True
                )
                running[index].start()
            _handle(_next_event(events, running), running, watch)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _next_event(events: Any, running: Mapping[int, Any]) -> Event | None:
    try:
        return events.get(timeout=0.5)
    except queue.Empty:
        pass
    for index, process in running.items():
        if not process.is_alive():
            with contextlib.suppress(queue.Empty):
                return events.get(timeout=1.0)
            error = RunFolderError(
                f"A worker process ended without a word (exit code {process.exitcode}).\n"
                "It may have run out of memory: use fewer --workers; run the same command again to resume."
            )
            return Event(index, "error", error=error)
    return None


def _handle(event: Event | None, running: dict[int, Any], watch: Callable[[Event], None]) -> None:
    if event is None:
        return
    if event.kind == "error":
        raise event.error
    if event.kind == "done":
        running.pop(event.index).join()
    watch(event)


def _work(index: int, cell: Cell, events: Any) -> None:
    """Run one cell in a process of its own, which ends when its parent does."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    last = 0.0

    def progress(step: int, loss: float) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            events.put(Event(index, "step", step, loss))

    try:
        run_cell(cell, progress)
        events.put(Event(index, "done"))
    except TriplepointError as error:
        events.put(Event(index, "error", error=error))
    except BaseException as error:
        traceback.print_exc(file=sys.stderr)
        events.put(Event(index, "error", error=RuntimeError(f"{cell.arm}: {error}")))


def _end_with_parent() -> None:
    # waits on a pipe that the parent's end closes, however it ends
    multiprocessing.parent_process().join()
    os._exit(1)


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
