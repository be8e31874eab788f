"""The diagrams of a map: log unique tokens x log parameters, a coloured mark per cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from triplepoint.report import formats as as_
from triplepoint.report.figures import escaped, rounded
from triplepoint.report.grok_axes import MARKED
from triplepoint.report.map_contour import zero_line
from triplepoint.report.map_frame import Frame
from triplepoint.report.map_rows import Effect

READABLE = 27
"""Pixels of a mark below which its value is not written into it."""
LIMIT = 0.25
"""Relative differences beyond this share one colour: one collapsed cell must not bleach the others."""
SYMBOLS = {"diverged": "asterisk-open", "collapsed": "x-thin-open", "stalled": "triangle-down-open"}
"""Outcome -> mark on a cell of which at least one seed had it."""
DIVERGING = [
    [0, "#0b5a8f"], [0.2, "#5b9cc7"], [0.4, "#cfe3f0"], [0.5, "#ffffff"], [0.6, "#fbe0c8"], [0.8, "#e58b45"], [1, "#9a3f00"],
]  # fmt: skip
"""Blue for better, white at zero, orange for worse: told apart under any colour blindness."""
SEQUENTIAL = [[0, "#f7f8f6"], [0.35, "#9cc9cf"], [0.55, "#559ab8"], [0.75, "#2a6496"], [1, "#12305c"]]  # fmt: skip
DARK, LIGHT = "#1a1d21", "#ffffff"


def shade_of(value: float, limit: float) -> float:
    """Return the place of a difference on the colour scale, -1 to 1: its root, so that small ones can be seen.

    Example:
        >>> shade_of(-0.05, 0.2), shade_of(0.5, 0.2)
        (-0.5, 1.0)
    """
    return math.copysign(math.sqrt(min(abs(value) / limit, 1.0)), value)


def colour_limit(effects: Iterable[Effect], endpoints: Iterable[str]) -> float:
    """Return the difference at the ends of the colour scale: the largest of a cell that has not failed."""
    endpoints = list(endpoints)
    values = [e.value(name) for e in effects if not e.failed for name in endpoints]
    largest = max((abs(v) for v in values if v is not None), default=LIMIT)
    # two digits, upwards: the legend shows it and a quarter of it
    step = 10 ** math.floor(math.log10(max(largest, 0.004))) / 5
    return round(min(math.ceil(largest / step - 1e-9) * step, LIMIT) or step, 6)


def difference_panel(effects: Sequence[Effect], endpoint: str, limit: float) -> dict | None:
    """Return the phase diagram of one candidate at one endpoint; None where no cell can be placed."""
    placed = [e for e in effects if e.x and e.y]
    if not placed:
        return None
    frame = Frame(placed)
    marks = _Marks(frame, [-1, 1], DIVERGING)
    for effect in placed:
        value, sign = effect.value(endpoint), effect.sign(endpoint)
        marks.add(
            effect,
            shade=None if value is None else shade_of(value, limit),
            text=_percent(value),
            symbol="square" if sign else "circle",
            hover=_hover(effect, endpoint),
        )
    known = {(e.x, e.y): v for e in placed if (v := e.value(endpoint)) is not None}
    return {"data": [*_contour(zero_line(known)), *marks.traces()], "layout": frame.layout()}


def saturation_panel(effects: Sequence[Effect], column: str) -> dict | None:
    """Return the map of saturation of one candidate; None where it was not measured."""
    placed = [e for e in effects if e.x and e.y and as_.known(e.row.get(column))]
    if not placed:
        return None
    frame = Frame(placed)
    marks = _Marks(frame, [0, 1], SEQUENTIAL)
    for effect in placed:
        share = effect.row[column]
        says = f"<b>{escaped(effect.where)}</b><br>saturation {as_.share(share)}"
        marks.add(
            effect, shade=share, text=f"{100 * share:.0f}", symbol="square", hover=f"{says}{_state(effect)}"
        )  # fmt: skip
    return {"data": marks.traces(), "layout": frame.layout()}


class _Marks:
    """The cells of a diagram: a coloured mark each, and the symbols of what failed."""

    def __init__(self, frame: Frame, between: list[float], scale: list):
        self._frame, self._between, self._scale = frame, between, scale
        self._cells: list[tuple[Effect, float | None, str, str, str]] = []

    def add(
        self, effect: Effect, *, shade: float | None, text: str, symbol: str, hover: str
    ) -> None:
        self._cells.append((effect, shade, text, symbol, hover))

    def traces(self) -> list[dict]:
        with_value = [cell for cell in self._cells if cell[1] is not None]
        without = [cell for cell in self._cells if cell[1] is None]
        made = [self._coloured(with_value)] if with_value else []
        if without:
            made.append(self._at(without, {"color": "#c4c9cf", "symbol": "square"}))
        for outcome, symbol in SYMBOLS.items():
            hit = [cell for cell in self._cells if next(iter(cell[0].failed), None) == outcome]
            if hit:
                size = min(self._frame.size, 16)
                colours = [
                    DARK if cell[1] is None else _ink(cell[1], self._between) for cell in hit
                ]
                mark = {"symbol": symbol, "size": size, "color": colours, "line": {"width": 2, "color": colours}}  # fmt: skip
                made.append({**self._at(hit, mark), "name": outcome})
        return made

    def _coloured(self, cells: list) -> dict:
        low, high = self._between
        marker = {
            "color": [rounded(cell[1]) for cell in cells], "cmin": low, "cmax": high,
            "colorscale": self._scale, "showscale": False, "symbol": [cell[3] for cell in cells],
            "line": {"width": 1, "color": MARKED},
        }  # fmt: skip
        trace = self._at(cells, marker)
        if self._frame.size >= READABLE:
            # a symbol stands in the place of a failed cell's value
            texts = ["" if cell[0].failed else cell[2] for cell in cells]
            font = {"size": 11, "color": [_ink(cell[1], self._between) for cell in cells]}
            trace |= {"mode": "markers+text", "text": texts, "textfont": font}
        return trace

    def _at(self, cells: list, marker: dict) -> dict:
        return {
            "type": "scatter", "mode": "markers", "x": [cell[0].x for cell in cells],
            "y": [cell[0].y for cell in cells], "customdata": [[cell[0].number, cell[4]] for cell in cells],
            "hovertemplate": "%{customdata[1]}<extra></extra>", "cliponaxis": False,
            "marker": {"size": self._frame.size, **marker},
        }  # fmt: skip


def _ink(shade: float, between: list[float]) -> str:
    reach = abs(shade) if between[0] < 0 else shade
    return LIGHT if reach > (0.72 if between[0] < 0 else 0.5) else DARK


def _percent(value: float | None) -> str:
    """Say a difference in the few characters that fit into a mark, in percent."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 0.0995 else 1
    return f"{100 * value:+.{digits}f}".replace("-", as_.MINUS)


