"""Screen any ``nn.Module``: the Python form, its calibrations one after the other in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triplepoint.errors import PlanError
from triplepoint.objectives import Batch, LossFn, Objective, concatenate, length_of
from triplepoint.runs import RunFolder
from triplepoint.screening.baseline_run import load_baseline_run
from triplepoint.screening.calibrating import Screen, checked_settings
from triplepoint.screening.candidates import Candidates, as_arms
from triplepoint.screening.learning import learned_book
from triplepoint.screening.looks import Looks
from triplepoint.screening.plans import TIE_MARGIN, Arm, Plan, calibration_recipe
from triplepoint.screening.trials import Trial
from triplepoint.screening.verdicts import Verdict
from triplepoint.surgery import swap_norms
from triplepoint.sweeps import ArmRun, checked_model, fixed_windows, own_norm, run_arm


def screen(
    build: Callable[[int], nn.Module],
    batches: Callable[[int], Iterable[Batch]],
    *,
    validation: Batch | list[Batch],
    candidates: Sequence[str] | Mapping[str, str | Arm],
    plan: Plan,
    steps: int | None = None,
    until_confident: float | None = None,
    max_steps: int | None = None,
    seeds: int = 2,
    criterion: str = "best_checkpoint",
    lr_grid: bool = False,
    own_schedule: bool = False,
    loss_fn: LossFn | None = None,
    train_windows: Batch | None = None,
    tie_margin: float = TIE_MARGIN,
    baseline_run: str | Path | None = None,
    learned: str | Path | None = None,
    out: str | Path | None = None,
) -> Verdict:
    """Should the norms of this model be replaced, for this training?

    Trains the model as built and each candidate for ``steps`` steps, or until it is confident, from the same weights
    on the same batches, and compares them.

    Args:
        build: ``build(seed)`` returns the baseline: any module with LayerNorms or RMSNorms, whatever their class, see
            :func:`triplepoint.families.find_norms`. Called under ``torch.manual_seed(seed)``.
        batches: ``batches(seed)`` yields at least ``steps`` batches, the same ones for the same seed. A batch
            is a tensor of token windows ``[batch, seq + 1]``, a mapping of keywords or ``(inputs, targets)``.
        validation: Fixed validation windows: one batch, or a list of batches of one shape.
        candidates: Op names, or a mapping name -> op name or :class:`Arm`.
        plan: What is about to be trained.
        steps: Length of the calibration, by default 500; where it is the plan's, the result is measured.
        until_confident: Look at 100, 250, 500, 1000 steps, then x 2, and stop as soon as every candidate is judged with
            at least this probability; instead of ``steps``.
        max_steps: The last of these looks; by default 2000, or the plan's end if that comes first.
        seeds: How many paired repetitions.
        criterion: The endpoint that counts, ``best_checkpoint`` or ``fixed_step``.
        lr_grid: Whether each arm runs at its own best of 1/3, 1 and 3 times the planned rate.
        own_schedule: Whether the calibration has the plan's warm-up and schedule.
        loss_fn: ``(output, batch) -> scalar`` where the model's output is neither its loss nor logits.
        train_windows: Fixed train windows; by default the first batches of ``batches(0)``, as many windows as
            ``validation`` has.
        tie_margin: Fraction of the baseline's loss that counts as a tie.
        baseline_run: Folder of an earlier run of the baseline to the plan's end: then only the candidates are forecast.
        learned: Folder of finished runs that the rule learns from as well, as a map's.
        out: Run folder, which the same call resumes and a longer calibration goes on from; None for a temporary one.

    Returns:
        The verdict.

    Raises:
        PlanError: If plan, candidates or numbers contradict each other.
        ModelError: If the model has no norm to swap, or no loss that can be found.
        NonFiniteLossError: If the baseline's loss is not finite at the first step.
        RunFolderError: If a folder is another run's, or ``baseline_run`` is not the baseline's.
    """
    looks = Looks.of(plan.steps, steps=steps, until_confident=until_confident, max_steps=max_steps)
    model = _built(build)
    checked = checked_settings(
        Candidates(own_norm(model), as_arms(candidates)), seeds, criterion, tie_margin
    )
    base = calibration_recipe(plan, looks, own_schedule=own_schedule)
    first = _first_batch(batches)
    val = concatenate(validation) if isinstance(validation, list) and validation else validation
    length = length_of(val)
    train = train_windows if train_windows is not None else fixed_windows(batches(0), length)
    objective = Objective(loss_fn)
    facts = {"plateau": _plateau(train, val), "model": {"name": "module"}}
    source = _fingerprint(dict(model.state_dict()), first, val, train, loss_fn)

    def run_trials(trials: Sequence[Trial]) -> list[ArmRun]:
        return [
            _run_module(
                t,
                root,
                build,
                batches,
                checked,
                {"val": val, "train": train},
                objective,
                facts,
                source,
            )
            for t in trials
        ]

    with _folder(out) as root:
        asked = {
            "candidates": {n: _told(a) for n, a in checked.arms.items()}, "plan": dataclasses.asdict(plan),
            "recipe": dataclasses.asdict(base), "seeds": seeds, "criterion": criterion, "lr_grid": lr_grid,
            "tie_margin": tie_margin, "source": source, **looks.asked,
        }  # fmt: skip
        earlier = baseline_run and load_baseline_run(
            Path(baseline_run), plan=plan, baseline={"source": source, "changes": _told(Arm())}
        )
        book = learned_book(learned and Path(learned))
        with RunFolder(root, asked=asked, kind="screen") as folder:
            run = Screen(
                folder=folder, candidates=checked, plan=plan, base=base, looks=looks, seeds=seeds, lr_grid=lr_grid,
                criterion=criterion, tie_margin=tie_margin, command="triplepoint.screen(...)", book=book, baseline_run=earlier,
                learned=learned and Path(learned),
            )  # fmt: skip
            return run.run(run_trials)


def _folder(out: str | Path | None) -> Any:
    if out is None:
        return tempfile.TemporaryDirectory(prefix="triplepoint-")
    return contextlib.nullcontext(str(out))


def _built(build: Callable[[int], nn.Module]) -> nn.Module:
    """Return a model to look at, after checking that ``build`` makes a new one each time."""
    with torch.random.fork_rng():
        first, second = (checked_model(build(0)) for _ in range(2))
    shared = {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    if first is second or shared:
        raise PlanError(
            "build(seed) returns the same model, or the same parameters, each time: one arm would go on from "
            "where another ended.\nBuild the model inside build, or return copy.deepcopy(model)."
        )
    return first


def _first_batch(batches: Callable[[int], Iterable[Batch]]) -> Batch:
    """Return the first batch of seed 0, after checking that it is the same each time: arms are paired."""
    first, again = (next(iter(batches(0) or ()), None) for _ in range(2))
    if first is None or again is None or _hash(first) != _hash(again):
        raise PlanError(
            "batches(0) does not start with the same batch each time it is called: the arms would not be paired.\n"
            "Make a new iterator, with a generator seeded by the argument, inside batches(seed)."
        )
    return first


def _hash(value: object) -> str:
    """Return a hash of the tensors in nested mappings and sequences, and of their names."""
    digest = hashlib.sha256()

    def add(part: object) -> None:
        if isinstance(part, Tensor):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        elif isinstance(part, Mapping):
            for name, inner in part.items():
                digest.update(str(name).encode())
                add(inner)
        elif isinstance(part, list | tuple):
            for inner in part:
                add(inner)
        else:
            digest.update(repr(part).encode())

    add(value)
    return digest.hexdigest()


def _fingerprint(
    state: Mapping[str, Tensor], first: Batch, val: Batch, train: Batch, loss_fn: LossFn | None
) -> str:
    """Tell one screen's model, data and loss from another's: the same folder may only resume the same."""
    shapes = {name: (str(t.dtype), tuple(t.shape)) for name, t in state.items()}
    return _hash([shapes, first, val, train, getattr(loss_fn, "__qualname__", str(type(loss_fn)))])[
        :16
    ]


def _plateau(train: Batch, val: Batch) -> dict[str, float] | None:
    """Return the unigram cross-entropy of the fixed windows, for token windows; the unigram is the train windows'."""
    if not (isinstance(train, Tensor) and train.ndim == 2 and not train.is_floating_point()):
        return None
    vocab = int(max(train.max(), val.max())) + 1
    counts = torch.bincount(train[:, 1:].reshape(-1), minlength=vocab).double() + 1
    log_p = (counts / counts.sum()).log()
    levels = {name: float(-log_p[w[:, 1:]].mean()) for name, w in (("val", val), ("train", train))}
    return {**levels, "uniform": math.log(vocab)}


