"""Run the paired calibrations, choose each arm's rate, judge, and keep everything in a run folder."""

from __future__ import annotations

import dataclasses
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import triplepoint
from triplepoint.errors import PlanError
from triplepoint.families import find_norms
from triplepoint.objectives import Batch, LossFn, Objective, concatenate, length_of
from triplepoint.ops import NormOp, parse_op_name
from triplepoint.recipes import Recipe
from triplepoint.records import Record
from triplepoint.runs import RunFolder, write_arrays, write_json
from triplepoint.screening.judging import Arms, Judge
from triplepoint.screening.plans import CRITERIA, TIE_MARGIN, Arm, Plan, calibration_recipe
from triplepoint.screening.verdicts import Verdict
from triplepoint.surgery import swap_norms
from triplepoint.sweeps import (
    DEFINITIONS,
    ArmRun,
    Cell,
    DataSpec,
    Event,
    fixed_windows,
    run_arm,
    run_cells,
    versions,
)

RATE_GRID = (1 / 3, 1.0, 3.0)
"""Factors of the planned rate that each arm tries with ``lr_grid``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One calibration to run: an arm at a rate with a seed."""

    arm: str
    recipe: Recipe

    def folder(self, root: Path) -> Path:
        """Return where it runs under a screen's folder."""
        slug = re.sub(r"[^a-zA-Z0-9._-]+", "-", self.arm)
        return root / "arms" / slug / f"lr-{self.recipe.lr:.3g}" / f"seed-{self.recipe.seed}"


