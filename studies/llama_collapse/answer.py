"""Who stays on the plateau, against what, and what tells it: the tables of the study beside the map's own."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from studies.screening_benchmark.building import stored_runs
from studies.screening_benchmark.collapse_runs import Watched, watched
from studies.screening_benchmark.collapse_scoring import share
from triplepoint.screening.learning import StoredRun
from triplepoint.statistics import auc, fisher_exact, permutation_p

SIZE, TOKENS = "llama-0.4m", 1_500_000
LOOKS = (250, 500)
SIGNS = {
    "saturation": ("saturation@2", 1),
    "alpha drift, turned": ("alpha_drift_std", -1),
    "prediction KL, turned": ("prediction_kl", -1),
}
"""Name -> metric, and the sign with which more of it speaks for a collapse."""
RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the arms of one row have in common."""

    op: str
    changes: str
    """Of the model; empty for SwiGLU, RoPE and four blocks as they are."""
    lr: float

    @property
    def told(self) -> str:
        """As the table has it."""
        return f"{self.op} | {self.changes or '-'} | {self.lr:g}"


USUAL = Setting("dyt:paper", "", 1e-3)
"""What the other rows are compared with."""


def setting_of(run: StoredRun) -> Setting:
    """Return where a run belongs."""
    changes = run.asked.get("changes", {})
    return Setting(run.arm, ", ".join(f"{k} {v}" for k, v in sorted(changes.items())), run.lr)


def answer(runs: Sequence[StoredRun] | None = None) -> dict[str, object]:
    """Print both tables; return them as figures.

    Args:
        runs: Stored ones, by default all of the study's size and data.
    """
    runs = stored_runs() if runs is None else runs
    ours = [r for r in runs if r.asked["size"] == SIZE and r.facts["data"]["train_tokens"] == TOKENS]  # fmt: skip
    settings = {run.name: setting_of(run) for run in ours}
    rows: dict[Setting, list[Watched]] = {}
    for run in watched(ours):
        rows.setdefault(settings[run.name], []).append(run)
    return {"rows": rates(rows), "told_by": predictors([r for of in rows.values() for r in of])}


def rates(rows: Mapping[Setting, Sequence[Watched]]) -> list[dict[str, object]]:
    """Print how many runs of each setting never left the plateau, the usual one first; return it as figures."""
    print("\n| op | model | lr | never left the plateau | Fisher's p against the first | diverged | left at step, median (range) | baseline, its slowest seed |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    order = sorted(rows, key=lambda s: (s != USUAL, s.changes, s.lr, s.op))
    usual, found = rows.get(USUAL, []), []
    for setting in order:
        runs = rows[setting]
        stuck, n = sum(r.collapsed for r in runs), len(runs)
        p = fisher_exact(stuck, n, sum(r.collapsed for r in usual), len(usual)) if usual and setting != USUAL else None  # fmt: skip
        exits = [r.exit.step for r in runs if r.exit.step < math.inf]
        left = f"{statistics.median(exits):.0f} ({min(exits):.0f} to {max(exits):.0f})" if exits else "-"  # fmt: skip
        diverged = sum(r.diverged_at is not None for r in runs)
        print(f"| {setting.told} | {share(stuck, n)} | {'-' if p is None else f'{p:.2g}'} | {diverged} | {left} | {runs[0].baseline.step:.0f} |")  # fmt: skip
        found.append({**dataclasses.asdict(setting), "stuck": stuck, "n": n, "fisher_p": p, "exits": exits})  # fmt: skip
    return found


def predictors(runs: Sequence[Watched]) -> dict[str, dict[str, float] | None]:
    """Print how well each sign tells the runs that never leave from the others; None where there is one kind only."""
    print("\n| at step | of the runs | sign | never left, left | AUC for never leaving | p by permutation |\n|---|---|---|---|---|---|")  # fmt: skip
    found = {}
    for look in LOOKS:
        for which, of in (("all", runs), ("on the plateau", [r for r in runs if r.on_plateau(look)])):  # fmt: skip
            for name, (metric, sign) in SIGNS.items():
                known = [(sign * v, r.collapsed) for r in of if (v := r.sign(metric, look)) is not None]  # fmt: skip
                scores, labels = (np.array(column) for column in zip(*known, strict=True)) if known else ([], [])  # fmt: skip
                stuck = int(np.sum(labels))
                told = _auc(scores, labels) if 0 < stuck < len(known) else None
                ends = "- | -" if told is None else f"{told['auc']:.2f} [{told['low']:.2f}, {told['high']:.2f}] | {told['p']:.3f}"  # fmt: skip
                print(f"| {look} | {which} | {name} | {stuck}, {len(known) - stuck} | {ends} |")
                found[f"{look}, {which}, {name}"] = told
    return found


def _auc(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the area with the bootstrap's 95 %, runs resampled inside each class."""
    rng = np.random.default_rng(0)
    yes, no = np.flatnonzero(labels), np.flatnonzero(~labels)
    drawn = []
    for _ in range(RESAMPLES):
        i = np.concatenate([rng.choice(yes, len(yes)), rng.choice(no, len(no))])
        drawn.append(auc(scores[i], labels[i]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    p = permutation_p(scores, labels, resamples=RESAMPLES)
    return {"auc": auc(scores, labels), "low": float(low), "high": float(high), "p": p}
