"""The page of an inspection: what its template is filled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from triplepoint.records import Record
from triplepoint.report import facts
from triplepoint.report.figures import to_json
from triplepoint.report.spectra_activations import LINEAR, dead_units, site_table, whole_numbers
from triplepoint.report.spectra_density import LIMIT, density_figure, density_view, thumbnails
from triplepoint.report.spectra_profiles import depth_figure, step_figure
from triplepoint.report.spectra_rows import ORDER, Sheet, sheets_of
from triplepoint.report.spectra_tables import change_table, matrix_table, skip_groups, unmatched
from triplepoint.report.spectra_words import CAUTION, headline

KIND = "inspect"
"""What the manifest says such a run is."""
TEMPLATE = "spectra.html.j2"


def context(manifest: Mapping, records: Sequence[Record], arrays: Mapping[str, Any]) -> dict:
    """Return what the template of an inspection needs; parts without records are empty.

    Args:
        manifest: What ``manifest.json`` holds.
        records: The run's records, in any order.
        arrays: What ``arrays.npz`` holds: the histograms of the eigenvalues.
    """
    sheets = sheets_of(manifest, records)
    word, sentence, tone = headline(sheets)
    compared = len(sheets) == 2 and sheets[0].arm is not None
    shown = sheets[-1] if sheets else None
    before = sheets[0] if compared else None
    views = _views(shown, before, arrays) if shown else []
    drawn = {view["name"] for view in views}
    return {
        "title": _title(sheets),
        "word": word,
        "sentence": sentence,
        "tone": tone,
        "caution": CAUTION,
        "order": ORDER,
        "sheets": sheets,
        "shown": shown,
        "compared": compared,
        "trajectory": len(sheets) > 1 and not compared,
        "views": views,
        "views_json": Markup(to_json(views)),
        "limit": LIMIT,
        "thumbs": [
            t for t in thumbnails(shown.notable()[:LIMIT], arrays, shown.number) if t["name"] in drawn
        ] if shown else [],
        "matrices": matrix_table(shown.notable()) if shown else None,
        "changes": change_table(before, shown) if before and shown else None,
        "unmatched": unmatched(before, shown) if before and shown else [],
        "skips": [(sheet, skip_groups(sheet)) for sheet in _told_apart(sheets)],
        "whole": whole_numbers(records),
        "sites": site_table(records),
        "dead_sites": site_table((r for r in records if r.value), LINEAR),
        "dead": dead_units(records),
        "facts": facts.facts(manifest | _model(sheets), {}),
        "figures": _figures(sheets, before, views),
    }  # fmt: skip


def _title(sheets: Sequence[Sheet]) -> str:
    if not sheets:
        return "Inspection"
    return "Two checkpoints compared" if sheets[0].arm is not None else sheets[-1].name


def _model(sheets: Sequence[Sheet]) -> dict:
    """Return what was inspected in the place where other runs have their model."""
    if not sheets:
        return {}
    last = sheets[-1]
    found: dict[str, object] = {sheet.arm or "checkpoint": sheet.name for sheet in sheets}
    found |= {"matrices": len(last.rows), "tensors_skipped": len(last.skipped)}
    if last.left_out:
        found["not_weights"] = list(last.left_out)
    return {"model": found}


def _told_apart(sheets: Sequence[Sheet]) -> list[Sheet]:
    """Return the checkpoints whose skipped tensors are listed: both of two, the last of a trajectory."""
    both = [s for s in sheets if s.arm is not None]
    return both or list(sheets[-1:])


def _views(sheet: Sheet, before: Sheet | None, arrays: Mapping[str, Any]) -> list[dict]:
    behind = None if before is None else before.number
    rows = sheet.notable()[:LIMIT]
    found = (density_view(row, arrays, sheet.number, behind) for row in rows)
    return [view for view in found if view is not None]


def _figures(
    sheets: Sequence[Sheet], before: Sheet | None, views: Sequence[Mapping]
) -> dict[str, Markup]:
    """Return the JSON of each figure that the run has numbers for, by the name of its place."""
    found = {
        "density": density_figure(views[0]) if views else None,
        "depth": depth_figure(sheets[-1], before) if sheets else None,
        "trajectory": None if before else step_figure(sheets),
    }
    return {name: Markup(to_json(figure)) for name, figure in found.items() if figure}
