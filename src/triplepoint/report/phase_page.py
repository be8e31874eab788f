"""The page of a log's phases: what its template is filled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from triplepoint.records import Record
from triplepoint.report.figures import POINTS, axis, layout, note, rounded, to_json
from triplepoint.report.formats import count, known, plain
from triplepoint.report.series import COLOURS, lowest, thinned

KIND = "phase"
"""What the manifest says such a run is."""
TEMPLATE = "phase.html.j2"
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = COLOURS
BANDS = {
    "fitting": SKY, "memorised": YELLOW, "generalising": GREEN, "overfitting": ORANGE, "diverged": "#2b2b2b",
    "stalled": PINK, "collapsed": PINK,
}  # fmt: skip
"""Phase -> colour of its band; steps whose phase is not told have none."""
TONES = {"generalising": "replace", "overfitting": "unsafe", "diverged": "unsafe", "fitting": "keep"}  # fmt: skip
PANELS = (
    ("loss", 300, (("train_loss", "train", "#5b636d"), ("val_loss", "validation", BLUE))),
    ("accuracy", 170, (("train_accuracy", "train", "#5b636d"), ("val_accuracy", "validation", BLUE))),
    ("learning rate", 100, (("lr", "learning rate", "#5b636d"),)),
)  # fmt: skip
"""Title, height in pixels and (curve, name, colour) of its lines, from top to bottom."""
GAP, TOP, BOTTOM = 34, 44, 56
"""Pixels between two panels, above the first, below the last."""


def drawn(points: Sequence[tuple[float, float]]) -> list[list[float | None]]:
    """Return the steps and values of a curve that are drawn: evenly thinned, the lowest one kept."""
    curve = dict(points)
    best = lowest(curve)
    steps = sorted({*thinned(curve, POINTS), *([best[0]] if best else [])})
    return [steps, [rounded(curve[step]) for step in steps]]


def context(manifest: Mapping, records: Sequence[Record], arrays: Mapping) -> dict:
    """Return what the template needs.

    Args:
        manifest: What ``manifest.json`` holds: the answer and the curves.
        records: Not used; all is in the manifest.
        arrays: Not used.
    """
    phase = manifest.get("phase")
    return {
        "word": str(phase or "not told").capitalize(),
        "tone": TONES.get(phase, "undecided"),
        "spans": [
            {**span, "steps": f"{_step(span['from_step'])} to {_step(span['to_step'])}", "colour": BANDS.get(span["phase"], "#ffffff")}
            for span in manifest["phases"]
        ],
        "figure": Markup(to_json(_figure(manifest))),
        "columns": [(role.replace("_", " "), plain(name)) for role, name in manifest["columns"].items()],
    }  # fmt: skip


def _step(step: float) -> str:
    return count(step) if step == int(step) else f"{step:g}"


def _figure(manifest: Mapping) -> dict:
    """Return the curves in panels on one step axis, on bands of the phases."""
    curves = manifest["curves"]
    panels = [panel for panel in PANELS if any(curve in curves for curve, *_ in panel[2])]
    inner = sum(height for _, height, _ in panels) + GAP * (len(panels) - 1)
    figure = layout(
        TOP + inner + BOTTOM, margin={"l": 64, "r": 20, "t": TOP, "b": BOTTOM}, shapes=_bands(manifest["phases"]),
        annotations=[], legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": 12}},
    )  # fmt: skip
    data, top = [], inner
    for number, (title, height, lines) in enumerate(panels, 1):
        suffix = "" if number == 1 else str(number)
        domain = [rounded((top - height) / inner), rounded(top / inner)]
        scale = {} if title == "loss" else {"rangemode": "tozero"}
        figure[f"yaxis{suffix}"] = axis(title, domain=domain, **scale)
        data += [_line(curves[c], name, colour, suffix) for c, name, colour in lines if c in curves]
        top -= height + GAP
    figure["xaxis"] = axis("step", anchor=f"y{suffix}")
    _mark(figure, manifest)
    return {"data": data, "layout": figure}


def _line(curve: Sequence, name: str, colour: str, suffix: str) -> dict:
    steps, values = curve
    return {
        "type": "scatter", "mode": "lines+markers" if len(steps) < 60 else "lines", "name": name, "x": steps, "y": values,
        "xaxis": "x", "yaxis": f"y{suffix}", "line": {"color": colour, "width": 2}, "marker": {"size": 5},
        "showlegend": not suffix, "hovertemplate": f"{name}<br>step %{{x}}: %{{y:.4g}}<extra></extra>",
    }  # fmt: skip


def _bands(spans: Sequence[Mapping]) -> list[dict]:
    """Return a band across all panels for each span, up to where the next begins."""
    ends = [span["from_step"] for span in spans[1:]] + [spans[-1]["to_step"]]
    return [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": span["from_step"], "x1": end, "y0": 0, "y1": 1,
         "fillcolor": BANDS[span["phase"]], "opacity": 0.13, "line": {"width": 0}, "layer": "below"}
        for span, end in zip(spans, ends, strict=True) if span["phase"] in BANDS
    ]  # fmt: skip


def _mark(figure: dict, manifest: Mapping) -> None:
    """Mark the best step, the onset of over-fitting, T_mem and the plateau."""
    overfitting, times = manifest.get("overfitting") or {}, manifest.get("times") or {}
    marks = {
        "best": (manifest.get("best") or {}).get("step"),
        "over-fitting": (overfitting.get("onset") or {}).get("step"),
        "T<sub>mem</sub>": (times.get("T_mem") or {}).get("step"),
        "T<sub>grok</sub>": (times.get("T_grok_0.99") or {}).get("step"),
    }
    # above: a grid line at the same step would hide it
    rule = {"type": "line", "layer": "above", "line": {"color": "#9aa2ab", "width": 1, "dash": "dash"}}  # fmt: skip
    middle = (manifest["phases"][0]["from_step"] + manifest["phases"][-1]["to_step"]) / 2
    for place, (name, step) in enumerate((n, s) for n, s in marks.items() if s is not None):
        # towards the middle: at the edge a label would be cut, or lie on another
        side = {"xanchor": "right", "xshift": -4} if step > middle else {"xanchor": "left", "xshift": 4}  # fmt: skip
        figure["shapes"].append({**rule, "xref": "x", "yref": "paper", "x0": step, "x1": step, "y0": 0, "y1": 1})  # fmt: skip
        figure["annotations"].append(
            note(f"{name} {_step(step)}", x=step, yref="paper", y=0.99 - 0.06 * place, **side)
        )  # fmt: skip
    level = manifest.get("plateau")
    if known(level) and any(curve in manifest["curves"] for curve, *_ in PANELS[0][2]):
        figure["shapes"].append({**rule, "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": level, "y1": level})  # fmt: skip
        figure["annotations"].append(
            note("plateau", xref="paper", x=0, xanchor="left", xshift=4, y=level, yanchor="top")
        )
