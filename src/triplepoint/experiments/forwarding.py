"""The fast-forward as a run: its network, and what each gradient brought."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from triplepoint.checkpoints import Checkpoints, Snapshot
from triplepoint.experiments.embeddings import EmbeddingWatch
from triplepoint.experiments.folders import OpenRun, load_run, open_run
from triplepoint.experiments.specs import TaskSpec, first_layer
from triplepoint.grokking import FastForward, fast_forward
from triplepoint.grokking.forwarding import Glimpse
from triplepoint.monitoring import definitions
from triplepoint.records import Record

SCOPE = (
    "The minimiser of C = ||W1|| ||W2*(W1)|| for a bias-free two-layer net with squared error: an end point, not "
    "the path of any optimiser."
)
DEFINITIONS = definitions("mse")
"""The monitor's."""


def run_fast_forward(
    spec: TaskSpec,
    *,
    hidden: int,
    path: Path | None = None,
    watch: Callable[[Glimpse], None] | None = None,
) -> dict[str, object]:
    """Fast-forward a fresh two-layer net on a task.

    Args:
        spec: The task.
        hidden: Width of the net.
        path: Where to keep the network, the records and the circles; None for nowhere.
        watch: Called after each gradient.

    Returns:
        ``test_accuracy``, ``gradients``, ``gradients_to_99`` (None if never seen), ``cpu_s``, ``stopped``, ``complexity``.

    Raises:
        DataError: If the task cannot be fitted, see ``fast_forward``.
        PlanError: If a setting is out of range.
        RunFolderError: If ``path`` belongs to another run.
    """
    if path is None:
        return _found(*_compute(spec, hidden, watch))
    asked = {"command": "fast-forward", "task": dataclasses.asdict(spec), "hidden": hidden}
    with open_run(path, asked) as opened:
        if opened is not None:
            run, cpu_s = _compute(spec, hidden, watch)
            _keep(run, opened, spec, _found(run, cpu_s))
    return load_run(path).facts["found"]


def _compute(
    spec: TaskSpec, hidden: int, watch: Callable[[Glimpse], None] | None
) -> tuple[FastForward, float]:
    task = spec.build()
    W1 = first_layer(task, hidden, std=None, seed=spec.seed)
    start = time.process_time()
    run = fast_forward(*task.train_set, W1, test=task.test_set, watch=watch)
    return run, round(time.process_time() - start, 3)


def _found(run: FastForward, cpu_s: float) -> dict[str, object]:
    return {
        "test_accuracy": run.test_accuracy,
        "gradients": run.gradients,
        "gradients_to_99": run.gradients_to(0.99),
        "cpu_s": cpu_s,
        "stopped": run.stopped,
        "complexity": run.complexity,
    }


def _keep(run: FastForward, opened: OpenRun, spec: TaskSpec, found: dict[str, object]) -> None:
    """Write the records of every gradient, the network and the circles."""
    folder = opened.folder
    folder.rewind(0)
    for glimpse in run.history:
        values = {"complexity": glimpse.complexity, "val_accuracy": glimpse.test_accuracy}
        folder.append(
            Record(metric=m, value=v, unit=DEFINITIONS[m]["unit"], step=glimpse.gradients)
            for m, v in values.items()
            if v is not None
        )
    embedding = EmbeddingWatch(spec.residues)
    size = folder.append(embedding.look(run.gradients, run.W1))
    model = dict(run.model.state_dict())
    Checkpoints(folder.path / "checkpoints").save(
        Snapshot(step=run.gradients, model=model, optimizer={}, rest={}, counts={"records": size}, history={})
    )  # fmt: skip
    facts = {"scope": SCOPE, "task": spec.build().name, "found": found, "metrics": DEFINITIONS}
    opened.finish(facts, embedding.arrays())
