"""What a finished cell has to say, read from its folder."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from triplepoint.maps.planning import PlannedCell
from triplepoint.phases import Judgement, judge_arm, plateau_exit_step
from triplepoint.records import Record
from triplepoint.sweeps import ArmRun, load_arm

EARLY_STEP = 500
"""Where arXiv 2604.23434 takes its early saturation."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CellResult:
    """One finished cell: curves over its evaluations, and single numbers. Losses in nats per token."""

    planned: PlannedCell
    steps: Int[np.ndarray, " evaluation"]
    val: Float[np.ndarray, "evaluation window"]
    train: Float[np.ndarray, "evaluation window"]
    params: dict[str, int]
    """By convention, see :func:`triplepoint.models.parameter_counts`."""
    train_tokens: int
    """In the training split; images for an image model."""
    tokens_per_step: int
    plateau: float | None
    """On the validation windows."""
    diverged_at: int | None
    last_step: int
    saturation_end: float | None
    """Mean over sites of the share with ``|alpha x| > 2``, at the last evaluation."""
    saturation_500: float | None
    alpha_drift_std: float | None
    prediction_kl: float | None
    report: dict[str, float]
    """Endpoint -> loss on the report windows, which nothing was chosen by."""

    @property
    def exit_step(self) -> int | None:
        """Step at which it left the unigram plateau."""
        if self.plateau is None or not len(self.steps):
            return None
        return plateau_exit_step(self.steps.tolist(), self.val.mean(axis=1).tolist(), self.plateau)

    @property
    def usable(self) -> bool:
        """Whether its losses can be compared: it did not diverge."""
        return self.diverged_at is None

    def phase(self, baseline_exit: int | None) -> Judgement:
        """Return its phase at the end, beside a baseline that left the plateau at ``baseline_exit``."""
        if not len(self.steps):
            return Judgement("diverged", f"the loss left its range at step {self.diverged_at}")
        return judge_arm(
            steps=self.steps.tolist(),
            val_losses=self.val.mean(axis=1).tolist(),
            plateau=self.plateau,
            planned_steps=self.planned.settings.steps,
            diverged_at=self.diverged_at,
            baseline_exit=baseline_exit,
            alpha_drift_std=self.alpha_drift_std,
            prediction_kl=self.prediction_kl,
        )


def read_result(planned: PlannedCell) -> CellResult:
    """Read a finished cell.

    Raises:
        RunFolderError: If it is not finished, or its files were changed.
    """
    run = load_arm(planned.cell.path)
    data = run.facts["data"]
    empty = np.empty((0, 0))
    return CellResult(
        planned=planned,
        steps=run.arrays.get("eval_steps", np.empty(0, dtype=int)),
        val=run.arrays.get("val_loss", empty).astype(np.float64),
        train=run.arrays.get("train_loss", empty).astype(np.float64),
        params={k: v for k, v in run.facts["model"].items() if k.startswith("params_")},
        train_tokens=data.get("train_tokens", data.get("train_images")),
        tokens_per_step=run.facts["tokens_per_step"],
        plateau=run.plateau["val"] if run.plateau else None,
        diverged_at=run.diverged_at,
        last_step=run.last_step,
        saturation_end=_saturation(run, None),
        saturation_500=_saturation(run, EARLY_STEP),
        alpha_drift_std=run.last("alpha_drift_std"),
        prediction_kl=run.last("prediction_kl"),
        report={r.endpoint: r.value for r in run.records if _is_report(r)},
    )


def _is_report(record: Record) -> bool:
    return record.metric == "report_loss" and record.endpoint is not None


def _saturation(run: ArmRun, step: int | None) -> float | None:
    rows = [r for r in run.records if r.metric == "saturation@2"]
    wanted = max((r.step for r in rows), default=None) if step is None else step
    values = [r.value for r in rows if r.step == wanted]
    return float(np.mean(values)) if values else None