RunTrials = Callable[[Sequence[Trial]], list[ArmRun]]


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The arms of a screen by name, baseline first; checked."""

    baseline: str
    arms: Mapping[str, Arm]

    def __post_init__(self):
        if not self.arms:
            raise PlanError(
                "There is no candidate.\nName at least one op, e.g. --candidates dyt:paper."
            )
        for name, arm in self.arms.items():
            if name == self.baseline:
                raise PlanError(
                    f"'{name}' is the baseline's name.\nGive the candidate another name, or another op."
                )
            if (
                arm.op is not None
                and parse_op_name(arm.op)[0] == self.baseline
                and arm == Arm(op=arm.op)
            ):
                raise PlanError(
                    f"The candidate '{name}' is the baseline itself: the model's norms are {self.baseline} already.\n"
                    "Name another op, e.g. dyt or rmsnorm, or change its training with Arm(weight_decay=...)."
                )

    def op_of(self, name: str) -> tuple[str, str | None]:
        """Return op and preset of an arm, for the verdict."""
        arm = self.arms.get(name)
        if arm is None or arm.op is None:
            return self.baseline, None
        op, preset = parse_op_name(arm.op)
        return op, preset.name


def as_arms(candidates: Sequence[str] | Mapping[str, str | Arm]) -> dict[str, Arm]:
    """Turn a list of op names, or a mapping name -> op name or arm, into arms.

    Raises:
        PlanError: If an op is named twice.
    """
    if isinstance(candidates, Mapping):
        return {n: a if isinstance(a, Arm) else _known(a) for n, a in candidates.items()}
    names = [c.strip() for c in candidates if c.strip()]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise PlanError(f"Named twice: {', '.join(twice)}.\nName each candidate once.")
    return {name: _known(name) for name in names}


def _known(op: str) -> Arm:
    parse_op_name(op)  # an unknown name ends here, before anything is trained
    return Arm(op=op)


def _recipe_of(arm: Arm, base: Recipe, *, seed: int, factor: float) -> Recipe:
    return dataclasses.replace(
        base,
        seed=seed,
        lr=(arm.lr or base.lr) * factor,
        weight_decay=base.weight_decay if arm.weight_decay is None else arm.weight_decay,
        warmup=base.warmup if arm.warmup is None else arm.warmup,
    )


def _calibrate(
    candidates: Candidates, base: Recipe, *, seeds: int, lr_grid: bool, run_trials: RunTrials
) -> tuple[dict[str, list[ArmRun]], dict[str, float], list[str]]:
    """Run all arms; returns the runs and the rate of each, and what there is to say about the rates."""
    arms = {candidates.baseline: Arm(), **candidates.arms}
    factors = RATE_GRID if lr_grid else (1.0,)
    first = [
        Trial(arm=name, recipe=_recipe_of(arm, base, seed=0, factor=f))
        for name, arm in arms.items()
        for f in factors
    ]
    rest = range(1, seeds)
    if not lr_grid:  # all at once, so that no worker waits
        first += [
            Trial(arm=n, recipe=_recipe_of(a, base, seed=s, factor=1.0))
            for s in rest
            for n, a in arms.items()
        ]
    done = run_trials(first)
    chosen, notes = {}, []
    for name in arms:
        tried = [r for r in done if r.arm == name and r.seed == 0]
        best = min(tried, key=_rate_score)
        chosen[name] = float(best.facts["asked"]["recipe"]["lr"])
        if lr_grid and best in (tried[0], tried[-1]):
            notes.append(
                f"{name}: its best rate {chosen[name]:.2g} is at the edge of the grid; a wider one may be better."
            )
    if lr_grid:
        done += run_trials(
            [
                Trial(
                    arm=n,
                    recipe=dataclasses.replace(
                        _recipe_of(a, base, seed=s, factor=1.0), lr=chosen[n]
                    ),
                )
                for s in rest
                for n, a in arms.items()
            ]
        )
    kept = {
        n: [r for r in done if r.arm == n and r.facts["asked"]["recipe"]["lr"] == chosen[n]]
        for n in arms
    }
    return kept, chosen, notes


def _rate_score(run: ArmRun) -> float:
    """Return the averaged weights' last validation loss, by which an arm's rate is chosen; inf if it diverged."""
    if run.outcome == "diverged":
        return math.inf
    score = run.last("val_loss_ema")
    return run.last("val_loss") if score is None else score


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Screen:
    """What both forms of a screen share once their trials can be run."""

    folder: RunFolder
    candidates: Candidates
    plan: Plan
    base: Recipe
    seeds: int
    lr_grid: bool
    criterion: str
    tie_margin: float
    command: str

    def run(self, run_trials: RunTrials) -> Verdict:
        """Train, judge and write everything."""
        start = time.monotonic()
        runs, rates, notes = _calibrate(
            self.candidates,
            self.base,
            seeds=self.seeds,
            lr_grid=self.lr_grid,
            run_trials=run_trials,
        )
        arms = {n: Arms(n, tuple(r), *self.candidates.op_of(n), rates[n]) for n, r in runs.items()}
        baseline = arms[self.candidates.baseline]
        facts = baseline.runs[0].facts
        judge = Judge(
            plan=self.plan,
            baseline=baseline,
            candidates=[arms[n] for n in self.candidates.arms],
            criterion=self.criterion,
            tie_margin=self.tie_margin,
            parameters={k: v for k, v in facts["model"].items() if k.startswith("params_")},
            tokens_per_step=facts["tokens_per_step"],
        )
        verdict = judge.verdict(
            spent_s=_spent(arms.values(), time.monotonic() - start), notes=notes
        )
        self._write(verdict, arms)
        return verdict

    def _write(self, verdict: Verdict, arms: Mapping[str, Arms]) -> None:
        folder, facts = self.folder, arms[self.candidates.baseline].runs[0].facts
        folder.rewind(0)
        folder.append(r for arm in arms.values() for run in arm.runs for r in run.records)
        folder.append(_verdict_records(verdict))
        write_arrays(
            folder.path / "arrays.npz",
            {f"{run.arm}/seed{run.seed}/{name}": array for arm in arms.values() for run in arm.runs for name, array in run.arrays.items()},
        )  # fmt: skip
        write_json(folder.path / "verdict.json", verdict.to_dict())
        folder.finish(
            {
                "version": triplepoint.__version__,
                "command": self.command,
                "started": facts.get("started"),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": versions(),
                "data": facts.get("data"),
                "plateau": facts.get("plateau"),
                "model": facts["model"],
                "arms": {name: self._arm_facts(name, arm) for name, arm in arms.items()},
                "seeds": [run.seed for run in arms[self.candidates.baseline].runs],
                "recipe": dataclasses.asdict(self.base),
                "plan": verdict.plan,
                "metrics": {**DEFINITIONS, **VERDICT_DEFINITIONS},
            }
        )

    def _arm_facts(self, name: str, arm: Arms) -> dict[str, Any]:
        asked = self.candidates.arms.get(name)
        preset = parse_op_name(asked.op)[1] if asked and asked.op else None
        return {
            "op": arm.op,
            "preset": arm.preset,
            "role": "baseline" if name == self.candidates.baseline else "candidate",
            "lr": arm.lr,
            "preset_source": preset.source if preset else "the model as built",
            "folders": [str(run.path.relative_to(self.folder.path)) for run in arm.runs],
        }


VERDICT_DEFINITIONS = {
    "delta_rel": {
        "definition": (
            "(candidate - baseline) / baseline of the validation loss; positive = worse. The 95 % interval resamples "
            "the fixed windows jointly and the seeds"
        ),
        "unit": "fraction",
        "source": "triplepoint; pigeonhole bootstrap, Owen (2007)",
    },
    "speed_ratio": {
        "definition": (
            "S1 at which the baseline had the candidate's last train loss, over the candidate's S1; below 1 is slower"
        ),
        "unit": "1",
        "source": "triplepoint",
    },
    "offset": {
        "definition": "candidate's validation loss minus the baseline's at equal train loss",
        "unit": "nats/token",
        "source": "triplepoint",
    },
}
"""What the verdict adds to the records of the arms."""


def _verdict_records(verdict: Verdict) -> Iterator[Record]:
    step = verdict.plan["calibration_steps"]
    for c in verdict.candidates:
        for endpoint in CRITERIA:
            found = c.endpoints[endpoint]
            if found is not None:
                yield Record(
                    metric="delta_rel", value=found.delta_rel, low=found.interval[0], high=found.interval[1],
                    n=len(found.by_seed), unit="fraction", endpoint=endpoint, step=step, arm=c.arm,
                )  # fmt: skip
        for metric, value in (("speed_ratio", c.speed_ratio), ("offset", c.offset)):
            if value is not None:
                unit = VERDICT_DEFINITIONS[metric]["unit"]
                yield Record(
                    metric=metric,
                    value=value,
                    unit=unit,
                    endpoint="matched_train_loss",
                    step=step,
                    arm=c.arm,
                )


def _spent(arms: Iterable[Arms], wall: float) -> float:
    """Return the seconds of training that the answer cost: those of the arms where this call only read them."""
    trained = sum(
        (a.mean_of("step_wall_time") or 0.0) * sum(r.last_step for r in a.runs) for a in arms
    )
    return max(trained, wall)


# -- named sizes: the command line's form ------------------------------------------------------------------


def screen_size(
    size: str,
    *,
    data: DataSpec,
    candidates: Sequence[str],
    plan: Plan,
    steps: int = 500,
    seeds: int = 2,
    criterion: str = "best_checkpoint",
    lr_grid: bool = False,
    own_schedule: bool = False,
    dropout: float = 0.0,
    tie_margin: float = TIE_MARGIN,
    out: Path,
    workers: int = 1,
    command: str = "",
    watch: Callable[[Event, Sequence[Trial]], None] = lambda event, trials: None,
) -> tuple[Verdict | None, Path]:
    """Screen a named size on a text, its calibrations in processes side by side.

    Args:
        size: A named size.
        data: Which text.
        candidates: Op names, with or without preset.
        plan: What is about to be trained.
        steps: Length of the calibration.
        seeds: How many.
        criterion: ``best_checkpoint`` or ``fixed_step``.
        lr_grid: Whether each arm runs at its own best of 1/3, 1 and 3 times the rate.
        own_schedule: Whether the calibration has the plan's warm-up and schedule.
        dropout: The model's, in both arms.
        tie_margin: Fraction of the baseline's loss that counts as a tie.
        out: The run folder.
        workers: Processes at a time.
        command: Kept in the manifest.
        watch: Called with every event and the trials that its index counts in.

    Returns:
        The verdict and the folder; no verdict where the folder was finished before.
    """
    checked = _checked(Candidates("layernorm", as_arms(candidates)), seeds, criterion, tie_margin)
    if workers < 1:
        raise PlanError(f"--workers must be at least 1, got {workers}.\nTry --workers 2.")
    base = calibration_recipe(plan, steps, own_schedule=own_schedule)
    corpus = data.load()
    asked = {
        "size": size, "data": corpus.sha256, "candidates": list(checked.arms), "plan": dataclasses.asdict(plan),
        "recipe": dataclasses.asdict(base), "context": data.context, "windows": data.windows, "seeds": seeds,
        "criterion": criterion, "lr_grid": lr_grid, "dropout": dropout, "tie_margin": tie_margin,
    }  # fmt: skip

    def run_trials(trials: Sequence[Trial]) -> list[ArmRun]:
        cells = [
            Cell(
                path=t.folder(out), arm=t.arm, op=checked.arms[t.arm].op if t.arm in checked.arms else None,
                size=size, data=data, recipe=t.recipe, dropout=dropout, must_start=t.arm == checked.baseline,
            )
            for t in trials
        ]  # fmt: skip
        return run_cells(cells, workers=workers, watch=lambda event: watch(event, trials))

    plan = dataclasses.replace(plan, unique_tokens=plan.unique_tokens or corpus.train.numel())
    with RunFolder(out, asked=asked, kind="screen") as folder:
        if folder.state == "finished":
            return None, folder.path
        run = _Screen(
            folder=folder, candidates=checked, plan=plan, base=base, seeds=seeds, lr_grid=lr_grid,
            criterion=criterion, tie_margin=tie_margin, command=command,
        )  # fmt: skip
        return run.run(run_trials), folder.path


def _checked(candidates: Candidates, seeds: int, criterion: str, tie_margin: float) -> Candidates:
    if seeds < 1:
        raise PlanError(f"seeds must be at least 1, got {seeds}.\nTry --seeds 2.")
    if criterion not in CRITERIA:
        raise PlanError(f"There is no criterion '{criterion}'.\nKnown: {', '.join(CRITERIA)}.")
    if not 0 <= tie_margin < 1:
        raise PlanError(f"The tie margin is a fraction in [0, 1), got {tie_margin}.\nTry 0.005.")
    return candidates


# -- any module: the Python form ---------------------------------------------------------------------------


def screen(
    build: Callable[[int], nn.Module],
    batches: Callable[[int], Iterable[Batch]],
    *,
    validation: Batch | Sequence[Batch],
    candidates: Sequence[str] | Mapping[str, str | Arm],
    plan: Plan,
    steps: int = 500,
    seeds: int = 2,
    criterion: str = "best_checkpoint",
    lr_grid: bool = False,
    own_schedule: bool = False,
    loss_fn: LossFn | None = None,
    train_windows: Batch | None = None,
    tie_margin: float = TIE_MARGIN,
    out: str | Path | None = None,
) -> Verdict:
    """Should the norms of this model be replaced, for this training?

    Trains the model as built and each candidate for ``steps`` steps from the same weights on the same
    batches, and compares them.

    Args:
        build: ``build(seed)`` returns the baseline: any module whose norms are ``nn.LayerNorm``,
            ``nn.RMSNorm`` or triplepoint's own ops. Called under ``torch.manual_seed(seed)``.
        batches: ``batches(seed)`` yields at least ``steps`` batches, the same ones for the same seed. A batch
            is a tensor of token windows ``[batch, seq + 1]``, a mapping of keywords or ``(inputs, targets)``.
        validation: Fixed validation windows: one batch, or several.
        candidates: Op names, or a mapping name -> op name or :class:`Arm`.
        plan: What is about to be trained.
        steps: Length of the calibration; where it is the plan's, the result is measured.
        seeds: How many paired repetitions.
        criterion: The endpoint that counts, ``best_checkpoint`` or ``fixed_step``.
        lr_grid: Whether each arm runs at its own best of 1/3, 1 and 3 times the planned rate.
        own_schedule: Whether the calibration has the plan's warm-up and schedule.
        loss_fn: ``(output, batch) -> scalar`` where the model's output is neither its loss nor logits.
        train_windows: Fixed train windows; by default the first batches of ``batches(0)``, as many windows as
            ``validation`` has.
        tie_margin: Fraction of the baseline's loss that counts as a tie.
        out: Run folder, which the same call resumes; None for a temporary one.

    Returns:
        The verdict.

    Raises:
        PlanError: If plan, candidates or numbers contradict each other.
        ModelError: If the model has no norm to swap, or no loss that can be found.
        NonFiniteLossError: If the baseline's loss is not finite at the first step.
    """
    torch.manual_seed(0)
    norms = _norm_of(build(0))
    checked = _checked(Candidates(norms, as_arms(candidates)), seeds, criterion, tie_margin)
    base = calibration_recipe(plan, steps, own_schedule=own_schedule)
    val = concatenate(list(validation)) if isinstance(validation, list) else validation
    train = (
        train_windows if train_windows is not None else fixed_windows(batches(0), length_of(val))
    )
    objective = Objective(loss_fn)
    facts = {"plateau": _plateau(train, val), "model": {"name": "module"}}

    def run_trials(trials: Sequence[Trial]) -> list[ArmRun]:
        return [
            _run_module(
                t, root, build, batches, checked, {"val": val, "train": train}, objective, facts
            )
            for t in trials
        ]

    with _folder(out) as root:
        asked = {
            "candidates": {n: _told(a) for n, a in checked.arms.items()}, "plan": dataclasses.asdict(plan),
            "recipe": dataclasses.asdict(base), "seeds": seeds, "criterion": criterion, "lr_grid": lr_grid,
            "tie_margin": tie_margin,
        }  # fmt: skip
        with RunFolder(root, asked=asked, kind="screen") as folder:
            run = _Screen(
                folder=folder, candidates=checked, plan=plan, base=base, seeds=seeds, lr_grid=lr_grid,
                criterion=criterion, tie_margin=tie_margin, command="triplepoint.screen(...)",
            )  # fmt: skip
            return run.run(run_trials)


def _folder(out: str | Path | None) -> Any:
    import contextlib

    if out is None:
        return tempfile.TemporaryDirectory(prefix="triplepoint-")
    return contextlib.nullcontext(str(out))


def _norm_of(model: nn.Module) -> str:
    """Return the name of the model's own norm: the baseline's."""
    kinds = {s.kind for s in find_norms(model) if s.reason is None}
    kinds |= {type(m).__name__.lower() for m in model.modules() if isinstance(m, NormOp)}
    return kinds.pop() if len(kinds) == 1 else "baseline"


def _plateau(train: Batch, val: Batch) -> dict[str, float] | None:
    """Return the unigram cross-entropy of the fixed windows, for token windows; the unigram is the train windows'."""
    if not (isinstance(train, Tensor) and train.ndim == 2 and not train.is_floating_point()):
        return None
    vocab = int(max(train.max(), val.max())) + 1
    counts = torch.bincount(train[:, 1:].reshape(-1), minlength=vocab).double() + 1
    log_p = (counts / counts.sum()).log()
    return {name: float(-log_p[w[:, 1:]].mean()) for name, w in (("val", val), ("train", train))}


def _run_module(
    trial: Trial,
    root: str | Path,
    build: Callable[[int], nn.Module],
    batches: Callable[[int], Iterable[Batch]],
    candidates: Candidates,
    windows: Mapping[str, Batch],
    objective: Objective,
    facts: Mapping[str, object],
) -> ArmRun:
    arm = candidates.arms.get(trial.arm, Arm())

    def build_arm(seed: int) -> nn.Module:
        model = (arm.build or build)(seed)
        if arm.op is not None:
            swap_norms(model, arm.op)
        return model

    def from_step(start: int) -> Iterator[Batch]:
        return _skip(batches(trial.recipe.seed), start, trial.recipe.steps)

    return run_arm(
        trial.folder(Path(root)), asked={"changes": _told(arm)}, build=build_arm, batches=from_step,
        windows=windows, objective=objective, recipe=trial.recipe, arm=trial.arm, facts=facts,
        must_start=trial.arm == candidates.baseline,
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
