"""What all figures share: fonts, axes, menus, JSON.

A figure is a plain dict in plotly's own schema, ``{"data": [...], "layout": {...}}``: no figure object is
needed to write JSON, and building one would cost more than the rest of the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from triplepoint.report.formats import known

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, GRID, EDGE = "#22262b", "#5b636d", "#e9ebee", "#b9bfc6"
POINTS = 400
"""Points of a drawn line; more cannot be told apart at the width of a page."""


def to_json(figure: Mapping) -> str:
    """Return the JSON of a figure, safe inside a script element."""
    text = json.dumps(figure, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def rounded(value: float | None) -> float | None:
    """Return ``value`` with five digits, None where JSON has no number for it.

    Example:
        >>> rounded(3.14159265), rounded(float("inf"))
        (3.1416, None)
    """
    return float(f"{value:.5g}") if known(value) else None


def escaped(text: str) -> str:
    """Return ``text`` so that plotly shows it as it is: it reads a few tags and ``%{...}`` in texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def axis(title: str = "", **more: object) -> dict:
    """Return an axis in the page's style."""
    style = {
        "title": {"text": title, "standoff": 10, "font": {"size": 13}},
        "gridcolor": GRID, "zeroline": False, "linecolor": EDGE, "ticks": "outside",
        "tickcolor": EDGE, "ticklen": 4, "automargin": True,
    }  # fmt: skip
    return {**style, **more}


def layout(height: int, **more: object) -> dict:
    """Return a layout in the page's style."""
    style = {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "margin": {"l": 64, "r": 36, "t": 64, "b": 52},
        "hovermode": "closest",
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "bgcolor": "#ffffff"},
        "modebar": {"orientation": "v", "bgcolor": "rgba(255,255,255,0)", "color": "#c9ced4"},
    }
    return {**style, **more}


def menu(buttons: list[dict], *, kind: str = "buttons", active: int = 0) -> dict:
    """Return a row of buttons or a dropdown at the top right of a figure."""
    return {
        "type": kind, "direction": "right" if kind == "buttons" else "down", "active": active,
        "buttons": buttons, "showactive": True, "x": 1, "xanchor": "right", "y": 1,
        "yanchor": "bottom", "pad": {"b": 30, "t": 0}, "bgcolor": "#ffffff",
        "bordercolor": "#c9ced4", "font": {"size": 12},
    }  # fmt: skip


def note(text: str, **more: object) -> dict:
    """Return an annotation without arrow."""
    return {"text": text, "showarrow": False, "font": {"size": 12, "color": MUTED}, **more}
