"""The table of a map -> comparisons, candidates and second axes, as its page shows them.

An *effect* is a candidate against its baseline over all seeds, everything else equal: one cell of the map. Its
*place* is where it stands in the phase diagram; a *second axis* is one that takes several values at one place.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from triplepoint.report import formats as as_

Row = Mapping[str, Any]
Slice = tuple[tuple[str, Any], ...]
"""(axis, value) of each second axis of a candidate."""

NUMERIC = ("alpha", "dropout", "lr", "weight_decay")
"""Axes with many values: what differs by one of them only is one candidate."""
PLACE = ("size", "width", "layers", "heads", "kv_heads", "unique_tokens")
"""Axes that move a cell in the phase diagram."""
SECOND = (
    "family", *NUMERIC, "attention", "ffn", "positions", "warmup", "schedule", "steps", "batch", "context", "precision",
)  # fmt: skip
"""Axes that do not."""
AXES = {
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "ffn": "feed-forward",
    "gate_scale": "gate scale",
}
"""Axis -> what the page calls it, where that is another name."""
FAILED = ("diverged", "collapsed", "stalled")
"""Outcomes that are marked in the diagrams, the worst first."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """One cell of the map: a candidate against its baseline, over all seeds."""

    number: int
    """Its name in the page."""
    candidate: str
    row: Row
    parameters: str
    """Which column is the P of T/P."""
    pairs: Sequence[Row]
    """One per seed."""
    slice: Slice = ()

    @property
    def x(self) -> float | None:
        """Tokens (images) in the training split."""
        return self.row.get("train_tokens") or self.row.get("unique_tokens")

    @property
    def y(self) -> float | None:
        """Parameters."""
        return self.row.get(self.parameters) or self.row.get("params_total")

    def value(self, endpoint: str) -> float | None:
        """Return the relative difference; None where it was not reached."""
        value = self.row.get(endpoint)
        return value if as_.known(value) else None

    def interval(self, endpoint: str, kind: str = "bootstrap") -> tuple[float, float] | None:
        """Return a 95 % interval: ``bootstrap`` or ``t``."""
        ends = tuple(self.row.get(f"{endpoint}_{kind}_{end}") for end in ("low", "high"))
        return ends if all(map(as_.known, ends)) else None

    def sign(self, endpoint: str) -> int | None:
        """Return -1 for better, 1 for worse, 0 where the bootstrap interval holds zero; None without interval."""
        interval = self.interval(endpoint)
        if interval is None:
            return None
        return -1 if interval[1] < 0 else 1 if interval[0] > 0 else 0

    @property
    def failed(self) -> dict[str, int]:
        """Outcome -> how many of its seeds had it, the worst first; a collapsed run counts as that only."""
        counts = {name: self.row.get(f"{name}_seeds") or 0 for name in FAILED}
        counts["stalled"] -= counts["collapsed"]
        return {name: count for name, count in counts.items() if count > 0}

    @property
    def where(self) -> str:
        """Say which cell it is."""
        shape = [f"{a} {self.row[a]}" for a in PLACE[1:-1] if as_.known(self.row.get(a))]
        unit = "images" if self.row.get("family") == "vit" else "tokens"
        parts = [str(self.row.get("size") or as_.DASH), *shape, f"{as_.count(self.x)} {unit}"]
        return ", ".join([*parts, *map(told, self.slice)])


def told(pair: tuple[str, Any]) -> str:
    """Say a value of an axis.

    Example:
        >>> told(("lr", 0.001)), told(("alpha", None))
        ('learning rate 0.001', 'alpha of the preset')
    """
    axis, value = pair
    name = AXES.get(axis, axis)
    if value is None:
        return f"{name} of the {'preset' if axis == 'alpha' else 'size'}"
    return f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {as_.plain(value)}"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """All effects of one change."""

    name: str
    effects: Sequence[Effect]

    @property
    def axes(self) -> tuple[str, ...]:
        """Its second axes."""
        return tuple(axis for axis, _ in self.effects[0].slice)

    @property
    def baselines(self) -> str:
        """What it is compared with."""
        return as_.listed(
            list(dict.fromkeys(str(e.row.get("baseline") or as_.DASH) for e in self.effects))
        )

    def slices(self) -> list[tuple[Slice, list[Effect]]]:
        """Return the diagrams: effects of equal second axes, those with the most cells first."""
        found: dict[Slice, list[Effect]] = {}
        for effect in self.effects:
            found.setdefault(effect.slice, []).append(effect)
        return sorted(found.items(), key=lambda item: -len(item[1]))


def candidates_of(rows: Iterable[Row], parameters: str) -> list[Candidate]:
    """Return the candidates of a table, in its order; a candidate is an arm but for numeric axes.

    Args:
        rows: Of the table, of all kinds.
        parameters: Column of the parameter count.
    """
    rows = list(rows)
    pairs: dict[tuple, list[Row]] = {}
    for row in rows:
        if row.get("row") == "pair":
            pairs.setdefault(_key(row), []).append(row)
    effects = [row for row in rows if row.get("row") == "effect"]
    grouped: dict[str, list[Row]] = {}
    for row in effects:
        grouped.setdefault(_name_of(row), []).append(row)
    numbers = iter(range(len(effects)))
    made = []
    for name, own in grouped.items():
        axes = second_axes(own, all_of=effects)
        made.append(Candidate(name, [
            Effect(
                number=next(numbers), candidate=name, row=row, parameters=parameters, pairs=pairs.get(_key(row), ()),
                slice=tuple((axis, row.get(axis)) for axis in axes),
            )
            for row in own
        ]))  # fmt: skip
    return made


def second_axes(rows: Sequence[Row], *, all_of: Sequence[Row]) -> list[str]:
    """Return the axes that take several values at one place; the family where the map has several.

    Args:
        rows: Effects of one candidate.
        all_of: Effects of the map.
    """
    values: dict[tuple, set] = {}
    for row in rows:
        place = tuple(row.get(axis) for axis in PLACE)
        for axis in SECOND:
            values.setdefault((axis, place), set()).add(row.get(axis))
    several = {axis for (axis, _), found in values.items() if len(found) > 1}
    families = len({row.get("family") for row in all_of}) > 1
    return [axis for axis in SECOND if axis in several or (axis == "family" and families)]


def wins(effects: Sequence[Effect], endpoint: str) -> Counter:
    """Count better (-1), undecided (0) and worse (1) cells; None stands for those without an interval."""
    return Counter(effect.sign(endpoint) for effect in effects)


def _name_of(row: Row) -> str:
    strip = rf", (?:{'|'.join(NUMERIC)})=[^,]*"
    arm, baseline = str(row.get("arm")), str(row.get("baseline"))
    name = re.sub(strip, "", arm)
    if name != re.sub(strip, "", baseline):
        return name
    changed = re.findall(rf", ({'|'.join(NUMERIC)})=", arm)
    return f"{name} with other {as_.listed([AXES.get(axis, axis) for axis in changed])}"


def _key(row: Row) -> tuple:
    return (row.get("arm"), *(row.get(axis) for axis in (*PLACE, *SECOND)))
