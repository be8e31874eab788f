"""Axes of a map's diagrams: log unique tokens x log parameters, with lines of equal tokens per parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from triplepoint.report.figures import MUTED, axis, layout, note, rounded
from triplepoint.report.grok_axes import MARKED, log_ticks
from triplepoint.report.map_rows import Effect

HEIGHT = 340
INNER = (236, 252)
"""Pixels inside a panel's axes, on a laptop."""
MARGIN = {"l": 58, "r": 14, "t": 24, "b": 54}
LARGEST, SMALLEST = 40, 9
"""Pixels of a cell's mark."""
TICK_SHARE = 0.13
"""Share of an axis that the label of a tick takes."""


class Frame:
    """The axes that a diagram's cells need, and how large a mark may be."""

    def __init__(self, effects: Sequence[Effect]):
        self._effects = effects
        self._x, self._y = ([math.log10(v) for v in axis] for axis in zip(*((e.x, e.y) for e in effects), strict=True))  # fmt: skip
        self.ranges = [_padded(values) for values in (self._x, self._y)]
        rooms = [
            _room(values, high - low, pixels)
            for values, (low, high), pixels in zip((self._x, self._y), self.ranges, INNER, strict=True)
        ]  # fmt: skip
        self.size = round(max(SMALLEST, min(LARGEST, *rooms)))

    def layout(self) -> dict:
        """Return the layout of a diagram."""
        images = all(e.row.get("family") == "vit" for e in self._effects)
        unit = "training images" if images else "unique training tokens"
        frame = layout(
            HEIGHT, margin=MARGIN, showlegend=False,
            xaxis=_log_axis(unit, self._x, self.ranges[0]), yaxis=_log_axis("parameters", self._y, self.ranges[1]),
        )  # fmt: skip
        diagonals = [] if images else list(self._diagonals())
        frame["shapes"] = [line for line, _ in diagonals]
        frame["annotations"] = [label for _, label in diagonals]
        return frame

    def _diagonals(self) -> Iterator[tuple[dict, dict]]:
        """Yield lines of equal tokens per parameter with their labels, where they leave at the top or right."""
        (left, right), (bottom, top) = self.ranges
        for power in range(math.ceil(left - top), math.floor(right - bottom) + 1):
            # x - y = power, in logarithms
            low, high = max(left, bottom + power), min(right, top + power)
            if high - low < 0.12 * (right - left):
                continue
            ends = {"x0": 10**low, "y0": 10 ** (low - power), "x1": 10**high, "y1": 10 ** (high - power)}  # fmt: skip
            line = {
                "type": "line",
                "layer": "below",
                "line": {"color": MARKED, "width": 1, "dash": "dot"},
            }
            label = note(
                f"T/P {10.0**power:g}", x=rounded(high), y=rounded(high - power), xanchor="right",
                yanchor="top", font={"size": 11, "color": MUTED},
            )  # fmt: skip
            yield {**line, **{k: rounded(v) for k, v in ends.items()}}, label


def _padded(values: Sequence[float]) -> list[float]:
    pad = max(0.18 * (max(values) - min(values)), 0.2)
    return [rounded(min(values) - pad), rounded(max(values) + pad)]


def _room(values: Sequence[float], span: float, pixels: int) -> float:
    """Return the pixels between neighbours that are not the same; all there is for a single one."""
    distinct = sorted(set(values))
    # sizes matched in parameters differ by a percent: their marks lie on each other in any case
    gaps = [gap for a, b in zip(distinct, distinct[1:], strict=False) if (gap := b - a) > 0.02]
    return 0.86 * pixels * min(gaps) / span if gaps else LARGEST


def _log_axis(title: str, values: Sequence[float], between: list[float]) -> dict:
    """Return an axis with a tick at each value of the cells where these are few, else at round numbers."""
    own = sorted(set(values))
    apart = min((b - a for a, b in zip(own, own[1:], strict=False)), default=1.0)
    crowded = apart < TICK_SHARE * (between[1] - between[0])
    ticks = log_ticks(10 ** between[0], 10 ** between[1], 5) if crowded else [10**v for v in own]
    return axis(
        title, type="log", range=between, tickvals=list(map(rounded, ticks)),
        ticktext=list(map(_tick, ticks)), tickangle=0, fixedrange=True, showgrid=False,
    )  # fmt: skip


def _tick(value: float) -> str:
    """Return a tick's label in three digits: 357031 is 357k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
