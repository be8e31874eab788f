"""How far a plan is from the cells that the rule was fitted and tested on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from triplepoint.evidence import Setting

COORDINATES = ("parameters", "tokens per parameter", "epochs", "planned steps per calibrated step")
"""Whose logarithms are a plan's place."""
MILD = 0.95
"""Quantile of the cells' own distances to their nearest in another group, beyond which a plan is only mildly like them."""
FAR = 2.0
"""Multiple of that distance beyond which a plan is outside; and of the largest planned steps per calibrated step."""

Place = Float[np.ndarray, " coordinate"]
Where = Literal["inside", "mild", "outside"]


def place_of(setting: Setting, look: int) -> Place:
    """Return the logarithms of a plan's coordinates.

    Example:
        >>> setting = Setting(
        ...     architecture="gpt2", size="gpt2-0.1m", corpus="stdlib", unique_tokens=1000,
        ...     params={"params_no_positions": 1000}, steps=500, tokens_per_step=10, lr=1e-3, candidate_lr=1e-3, rate="plan",
        ...     warmup=10, schedule="cosine", plateau=3.0,
        ... )
        >>> [round(float(x), 2) for x in np.exp(place_of(setting, 100))]
        [1000.0, 1.0, 5.0, 5.0]
    """
    return np.log([
        setting.params["params_no_positions"], setting.tokens_per_parameter, setting.epochs, setting.steps / look
    ])  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A benchmark cell near a plan."""

    number: int
    """Its index among the cells."""
    distance: float
    """In standard deviations of the cells' coordinates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nearness:
    """Where a plan lies."""

    where: Where
    why: str | None
    """What takes it outside, or makes it only mildly like the cells."""
    ratio: float
    """Distance to the nearest cell over the usual one; 1 at the edge of the inside."""
    nearest: tuple[Neighbour, ...]


class Neighbourhood:
    """The cells' places at a look.

    Args:
        settings: Of the cells.
        ops: Of the candidates, with presets.
        look: Step of the screen.
    """

    def __init__(self, settings: Sequence[Setting], ops: Sequence[str], look: int):
        self.look = look
        self.ops = list(ops)
        self.rates = np.log([s.candidate_lr for s in settings])
        self.architectures = {s.architecture.partition(" ")[0] for s in settings}
        self.places = np.array([place_of(s, look) for s in settings])
        self.scale = np.maximum(self.places.std(axis=0), 0.1)
        groups = np.array([s.group for s in settings])
        far = self._distances(self.places) + np.where(groups[:, None] == groups, np.inf, 0.0)
        nearest = far.min(axis=1)
        finite = nearest[np.isfinite(nearest)]
        self.usual = float(np.quantile(finite, MILD)) if len(finite) else 1.0
        self.most_steps = float(np.exp(self.places[:, 3].max()))

    def _distances(self, places: np.ndarray) -> np.ndarray:
        apart = (places[:, None] - self.places[None]) / self.scale
        return np.sqrt((apart**2).sum(axis=2))

    def nearness(self, setting: Setting, op: str, *, count: int = 3) -> Nearness:
        """Return how near a plan is.

        Args:
            setting: The plan.
            op: The candidate's; of cells that are equally near those with it are named first, then those at its rate.
            count: How many neighbours to name.
        """
        place = place_of(setting, self.look)
        distances = self._distances(place[None])[0]
        other = np.array([(ours != op) + (_base(ours) != _base(op)) for ours in self.ops])
        rate = np.abs(self.rates - math.log(setting.candidate_lr))
        order = np.lexsort((rate, other, np.round(distances, 6)))[:count]
        ratio = float(distances[order[0]] / self.usual)
        family = setting.architecture.partition(" ")[0]
        steps = setting.steps / self.look
        why, where = None, "inside"
        if family not in self.architectures:
            where, why = "outside", f"no cell of the benchmark has the architecture {family}"
        elif _base(op) not in map(_base, self.ops):
            where, why = "outside", f"no cell of the benchmark has the op {_base(op)}"
        elif steps > FAR * self.most_steps:
            where = "outside"
            why = f"the plan is {steps:.3g} times as long as the look, the benchmark's at most {self.most_steps:.3g} times"
        elif ratio > 1:
            where, why = "outside" if ratio > FAR else "mild", self._strangest(place, order[0])
        return Nearness(
            where=where, why=why, ratio=ratio,
            nearest=tuple(Neighbour(number=int(i), distance=float(distances[i])) for i in order),
        )  # fmt: skip

    def _strangest(self, place: Place, nearest: int) -> str:
        apart = (place - self.places[nearest]) / self.scale
        which = int(np.abs(apart).argmax())
        ours, theirs = math.exp(place[which]), math.exp(self.places[nearest][which])
        return f"{COORDINATES[which]}: {ours:.3g}, the nearest cell's {theirs:.3g}"


def _base(op: str) -> str:
    return op.partition(":")[0].partition(" ")[0]
