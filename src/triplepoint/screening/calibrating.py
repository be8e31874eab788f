"""Run the paired calibrations, choose each arm's rate, judge, and keep everything in a run folder.

The two forms of a screen, :mod:`named` sizes and any :mod:`module`, differ in how a trial is run only.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import triplepoint
from triplepoint.errors import PlanError
from triplepoint.ops import parse_op_name
from triplepoint.recipes import Recipe
from triplepoint.runs import RunFolder, identity_of, write_arrays, write_json
from triplepoint.screening.arms import Arms
from triplepoint.screening.judging import Judge
from triplepoint.screening.plans import CRITERIA, Arm, Plan
from triplepoint.screening.recording import VERDICT_DEFINITIONS, verdict_records
from triplepoint.screening.verdicts import Verdict
from triplepoint.sweeps import (
    DEFINITIONS,
    ArmRun,
    versions,
)

NORMS = ("layernorm", "rmsnorm")
"""Baselines that an op of the same name does not change."""
RATE_GRID = (1 / 3, 1.0, 3.0)
"""Factors of the planned rate that each arm tries with ``lr_grid``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One calibration to run: an arm at a rate with a seed."""

    arm: str
    recipe: Recipe

    def folder(self, root: Path) -> Path:
        """Return where it runs under a screen's folder."""
        return (
            root
            / "arms"
            / _slug(self.arm)
            / f"lr-{self.recipe.lr:.3g}"
            / f"seed-{self.recipe.seed}"
        )


def _slug(arm: str) -> str:
    """Return a folder name for an arm: its own, or what is left of it and a hash to tell it from its like."""
    kept = re.sub(r"[^a-zA-Z0-9_-]+", "-", arm)
    plain = re.fullmatch(r"[a-zA-Z0-9_]+(:[a-zA-Z0-9_]+)?", arm)
    return kept if plain else f"{kept}-{identity_of({'arm': arm})[:6]}"


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
        named: dict[object, str] = {}
        for name, arm in self.arms.items():
            if not name.strip():
                raise PlanError("A candidate has no name.\nName each one, e.g. dyt:paper.")
            same = named.setdefault(self._told(arm), name)
            if same != name:
                raise PlanError(
                    f"Named twice: {same} and {name} are the same candidate.\nName each candidate once."
                )
            if arm == Arm():
                raise PlanError(
                    f"The candidate '{name}' is the baseline itself: it changes nothing.\n"
                    "Give it an op, a build or other training, e.g. Arm(weight_decay=1.0)."
                )
            if name == self.baseline:
                raise PlanError(
                    f"'{name}' is the baseline's name.\nGive the candidate another name, or another op."
                )
            if (
                self.baseline in NORMS
                and arm == Arm(op=arm.op)
                and parse_op_name(arm.op)[0] == self.baseline
            ):
                raise PlanError(
                    f"The candidate '{name}' is the baseline itself: the model's norms are {self.baseline} already.\n"
                    "Name another op, e.g. dyt or rmsnorm, or change its training with Arm(weight_decay=...)."
                )

    @staticmethod
    def _told(arm: Arm) -> Arm:
        if arm.op is None:
            return arm
        op, preset = parse_op_name(arm.op)
        return dataclasses.replace(arm, op=f"{op}:{preset.name}")

    def op_of(self, name: str) -> tuple[str, str | None]:
        """Return op and preset of an arm, for the verdict."""
        arm = self.arms.get(name)
        if arm is None or arm.op is None:
            return self.baseline, None
        op, preset = parse_op_name(arm.op)
        return op, preset.name


def as_arms(candidates: str | Sequence[str] | Mapping[str, str | Arm]) -> dict[str, Arm]:
    """Turn op names (a list, or comma-separated), or a mapping name -> op name or arm, into arms.

    Raises:
        PlanError: If an op is named twice.
    """
    if isinstance(candidates, Mapping):
        return {n: a if isinstance(a, Arm) else _known(a) for n, a in candidates.items()}
    if isinstance(candidates, str):
        candidates = candidates.split(",")
    if not all(isinstance(c, str) for c in candidates):
        raise PlanError(
            f"Candidates are op names, or a mapping name -> op name or Arm, got {list(candidates)!r}.\n"
            'Try candidates=["dyt:recommended"].'
        )
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
class Screen:
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
            spent_s=spent_seconds(arms.values(), time.monotonic() - start), notes=notes
        )
        self._write(verdict, arms)
        return verdict

    def _write(self, verdict: Verdict, arms: Mapping[str, Arms]) -> None:
        folder, facts = self.folder, arms[self.candidates.baseline].runs[0].facts
        folder.rewind(0)
        folder.append(r for arm in arms.values() for run in arm.runs for r in run.records)
        folder.append(
            verdict_records(
                verdict, arms[self.candidates.baseline], [arms[n] for n in self.candidates.arms]
            )
        )
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
                "optimizer": facts.get("optimizer"),
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


def spent_seconds(arms: Iterable[Arms], wall: float) -> float:
    """Return the seconds of training that the answer cost: those of the arms where this call only read them."""
    trained = sum(
        (a.mean_of("step_wall_time") or 0.0) * sum(r.last_step for r in a.runs) for a in arms
    )
    return max(trained, wall)


def checked_settings(
    candidates: Candidates, seeds: int, criterion: str, tie_margin: float
) -> Candidates:
    """Return ``candidates`` if the settings of a screen are in range.

    Raises:
        PlanError: If one is not.
    """
    if seeds < 1:
        raise PlanError(f"seeds must be at least 1, got {seeds}.\nTry --seeds 2.")
    if criterion not in CRITERIA:
        raise PlanError(f"There is no criterion '{criterion}'.\nKnown: {', '.join(CRITERIA)}.")
    if not 0 <= tie_margin < 1:
        raise PlanError(f"The tie margin is a fraction in [0, 1), got {tie_margin}.\nTry 0.005.")
    return candidates
