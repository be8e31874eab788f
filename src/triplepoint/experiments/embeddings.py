"""What is looked at in an embedding along a run: its spectrum, its circles, and pictures of them.

Symbols as in ``triplepoint.grokking.representation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from triplepoint.experiments.specs import TaskSpec
from triplepoint.grokking.circles import circle_points
from triplepoint.grokking.representation import frequency_power
from triplepoint.monitoring import Part, definitions
from triplepoint.monitoring.embeddings import fourier_rows
from triplepoint.records import Record

MOST_CIRCLES = 9
"""Circles kept for the report, the strongest at the last look: more cannot be told apart on a page."""

EMBEDDING_DEFINITIONS = {
    name: row
    for name, row in definitions("mse").items()
    if name.startswith("fourier_") or name in ("unit_concentration", "effective_frequencies")
}


def embedding_records(E: Tensor, step: int, **labels: object) -> list[Record]:
    """Return the spectrum of an embedding, and for an odd number of rows what its circles are like.

    Args:
        E: A row per element of a cyclic group, in its order.
        step: For the records.
        **labels: ``arm`` and ``seed`` of the records.
    """
    if len(E) % 2:
        found = fourier_rows(E)
    else:  # the circles' numbers pair frequencies up, and an even group has one without a partner
        power = frequency_power(E)[1:]
        shares = (power / power.sum()).tolist() if power.sum() > 0 else []
        found = [("fourier_power", f"k={k}", share) for k, share in enumerate(shares, 1)]
    return [
        Record(metric=metric, value=value, unit=EMBEDDING_DEFINITIONS[metric]["unit"], step=step, site=site, **labels)
        for metric, site, value in found
    ]  # fmt: skip


def with_fourier(parts: Sequence[dict], task: TaskSpec) -> list[dict]:
    """Return what applies, with the embedding's part as the task has it: a monitor does not know the operation."""
    fits = task.is_cyclic
    reason = (
        "a row of the embedding per element of a cyclic group"
        if fits
        else f"{task.operation} is no cyclic group's operation on its alphabet"
    )
    part = Part("Fourier features", fits, reason)
    return [*(p for p in parts if p["part"] != part.part), part._asdict()]


class EmbeddingWatch:
    """Looks at an embedding now and then, and keeps the circles for the report.

    Args:
        residues: First layer [d_in, h] -> rows of the embedding in the group's order, or None.
        labels: ``arm`` and ``seed`` of the records.
    """

    def __init__(self, residues: Callable[[Tensor], Tensor | None], **labels: object):
        self._residues, self._labels = residues, labels
        self._seen: dict[int, Tensor] = {}

    def look(self, step: int, W1: Tensor) -> list[Record]:
        """Measure the embedding inside ``W1``; nothing where the task has none."""
        E = self._residues(W1)
        if E is None:
            return []
        if len(E) % 2:
            K = (len(E) - 1) // 2
            self._seen[step] = torch.stack([circle_points(E, k) for k in range(1, K + 1)]).float()
        return embedding_records(E, step, **self._labels)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return ``circle_steps`` [S], ``circle_k`` [c] and ``circle_points`` [S, c, p, 2], if there are circles."""
        if not self._seen:
            return {}
        points = torch.stack(list(self._seen.values()))  # [S, K, p, 2]
        strongest = points[-1].square().sum((1, 2)).argsort(descending=True, stable=True)
        shown = sorted((strongest[:MOST_CIRCLES] + 1).tolist())
        return {
            "circle_steps": np.array(list(self._seen)),
            "circle_k": np.array(shown),
            "circle_points": points[:, [k - 1 for k in shown]].numpy(),
        }

    def state(self) -> dict[str, Tensor]:
        """Return what a restart needs."""
        return {f"circles|{step}": points for step, points in self._seen.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        kept = {k: v for k, v in state.items() if k.startswith("circles|")}
        self._seen = {int(k.removeprefix("circles|")): kept[k] for k in sorted(kept, key=_step_of)}


def _step_of(name: str) -> int:
    return int(name.removeprefix("circles|"))
