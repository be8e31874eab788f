"""Where numbers go beside the logbook: TensorBoard, W&B and MLflow, through Accelerate's trackers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from triplepoint.errors import unknown_name
from triplepoint.extras import require
from triplepoint.logbook import PhaseLine
from triplepoint.records import Record

KNOWN = {"tensorboard": "TensorBoardTracker", "wandb": "WandBTracker", "mlflow": "MLflowTracker"}
"""Name -> class in ``accelerate.tracking``; each package is an extra of the same name."""
AXIS = "triplepoint/step"
"""Our own step axis: W&B drops what is logged at a step below its last one, as after a resume."""


class Tracker:
    """One tracker of ``accelerate.tracking``, fed with records.

    Args:
        tracker: Started.
        borrowed: Whether it writes into a run that somebody else opened, who ends it.
    """

    def __init__(self, tracker: Any, *, borrowed: bool):
        self._tracker, self._borrowed = tracker, borrowed
        self._own_axis = tracker.name == "wandb"
        if self._own_axis:
            tracker.tracker.define_metric(AXIS)
            tracker.tracker.define_metric("triplepoint/*", step_metric=AXIS)

    def send(self, records: Iterable[Record], phase: PhaseLine | None, step: int) -> None:
        """Log records of one step, ``triplepoint/METRIC`` and ``triplepoint/METRIC/SITE``, and the phase as text."""
        values: dict[str, float | str] = {_name(r): r.value for r in records}
        if phase is not None and self._tracker.name != "mlflow":  # which takes only numbers
            values["triplepoint/phase"] = phase.phase
        if values and self._own_axis:
            self._tracker.log({**values, AXIS: step})
        elif values:
            self._tracker.log(values, step=step)

    def close(self) -> None:
        """End what was opened here."""
        if not self._borrowed:
            self._tracker.finish()


def open_tracker(tracker: str | Any, *, folder: Path) -> Tracker:
    """Return a tracker by name, in the run that is active or else in one of its own.

    Args:
        tracker: ``tensorboard``, ``wandb`` or ``mlflow``; or a started tracker of ``accelerate.tracking``.
        folder: Its name is the project's; TensorBoard writes into ``triplepoint`` below it.

    Raises:
        UnknownNameError: If the name is another.
        MissingExtraError: If the package is not installed.
    """
    if not isinstance(tracker, str):
        return Tracker(tracker, borrowed=True)
    if tracker not in KNOWN:
        raise unknown_name("tracker", tracker, KNOWN)
    from accelerate import tracking

    package = require(tracker, extra=tracker)
    if tracker == "tensorboard":
        made, active = tracking.TensorBoardTracker("triplepoint", folder), False
    elif tracker == "wandb":
        made, active = tracking.WandBTracker(folder.resolve().name), package.run is not None
    else:
        made = tracking.MLflowTracker(folder.resolve().name)
        active = package.active_run() is not None
    if not (tracker == "mlflow" and active):  # a second start is an error there
        made.start()
    return Tracker(made, borrowed=active)


def _name(record: Record) -> str:
    """Return the name under which trackers show a record, of characters that all of them take."""
    name = "/".join(part for part in (record.metric, record.site) if part)
    return "triplepoint/" + re.sub(r"[^\w./ -]", "_", name)
