"""Train the paired calibrations, judge them, go on until it is sure, and keep everything in a run folder.

The two forms of a screen, :mod:`named` sizes and any :mod:`module`, differ in how a trial is run only.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import triplepoint
from triplepoint.errors import PlanError
from triplepoint.ops import parse_op_name
from triplepoint.recipes import Recipe
from triplepoint.runs import RunFolder, read_json, write_arrays, write_json
from triplepoint.screening.arms import Arms
from triplepoint.screening.candidates import Candidates
from triplepoint.screening.judging import Judge
from triplepoint.screening.looks import Look, Looks, keep_looks, taken_in
from triplepoint.screening.miniature_evidence import MiniatureEvidence
from triplepoint.screening.plans import CRITERIA, Plan
from triplepoint.screening.recording import VERDICT_DEFINITIONS, verdict_records
from triplepoint.screening.rulebook import RuleBook, shipped
from triplepoint.screening.trials import Calibrated, Calibration, RunTrials, spent_seconds
from triplepoint.screening.verdicts import Verdict
from triplepoint.sweeps import (
    DEFINITIONS,
    ArmRun,
    versions,
)

MINIATURES = "miniatures.json"
"""What the plan in miniature showed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Screen:
    """What both forms of a screen share once their trials can be run."""

    folder: RunFolder
    candidates: Candidates
    plan: Plan
    base: Recipe
    looks: Looks
    seeds: int
    lr_grid: bool
    criterion: str
    tie_margin: float
    command: str
    book: RuleBook
    """The rule and its record."""
    baseline_run: ArmRun | None = None
    """A finished run of the baseline to the plan's end."""
    learned: Path | None = None
    """Folder of finished runs that the rule learns from as well."""
    miniatures: Callable[[], MiniatureEvidence] | None = None
    """Trains the whole plan at small sizes."""
    looked: Callable[[Look], None] = lambda look: None
    """Called after every look."""

    @property
    def answered(self) -> bool:
        """Whether the folder holds the answer: from as long a calibration, and from nothing but that."""
        if self.folder.state != "finished" or not (self.folder.path / "verdict.json").exists():
            return False
        facts, ours = read_json(self.folder.manifest_path), self._judged_with
        if facts.get("judged_with", {}) != ours or ours["baseline_run"] or ours["learned"]:
            return False  # what else it is judged with is not the same, or may have changed
        if self.looks.confidence is None:
            return facts["plan"]["calibration_steps"] >= self.looks.last
        taken = taken_in(self.folder.path)
        return bool(taken) and self.looks.left(taken)[0] == taken[-1].steps

    def run(self, run_trials: RunTrials) -> Verdict:
        """Train and judge until it is sure, and write everything."""
        start = time.monotonic()
        calibration = Calibration(
            candidates=self.candidates, base=self.base, seeds=self.seeds, lr_grid=self.lr_grid
        )
        taken = taken_in(self.folder.path) if self.looks.confidence is not None else []
        for steps in self.looks.left(taken):
            found = calibration.run(run_trials, until=steps)
            spent = spent_seconds(found.arms.values(), time.monotonic() - start)
            notes = [*found.notes, *self._learned_notes()]
            verdict = self._judge(found.arms).verdict(spent_s=spent, notes=notes)
            look = Look(
                steps=steps,
                verdict=verdict.verdict,
                candidates={c.arm: c.verdict for c in verdict.candidates},
            )
            taken = [*(t for t in taken if t.steps < steps), look]
            if self.looks.confidence is not None:
                keep_looks(self.folder.path, taken)
            self.looked(look)
            if look.sure:
                break
        small, told = self._small(verdict)
        if small is not None:
            judge = self._judge(found.arms, small)
            verdict = judge.verdict(spent_s=spent + small.seconds, notes=notes)
        verdict = dataclasses.replace(
            verdict,
            cost={**verdict.cost, **self._saved(taken, found, small)},
            notes=[*verdict.notes, *told],
        )
        self._write(verdict, found.arms)
        return verdict

    def _small(self, verdict: Verdict) -> tuple[MiniatureEvidence | None, list[str]]:
        """Train the plan in miniature where it is asked for and can change a word; else say why not."""
        kept = self.folder.path / MINIATURES
        if self.miniatures is None:
            kept.unlink(missing_ok=True)
            return None, []
        if all(c.verdict == "unsafe" for c in verdict.candidates):
            return None, ["Nothing was trained in miniature: no candidate is left to decide about."]
        small = self.miniatures()
        write_json(kept, small.to_dict())
        return small, []

    def _learned_notes(self) -> list[str]:
        if self.learned is None:
            return []
        more = len(self.book.cells) - len(shipped().cells)
        return [f"The rule was fitted on {more} finished cells of {self.learned} as well."]

    def _judge(self, arms: Mapping[str, Arms], small: MiniatureEvidence | None = None) -> Judge:
        baseline = arms[self.candidates.baseline]
        facts = baseline.runs[0].facts
        return Judge(
            plan=self.plan,
            baseline=baseline,
            candidates=[arms[n] for n in self.candidates.arms],
            criterion=self.criterion,
            tie_margin=self.tie_margin,
            parameters={k: v for k, v in facts["model"].items() if k.startswith("params_")},
            tokens_per_step=facts["tokens_per_step"],
            confidence=self.looks.confidence,
            baseline_run=self.baseline_run,
            book=self.book,
            miniatures=small,
        )

    def _saved(
        self, taken: list[Look], found: Calibrated, small: MiniatureEvidence | None
    ) -> dict[str, Any]:
        """Say what was looked at, and how much less was trained than every arm and seed to the plan's end."""
        whole = self.plan.steps * self.seeds * len(found.arms)
        trained = found.trained_steps + (small.share * self.plan.steps if small else 0.0)
        return {
            "looks": [{"steps": look.steps, "verdict": look.verdict} for look in taken],
            "steps": taken[-1].steps,
            "max_steps": self.looks.last,
            "confidence": self.looks.confidence,
            "saved_share": 1 - trained / whole,
        }

    @property
    def _judged_with(self) -> dict[str, str | None]:
        return {
            "baseline_run": self.baseline_run and str(self.baseline_run.path),
            "learned": self.learned and str(self.learned),
            "miniatures": self.miniatures and MINIATURES,
        }

    def _write(self, verdict: Verdict, arms: Mapping[str, Arms]) -> None:
        folder, facts = self.folder, arms[self.candidates.baseline].runs[0].facts
        folder.write_manifest(
            {"status": "running"}
        )  # what it held before is overwritten from here on
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
                "judged_with": self._judged_with,
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