def _run_module(
    trial: Trial,
    root: str | Path,
    build: Callable[[int], nn.Module],
    batches: Callable[[int], Iterable[Batch]],
    candidates: Candidates,
    windows: Mapping[str, Batch],
    objective: Objective,
    facts: Mapping[str, object],
    source: str,
) -> ArmRun:
    arm = candidates.arms.get(trial.arm, Arm())

    def build_arm(seed: int) -> nn.Module:
        model = (arm.build or build)(seed)
        if arm.op is not None:
            swap_norms(model, arm.op)
        return model

    def from_step(start: int) -> Iterator[Batch]:
        return _skip(batches(trial.recipe.seed), start, trial.last)

    return run_arm(
        trial.folder(Path(root)), asked={"changes": _told(arm), "source": source}, build=build_arm, batches=from_step,
        windows=windows, objective=objective, recipe=trial.recipe, arm=trial.arm, facts=facts,
        must_start=trial.arm == candidates.baseline, until=trial.until,
    )  # fmt: skip


def _told(arm: Arm) -> str:
    """Return what an arm changes, the same in every process: a function by its name."""
    name = getattr(arm.build, "__qualname__", None)
    return repr(dataclasses.replace(arm, build=None)) + (f" build={name}" if arm.build else "")


def _skip(batches: Iterable[Batch], start: int, steps: int) -> Iterator[Batch]:
    for number, batch in enumerate(batches):
        if number >= start:
            yield batch
    raise PlanError(
        f"The batches ended before the calibration's {steps} steps.\n"
        "Let batches(seed) yield at least that many, or give fewer steps."
    )