def _contour(segments: Sequence) -> list[dict]:
    if not segments:
        return []
    x, y = ([rounded(v) for segment in segments for v in (segment[0][i], segment[1][i], None)] for i in (0, 1))  # fmt: skip
    return [{
        "type": "scatter", "mode": "lines", "x": x, "y": y, "connectgaps": False, "hoverinfo": "skip",
        "name": "zero", "line": {"color": "#8a2be2", "width": 2},
    }]  # fmt: skip


def _hover(effect: Effect, endpoint: str) -> str:
    value = effect.value(endpoint)
    lines = [f"<b>{escaped(effect.where)}</b>"]
    lines.append(as_.change(value) if value is not None else "no difference at this endpoint")
    names = {"bootstrap": "windows and seeds resampled", "t": "t over seeds"}
    for kind, name in names.items():
        if interval := effect.interval(endpoint, kind):
            lines.append(f"95 %: {as_.change_interval(interval)} ({name})")
    ratio = effect.row.get("tokens_per_parameter")
    lines.append(f"{as_.count(effect.y)} parameters" + (f", T/P {ratio:.3g}" if as_.known(ratio) else ""))  # fmt: skip
    return "<br>".join(lines) + _state(effect)


def _state(effect: Effect) -> str:
    seeds = len(effect.pairs) or effect.row.get("seeds")
    failed = [f"{count} of {as_.plain(seeds)} seeds {name}" for name, count in effect.failed.items()]  # fmt: skip
    words = failed or [f"phase {effect.row['phase']}"] if failed or effect.row.get("phase") else []
    return "".join(f"<br>{escaped(str(word))}" for word in words)


def scale_ticks(limit: float) -> list[tuple[float, str]]:
    """Return place in percent and label of the legend of differences.

    Example:
        >>> [(at, text.replace(as_.NBSP, " ")) for at, text in scale_ticks(0.2)][2:]
        [(50.0, '0'), (75.0, '+5 %'), (100.0, '+20 %')]
    """
    values = (-limit, -limit / 4, 0.0, limit / 4, limit)
    labels = [f"{100 * v:+.3g}{as_.NBSP}%".replace("-", as_.MINUS) if v else "0" for v in values]
    return [(50 + 50 * shade_of(v, limit), text) for v, text in zip(values, labels, strict=True)]


def gradient(scale: Sequence) -> str:
    """Return a colour scale as CSS has it.

    Example:
        >>> gradient([[0, "#000000"], [1, "#ffffff"]])
        'linear-gradient(to right, #000000 0%, #ffffff 100%)'
    """
    return f"linear-gradient(to right, {', '.join(f'{c} {100 * at:g}%' for at, c in scale)})"


GRADIENTS: Mapping[str, str] = {"difference": gradient(DIVERGING), "saturation": gradient(SEQUENTIAL)}  # fmt: skip
