"""The page of a map: what its template is filled with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from triplepoint.records import Record
from triplepoint.report import facts
from triplepoint.report import formats as as_
from triplepoint.report import map_tables as tables
from triplepoint.report.figures import to_json
from triplepoint.report.map_axes import axis_panel, legend_of
from triplepoint.report.map_curves import colour_of, curve_frame, curves_of, views_of
from triplepoint.report.map_panels import (
    GRADIENTS,
    SYMBOLS,
    colour_limit,
    difference_panel,
    saturation_panel,
    scale_ticks,
)
from triplepoint.report.map_rows import Candidate, Row, candidates_of, told
from triplepoint.report.map_scatter import scatter_panel
from triplepoint.report.map_words import headline, missing_of, progress, sentence_of
from triplepoint.report.tables import ENDPOINTS
from triplepoint.runs import read_arrays, read_json, read_rows

KIND = "map"
"""What the manifest says such a run is."""
TEMPLATE = "map.html.j2"
TABLE, SUMMARY, ARRAYS = "table.parquet", "summary.json", "arrays.npz"
PARAMETERS = "params_no_positions"
"""The P of T/P, where the manifest does not say it."""
CONVENTIONS = {
    "params_no_positions": "all parameters but learned positions, tied ones counted once",
    "params_total": "all parameters, tied ones counted once",
    "params_non_embedding": "neither positions nor token embeddings",
}
Figures = dict[str, Markup]


def read(folder: Path) -> dict:
    """Return what a map's folder holds besides the manifest: ``rows``, ``summary`` and the curves.

    Any of the files may be missing: a map that has only begun has a manifest only.
    """
    arrays = read_arrays(folder / ARRAYS) if (folder / ARRAYS).exists() else {}
    rows = read_rows(folder / TABLE) if (folder / TABLE).exists() else []
    summary = read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else {}
    return {**arrays, "rows": rows, "summary": summary}


def context(manifest: Mapping, records: Sequence[Record], arrays: Mapping) -> dict:
    """Return what the template of a map needs; parts without numbers are empty.

    Args:
        manifest: What ``manifest.json`` holds.
        records: Of no use here: a map's numbers are in its table.
        arrays: What :func:`read` returns.
    """
    rows, summary = arrays.get("rows") or [], arrays.get("summary") or {}
    parameters = str(manifest.get("parameters") or PARAMETERS)
    cells = [row for row in rows if row.get("row") == "cell"]
    candidates = candidates_of(rows, parameters)
    effects = [e for c in candidates for e in c.effects]
    limit = colour_limit(effects, tables.ORDER)
    views = views_of(candidates, curves_of(cells, arrays), cells)
    figures: Figures = {}
    maps = [_map_of(i, c, limit, views, figures, cells) for i, c in enumerate(candidates)]
    missing = missing_of(manifest, cells)
    rates = summary.get("collapse_rates") or []
    word, tone = headline(candidates)
    correlations = tables.correlations_of(candidates)
    return {
        "title": str(manifest.get("name") or "Map"), "word": word, "tone": tone,
        "sentences": [sentence_of(c) for c in candidates], "candidates": candidates, "cells": len(cells),
        "progress": progress(manifest, len(cells), missing), "missing": missing, "maps": maps,
        "ticks": scale_ticks(limit), "gradients": GRADIENTS, "symbols": SYMBOLS, "limit": f"{100 * limit:.3g}{as_.NBSP}%",
        "convention": f"{parameters}: {CONVENTIONS.get(parameters, 'as the table counts')}",
        "scatters": list(_scatters(candidates, figures)), "correlations": tables.correlation_table(correlations),
        "slopes": tables.slope_table(summary.get("size_slopes") or []),
        "lines": list(_lines(candidates, figures)),
        "arm_rates": tables.rate_table(rates, "arm"), "cell_rates": tables.rate_table(rates, "cell"),
        "effects": tables.effect_table(candidates), "pairs": tables.pair_table(candidates),
        "facts": facts.facts(manifest, {}), "plan": _plan(manifest), "colours": list(map(colour_of, range(len(candidates)))),
        "figures": figures, "views": Markup(to_json(views)) if views["effects"] else None,
    }  # fmt: skip


def _map_of(
    number: int, candidate: Candidate, limit: float, views: Mapping, figures: Figures, cells: Sequence[Row]
) -> dict:  # fmt: skip
    """Draw a candidate's diagrams into ``figures``; return the names of its places."""
    drawn = []
    for place, (values, effects) in enumerate(candidate.slices()):
        # one cell is no diagram, unless there is no other
        if place and len(effects) < 2:
            continue
        panels = []
        for endpoint in tables.ORDER:
            panel = difference_panel(effects, endpoint, limit)
            panels += _put(
                figures, f"phase_{number}_{place}_{endpoint}", panel, ENDPOINTS[endpoint]
            )
        sentence = as_.listed(list(map(told, values)))
        drawn.append({"says": sentence, "cells": len(effects), "panels": panels})
    (_, main), *_ = candidate.slices()
    saturation = []
    for column, when in tables.SATURATIONS.items():
        panel = saturation_panel(main, column)
        saturation += _put(figures, f"saturation_{number}_{column}", panel, (when.capitalize(), ""))
    known = [e for e in candidate.effects if e.number in views["effects"]]
    if known:
        figures[f"curves_{number}"] = Markup(to_json(curve_frame(number, _unit(cells))))
    return {
        "candidate": candidate, "slices": drawn, "saturation": saturation, "pickable": known,
        "curves": f"curves_{number}" if known else None,
    }  # fmt: skip


def _put(figures: Figures, name: str, figure: dict | None, words: tuple[str, str]) -> list[tuple]:
    """Keep a figure under a name; return (name, heading, note), or nothing where there is no figure."""
    if figure is None:
        return []
    figures[name] = Markup(to_json(figure))
    return [(name, *words)]


def _unit(cells: Sequence[Row]) -> str:
    images = cells and all(row.get("family") == "vit" for row in cells)
    return "nats per image" if images else "nats per token"


def _scatters(candidates: Sequence[Candidate], figures: Figures) -> Iterator[tuple]:
    for column in tables.SATURATIONS:
        for endpoint in ("fixed_step", "best_checkpoint"):
            panel = scatter_panel(candidates, column, endpoint)
            yield from _put(figures, f"scatter_{column}_{endpoint}", panel, ENDPOINTS[endpoint])


def _lines(candidates: Sequence[Candidate], figures: Figures) -> Iterator[dict]:
    """Yield the panels of each candidate and second axis that has lines."""
    for number, candidate in enumerate(candidates):
        for name in candidate.axes:
            panels = []
            for endpoint in tables.ORDER:
                panel = axis_panel(candidate, name, endpoint)
                panels += _put(figures, f"axis_{number}_{name}_{endpoint}", panel, ENDPOINTS[endpoint])  # fmt: skip
            if panels:
                heading = f"{candidate.name}: {told((name, '')).removesuffix(as_.DASH).strip()}"
                yield {"heading": heading, "panels": panels, "legend": legend_of(candidate, name)}


def _plan(manifest: Mapping) -> list[tuple[str, str]]:
    """Return the plan of the map as (entry, value)."""
    plan = (manifest.get("asked") or {}).get("plan") or {}
    told = {name: as_.plain(value) for name, value in plan.items() if value not in (None, [], {}, "")}  # fmt: skip
    return [(name.replace("_", " "), text) for name, text in told.items() if name != "name"]
