"""What is looked at in an embedding along a run: its spectrum, its circles, and pictures of them.

Symbols as in ``triplepoint.grokking.representation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from triplepoint.grokking import describe_embedding
from triplepoint.grokking.circles import circle_points
from triplepoint.grokking.representation import frequency_power
from triplepoint.records import Record

MOST_CIRCLES = 9
"""Circles kept for the report, the strongest at the last look: more cannot be told apart on a page."""

EMBEDDING_DEFINITIONS = {
    "fourier_power": {
        "definition": "share of the embedding's non-constant power in frequency k",
        "unit": "share",
        "source": "arXiv 2511.01938, sec. 7",
    },
    "fourier_norm_cv": {
        "definition": "standard deviation over mean of the norms of Re F_k and Im F_k",
        "unit": "1",
        "source": "arXiv 2511.01938, sec. 7",
    },
    "fourier_cosine_mean": {
        "definition": "mean absolute cosine between different features Re F_k, Im F_k",
        "unit": "1",
        "source": "arXiv 2511.01938, sec. 7",
    },
    "unit_concentration": {
        "definition": "share of a hidden unit's power in its best frequency, mean over active units",
        "unit": "share",
        "source": "triplepoint",
    },
    "effective_frequencies": {
        "definition": "(sum P_k)^2 / sum P_k^2",
        "unit": "1",
        "source": "triplepoint; the inverse participation ratio's inverse",
    },
    "fourier_gini": {
        "definition": "Gini coefficient of the power over frequencies",
        "unit": "1",
        "source": "arXiv 2301.05217",
    },
}


def embedding_records(E: Tensor, step: int) -> list[Record]:
    """Return the spectrum of an embedding, and for an odd number of rows what its circles are like.

    Args:
        E: A row per element of a cyclic group, in its order.
        step: For the records.
    """
    power = frequency_power(E)[1:]
    shares = power / power.sum().clamp_min(1e-300)
    rows = [
        _row("fourier_power", float(share), step, site=f"k={k}")
        for k, share in enumerate(shares, 1)
    ]
    if len(E) % 2 and power.sum() > 0:
        found = describe_embedding(E)
        rows += [
            _row("fourier_norm_cv", found.norm_cv, step),
            _row("fourier_cosine_mean", found.cosine_mean, step),
            _row("unit_concentration", found.unit_concentration, step),
            _row("effective_frequencies", found.effective_frequencies, step),
            _row("fourier_gini", found.gini, step),
        ]
    return rows


def _row(metric: str, value: float, step: int, **more: object) -> Record:
    unit = EMBEDDING_DEFINITIONS[metric]["unit"]
    return Record(metric=metric, value=value, unit=unit, step=step, **more)


class EmbeddingWatch:
    """Looks at an embedding now and then, and keeps the circles for the report.

    Args:
        residues: First layer [d_in, h] -> rows of the embedding in the group's order, or None.
    """

    def __init__(self, residues: Callable[[Tensor], Tensor | None]):
        self._residues = residues
        self._seen: dict[int, Tensor] = {}

    def look(self, step: int, W1: Tensor) -> list[Record]:
        """Measure the embedding inside ``W1``; nothing where the task has none."""
        E = self._residues(W1)
        if E is None:
            return []
        if len(E) % 2:
            K = (len(E) - 1) // 2
            self._seen[step] = torch.stack([circle_points(E, k) for k in range(1, K + 1)]).float()
        return embedding_records(E, step)

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
